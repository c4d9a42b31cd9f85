//! What an exchange costs on a limited link: with `on_arrival` it hides behind training, with
//! `none` everybody waits for it.
//!
//! Nothing here depends on how fast the machine is: a run without a limit gives the seconds of a
//! segment and the bytes of an exchange, the limit follows from both, and only shares of time are
//! compared.

use crate::harness::{Entry, Id, Network, Recipe};

/// Share of a segment that an exchange is to take.
const SHARE: f64 = 0.8;
/// Bytes that a limit lets pass at once after a pause.
const BURST: f64 = 16.0 * 1024.0;
/// Calibrations, on a machine whose load changes.
const ATTEMPTS: usize = 3;
/// Rounds that are measured, behind those in which the nodes find each other.
const ROUNDS: u64 = 6;

/// A model so large that its exchange outweighs all that two nodes say otherwise.
fn recipe(overlap: &str) -> Recipe {
    Recipe::tiny()
        .set("hidden_size", 96)
        .set("intermediate_size", 256)
        .set("layers", 2)
        .set("local_steps", 120)
        .set("overlap", format!("\"{overlap}\""))
}

/// Train and stall seconds of rounds, and what their exchanges were like.
struct Measured {
    train: f64,
    stall: f64,
    segment: f64,
    bytes: f64,
    exchange: f64,
}

/// Two nodes train with a limit on what each sends; their rounds once both are in.
fn measure(name: &str, overlap: &str, flags: &[&str]) -> Measured {
    let mut network = Network::new(name);
    network.bootstrap(&[]);
    let founder = network.found(&recipe(overlap), flags);
    network.joined(founder);
    let second = network.join(flags);
    let start = network.beginning();
    // The first exchange of both and the segment that ran beside it are not like the others.
    let first = network.exchanges(start, second, 2).number("round") + 2;
    for id in [founder, second] {
        let done = |entry: &Entry| entry.is("exchange") && entry.number("round") >= first + ROUNDS;
        network.wait_for(id, &format!("the exchange of round {}", first + ROUNDS), done);
    }
    let mut sums = Measured { train: 0.0, stall: 0.0, segment: 0.0, bytes: 0.0, exchange: 0.0 };
    for id in [founder, second] {
        add(&mut sums, &network, id, first);
    }
    let per_exchange = 2.0 * ROUNDS as f64;
    sums.segment = sums.train / per_exchange;
    sums.bytes /= per_exchange;
    sums.exchange /= per_exchange;
    eprintln!(
        "{name}: {:.0} % stall, segment {:.2} s, exchange {:.2} s, {:.0} bytes",
        100.0 * sums.stall / (sums.train + sums.stall),
        sums.segment,
        sums.exchange,
        sums.bytes
    );
    sums
}

fn add(sums: &mut Measured, network: &Network, id: Id, first: u64) {
    for entry in network.said(id) {
        if !(first..first + ROUNDS).contains(&entry.number("round")) {
            continue;
        }
        if entry.is("round") {
            sums.train += entry.seconds("train_seconds");
            sums.stall += entry.seconds("stall_seconds");
        } else if entry.is("exchange") {
            sums.bytes += entry.seconds("bytes_sent");
            sums.exchange += entry.seconds("seconds");
        }
    }
}

/// The `--upload-limit` with which an exchange takes its share of a segment.
fn limit(bytes: f64, segment: f64) -> String {
    format!("{}bit", (8.0 * (bytes - BURST) / (SHARE * segment)) as u64)
}

fn share(measured: &Measured) -> f64 {
    measured.stall / (measured.train + measured.stall)
}

#[test]
fn an_exchange_of_most_of_a_segment_is_hidden_on_arrival_and_waited_for_without_overlap() {
    let mut last = measure("overlap-free", "none", &[]);
    // Other work on the machine changes the length of a segment from one network to the next.
    for attempt in 1..=ATTEMPTS {
        let limit = limit(last.bytes, last.segment);
        let flags = ["--upload-limit", limit.as_str()];
        let none = measure("overlap-none", "none", &flags);
        let taken = none.exchange / none.segment;
        if !(0.75..1.2).contains(&taken) {
            assert!(attempt < ATTEMPTS, "an exchange takes {taken:.2} of a segment at {limit}");
            last = none;
            continue;
        }
        assert!(share(&none) > 0.4, "without overlap {:.3} of the time is stall", share(&none));
        let hidden = measure("overlap-on-arrival", "on_arrival", &flags);
        assert!(share(&hidden) < 0.05, "on arrival {:.3} of the time is stall", share(&hidden));
        return;
    }
}
