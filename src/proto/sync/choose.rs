//! Which way: replay from the state, or a snapshot; the one with the fewest bytes left.

use std::collections::BTreeSet;

use crate::{
    base::{Digest, Round, Time},
    proto::sync::{
        Effect, LeafTable, PartialSnapshot, Sync,
        blob::BlobJob,
        machine::{Item, Way, Work},
        snapshot::SnapshotJob,
    },
    wire::blob::BlobIndex,
};

/// A way that could be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    Replay,
    Snapshot(Round, Digest),
}

impl Sync {
    /// Takes up the snapshot of an interrupted join; it is used when it is chosen.
    pub(super) fn resume(&mut self, partial: PartialSnapshot) {
        if partial.round <= self.state.round {
            return self.push(Effect::DropPartial { round: partial.round });
        }
        let Ok(index) = BlobIndex::of(&partial.index) else { return };
        match self.readable(partial.round, &partial.index) {
            Ok(table) => {
                let mut job = SnapshotJob::new(&self.config, partial.round, index.digest());
                job.take_table(table, &partial.leaves);
                self.parked = Some(Box::new(job));
            }
            Err(_) => self.push(Effect::DropPartial { round: partial.round }),
        }
    }

    /// Decodes and bounds a snapshot's index.
    pub(super) fn readable(&self, round: Round, bytes: &[u8]) -> Result<LeafTable, String> {
        let table = self.config.index.read(round, bytes)?;
        table.total_bytes(&self.config.limits)?;
        Ok(table)
    }

    /// Bytes of the bodies after `base` that are not stored; None if one cannot be had.
    pub(super) fn bodies_left(&self, base: Round) -> Option<u64> {
        if self.bodies.first_lost(base).is_some_and(|round| round <= self.chain.tip().round) {
            return None;
        }
        let mut left = 0u64;
        for round in base + 1..=self.chain.tip().round {
            let link = self.chain.link(round)?;
            if link.body_bytes > self.config.limits.max_body_bytes {
                return None;
            }
            if !self.bodies.has(round) {
                left = left.saturating_add(link.body_bytes);
            }
        }
        Some(left)
    }

    /// Whether a snapshot could be of use: offers are asked for only then.
    pub(super) fn wants_snapshot(&self) -> bool {
        if self.chain.tip().round <= self.state.round + 1 && self.state.sound {
            return false;
        }
        if matches!(self.way, Way::Snapshot(_)) || !self.state.sound {
            return true;
        }
        self.bodies_left(self.state.round).is_none_or(|bytes| bytes > self.config.state_bytes)
    }

    fn cost(&self, choice: Choice) -> Option<u64> {
        match choice {
            Choice::Replay => self.bodies_left(self.state.round).filter(|_| self.state.sound),
            Choice::Snapshot(round, index) => {
                let useful =
                    round > self.state.round || (round == self.state.round && !self.state.sound);
                if !useful || round >= self.chain.tip().round {
                    return None;
                }
                let leaves = self
                    .known_job(round, index)
                    .map_or(self.config.state_bytes, |job| job.left_bytes());
                Some(self.bodies_left(round)?.saturating_add(leaves))
            }
        }
    }

    fn known_job(&self, round: Round, index: Digest) -> Option<&SnapshotJob> {
        let current = match &self.way {
            Way::Snapshot(job) => Some(job),
            _ => None,
        };
        let jobs = current.into_iter().chain(&self.parked);
        jobs.map(Box::as_ref).find(|job| job.round == round && job.index == index)
    }

    /// Snapshots that can be had: offered, or already complete on disk.
    fn choices(&self) -> BTreeSet<Choice> {
        let offered = self.donors.iter().flat_map(|(_, donor)| &donor.offers);
        let mut choices: BTreeSet<Choice> =
            offered.map(|offer| Choice::Snapshot(offer.round, offer.index)).collect();
        let whole = self.parked.iter().filter(|job| job.complete());
        choices.extend(whole.map(|job| Choice::Snapshot(job.round, job.index)));
        choices.insert(Choice::Replay);
        choices
    }

    fn current(&self) -> Option<Choice> {
        match &self.way {
            Way::Undecided => None,
            Way::Replay => Some(Choice::Replay),
            Way::Snapshot(job) => Some(Choice::Snapshot(job.round, job.index)),
        }
    }

    /// Chooses the way anew if something has changed.
    pub(super) fn choose(&mut self, now: Time) {
        if !self.dirty || self.work.is_some() {
            return;
        }
        let undecided = matches!(self.way, Way::Undecided);
        if undecided && !self.chain_at_rest(now) {
            return;
        }
        if self.wants_snapshot() && self.offers_pending(now) {
            return;
        }
        if matches!(&self.way, Way::Snapshot(job) if job.complete()) {
            return;
        }
        self.dirty = false;
        let choices = self.choices();
        let priced = choices.iter().filter_map(|&choice| Some((self.cost(choice)?, choice)));
        let Some((cost, choice)) = priced.min() else { return };
        let current = self.current();
        if current == Some(choice) {
            return;
        }
        let stay = current.filter(|current| choices.contains(current)).and_then(|c| self.cost(c));
        // A tenth must be won: what is in flight is lost by a change.
        if stay.is_none_or(|stay| cost.saturating_mul(10) < stay.saturating_mul(9)) {
            self.turn(choice);
        }
    }

