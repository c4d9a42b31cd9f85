//! What people and scripts hear: events, and the sums behind them.

use std::{collections::BTreeMap, time::Instant};

use super::Driver;
use crate::{
    base::{Attempt, Digest, NodeId, Round},
    node::training::FreezeReport,
    observe::Event,
    wire::Header,
};

/// Rounds whose numbers wait for their event: those in flight, and what a replay asks for.
const REMEMBERED: usize = 64;
/// Seconds without any progress after which a node says what it waits for.
const STUCK_AFTER: f64 = 30.0;

/// Sums and marks behind the events.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) exchange_started: Option<Instant>,
    pub(super) exchange_ended: Option<Instant>,
    /// Bytes of the exchange in flight, over all its attempts.
    sent: u64,
    received: u64,
    /// The last round that holds a contribution of this node.
    pub(super) contributed: Round,
    /// Sequences trained on in segments that were frozen.
    pub(super) sequences: u64,
    attempts: BTreeMap<Round, (Attempt, usize)>,
    headers: BTreeMap<Round, (usize, u64, bool)>,
    steps: BTreeMap<Round, u32>,
    validation: Option<(Round, f64)>,
    losses: BTreeMap<Round, f64>,
    roots: BTreeMap<Round, Digest>,
    total_sent: u64,
    total_received: u64,
    train_seconds: f64,
    stall_seconds: f64,
    last_progress: Option<Instant>,
    said_stuck: Option<Instant>,
    finish_said: bool,
}

fn remember<T>(map: &mut BTreeMap<Round, T>, round: Round, value: T) {
    map.insert(round, value);
    while map.len() > REMEMBERED {
        map.pop_first();
    }
}

impl Tally {
    pub(super) fn moved(&mut self, sent: u64, received: u64) {
        self.sent += sent;
        self.received += received;
        self.total_sent += sent;
        self.total_received += received;
    }

    pub(super) fn committed(&mut self, round: Round, attempt: Attempt, members: &[NodeId]) {
        remember(&mut self.attempts, round, (attempt, members.len()));
    }
}

impl Driver {
    pub(super) fn warn(&self, what: &str, remedy: &str) {
        tracing::warn!("{what}");
        let (what, remedy) = (what.to_owned(), remedy.to_owned());
        self.emitter.emit(Event::Warning { what, remedy });
    }

    pub(super) fn say_peer(&self, peer: NodeId, left: Option<&str>) {
        let live = self.node.roster().training().count() + usize::from(self.training.is_some());
        self.emitter.emit(match left {
            None => Event::PeerJoined { peer, live },
            Some(reason) => Event::PeerLeft { peer, reason: reason.to_owned(), live },
        });
    }

    pub(super) fn say_joined(&mut self, round: Round, bytes: u64) {
        if std::mem::replace(&mut self.joined, true) {
            return;
        }
        self.emitter.emit(Event::Joined {
            run_id: self.founded.run_id(),
            name: self.manifest.run.name.clone(),
            round,
            members: self.node.head().members.len(),
            parameters: self.manifest.layout().elements() as u64,
            rounds: self.manifest.run.rounds,
            seconds: self.clock.now().as_secs_f64(),
            bytes,
        });
    }

    /// A segment is frozen.
    pub(super) fn say_round(&mut self, report: &FreezeReport) {
        let totals = &report.totals;
        let (train, stall) = (totals.train_seconds, totals.stall_seconds);
        self.tally.train_seconds += train;
        self.tally.stall_seconds += stall;
        let round = report.frozen.round;
        remember(&mut self.tally.steps, round, totals.steps);
        self.progress();
        self.emitter.emit(Event::Round {
            round,
            loss: totals.loss_sum / f64::from(totals.steps.max(1)),
            validation_loss: self.tally.validation.map(|(_, loss)| loss),
            validated_round: self.tally.validation.map(|(round, _)| round),
            local_steps: totals.steps,
            tokens: totals.tokens,
            train_seconds: train,
            stall_seconds: stall,
            utilization: if train + stall > 0.0 { train / (train + stall) } else { 1.0 },
        });
        if report.skipped > 0 {
            self.emitter.emit(Event::DataSkipped {
                round,
                sequences: report.skipped,
                reason: "the end of the last lease was not used before the next one began".into(),
            });
        }
        if report.unleased > 0 {
            tracing::info!(
                "{} sequences of round {round} were drawn without a lease",
                report.unleased
            );
        }
    }

