//! What a node must not forget, and what it must not do twice.

use std::time::Duration;

use super::{super::*, table::Table};

/// Three members of round 1 that have accepted the plan of 2.0 and run nothing yet.
fn accepted() -> Table {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.held.insert("run");
    table.train_all();
    table.wait(Duration::from_millis(200));
    assert!(table.nodes.iter().all(|node| node.ballot.promised == Some(0)));
    table
}

#[test]
fn a_restarted_node_is_through_with_the_attempt_that_it_had_promised() {
    let mut table = accepted();
    let plan = table.nodes[1].ballot.accepted.clone().unwrap().plan;
    let author = table.nodes.iter().position(|node| node.ballot.proposed.contains(&0)).unwrap();
    let other = (author + 1) % 3;
    let memory = Memory { promised: Some((2, 0)), signed: None, frozen: table.nodes[other].frozen };
    table.restart(other, memory);
    table.take(other);
    table.say(author, other, Message::Propose((*plan).clone()));
    let seen = table.take(other);
    assert!(!seen.iter().any(|name| name.starts_with("prepare")), "{seen:?}");
    assert_eq!(table.nodes[other].ballot.attempt, 1);
}

#[test]
fn adopting_the_own_head_again_forgets_no_promise() {
    let mut table = accepted();
    let head = table.nodes[0].head().clone();
    let root = table.nodes[0].head_root().unwrap();
    let now = table.now;
    table.nodes[0].adopt(now, &[head], root);
    assert_eq!(table.nodes[0].ballot.promised, Some(0));
    assert_eq!(table.nodes[0].ballot.attempt, 1);
}

#[test]
fn a_signed_header_is_proposed_again_unchanged_without_a_ring() {
    let mut table = accepted();
    // Node 0 signs; nobody hears it, and its ring is said to have failed everywhere else.
    table.held.insert("send voted");
    let key = (2, 0);
    let plan = table.nodes[0].ballot.accepted.clone().unwrap().plan;
    let now = table.now;
    table.nodes[0].handle_ring_finished(now, key, &super::table::result(&plan));
    table.settle();
    let signed = table.nodes[0].ballot.signed.clone().unwrap();
    table.held.clear();
    table.held.insert("run");
    for index in [1, 2] {
        table.nodes[index].handle_ring_failed(now, key, None, "test".to_owned());
    }
    table.wait(Duration::from_secs(20));
    assert_eq!(table.rounds(), [2; 3]);
    assert!(table.nodes.iter().all(|node| node.head() == &signed.header));
}

#[test]
fn a_signed_header_whose_voters_are_gone_blocks_nobody_for_ever() {
    let mut table = Table::new(5);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.held.extend(["run", "send voted", "gossip header"]);
    table.train_all();
    table.wait(Duration::from_millis(200));
    let plan = table.nodes[0].ballot.accepted.clone().unwrap().plan;
    let now = table.now;
    table.nodes[0].handle_ring_finished(now, (2, plan.attempt), &super::table::result(&plan));
    table.settle();
    assert!(table.nodes[0].ballot.signed.is_some());
    table.deaf.extend([2, 3, 4]);
    table.held.clear();
    for index in [0, 1] {
        let link = table.id(2);
        let now = table.now;
        table.nodes[index].handle_link_lost(now, link);
        table.nodes[index].handle_ring_failed(now, (2, 0), None, "test".to_owned());
    }
    table.wait(Duration::from_secs(60));
    assert_eq!(table.rounds()[..2], [2, 2]);
}

#[test]
fn a_plan_that_comes_before_the_root_waits_for_it() {
    let mut table = Table::new(2);
    table.train_all();
    table.wait(Duration::from_secs(4));
    assert_eq!(table.rounds(), [1, 1]);
    table.train_all();
    table.wait(Duration::from_millis(1));
    let mut table = Table::new(2);
    table.train_all();
    table.wait(Duration::from_secs(4));
    let root = table.nodes[1].head_root.take().unwrap();
    table.train_all();
    table.wait(Duration::from_millis(200));
    let node = &table.nodes[1];
    assert!(node.ballot.accepted.is_none() && node.ballot.refused_links.is_empty());
    let now = table.now;
    table.nodes[1].handle_root(now, 1, root);
    table.wait(Duration::from_secs(8));
    assert_eq!(table.rounds(), [2, 2]);
}

#[test]
fn the_body_of_a_reported_header_is_fetched_even_if_the_own_ring_ran_when_it_was_heard_of() {
    let mut table = accepted();
    let plan = table.nodes[1].ballot.accepted.clone().unwrap().plan;
    let head = table.nodes[1].head().clone();
    let header = Header { body: Digest([9; 32]), ..signable(&plan, &head) };
    let author = table.nodes.iter().position(|node| node.ballot.proposed.contains(&0)).unwrap();
    let other = (author + 1) % 3;
    let signed = crate::wire::SignedHeader { attempt: 0, header: header.clone() };
    table.take(other);
    table.say(author, other, Message::HeaderProposed(Box::new(signed.clone())));
    assert!(!table.take(other).contains(&"fetch 2".to_owned()), "its ring may still make it");
    table.held.extend(["fetch", "gossip"]);
    let now = table.now;
    table.nodes[other].handle_ring_failed(now, (2, 0), None, "test".to_owned());
    table.say(author, other, Message::HeaderProposed(Box::new(signed)));
    assert!(table.take(other).contains(&"fetch 2".to_owned()));
}

fn signable(plan: &crate::wire::Plan, head: &Header) -> Header {
    Header {
        round: plan.round,
        parent: plan.parent,
        voters: plan.voters,
        members: plan.members.clone(),
        guests: plan.guests.clone(),
        cursor: plan.cursor,
        root_before: plan.root_before,
        ..head.clone()
    }
}
