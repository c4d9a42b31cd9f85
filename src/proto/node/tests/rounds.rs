//! Rounds that go well.

use std::time::Duration;

use super::{super::*, table::Table};

#[test]
fn a_lone_founder_goes_through_a_round_by_itself() {
    let mut table = Table::new(1);
    assert_eq!(table.take(0), ["start 1"]);
    table.train(0, 9);
    assert!(table.take(0).is_empty());
    table.train(0, 10);
    let wanted = [
        "freeze 1 then Some(2)",
        "gossip propose",
        "promise 0",
        "prepare 1.0",
        "gossip start",
        "run 1.0",
        "vote 0",
        "gossip committed",
        "commit 1",
        "fold 1",
    ];
    assert_eq!(table.take(0), wanted);
    assert_eq!(table.rounds(), [1]);
}

#[test]
fn a_lone_founder_finishes_after_the_header_that_binds_the_last_root() {
    let mut table = Table::new(1);
    for _ in 0..4 {
        table.train(0, 10);
    }
    assert_eq!(table.rounds(), [5]);
    let seen = table.take(0);
    assert!(seen.contains(&"skip 5.0".to_owned()));
    assert_eq!(seen.iter().filter(|name| *name == "finished").count(), 1);
    assert!(table.nodes[0].poll_timeout().is_some(), "it goes on telling where it stands");
}

#[test]
fn three_nodes_commit_the_same_headers() {
    let mut table = Table::new(3);
    for round in 1..=3 {
        table.train_all();
        table.wait(Duration::from_secs(4));
        assert_eq!(table.rounds(), [round; 3]);
        let heads: Vec<Digest> = table.nodes.iter().map(|node| node.head().digest()).collect();
        assert!(heads.iter().all(|head| *head == heads[0]));
    }
    assert_eq!(table.nodes[0].head().members.len(), 3);
}

#[test]
fn who_has_trained_nothing_yet_is_not_waited_for_beyond_the_grace() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    assert_eq!(table.rounds(), [1; 3]);
    table.train(0, 10);
    table.train(1, 10);
    table.wait(Duration::from_millis(500));
    assert_eq!(table.rounds(), [1; 3]);
    table.wait(Duration::from_secs(8));
    assert_eq!(table.rounds(), [2; 3]);
    assert!(table.nodes[2].head().position(table.id(2)).is_none());
}

#[test]
fn closing_freezes_whoever_has_a_sequence() {
    let mut table = Table::new(3);
    table.train_all();
    table.wait(Duration::from_secs(4));
    table.train(0, 10);
    table.train(1, 10);
    table.train(2, 1);
    table.wait(Duration::from_secs(8));
    assert_eq!(table.rounds(), [2; 3]);
    assert!(table.nodes[2].head().position(table.id(2)).is_some());
}
