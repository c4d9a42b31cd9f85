//! A bounded queue of events between the node and its output. Putting in never blocks.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use super::event::{Event, Stamped};

/// Events kept while the reader is slow, `step` events included: a few seconds of a fast node.
const SOFT_BOUND: usize = 1024;
/// Events kept when no `step` event is left to drop: hours of everything else, in about 4 MB.
const HARD_BOUND: usize = 8192;

/// What was left out because the reader was slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    pub(super) steps: u64,
    pub(super) others: u64,
}

#[derive(Default)]
struct State {
    events: VecDeque<Stamped>,
    dropped: Dropped,
    reported: Dropped,
    closed: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

fn is_step(stamped: &Stamped) -> bool {
    matches!(stamped.event, Event::Step { .. })
}

impl State {
    /// Makes room for `incoming`, or counts it as dropped and says no.
    fn make_room(&mut self, incoming: &Stamped) -> bool {
        if self.events.len() < SOFT_BOUND {
            return true;
        }
        if is_step(incoming) {
            self.dropped.steps += 1;
            return false;
        }
        if let Some(oldest) = self.events.iter().position(is_step) {
            self.events.remove(oldest);
            self.dropped.steps += 1;
            return true;
        }
        let room = self.events.len() < HARD_BOUND;
        self.dropped.others += u64::from(!room);
        room
    }
}

impl Queue {
    /// The state; a panic of another holder leaves it usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, stamped: Stamped) {
        let mut state = self.lock();
        if !state.closed && state.make_room(&stamped) {
            state.events.push_back(stamped);
            self.changed.notify_one();
        }
    }

    /// No more events are taken; [`Queue::pop`] gives out what is left, then none.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The next event, once there is one; none when the queue is closed and empty. What was
    /// dropped is reported as an event of its own, ahead of the others.
    pub(super) fn pop(&self) -> Option<Stamped> {
        let mut state = self.lock();
        loop {
            if state.dropped != state.reported {
                state.reported = state.dropped;
                let Dropped { steps, others } = state.dropped;
                return Some(Stamped::now(Event::EventsDropped { steps, others }));
            }
            if let Some(stamped) = state.events.pop_front() {
                return Some(stamped);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> Stamped {
        Stamped::now(Event::Step {
            round: 1,
            step: 1,
            local_steps: 10,
            loss: 1.0,
            gradient_norm: 1.0,
            learning_rate: 1.0,
            tokens: 1,
            seconds: 0.1,
        })
    }

    fn other(round: u64) -> Stamped {
        Stamped::now(Event::Snapshot { round, bytes: 1, seconds: 0.1 })
    }

    #[test]
    fn steps_are_dropped_first_and_counted() {
        let queue = Queue::default();
        (0..SOFT_BOUND).for_each(|_| queue.push(step()));
        queue.push(step());
        queue.push(other(1));
        queue.close();
        let dropped = queue.pop().unwrap().event;
        assert_eq!(dropped, Event::EventsDropped { steps: 2, others: 0 });
        let rest: Vec<Stamped> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest.len(), SOFT_BOUND);
        assert!(matches!(rest.last().unwrap().event, Event::Snapshot { .. }));
    }

    #[test]
    fn nothing_else_is_dropped_before_the_hard_bound() {
        let queue = Queue::default();
        (0..HARD_BOUND as u64 + 3).for_each(|round| queue.push(other(round)));
        queue.close();
        assert_eq!(queue.pop().unwrap().event, Event::EventsDropped { steps: 0, others: 3 });
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), HARD_BOUND);
    }
}
