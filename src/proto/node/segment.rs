//! When local training is frozen, and what follows.

use std::{collections::VecDeque, time::Duration};

use super::{Effect, Frozen, Mode, Node, SegmentStart, Timer};
use crate::{
    base::{Attempt, Digest, Round, Time},
    config::manifest::Overlap,
    wire::{Message, Ready},
};

/// Segments whose durations are remembered.
const REMEMBERED: usize = 9;

/// The running segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) round: Round,
    pub(super) steps: u32,
    sequences: u64,
    running: bool,
    freezing: bool,
    started: Time,
    durations: VecDeque<Duration>,
}

impl Segment {
    pub(super) fn median_duration(&self) -> Duration {
        let mut sorted: Vec<Duration> = self.durations.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    fn start(&mut self, now: Time, round: Round) {
        if self.running && self.steps > 0 {
            if self.durations.len() == REMEMBERED {
                self.durations.pop_front();
            }
            self.durations.push_back(now.since(self.started));
        }
        let durations = std::mem::take(&mut self.durations);
        *self = Self { round, running: true, started: now, durations, ..Self::default() };
    }
}

impl Node {
    /// Local training has done so many steps and sequences of its segment.
    pub fn handle_progress(&mut self, now: Time, steps: u32, sequences: u64) {
        self.segment.steps = steps;
        self.segment.sequences = sequences;
        self.try_freeze();
        self.settle(now);
    }

    /// The running segment is frozen, and the next one has started if there is one. If its round is
    /// folded already, the pseudo-gradient is the caller's to put into the error buffer. `None`: its
    /// pseudo-gradient is unusable (not finite), and training has started again from the anchor.
    pub fn handle_frozen(&mut self, now: Time, frozen: Option<Frozen>) {
        self.segment.freezing = false;
        let Some(frozen) = frozen else {
            self.segment.start(now, self.segment.round);
            return self.settle(now);
        };
        let next = self.next_segment(frozen.round);
        self.segment.start(now, frozen.round + 1);
        self.segment.running = next.is_some();
        if frozen.round == self.open() {
            self.frozen = Some(frozen);
            self.announce(now, true);
        } else if self.mode == Mode::Active {
            // The round was committed while the segment was being frozen: the pseudo-gradient
            // goes back into the error buffer, and the next segment belongs to the open round.
            self.open_segment(now);
        }
        self.settle(now);
    }

    pub(super) fn on_closing(&mut self, now: Time, attempt: Attempt, parent: Digest) {
        if parent == self.head_digest && attempt >= self.ballot.attempt {
            self.ballot.closing_heard = true;
            self.try_freeze();
            self.announce(now, false);
        }
    }

    pub(super) fn try_freeze(&mut self) {
        let segment = &self.segment;
        let idle = self.mode == Mode::Active && self.frozen.is_none() && self.folding.is_none();
        let ours = segment.running && !segment.freezing && segment.round == self.open();
        let enough =
            segment.steps >= self.h() || (self.ballot.closing_heard && segment.sequences >= 1);
        if idle && ours && enough && !self.leaving {
            let round = segment.round;
            let next = self.next_segment(round);
            self.segment.freezing = true;
            self.effects.push_back(Effect::Freeze { round, next });
        }
    }

    /// The segment that follows `round` at once.
    fn next_segment(&self, round: Round) -> Option<SegmentStart> {
        let follows = self.overlap() != Overlap::None && round < self.last_round();
        follows.then(|| self.segment_start(round + 1))
    }

    fn segment_start(&self, round: Round) -> SegmentStart {
        SegmentStart {
            round,
            steps: self.h(),
            max_steps: self.max_steps(),
            lease: self.leases.get(&round).copied(),
        }
    }

    /// A round was opened: the running segment belongs to it, or one starts.
    pub(super) fn open_segment(&mut self, now: Time) {
        let open = self.open();
        if !self.config.trains {
            return;
        }
        if open > self.last_round() {
            self.segment.running = false;
            if open == self.last_round() + 1 {
                self.frozen = Some(Frozen { round: open, weight: 0, size: 0, feedback: 0 });
            }
            return;
        }
        let frozen_here = self.contribution().is_some();
        if self.segment.freezing {
            // `handle_frozen` goes on.
        } else if self.segment.running {
            // A segment that was not frozen in time is renumbered to the open round.
            self.segment.round = self.segment.round.max(open);
            self.try_freeze();
        } else if self.overlap() != Overlap::None || !frozen_here {
            let round = open + Round::from(frozen_here);
            if round <= self.last_round() {
                self.segment.start(now, round);
                let start = self.segment_start(round);
                self.effects.push_back(Effect::StartSegment(start));
            }
        }
    }

    /// Tells the candidates that this node is ready; again if `always`, or if they have changed.
    pub(super) fn announce(&mut self, now: Time, always: bool) {
        let Some(frozen) = self.contribution() else { return };
        if self.mode != Mode::Active || self.folding.is_some() {
            return;
        }
        if self.ballot.accepted.as_ref().is_some_and(|a| a.plan.attempt == self.ballot.attempt) {
            return;
        }
        let candidates = self.candidates(self.ballot.attempt);
        if !always && candidates == self.ballot.ready_to {
            return;
        }
        let ready = Message::Ready(Ready {
            round: frozen.round,
            attempt: self.ballot.attempt,
            parent: self.head_digest,
            weight: frozen.weight,
            size: frozen.size,
            feedback: frozen.feedback,
            blame: self.ballot.blame,
        });
        self.ballot.ready_to.clone_from(&candidates);
        // A higher attempt is news for everybody: nodes in different attempts must meet.
        if self.ballot.attempt == 0 {
            self.send_all(candidates, &ready);
        } else {
            self.gossip(ready);
        }
        self.timers.set(Timer::Repeat, now + self.config.deadlines.repeat);
    }
}
