//! What is done with a reply: checked, stored, or blamed.

use std::collections::BTreeSet;

use crate::{
    base::{Bounded, NodeId, Round, Time, limits::MAX_CHAIN_PAGE},
    proto::sync::{
        Effect, Fault, FetchFailure, Sync,
        blob::Part,
        donors::MAX_STRIKES,
        machine::{InFlight, Item, Way},
    },
    wire::{
        Certificate, CertificateError,
        blob::BlobIndex,
        fetch::{Reply, SnapshotOffer},
    },
};

impl Sync {
    pub(super) fn take_reply(&mut self, now: Time, request: InFlight, reply: Reply) {
        let InFlight { node, item, sent, .. } = request;
        match (item, reply) {
            (_, Reply::Busy) => {
                self.requeue(item);
                self.donors.busy(now, node);
            }
            (_, Reply::Version(theirs)) => {
                let problem = format!("it speaks wire version {theirs}: upgrade the older node");
                self.requeue(item);
                self.blame(node, Fault::WrongReply(problem));
            }
            (Item::Chain { from }, Reply::Chain(page)) if !page.is_empty() => {
                self.useful(now, request);
                self.take_chain(node, from, page);
            }
            (Item::Chain { from }, Reply::Chain(_) | Reply::NotFound) => {
                self.no_chain(now, node, from, sent);
            }
            (_, Reply::NotFound) => {
                self.useful_at = now;
                self.not_found(node, item);
            }
            (Item::Offers, Reply::Snapshots(offers)) => {
                self.useful(now, request);
                self.take_offers(node, offers.into_vec());
            }
            (Item::SnapshotIndex { part: Part::Index, .. }, Reply::BlobIndex(index)) => {
                self.useful(now, request);
                self.take_snapshot_part(request, Piece::Index(index));
            }
            (Item::SnapshotIndex { part: Part::Chunk(chunk), .. }, Reply::Bytes(bytes)) => {
                self.useful(now, request);
                self.take_snapshot_part(request, Piece::Chunk(chunk, bytes.into_vec()));
            }
            (Item::Leaf { round, leaf }, Reply::Bytes(bytes)) => {
                self.useful(now, request);
                self.take_leaf(node, round, leaf, bytes.into_vec());
            }
            (Item::Body { round, part: Part::Index }, Reply::BlobIndex(index)) => {
                self.useful(now, request);
                self.take_body_part(request, round, Piece::Index(index));
            }
            (Item::Body { round, part: Part::Chunk(chunk) }, Reply::Bytes(bytes)) => {
                self.useful(now, request);
                self.take_body_part(request, round, Piece::Chunk(chunk, bytes.into_vec()));
            }
            (item, _) => {
                self.requeue(item);
                self.blame(node, Fault::WrongReply(format!("{item:?} was asked for")));
            }
        }
    }

    pub(super) fn take_failure(&mut self, now: Time, request: InFlight, failure: FetchFailure) {
        let InFlight { node, item, sent, .. } = request;
        self.requeue(item);
        match failure {
            FetchFailure::Timeout => self.donors.timed_out(now, node, item.bulk(), sent),
            FetchFailure::Gone | FetchFailure::Other(_) => self.donors.failed(now, node, sent),
            FetchFailure::Malformed(problem) => self.blame(node, Fault::WrongReply(problem)),
        }
    }

    /// What a request was for is to be asked again.
    pub(super) fn requeue(&mut self, item: Item) {
        match (item, &mut self.way) {
            (Item::Leaf { round, leaf }, Way::Snapshot(job)) if job.round == round => {
                job.failed(leaf);
            }
            (Item::SnapshotIndex { round, part }, Way::Snapshot(job)) if job.round == round => {
                if let Some(blob) = &mut job.blob {
                    blob.failed(part);
                }
            }
            (Item::Body { round, part }, _) => {
                if let Some(job) = self.bodies.jobs.get_mut(&round) {
                    job.failed(part);
                }
            }
            (Item::Offers | Item::Chain { .. } | Item::Leaf { .. }, _)
            | (Item::SnapshotIndex { .. }, _) => {}
        }
    }

    fn useful(&mut self, now: Time, request: InFlight) {
        self.useful_at = now;
        self.donors.replied(request.node, request.item.bulk(), now.since(request.sent));
    }

    fn take_chain(
        &mut self,
        node: NodeId,
        from: Round,
        page: Bounded<Certificate, MAX_CHAIN_PAGE>,
    ) {
        if page[0].header.round != from {
            let problem = format!("certificates from round {from} on were asked for");
            return self.blame(node, Fault::WrongReply(problem));
        }
        for certificate in page.into_vec() {
            let next = self.chain.tip().round + 1;
            if certificate.header.round < next {
                continue;
            }
            if self.chain.len() >= self.config.limits.max_links {
                return;
            }
            match self.chain.extend(&certificate) {
                Ok(()) => self.extended(certificate),
                Err(CertificateError::NotNext { round, .. }) if round == next => {
                    return self.diverged(node, next);
                }
                Err(error) => return self.blame(node, error.into()),
            }
        }
        if let Some(donor) = self.donors.get_mut(node) {
            donor.strikes = 0;
        }
    }

