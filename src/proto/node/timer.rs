//! The named timers of a node.

use std::collections::BTreeMap;

use crate::base::Time;

/// What a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Say that this node is alive.
    Presence,
    /// A peer's presence expires.
    Expiry,
    /// Repeat a message that nobody acknowledges.
    Repeat,
    /// Close the round or propose, as its coordinator.
    Coordinate,
    /// Give up the current attempt.
    Attempt,
    /// Others are ahead: fetch what is missing.
    Behind,
    /// Leave, whatever is still running.
    Leave,
}

/// When each timer is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BTreeMap<Timer, Time>);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Time) {
        self.0.insert(timer, at);
    }

    pub(super) fn set_earliest(&mut self, timer: Timer, at: Time) {
        let due = self.0.entry(timer).or_insert(at);
        *due = (*due).min(at);
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        self.0.remove(&timer);
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.values().min().copied()
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        let timer = self.0.iter().find(|(_, at)| **at <= now).map(|(&timer, _)| timer)?;
        self.0.remove(&timer);
        Some(timer)
    }
}
