//! Leaving, finishing, and the death of others.

use std::time::Duration;

use super::{super::*, table::Table};

#[test]
fn who_has_nothing_to_contribute_leaves_at_once() {
    let mut table = Table::new(2);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.take(1);
    let now = table.now;
    table.nodes[1].leave(now, Duration::from_secs(10));
    table.settle();
    assert_eq!(table.take(1), ["gossip goodbye", "left"]);
}

#[test]
fn who_is_ready_leaves_after_its_exchange() {
    let mut table = Table::new(2);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.train(1, 10);
    let now = table.now;
    table.nodes[1].leave(now, Duration::from_secs(10));
    table.settle();
    assert!(!table.take(1).contains(&"left".to_owned()));
    table.train(0, 10);
    table.wait(Duration::from_secs(2));
    assert_eq!(table.rounds(), [2, 2]);
    assert_eq!(table.take(1).last().unwrap(), "left");
    assert!(table.nodes[0].head().position(table.id(1)).is_some());
}

#[test]
fn a_leave_ends_with_its_grace() {
    let mut table = Table::new(2);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.train(1, 10);
    let now = table.now;
    table.nodes[1].leave(now, Duration::from_secs(3));
    table.deaf.insert(0);
    table.wait(Duration::from_millis(3100));
    assert_eq!(table.take(1).last().unwrap(), "left");
}

#[test]
fn the_last_one_alive_goes_on_when_the_presence_of_the_others_has_expired() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.deaf.extend([0, 1]);
    table.train(2, 10);
    table.wait(Duration::from_secs(15));
    assert_eq!(table.rounds()[2], 2);
    assert_eq!(table.nodes[2].head().members.len(), 1);
}

#[test]
fn a_node_that_adopts_the_last_header_is_finished() {
    let mut table = Table::new(1);
    for _ in 0..4 {
        table.train(0, 10);
    }
    let head = table.nodes[0].head().clone();
    let mut late = table.fresh(0, 2);
    late.adopt(table.now, &[head], Digest([0; 32]));
    let effects: Vec<Effect> = std::iter::from_fn(|| late.poll_effect()).collect();
    assert!(effects.contains(&Effect::Finished));
    assert!(late.poll_timeout().is_some());
}

#[test]
fn a_goodbye_of_a_voter_that_was_never_heard_counts() {
    let mut table = Table::new(2);
    table.train_all();
    table.wait(Duration::from_secs(4));
    assert_eq!(table.nodes[1].head().members.len(), 2);
    table.deaf.insert(1);
    table.restart(0, Memory::default());
    table.deaf.clear();
    assert_eq!(table.nodes[0].voters().len(), 2);
    table.say(1, 0, Message::Goodbye);
    assert_eq!(table.nodes[0].voters().len(), 1);
}

#[test]
fn when_the_author_of_a_plan_for_itself_alone_dies_the_others_go_on() {
    let mut table = Table::new(3);
    table.held.insert("prepare");
    table.train(0, 10);
    table.deaf.insert(0);
    table.held.clear();
    table.train(1, 10);
    table.train(2, 10);
    table.wait(Duration::from_secs(15));
    assert_eq!(table.rounds()[1..], [1, 1]);
}

#[test]
fn a_committed_round_whose_only_holder_dies_is_opened_again() {
    let mut table = Table::new(3);
    table.held.insert("fetch");
    table.train(0, 10);
    table.wait(Duration::from_secs(4));
    assert!(table.nodes[1].waiting_for().contains("body"), "{}", table.nodes[1].waiting_for());
    assert!(!table.take(1).contains(&"commit 1".to_owned()), "not before its body is here");
    table.deaf.insert(0);
    table.held.clear();
    table.train(1, 10);
    table.train(2, 10);
    table.wait(Duration::from_secs(15));
    assert_eq!(table.rounds()[1..], [1, 1]);
    assert_ne!(table.nodes[1].head().digest(), table.nodes[0].head().digest());
}