    fn diverged(&mut self, node: NodeId, round: Round) {
        if let Some(donor) = self.donors.get_mut(node) {
            donor.diverged = true;
            let head = donor.head;
            self.push(Effect::Diverged { node, round, head });
        }
    }

    /// A donor says it is ahead and shows nothing: its claim is lowered to what is known.
    fn no_chain(&mut self, now: Time, node: NodeId, from: Round, sent: Time) {
        let tip = self.chain.tip().round;
        let Some(donor) = self.donors.get_mut(node) else { return };
        let claimed = donor.head.round;
        donor.head.round = claimed.min(tip);
        donor.strikes += 1;
        if donor.strikes >= MAX_STRIKES {
            return self.blame(node, Fault::EmptyChain { claimed, wanted: from });
        }
        self.donors.failed(now, node, sent);
    }

    fn not_found(&mut self, node: NodeId, item: Item) {
        self.requeue(item);
        match item {
            Item::Body { round, .. } => {
                self.bodies.lacks(round, node);
                self.dirty |= self.bodies.refresh_lost(&self.donors);
            }
            Item::Leaf { round, .. } | Item::SnapshotIndex { round, .. } => {
                if let Some(donor) = self.donors.get_mut(node) {
                    donor.offers.retain(|offer| offer.round != round);
                }
                self.dirty = true;
            }
            Item::Offers => self.take_offers(node, Vec::new()),
            Item::Chain { .. } => {}
        }
    }

    fn take_offers(&mut self, node: NodeId, offers: Vec<SnapshotOffer>) {
        if let Some(donor) = self.donors.get_mut(node) {
            donor.offers = offers;
            self.dirty = true;
        }
    }

    fn take_snapshot_part(&mut self, request: InFlight, piece: Piece) {
        let Way::Snapshot(job) = &mut self.way else { return };
        let round = job.round;
        let Some(blob) = &mut job.blob else { return };
        if piece.put(blob).is_err() {
            self.requeue(request.item);
            return self.blame(request.node, piece_fault(request.item));
        }
        if blob.complete() {
            let bytes = blob.take();
            self.take_snapshot_index(round, bytes);
        }
    }

    fn take_snapshot_index(&mut self, round: Round, bytes: Vec<u8>) {
        let wanted = self.chain.link(round + 1).map(|link| link.root_before);
        let table = self.readable(round, &bytes).and_then(|table| {
            if Some(table.root) == wanted {
                Ok(table)
            } else {
                Err(format!("its root is {}", table.root))
            }
        });
        match table {
            Ok(table) => {
                if let Way::Snapshot(job) = &mut self.way {
                    job.take_table(table, &BTreeSet::new());
                }
                self.dirty = true;
                self.push(Effect::StoreIndex { round, bytes });
            }
            Err(problem) => self.refuse_snapshot(round, &problem),
        }
    }

    /// Everybody who offers this index lies.
    fn refuse_snapshot(&mut self, round: Round, problem: &str) {
        self.cancel_snapshot();
        let Way::Snapshot(job) = std::mem::replace(&mut self.way, Way::Undecided) else { return };
        let liars: Vec<NodeId> = self
            .donors
            .iter()
            .filter(|(_, donor)| donor.offers(round, job.index))
            .map(|(node, _)| node)
            .collect();
        for node in liars {
            let problem = problem.to_owned();
            self.blame(node, Fault::WrongSnapshot { round, problem });
        }
        self.dirty = true;
    }

    fn take_leaf(&mut self, node: NodeId, round: Round, leaf: u32, bytes: Vec<u8>) {
        let Way::Snapshot(job) = &mut self.way else { return };
        if job.round != round {
            return;
        }
        if !job.fits(leaf, &bytes) {
            job.failed(leaf);
            let what = format!("leaf {leaf} of the snapshot of round {round}");
            return self.blame(node, Fault::WrongBytes(what));
        }
        job.stored(leaf, bytes.len());
        self.stuck = None;
        self.push(Effect::StoreLeaf { round, leaf, bytes });
    }

    fn take_body_part(&mut self, request: InFlight, round: Round, piece: Piece) {
        let Some(job) = self.bodies.jobs.get_mut(&round) else { return };
        if piece.put(job).is_err() {
            self.requeue(request.item);
            return self.blame(request.node, piece_fault(request.item));
        }
        if job.complete()
            && let Some(bytes) = self.bodies.finish(round)
        {
            self.stuck = None;
            self.push(Effect::StoreBody { round, bytes });
        }
    }
}

/// A piece of a blob, as it arrives.
enum Piece {
    Index(BlobIndex),
    Chunk(u32, Vec<u8>),
}

impl Piece {
    fn put(self, blob: &mut super::blob::BlobJob) -> Result<(), super::blob::Wrong> {
        match self {
            Self::Index(index) => blob.take_index(index),
            Self::Chunk(chunk, bytes) => blob.take_chunk(chunk, bytes),
        }
    }
}

fn piece_fault(item: Item) -> Fault {
    let (what, part) = match item {
        Item::SnapshotIndex { round, part } => (format!("the index of snapshot {round}"), part),
        Item::Body { round, part } => (format!("the body of round {round}"), part),
        other => (format!("{other:?}"), Part::Chunk(0)),
    };
    match part {
        Part::Index => Fault::WrongIndex(what),
        Part::Chunk(chunk) => Fault::WrongBytes(format!("chunk {chunk} of {what}")),
    }
}
