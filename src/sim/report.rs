//! What a simulated run came to, for people and as JSON.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde::Serialize;

use crate::{
    base::{Digest, Round, Time},
    sim::world::World,
    wire::{Certificate, Header},
};

/// What the world counts while it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Events.
    pub(super) events: u64,
    /// Inner steps done.
    pub(super) steps: u64,
    /// Segments that had to pause at their cap.
    pub(super) pauses: u64,
    /// Control messages made (gossip once).
    pub(super) control_messages: u64,
    /// Bulk bytes, unscaled.
    pub(super) bulk_bytes: u64,
    /// Attempts given up, over all nodes.
    pub(super) failed_attempts: u64,
    /// Processes that died.
    pub(super) crashes: u64,
    /// Rings that ended well.
    pub(super) rings: u64,
    /// Their time.
    pub(super) ring_time: Duration,
    /// First commit of each header: round, attempt, members, sequences.
    pub(super) commits: BTreeMap<Digest, Commit>,
    /// First fold of each round.
    pub(super) folds: BTreeMap<Round, Time>,
}

/// A committed header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    /// Its round.
    pub(super) round: Round,
    /// When it was first known.
    pub(super) at: Time,
    /// The attempt.
    pub(super) attempt: u8,
    /// Members.
    pub(super) members: usize,
    /// Sequences of its members.
    pub(super) sequences: u64,
}

impl Counters {
    pub(super) fn commit(&mut self, at: Time, certificate: &Certificate) {
        let header = &certificate.header;
        self.commits.entry(header.digest()).or_insert_with(|| Commit {
            round: header.round,
            at,
            attempt: certificate.attempt,
            members: header.members.len(),
            sequences: header.members.iter().map(|member| u64::from(member.weight)).sum(),
        });
    }

    pub(super) fn fold(&mut self, at: Time, header: &Header) {
        self.folds.entry(header.round).or_insert(at);
    }
}

/// The report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// `pass` or `fail`.
    pub result: &'static str,
    /// Why it failed.
    pub failure: Option<String>,
    /// Hash of everything that happened.
    pub trace_digest: String,
    /// Virtual seconds.
    pub seconds: f64,
    /// Highest round that was folded.
    pub rounds: Round,
    /// Rounds committed on more than one branch.
    pub forked_rounds: usize,
    /// Sequences committed in a second.
    pub goodput: f64,
    /// Sequences trained on that were committed, of all.
    pub useful: f64,
    /// Mean members of a round.
    pub members: f64,
    /// Times that training paused at its cap.
    pub pauses: u64,
    /// Mean seconds of a round.
    pub round_seconds: f64,
    /// Mean seconds of a ring.
    pub ring_seconds: f64,
    /// Longest time between two commits.
    pub longest_gap_seconds: f64,
    /// Bulk megabytes, scaled.
    pub bulk_mb: f64,
    /// Control messages made.
    pub control_messages: u64,
    /// Attempts given up, over all nodes.
    pub failed_attempts: u64,
    /// Highest attempt that committed.
    pub highest_attempt: u8,
    /// Processes that died.
    pub crashes: u64,
    /// Events.
    pub events: u64,
    /// Distance to the minimum at the end, the best node's; it starts near 1.
    pub loss: f64,
}

