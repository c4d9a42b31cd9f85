//! What happens in a simulated world, and when.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    base::{Attempt, Digest, Round, Time},
    wire::{Envelope, Header},
};

/// One thing that happens. `boot` names a start of the peer's process: what was meant for an
/// earlier one is lost.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A peer's machine has a timer due.
    Wake { peer: usize, boot: u64 },
    /// An inner step is done.
    Step { peer: usize, boot: u64, life: u64 },
    /// A control message arrives.
    Deliver { from: usize, to: usize, envelope: Arc<Envelope>, gossip: bool },
    /// The stream to the successor is open, or could not be opened.
    Linked { peer: usize, boot: u64, round: Round, attempt: Attempt, open: bool },
    /// A peer's ring has ended.
    RingDone { peer: usize, boot: u64, plan: Digest },
    /// A peer's ring is given up.
    RingLost { peer: usize, boot: u64, plan: Digest, blame: Option<usize> },
    /// A skipped ring's results are stored.
    Skipped { peer: usize, boot: u64, round: Round, attempt: Attempt, plan: Digest },
    /// Try to fetch a body.
    FetchBody { peer: usize, boot: u64, header: Box<Header> },
    /// A body has arrived.
    BodyHere { peer: usize, boot: u64, header: Box<Header>, from: usize },
    /// A fold is done.
    Folded { peer: usize, boot: u64, header: Box<Header> },
    /// A root is computed.
    Rooted { peer: usize, boot: u64, round: Round },
    /// Look for somebody to sync from.
    SyncTry { peer: usize, boot: u64, tries: u32 },
    /// What another peer holds has arrived.
    SyncDone { peer: usize, boot: u64, from: usize },
    /// The last link to a peer is found to be lost.
    LinkLost { peer: usize, boot: u64, gone: usize },
    /// A fault of the scenario, by its number.
    Fault { index: usize },
    /// A crashed peer starts again.
    Restart { peer: usize },
    /// Crash a random peer.
    Churn,
}

/// Events in the order of their time, then of their making.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    events: BTreeMap<(Time, u64), Event>,
    made: u64,
}

impl Queue {
    /// Adds an event.
    pub(super) fn push(&mut self, at: Time, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(Time, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
