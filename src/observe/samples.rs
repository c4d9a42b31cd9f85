//! One of each event, for tests.

use crate::{
    base::{Digest, NodeId, RunId},
    observe::{DemoResult, Event},
};

const RUN: RunId = RunId([1; 32]);
const NODE: NodeId = NodeId([2; 32]);
const ROOT: Digest = Digest([3; 32]);

fn text(text: &str) -> String {
    text.to_owned()
}

/// One of each.
pub(crate) fn samples() -> Vec<Event> {
    [life(), training(), demo()].concat()
}

fn life() -> Vec<Event> {
    vec![
        Event::Started {
            node_id: NODE,
            peer_id: text("12D3KooWx"),
            role: text("node"),
            run_id: None,
            listen: vec![text("/ip4/127.0.0.1/tcp/7450/p2p/12D3KooWx")],
            join_command: text("dilocox-node --bootstrap /ip4/127.0.0.1/tcp/7450/p2p/12D3KooWx"),
            http: None,
            data_dir: text("/tmp/node"),
            version: text("0.1.0"),
        },
        Event::Waiting { what: text("a run"), seconds: 3.0, remedy: text("found one with --run") },
        Event::BootstrapUnreachable {
            address: text("/ip4/192.0.2.7/tcp/7450/p2p/12D3KooWx"),
            error: text("connection refused"),
            attempts: 3,
            retry_seconds: 4.0,
            remedy: text("check that it runs"),
        },
        Event::Founded { run_id: RUN, name: text("stories"), parameters: 1_000_000, rounds: 30 },
        Event::Resumed {
            run_id: RUN,
            name: text("stories"),
            round: 7,
            parameters: 1_000_000,
            rounds: 30,
        },
        Event::SyncProgress { round: 0, target_round: 9, bytes: 10, total_bytes: 20, donors: 2 },
        Event::Joined {
            run_id: RUN,
            name: text("stories"),
            round: 9,
            members: 3,
            parameters: 1_000_000,
            rounds: 30,
            seconds: 1.5,
            bytes: 20,
        },
        Event::PeerJoined { peer: NODE, live: 2 },
        Event::PeerLeft { peer: NODE, reason: text("silent"), live: 1 },
        Event::Stuck {
            phase: text("accepting"),
            missing: text("an answer of 12D3KooWx"),
            seconds: 12.0,
            remedy: text("none needed"),
        },
        Event::Warning { what: text("the disk is full"), remedy: text("free 1.0 GB") },
        Event::EventsDropped { steps: 5, others: 0 },
        Event::Finished {
            run_id: RUN,
            round: 30,
            state_root: ROOT,
            validation_loss: Some(1.5),
            bytes_sent: 10,
            bytes_received: 11,
            train_seconds: 60.0,
            stall_seconds: 1.0,
        },
        Event::Stopped { reason: text("signal"), round: 7 },
    ]
}

fn training() -> Vec<Event> {
    vec![
        Event::Step {
            round: 1,
            step: 3,
            local_steps: 10,
            loss: 4.2,
            gradient_norm: 1.1,
            learning_rate: 1e-3,
            tokens: 512,
            seconds: 0.1,
        },
        Event::Exchange {
            round: 1,
            members: 3,
            attempt: 0,
            bytes_sent: 900_000,
            bytes_received: 900_000,
            dense_bytes: 5_333_333,
            local_steps: 10,
            seconds: 0.4,
        },
        Event::Committed {
            round: 1,
            members: 3,
            state_root: ROOT,
            cumulative_weight: 120,
            replayed: false,
        },
        Event::Validated { round: 0, validation_loss: 5.6, seconds: 0.2 },
        Event::Round {
            round: 1,
            loss: 4.1,
            validation_loss: Some(4.0),
            validated_round: Some(0),
            local_steps: 10,
            tokens: 5120,
            train_seconds: 1.0,
            stall_seconds: 0.0,
            utilization: 1.0,
        },
        Event::Missed { round: 1, reason: text("the exchange had closed") },
        Event::DataSkipped { round: 1, sequences: 12, reason: text("the lease was longer") },
        Event::Snapshot { round: 16, bytes: 12_000_000, seconds: 0.1 },
        Event::Generated { round: 1, prompt: text("Once"), text: text(" upon a time") },
    ]
}

fn demo() -> Vec<Event> {
    vec![
        Event::DemoStarted { node: text("node-1"), pid: 4242 },
        Event::DemoKilled { node: text("node-1"), round: 10 },
        Event::DemoResult(DemoResult {
            nodes: 4,
            rounds: 30,
            first_loss: Some(5.6),
            last_loss: Some(1.5),
            state_roots_equal: true,
            roots_compared: 100,
            bytes_per_node_per_round: 900_000.0,
            compression_ratio: Some(59.0),
            utilization: 0.99,
        }),
    ]
}