impl Report {
    /// The report of a world that has run.
    pub fn of(world: &World, failure: Option<String>) -> Self {
        let counters = &world.counters;
        let seconds = world.now.as_secs_f64().max(1e-9);
        let training: Vec<&Commit> = {
            let last = world.manifest.run.rounds;
            counters.commits.values().filter(|commit| commit.round <= last).collect()
        };
        let committed: u64 = training.iter().map(|commit| commit.sequences).sum();
        let mut times: Vec<Time> = counters.commits.values().map(|commit| commit.at).collect();
        times.sort_unstable();
        let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64());
        let distinct: std::collections::BTreeSet<Round> =
            counters.commits.values().map(|commit| commit.round).collect();
        let count = training.len().max(1) as f64;
        let trained = counters.steps * world.manifest.inner.batch as u64;
        Self {
            scenario: world.scenario.name.clone(),
            seed: world.scenario.seed,
            result: if failure.is_none() { "pass" } else { "fail" },
            failure,
            trace_digest: world.trace.digest().to_string(),
            seconds,
            rounds: world.best_round,
            forked_rounds: counters.commits.len() - distinct.len(),
            goodput: committed as f64 / seconds,
            useful: committed as f64 / trained.max(1) as f64,
            members: training.iter().map(|commit| commit.members as f64).sum::<f64>() / count,
            pauses: counters.pauses,
            round_seconds: seconds / world.best_round.max(1) as f64,
            ring_seconds: counters.ring_time.as_secs_f64() / counters.rings.max(1) as f64,
            longest_gap_seconds: gaps.fold(0.0, f64::max),
            bulk_mb: counters.bulk_bytes as f64 * world.scenario.network.scale_bytes / 1e6,
            control_messages: counters.control_messages,
            failed_attempts: counters.failed_attempts,
            highest_attempt: training.iter().map(|commit| commit.attempt).max().unwrap_or(0),
            crashes: counters.crashes,
            events: counters.events,
            loss: world.best_loss(),
        }
    }

    /// Lines for people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<22}{value}");
        };
        line("scenario", format!("{} (seed {})", self.scenario, self.seed));
        line("result", self.result.to_owned());
        if let Some(failure) = &self.failure {
            line("failure", failure.clone());
        }
        line("rounds", format!("{} in {:.1} s", self.rounds, self.seconds));
        line(
            "a round",
            format!("{:.2} s, of it ring {:.2} s", self.round_seconds, self.ring_seconds),
        );
        line("longest gap", format!("{:.1} s between two commits", self.longest_gap_seconds));
        line("members", format!("{:.2} a round", self.members));
        line("goodput", format!("{:.2} sequences/s", self.goodput));
        line("useful", format!("{:.1} % of trained sequences", 100.0 * self.useful));
        line("pauses", self.pauses.to_string());
        line(
            "attempts given up",
            format!("{}; highest {}", self.failed_attempts, self.highest_attempt),
        );
        line("crashes", self.crashes.to_string());
        line("bulk", format!("{:.1} MB", self.bulk_mb));
        line("control messages", self.control_messages.to_string());
        line("forked rounds", self.forked_rounds.to_string());
        line("loss", format!("{:.4}", self.loss));
        line("trace", self.trace_digest.clone());
        text
    }

    /// One JSON object on one line.
    ///
    /// # Panics
    /// Never: a report is plain data.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report is plain data")
    }
}

impl World {
    fn best_loss(&self) -> f64 {
        let states = self.peers.iter().filter_map(|peer| peer.process.as_ref());
        let furthest = states.max_by_key(|process| process.state.round);
        furthest.map_or(f64::NAN, |process| {
            let anchors: Vec<Vec<f32>> =
                process.state.fragments.iter().map(|fragment| fragment.anchor.clone()).collect();
            self.problem.loss(&anchors)
        })
    }

    /// What is wrong with how the world ended, if anything is.
    pub fn verdict(&self) -> Option<String> {
        if let Some(broken) = &self.broken {
            return Some(broken.clone());
        }
        let running = || self.peers.iter().enumerate().filter(|(_, peer)| peer.process.is_some());
        if self.scenario.must_finish {
            for (index, peer) in running() {
                let Some(process) = &peer.process else { continue };
                if !process.finished {
                    return Some(format!(
                        "peer {index} has not finished: it stands on round {} and waits for {}",
                        process.node.head().round,
                        process.node.waiting_for()
                    ));
                }
            }
        }
        let heads: Vec<Round> = running()
            .filter_map(|(_, peer)| peer.process.as_ref())
            .map(|process| process.node.head().round)
            .collect();
        let spread = heads.iter().max()?.saturating_sub(*heads.iter().min()?);
        (spread > self.scenario.max_spread)
            .then(|| format!("live heads differ by {spread} rounds: {heads:?}"))
    }
}
