//! Several nodes, one state after every round, to the end of the run.

use std::time::Duration;

use crate::harness::{Id, Network, Recipe};

const ROUNDS: u64 = 20;

#[test]
fn three_nodes_agree_on_every_root_and_finish() {
    let mut network = Network::new("agree");
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny().set("rounds", ROUNDS), &[]);
    let (second, third) = (network.join(&[]), network.join(&[]));
    let all = [founder, second, third];
    let start = network.beginning();
    for id in all {
        let joined = network.joined(id);
        let early = joined.number("round") < ROUNDS / 2;
        network.ensure(early, "everybody joins in the first half of the run");
        network.exchanges(start, id, 3);
    }
    let finished = all.map(|id| network.wait_for(id, "`finished`", |entry| entry.is("finished")));
    let (first, others) = finished.split_first().expect("three");
    for entry in others {
        for field in ["round", "state_root", "run_id", "validation_loss"] {
            assert_eq!(entry.event[field], first.event[field], "`finished`, {field}");
        }
    }
    for id in all {
        let status = network.exit(id, Duration::from_secs(70));
        network.ensure(status.success(), "a finished node exits with 0");
    }
    all_rounds_compared(&network, founder, &[second, third]);
}

/// Every round of the founder was compared with everybody who lived in it; whoever joined before
/// the first snapshot has replayed what was before.
fn all_rounds_compared(network: &Network, founder: Id, others: &[Id]) {
    for round in 1..=ROUNDS {
        let root = network.root(founder, round);
        network.ensure(root.is_some(), "the founder has a root after every round");
        for &other in others {
            let fault = format!("after round {round} not everybody has the founder's root");
            network.ensure(network.root(other, round) == root, &fault);
        }
    }
}
