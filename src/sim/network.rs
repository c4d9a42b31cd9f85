//! Links between simulated peers: latency, jitter, loss, partitions, and rates for bulk bytes.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    base::{Digest, Stream, Time},
    sim::scenario::NetworkPart,
};

/// All links.
#[derive(Clone)]
pub(super) struct Network {
    config: NetworkPart,
    seed: Digest,
    stream: Stream,
    /// Peers that are cut off from the others; they reach each other.
    island: BTreeSet<usize>,
    /// Until when a peer's uplink and downlink are taken by bulk bytes.
    busy: Vec<(Time, Time)>,
}

impl Network {
    /// A network of a seed.
    pub(super) fn new(seed: Digest, config: NetworkPart) -> Self {
        let stream = Stream::new(&seed, "network");
        Self { config, seed, stream, island: BTreeSet::new(), busy: Vec::new() }
    }

    /// Whether bytes pass between two peers.
    pub(super) fn connected(&self, a: usize, b: usize) -> bool {
        self.island.contains(&a) == self.island.contains(&b)
    }

    /// Cuts peers off from the rest.
    pub(super) fn cut(&mut self, peers: &[usize]) {
        self.island = peers.iter().copied().collect();
    }

    /// All links work again.
    pub(super) fn heal(&mut self) {
        self.island.clear();
    }

    /// One-way latency of a link, without jitter; the same in both directions.
    pub(super) fn latency(&self, a: usize, b: usize) -> Duration {
        let (low, high) = (a.min(b), a.max(b));
        let mut stream = Stream::new(&self.seed, &format!("link {low} {high}"));
        let [least, most] = self.config.latency_ms;
        millis(least + (most - least) * stream.unit_f64())
    }

    /// How long a control message takes, or `None` if it is lost.
    pub(super) fn deliver(&mut self, from: usize, to: usize) -> Option<Duration> {
        let lost = self.stream.unit_f64() < self.config.loss;
        let jitter = millis(self.config.jitter_ms * self.stream.unit_f64());
        (!lost && self.connected(from, to)).then(|| self.latency(from, to) + jitter)
    }

    /// When bulk bytes that start now have arrived. A peer's flows share its up- and downlink one
    /// after the other.
    pub(super) fn transfer(&mut self, now: Time, from: usize, to: usize, bytes: u64) -> Time {
        let bits = bytes as f64 * self.config.scale_bytes * 8.0;
        let up = Duration::from_secs_f64(bits / (self.config.up_mbit * 1e6));
        let down = Duration::from_secs_f64(bits / (self.config.down_mbit * 1e6));
        let most = from.max(to) + 1;
        if self.busy.len() < most {
            self.busy.resize(most, (Time::ZERO, Time::ZERO));
        }
        let sent = self.busy[from].0.max(now) + up;
        self.busy[from].0 = sent;
        let start = self.busy[to].1.max(now);
        let received = (start + down).max(sent);
        self.busy[to].1 = received;
        received + self.latency(from, to)
    }

    /// A draw for whatever the world leaves to chance.
    pub(super) fn chance(&mut self) -> f64 {
        self.stream.unit_f64()
    }
}

/// A duration of so many milliseconds.
pub(super) fn millis(value: f64) -> Duration {
    Duration::from_secs_f64(value / 1e3)
}
