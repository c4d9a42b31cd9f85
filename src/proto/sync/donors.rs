//! Whom to ask: round-robin over the donors that can have it, with a pause after failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    base::{Digest, NodeId, Round, Time},
    proto::sync::{SyncLimits, pace::Pace},
    wire::{Head, fetch::SnapshotOffer},
};

/// Names of liars that are remembered.
const MAX_BANNED: usize = 4096;
/// Empty chain pages of a donor that says it is ahead, before it counts as a liar.
pub(super) const MAX_STRIKES: u32 = 4;

/// A peer that may have what is wanted.
#[derive(Debug)]
pub(super) struct Donor {
    pub(super) head: Head,
    /// Snapshots it offers, as far as it was asked.
    pub(super) offers: Vec<SnapshotOffer>,
    /// Whether it should be asked for its offers (again).
    pub(super) offers_due: bool,
    /// Whether its chain is known not to continue the local one.
    pub(super) diverged: bool,
    /// Empty chain pages so far.
    pub(super) strikes: u32,
    order: Digest,
    used: u64,
    in_flight: usize,
    failures: u32,
    last_failure: Time,
    ready_at: Time,
    small: Pace,
    bulk: Pace,
}

impl Donor {
    /// Whether it is not pausing.
    pub(super) fn ready(&self, now: Time) -> bool {
        self.ready_at <= now
    }

    /// Whether it offers the snapshot.
    pub(super) fn offers(&self, round: Round, index: Digest) -> bool {
        let wanted = SnapshotOffer { round, index };
        self.offers.contains(&wanted)
    }

    fn pace(&mut self, bulk: bool) -> &mut Pace {
        if bulk { &mut self.bulk } else { &mut self.small }
    }
}

/// All donors.
#[derive(Debug)]
pub(super) struct Donors {
    seed: Digest,
    limits: SyncLimits,
    known: BTreeMap<NodeId, Donor>,
    banned: BTreeSet<NodeId>,
    uses: u64,
}

impl Donors {
    pub(super) fn new(seed: Digest, limits: SyncLimits) -> Self {
        Self { seed, limits, known: BTreeMap::new(), banned: BTreeSet::new(), uses: 0 }
    }

    /// A donor announces itself; true if it is new.
    pub(super) fn announce(&mut self, node: NodeId, head: Head) -> bool {
        if self.banned.contains(&node) {
            return false;
        }
        if let Some(donor) = self.known.get_mut(&node) {
            donor.head = head;
            return false;
        }
        if self.known.len() >= self.limits.donors {
            return false;
        }
        let order = Digest::of_parts("dilocox/donor/1", [self.seed.0.as_slice(), &node.0]);
        let donor = Donor {
            head,
            offers: Vec::new(),
            offers_due: true,
            diverged: false,
            strikes: 0,
            order,
            used: 0,
            in_flight: 0,
            failures: 0,
            last_failure: Time::ZERO,
            ready_at: Time::ZERO,
            small: Pace::default(),
            bulk: Pace::default(),
        };
        self.known.insert(node, donor);
        true
    }

    /// A donor is gone.
    pub(super) fn remove(&mut self, node: NodeId) {
        self.known.remove(&node);
    }

    /// A donor has lied.
    pub(super) fn ban(&mut self, node: NodeId) {
        self.known.remove(&node);
        if self.banned.len() < MAX_BANNED {
            self.banned.insert(node);
        }
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut Donor> {
        self.known.get_mut(&node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Donor)> {
        self.known.iter().map(|(&node, donor)| (node, donor))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Donor> {
        self.known.values_mut()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The donor to ask next among those for which `fits` holds.
    pub(super) fn pick(&self, now: Time, fits: impl Fn(NodeId, &Donor) -> bool) -> Option<NodeId> {
        self.iter()
            .filter(|(_, donor)| donor.ready(now) && donor.in_flight < self.limits.per_donor)
            .filter(|(node, donor)| fits(*node, donor))
            .min_by_key(|(_, donor)| (donor.in_flight, donor.used, donor.order))
            .map(|(node, _)| node)
    }

    /// A request is sent; gives its timeout.
    pub(super) fn asked(&mut self, node: NodeId, bulk: bool) -> Duration {
        let (floor, ceiling) = (self.limits.timeout_floor, self.limits.timeout_ceiling);
        self.uses += 1;
        let uses = self.uses;
        let Some(donor) = self.known.get_mut(&node) else { return floor };
        donor.used = uses;
        donor.in_flight += 1;
        donor.pace(bulk).timeout(floor, ceiling)
    }

    /// A request has ended in some way.
    pub(super) fn ended(&mut self, node: NodeId) {
        if let Some(donor) = self.known.get_mut(&node) {
            donor.in_flight = donor.in_flight.saturating_sub(1);
        }
    }

    /// A useful reply came.
    pub(super) fn replied(&mut self, node: NodeId, bulk: bool, elapsed: Duration) {
        if let Some(donor) = self.known.get_mut(&node) {
            donor.failures = 0;
            donor.pace(bulk).replied(elapsed);
        }
    }

    /// A request sent at `sent` failed: the donor pauses, longer with every failure in a row.
    /// Requests that were under way together count once.
    pub(super) fn failed(&mut self, now: Time, node: NodeId, sent: Time) {
        let limits = self.limits;
        let Some(donor) = self.known.get_mut(&node) else { return };
        if donor.failures > 0 && sent < donor.last_failure {
            return;
        }
        let pause = limits.backoff_floor * (1 << donor.failures.min(16));
        donor.failures += 1;
        donor.last_failure = now;
        donor.ready_at = now + pause.min(limits.backoff_ceiling);
    }

    /// A request sent at `sent` timed out: the donor pauses and gets more time for the next one.
    pub(super) fn timed_out(&mut self, now: Time, node: NodeId, bulk: bool, sent: Time) {
        let Some(donor) = self.known.get_mut(&node) else { return };
        if donor.failures == 0 || sent >= donor.last_failure {
            donor.pace(bulk).timed_out();
        }
        self.failed(now, node, sent);
    }

    /// The donor is busy: it pauses for a moment.
    pub(super) fn busy(&mut self, now: Time, node: NodeId) {
        let pause = self.limits.backoff_floor;
        if let Some(donor) = self.known.get_mut(&node) {
            donor.ready_at = donor.ready_at.max(now + pause);
        }
    }

    /// When the next pause ends.
    pub(super) fn next_ready(&self, now: Time) -> Option<Time> {
        self.known.values().map(|donor| donor.ready_at).filter(|&at| at > now).min()
    }
}
