//! One simulated node: the real machine, its training, its disk.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::{Digest, NodeId, Round, Time},
    identity::Identity,
    outer::State,
    proto::node::Node,
    sim::{disk::Disk, trainer::Trainer},
    wire::Header,
};

/// Envelopes that are remembered to be forwarded once.
const MAX_SEEN: usize = 20_000;

/// What runs while the process runs.
pub(super) struct Process {
    /// The machine.
    pub(super) node: Node,
    /// Training.
    pub(super) trainer: Trainer,
    /// The folded state.
    pub(super) state: State,
    /// Headers that are folded, genesis first.
    pub(super) chain: Vec<Header>,
    /// Gossip that was forwarded.
    pub(super) seen: BTreeSet<(NodeId, u64, u64)>,
    /// When the machine will be woken.
    pub(super) wake_at: Option<Time>,
    /// Number of the running segment's step events; older ones are stale.
    pub(super) life: u64,
    /// Whether a step is under way.
    pub(super) stepping: bool,
    /// Whether it is looking for others' state.
    pub(super) syncing: bool,
    /// Whether a sync must replace the state that is here.
    pub(super) discard: bool,
    /// Whether it has said that it is finished.
    pub(super) finished: bool,
    /// Roots that are due to be computed.
    pub(super) roots: BTreeMap<Round, Digest>,
}

impl Process {
    /// Remembers a gossiped envelope; whether it is new.
    pub(super) fn is_new(&mut self, id: (NodeId, u64, u64)) -> bool {
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_first();
        }
        self.seen.insert(id)
    }
}

/// A machine of the simulated world.
pub(super) struct Peer {
    /// Its name.
    pub(super) id: NodeId,
    /// Its key.
    pub(super) identity: Identity,
    /// Milliseconds of an inner step.
    pub(super) step_ms: f64,
    /// What survives.
    pub(super) disk: Disk,
    /// What runs; `None` while it is down.
    pub(super) process: Option<Process>,
    /// Whether it left, so that it never comes back.
    pub(super) left: bool,
    /// Effects carried out, over all starts.
    pub(super) effects: u64,
}

impl Peer {
    /// The running process of this start.
    pub(super) fn alive(&mut self, boot: u64) -> Option<&mut Process> {
        if self.disk.boot == boot { self.process.as_mut() } else { None }
    }
}
