//! What is asked next, and whom.

use super::{
    Sync,
    blob::Part,
    donors::Donor,
    machine::{InFlight, Item, Way},
};
use crate::{
    base::{Digest, NodeId, Round, Time},
    proto::sync::Effect,
    wire::fetch::Request,
};

impl Sync {
    fn send(&mut self, now: Time, node: NodeId, item: Item, request: Request) {
        let timeout = self.donors.asked(node, item.bulk());
        let id = self.next_id;
        self.next_id += 1;
        self.requests.insert(id, InFlight { node, item, sent: now, deadline: now + timeout });
        self.push(Effect::Fetch { id, node, request, timeout });
    }

    fn chain_in_flight(&self) -> bool {
        self.requests.values().any(|request| matches!(request.item, Item::Chain { .. }))
    }

    fn offers_in_flight(&self, node: NodeId) -> bool {
        self.requests.values().any(|r| r.node == node && r.item == Item::Offers)
    }

    /// Whether a donor says that it has headers which continue the chain.
    fn is_ahead(&self, donor: &Donor) -> bool {
        donor.head.round > self.chain.tip().round
            && !donor.diverged
            && self.chain.len() < self.config.limits.max_links
    }

    /// Whether no donor that could be asked now has more of the chain.
    pub(super) fn chain_at_rest(&self, now: Time) -> bool {
        !self.chain_in_flight()
            && !self.donors.iter().any(|(_, donor)| donor.ready(now) && self.is_ahead(donor))
    }

    pub(super) fn fetch_chain(&mut self, now: Time) {
        if self.chain_in_flight() {
            return;
        }
        let from = self.chain.tip().round + 1;
        let Some(node) = self.donors.pick(now, |_, donor| self.is_ahead(donor)) else { return };
        let request = Request::Chain { run: self.config.run, from };
        self.send(now, node, Item::Chain { from }, request);
    }

    /// Whether offers of snapshots are awaited.
    pub(super) fn offers_pending(&self, now: Time) -> bool {
        self.donors.iter().any(|(node, donor)| {
            self.offers_in_flight(node) || (donor.offers_due && donor.ready(now))
        })
    }

    pub(super) fn fetch_offers(&mut self, now: Time) {
        if !self.wants_snapshot() {
            return;
        }
        while let Some(node) =
            self.donors.pick(now, |node, d| d.offers_due && !self.offers_in_flight(node))
        {
            if let Some(donor) = self.donors.get_mut(node) {
                donor.offers_due = false;
            }
            self.send(now, node, Item::Offers, Request::Snapshots(self.config.run));
        }
    }

    fn has_slot(&self) -> bool {
        self.requests.len() < self.config.limits.total
    }

    pub(super) fn fetch_snapshot(&mut self, now: Time) {
        while let Way::Snapshot(job) = &self.way
            && self.has_slot()
        {
            let (round, index) = (job.round, job.index);
            let part = job.blob.as_ref().and_then(|blob| blob.next());
            let (item, request) = match (part, job.next()) {
                (Some(part), _) => (Item::SnapshotIndex { round, part }, blob_request(index, part)),
                (None, Some(leaf)) => {
                    let request = Request::SnapshotLeaf { run: self.config.run, round, leaf };
                    (Item::Leaf { round, leaf }, request)
                }
                (None, None) => return,
            };
            let Some(node) = self.donors.pick(now, |_, d| d.offers(round, index)) else { return };
            self.mark_asked(item);
            self.send(now, node, item, request);
        }
    }

    fn mark_asked(&mut self, item: Item) {
        let Way::Snapshot(job) = &mut self.way else { return };
        match item {
            Item::Leaf { leaf, .. } => job.asked(leaf),
            Item::SnapshotIndex { part, .. } => {
                if let Some(blob) = &mut job.blob {
                    blob.asked(part);
                }
            }
            _ => {}
        }
    }

    pub(super) fn fetch_bodies(&mut self, now: Time) {
        if matches!(self.way, Way::Undecided) || !self.state_is_useful() {
            return;
        }
        let (base, tip) = (self.base(), self.chain.tip().round);
        let first = (base + 1..=tip).find(|&round| !self.bodies.has(round));
        for round in first.unwrap_or(tip + 1)..=tip {
            if self.bodies.has(round) {
                continue;
            }
            if !self.has_slot() || !self.open_body(round) {
                return;
            }
            self.fetch_body(now, round);
        }
    }

    /// Fetched bodies are of use only on a sound state or a snapshot to come.
    fn state_is_useful(&self) -> bool {
        self.state.sound || matches!(self.way, Way::Snapshot(_))
    }

    fn fetch_body(&mut self, now: Time, round: Round) {
        while self.has_slot() {
            let Some(job) = self.bodies.jobs.get_mut(&round) else { return };
            let Some(part) = job.next() else { return };
            let digest = job.digest;
            let fits = |node: NodeId, donor: &Donor| {
                donor.head.round >= round && self.bodies.may_have(round, node)
            };
            let Some(node) = self.donors.pick(now, fits) else { return };
            if let Some(job) = self.bodies.jobs.get_mut(&round) {
                job.asked(part);
            }
            self.send(now, node, Item::Body { round, part }, blob_request(digest, part));
        }
    }
}

fn blob_request(blob: Digest, part: Part) -> Request {
    match part {
        Part::Index => Request::BlobIndex(blob),
        Part::Chunk(chunk) => Request::BlobChunk { blob, chunk },
    }
}