    fn turn(&mut self, choice: Choice) {
        debug_assert!(!matches!(self.work, Some(Work::Install(_))));
        self.cancel_snapshot();
        let next = match choice {
            Choice::Replay => Way::Replay,
            Choice::Snapshot(round, index) => Way::Snapshot(
                self.take_parked(round, index)
                    .unwrap_or_else(|| Box::new(SnapshotJob::new(&self.config, round, index))),
            ),
        };
        if let Way::Snapshot(left) = std::mem::replace(&mut self.way, next) {
            self.park(left);
        }
        self.leave_bodies(self.base());
    }

    /// Sets a snapshot aside; only one is kept, and none whose index is not there.
    fn park(&mut self, job: Box<SnapshotJob>) {
        if job.root().is_none() {
            return;
        }
        if let Some(old) = self.parked.replace(job) {
            self.push(Effect::DropPartial { round: old.round });
        }
    }

    /// The parked job, if it is the snapshot wanted and still fits the chain. One of the same round
    /// with another index goes: the two would share their files.
    fn take_parked(&mut self, round: Round, index: Digest) -> Option<Box<SnapshotJob>> {
        let job = self.parked.take_if(|job| job.round == round)?;
        let wanted = self.chain.link(round + 1).map(|link| link.root_before);
        if job.index != index || job.root() != wanted {
            self.push(Effect::DropPartial { round });
            return None;
        }
        Some(job)
    }

    /// Forgets the parked snapshot if the state has come as far as it.
    pub(super) fn drop_parked_to(&mut self, round: Round) {
        if let Some(job) = self.parked.take_if(|job| job.round <= round) {
            self.push(Effect::DropPartial { round: job.round });
        }
    }

    /// Stops what is under way for bodies that the snapshot makes unnecessary.
    fn leave_bodies(&mut self, round: Round) {
        self.cancel_where(
            |request| matches!(request.item, Item::Body { round: of, .. } if of <= round),
        );
        self.bodies.jobs = self.bodies.jobs.split_off(&(round + 1));
    }

    /// Makes sure that the body of `round` is being assembled; false if there is no room.
    pub(super) fn open_body(&mut self, round: Round) -> bool {
        if self.bodies.jobs.contains_key(&round) {
            return true;
        }
        let limits = self.config.limits;
        let Some(link) = self.chain.link(round).copied() else { return false };
        if link.body_bytes == 0 {
            self.bodies.stored(round);
            self.push(Effect::StoreBody { round, bytes: Vec::new() });
            return true;
        }
        let assembled = self.bodies.jobs.keys().filter_map(|&round| self.chain.link(round));
        let bytes = assembled.map(|link| link.body_bytes).sum();
        if link.body_bytes > limits.max_body_bytes || !self.bodies.has_room(&limits, &link, bytes) {
            return false;
        }
        let job = BlobJob::new(link.body, Some(link.body_bytes), limits.max_body_bytes);
        self.bodies.jobs.insert(round, job);
        true
    }

    /// Why nothing can be done now, and the remedy.
    pub(super) fn stuck_reason(&self) -> String {
        let (state, tip) = (self.state.round, self.chain.tip().round);
        if let Some(reason) = &self.paused {
            return reason.clone();
        }
        if self.donors.is_empty() {
            return format!(
                "no peer is left to fetch from (state at round {state}): check --bootstrap and the \
                 connection; fetching goes on when one appears"
            );
        }
        if self.donors.iter().all(|(_, d)| d.diverged || self.chain.contradicts(&d.head)) {
            return format!(
                "all peers stand on another branch than this node (round {tip}): if theirs is the \
                 run's, start with an empty --data-dir to fetch it anew"
            );
        }
        if !self.state.sound {
            return format!(
                "the state after round {state} is not the run's, and no peer offers a newer \
                 snapshot: wait for the next one, or check this machine (memory, compiler flags)"
            );
        }
        if !self.requests_end_well() {
            let count = self.donors.iter().count();
            return format!(
                "{count} peers are known and none answers (state at round {state}): check the \
                 connection and its firewall; they are asked again"
            );
        }
        let lost = self.bodies.first_lost(self.base());
        if let Some(round) = lost.filter(|&round| round <= tip) {
            return format!(
                "no peer holds the delta of round {round} any more, and none offers a snapshot of \
                 it or a later round: wait for one that has trained longer, or connect to an \
                 archive (dilocox-bootstrap --archive)"
            );
        }
        let max = self.config.limits.max_body_bytes;
        let too_long = (state + 1..=tip)
            .find(|&round| self.chain.link(round).is_some_and(|link| link.body_bytes > max));
        if let Some(round) = too_long {
            return format!(
                "header {round} names a body of more than the {max} bytes that this model can \
                 have: upgrade this node"
            );
        }
        format!("no peer offers what leads from round {state} to {tip}: waiting for another peer")
    }
}
