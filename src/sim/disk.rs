//! What a simulated node finds again after a crash.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    base::{Digest, Round},
    codec::Body,
    proto::node::Memory,
    sim::trainer::Local,
    wire::{Certificate, Header},
};

/// One node's disk. Everything on it is written atomically.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Starts of the process.
    pub(super) boot: u64,
    /// Highest attempt promised, with its round.
    pub(super) promised: Option<(Round, u8)>,
    /// Header signed last, with its attempt.
    pub(super) signed: Option<(u8, Header)>,
    /// Committed rounds 1..
    pub(super) ledger: Vec<Certificate>,
    /// Results by the digest of their blob.
    pub(super) bodies: BTreeMap<Digest, Arc<Body>>,
    /// Error buffer, frozen delta and books.
    pub(super) local: Local,
    /// Whether the node has ever held the state: it founded, or has synced.
    pub(super) has_state: bool,
}

impl Disk {
    /// An empty disk.
    pub(super) fn new(local: Local) -> Self {
        Self {
            boot: 0,
            promised: None,
            signed: None,
            ledger: Vec::new(),
            bodies: BTreeMap::new(),
            local,
            has_state: false,
        }
    }

    /// What the machine is told after a restart.
    pub(super) fn memory(&self) -> Memory {
        Memory {
            promised: self.promised,
            signed: self.signed.clone(),
            frozen: self.local.frozen.as_ref().map(|frozen| frozen.frozen),
        }
    }

    /// Committed rounds whose bodies are here, from the first on.
    pub(super) fn complete(&self) -> usize {
        let here = |c: &&Certificate| self.bodies.contains_key(&c.header.body);
        self.ledger.iter().take_while(here).count()
    }
}
