//! What belongs to the node itself: what it has said, what it has not yet contributed, which data
//! it has used.

use super::{LeaseUse, LocalState, RunStore, StoreError, Votes, local, sealed};
use crate::base::{Attempt, Bounded, Digest, Round};

const LEASES: &[u8; 8] = b"leases\0\0";
/// Leases remembered: those of the segments that can still be counted.
const MAX_LEASES: usize = 64;

impl RunStore {
    /// Notes a promise; it is on disk when this returns, and may be sent then.
    ///
    /// # Errors
    /// If it contradicts an earlier one, or cannot be written: then it must not be sent.
    pub fn record_promise(&mut self, round: Round, attempt: Attempt) -> Result<(), StoreError> {
        self.votes.promise(round, attempt)
    }

    /// Notes a signature; it is on disk when this returns, and may be sent then.
    ///
    /// # Errors
    /// If it contradicts an earlier one, or cannot be written: then it must not be sent.
    pub fn record_vote(
        &mut self,
        round: Round,
        attempt: Attempt,
        digest: Digest,
        header: &[u8],
    ) -> Result<(), StoreError> {
        self.votes.vote(round, attempt, digest, header)
    }

    /// Promises and signatures by round.
    pub fn load_votes(&self) -> &Votes {
        self.votes.votes()
    }

    /// Forgets what was said in rounds that are committed.
    ///
    /// # Errors
    /// If the file cannot be rewritten.
    pub fn forget_votes_below(&mut self, round: Round) -> Result<(), StoreError> {
        self.votes.forget_below(round)
    }

    /// Replaces the node's own state.
    ///
    /// # Errors
    /// If it cannot be written; the old one is still there then.
    pub fn save_local(&mut self, state: &LocalState) -> Result<(), StoreError> {
        local::save(&self.disk, &self.dir.join("local"), state)
    }

    /// The node's own state; None if it has none.
    ///
    /// # Errors
    /// If it is damaged or cannot be read.
    pub fn load_local(&self) -> Result<Option<LocalState>, StoreError> {
        local::load(&self.dir.join("local"))
    }

    /// Notes how much of each lease is used: call it before positions are counted in a Ready.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_leases(&mut self, leases: &[LeaseUse]) -> Result<(), StoreError> {
        let newest = &leases[leases.len().saturating_sub(MAX_LEASES)..];
        let list: Bounded<LeaseUse, MAX_LEASES> =
            Bounded::try_from(newest.to_vec()).unwrap_or_default();
        sealed::write(&self.disk, &self.dir.join("leases"), LEASES, &list)
    }

    /// Leases used so far.
    ///
    /// # Errors
    /// If the file is damaged: then nothing of the running leases may be used.
    pub fn leases(&self) -> Result<Vec<LeaseUse>, StoreError> {
        let remedy = "remove it: the node goes on with its next lease";
        let list: Option<Bounded<LeaseUse, MAX_LEASES>> =
            sealed::read(&self.dir.join("leases"), LEASES, remedy)?;
        Ok(list.map(Bounded::into_vec).unwrap_or_default())
    }
}