    pub(super) fn say_missed(&self, round: Round, reason: &str) {
        self.emitter.emit(Event::Missed { round, reason: reason.to_owned() });
    }

    /// This node's part in a round's exchange is over.
    pub(super) fn say_exchange(&mut self, header: &Header, contributed: bool) {
        let round = header.round;
        let entry = (header.members.len(), header.weight, self.replaying);
        remember(&mut self.tally.headers, round, entry);
        let members = header.members.len();
        let (attempt, _) = self.tally.attempts.get(&round).copied().unwrap_or((0, members));
        if contributed && !self.replaying && header.jobs > 0 {
            let parameters = self.manifest.layout().elements() as u64;
            let ended = self.tally.exchange_ended.unwrap_or_else(Instant::now);
            let seconds = self
                .tally
                .exchange_started
                .map_or(0.0, |started| ended.saturating_duration_since(started).as_secs_f64());
            self.emitter.emit(Event::Exchange {
                round,
                members,
                attempt,
                bytes_sent: self.tally.sent,
                bytes_received: self.tally.received,
                dense_bytes: 8 * parameters * (members as u64 - 1) / members as u64,
                local_steps: self.tally.steps.get(&round).copied().unwrap_or(0),
                seconds,
            });
        }
        (self.tally.sent, self.tally.received) = (0, 0);
        (self.tally.exchange_started, self.tally.exchange_ended) = (None, None);
    }

    /// A round is folded and its root is known. The header after the last round is no round of its
    /// own: it only binds the final root.
    pub(super) fn say_committed(&mut self, round: Round, state_root: Digest) {
        remember(&mut self.tally.roots, round, state_root);
        self.progress();
        let Some((members, cumulative_weight, replayed)) = self.tally.headers.remove(&round) else {
            return;
        };
        if round > self.manifest.run.rounds {
            return;
        }
        self.emitter.emit(Event::Committed {
            round,
            members,
            state_root,
            cumulative_weight,
            replayed,
        });
    }

    pub(super) fn on_validated(&mut self, round: Round, loss: f64, seconds: f64) {
        if self.tally.validation.is_none_or(|(known, _)| known <= round) {
            self.tally.validation = Some((round, loss));
        }
        remember(&mut self.tally.losses, round, loss);
        self.served.set_loss(loss as f32);
        self.emitter.emit(Event::Validated { round, validation_loss: loss, seconds });
        self.say_finished();
    }

    /// Says that the run is finished, once its last anchor is measured where that is done.
    pub(super) fn say_finished(&mut self) {
        let last = self.manifest.run.rounds;
        let measured = self.tally.losses.get(&last).copied();
        let waits = self.training.is_some() && measured.is_none();
        if self.finished_at.is_none() || waits || self.tally.finish_said {
            return;
        }
        self.tally.finish_said = true;
        let head = self.node.head();
        let root = self.tally.roots.get(&last).copied().unwrap_or(head.root_before);
        self.emitter.emit(Event::Finished {
            run_id: self.founded.run_id(),
            round: last,
            state_root: root,
            validation_loss: measured,
            bytes_sent: self.tally.total_sent,
            bytes_received: self.tally.total_received,
            train_seconds: self.tally.train_seconds,
            stall_seconds: self.tally.stall_seconds,
        });
    }

    /// Whether everything that a finished node has to say is said.
    pub(super) fn finish_said(&self) -> bool {
        self.tally.finish_said
    }

    pub(super) fn say_stopped(&self) {
        let round = self.node.head().round;
        self.emitter.emit(Event::Stopped { reason: "it was asked to end".to_owned(), round });
    }

    fn progress(&mut self) {
        self.tally.last_progress = Some(Instant::now());
        self.tally.said_stuck = None;
    }

    /// Says what the node waits for when no segment and no round has ended for long.
    pub(super) fn say_if_stuck(&mut self) {
        let Some(last) = self.tally.last_progress.filter(|_| self.finished_at.is_none()) else {
            return;
        };
        let seconds = last.elapsed().as_secs_f64();
        let said = self.tally.said_stuck.is_some_and(|at| at.elapsed().as_secs_f64() < STUCK_AFTER);
        if seconds > STUCK_AFTER && !said {
            self.tally.said_stuck = Some(Instant::now());
            self.emitter.emit(Event::Stuck {
                phase: format!("round {}", self.node.head().round + 1),
                missing: self.node.waiting_for(),
                seconds,
                remedy: "look whether peers are reachable; the node goes on by itself".to_owned(),
            });
        }
    }
}
