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
pub struct Process {
    /// The machine.
    pub node: Node,
    /// Training.
    pub trainer: Trainer,
    /// The folded state.
    pub state: State,
    /// Headers that are folded, genesis first.
    pub chain: Vec<Header>,
    /// Gossip that was forwarded.
    pub seen: BTreeSet<(NodeId, u64, u64)>,
    /// When the machine will be woken.
    pub wake_at: Option<Time>,
    /// Number of the running segment's step events; older ones are stale.
    pub life: u64,
    /// Whether a step is under way.
    pub stepping: bool,
    /// Whether it is looking for others' state.
    pub syncing: bool,
    /// Whether a sync must replace the state that is here.
    pub discard: bool,
    /// Whether it has said that it is finished.
    pub finished: bool,
    /// Roots that are due to be computed.
    pub roots: BTreeMap<Round, Digest>,
}

impl Process {
    /// Remembers a gossiped envelope; whether it is new.
    pub fn is_new(&mut self, id: (NodeId, u64, u64)) -> bool {
        if self.seen.len() >= MAX_SEEN {
            self.seen.pop_first();
        }
        self.seen.insert(id)
    }
}

/// A machine of the simulated world.
pub struct Peer {
    /// Its name.
    pub id: NodeId,
    /// Its key.
    pub identity: Identity,
    /// Milliseconds of an inner step.
    pub step_ms: f64,
    /// What survives.
    pub disk: Disk,
    /// What runs; `None` while it is down.
    pub process: Option<Process>,
    /// Whether it left, so that it never comes back.
    pub left: bool,
    /// Effects carried out, over all starts.
    pub effects: u64,
}

impl Peer {
    /// The running process of this start.
    pub fn alive(&mut self, boot: u64) -> Option<&mut Process> {
        if self.disk.boot == boot { self.process.as_mut() } else { None }
    }
}
