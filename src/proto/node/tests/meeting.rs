//! Nodes in different attempts meet again.

use std::time::Duration;

use super::{super::*, table::Table};
use crate::wire::Ready;

fn ready(table: &Table, attempt: u8) -> Message {
    Message::Ready(Ready {
        round: table.nodes[0].head().round + 1,
        attempt,
        parent: table.nodes[0].head().digest(),
        weight: 40,
        size: 1,
        feedback: 1,
        blame: None,
    })
}

#[test]
fn a_free_node_follows_to_a_higher_attempt_and_says_so_to_everybody() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.held.insert("send ready");
    table.train(0, 10);
    table.take(0);
    let message = ready(&table, 3);
    table.say(1, 0, message);
    assert_eq!(table.nodes[0].ballot.attempt, 3);
    assert!(table.take(0).contains(&"gossip ready".to_owned()));
}

#[test]
fn a_running_attempt_is_not_left() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.held.insert("run");
    table.train_all();
    table.wait(Duration::from_millis(200));
    let message = ready(&table, 3);
    table.say(1, 0, message);
    assert_eq!(table.nodes[0].ballot.attempt, 0);
}

#[test]
fn after_a_failed_ring_everybody_is_in_the_next_attempt_at_once() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.held.insert("run 2.0");
    table.train_all();
    table.wait(Duration::from_millis(200));
    let now = table.now;
    table.nodes[1].handle_ring_failed(now, (2, 0), None, "test".to_owned());
    table.wait(Duration::from_millis(300));
    assert_eq!(table.rounds(), [2; 3]);
}

#[test]
fn attempts_do_not_end_at_a_small_number() {
    let mut table = Table::new(1);
    table.held.insert("prepare");
    table.train(0, 10);
    for attempt in 0..8 {
        let now = table.now;
        table.nodes[0].handle_ring_failed(now, (1, attempt), None, "test".to_owned());
        table.wait(Duration::from_secs(10));
    }
    assert_eq!(table.rounds(), [1], "from the eighth attempt on nothing is exchanged");
}

#[test]
fn a_freeze_that_a_commit_overtakes_goes_on_in_the_open_round() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.held.insert("freeze 2");
    table.train(2, 10);
    table.held.clear();
    table.train(0, 10);
    table.train(1, 10);
    table.wait(Duration::from_secs(8));
    assert_eq!(table.rounds(), [2; 3]);
    let now = table.now;
    let frozen = Frozen { round: 2, weight: 40, size: 1, feedback: 1 };
    table.nodes[2].handle_frozen(now, Some(frozen));
    assert_eq!(table.nodes[2].segment.round, 3);
    assert!(table.nodes[2].frozen.is_none());
    table.train_all();
    table.wait(Duration::from_secs(4));
    assert_eq!(table.rounds(), [3; 3]);
    assert!(table.nodes[0].head().position(table.id(2)).is_some());
}
