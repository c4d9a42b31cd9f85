//! Bodies: which are stored, which are on their way, which nobody has.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::{NodeId, Round},
    proto::sync::{SyncLimits, blob::BlobJob, chain::Link, donors::Donors},
};

/// The bodies of the rounds ahead of the state.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    stored: BTreeSet<Round>,
    /// On their way.
    pub(super) jobs: BTreeMap<Round, BlobJob>,
    lacking: BTreeMap<Round, BTreeSet<NodeId>>,
    lost: BTreeSet<Round>,
}

impl Bodies {
    pub(super) fn new(stored: BTreeSet<Round>) -> Self {
        Self { stored, ..Self::default() }
    }

    /// Whether the body is on disk.
    pub(super) fn has(&self, round: Round) -> bool {
        self.stored.contains(&round)
    }

    /// A body is complete: gives its bytes.
    pub(super) fn finish(&mut self, round: Round) -> Option<Vec<u8>> {
        let bytes = self.jobs.remove(&round)?.take();
        self.stored(round);
        Some(bytes)
    }

    /// A body is on disk.
    pub(super) fn stored(&mut self, round: Round) {
        self.stored.insert(round);
        self.jobs.remove(&round);
        self.lacking.remove(&round);
        self.lost.remove(&round);
    }

    /// Forgets everything up to `round`.
    pub(super) fn forget_to(&mut self, round: Round) {
        let next = round + 1;
        self.stored = self.stored.split_off(&next);
        self.jobs = self.jobs.split_off(&next);
        self.lacking = self.lacking.split_off(&next);
        self.lost = self.lost.split_off(&next);
    }

    /// A donor does not have the body.
    pub(super) fn lacks(&mut self, round: Round, node: NodeId) {
        self.lacking.entry(round).or_default().insert(node);
    }

    /// Whether the donor may have the body.
    pub(super) fn may_have(&self, round: Round, node: NodeId) -> bool {
        !self.lacking.get(&round).is_some_and(|nodes| nodes.contains(&node))
    }

    /// Recomputes which bodies no donor has; true if that changed.
    pub(super) fn refresh_lost(&mut self, donors: &Donors) -> bool {
        let lost: BTreeSet<Round> = self
            .lacking
            .keys()
            .copied()
            .filter(|&round| {
                !donors
                    .iter()
                    .any(|(node, donor)| donor.head.round >= round && self.may_have(round, node))
            })
            .collect();
        let changed = lost != self.lost;
        self.lost = lost;
        changed
    }

    /// The first body after `base` that no donor has.
    pub(super) fn first_lost(&self, base: Round) -> Option<Round> {
        self.lost.range(base + 1..).next().copied()
    }

    /// Every donor may be asked for everything again.
    pub(super) fn forgive(&mut self) {
        self.lacking.clear();
        self.lost.clear();
    }

    /// Whether another body may be assembled beside those that are.
    pub(super) fn has_room(&self, limits: &SyncLimits, link: &Link, in_assembly: u64) -> bool {
        let fits = in_assembly.saturating_add(link.body_bytes) <= limits.body_window_bytes;
        self.jobs.is_empty() || (fits && self.jobs.len() < limits.body_window)
    }
}
