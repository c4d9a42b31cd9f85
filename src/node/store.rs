//! A run's files, shared between the driver, the fold thread and the running exchange.
//!
//! One writer at a time. The lock is held for the length of one file operation; snapshots are
//! written beside it, leaf by leaf. Replies to peers do not pass through here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    base::{Attempt, Digest, Round},
    checkpoint::store::{LeaseUse, LocalState, RunStore, Server, SnapshotWriter, StoreError},
    outer::{SnapshotIndex, State, StateBuilder},
    proto::sync::Have,
    wire::{Certificate, Header, codec},
};

/// The shared store of one run.
#[derive(Clone)]
pub(crate) struct Store(Arc<Mutex<RunStore>>);

impl Store {
    pub(crate) fn new(store: RunStore) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    fn lock(&self) -> MutexGuard<'_, RunStore> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies to peers, on any thread.
    pub(crate) fn server(&self) -> Server {
        self.lock().server()
    }

    pub(crate) fn head_round(&self) -> Round {
        self.lock().head().round
    }

    pub(crate) fn head(&self) -> Header {
        self.lock().head().clone()
    }

    pub(crate) fn header(&self, round: Round) -> Option<Header> {
        self.lock().header(round).ok()
    }

    pub(crate) fn append_certificate(&self, certificate: &Certificate) -> Result<(), StoreError> {
        self.lock().append_certificate(certificate)
    }

    pub(crate) fn put_body(&self, round: Round, bytes: &[u8]) -> Result<(), StoreError> {
        self.lock().store_body(round, bytes).map(|_| ())
    }

    pub(crate) fn body(&self, header: &Header) -> Result<Vec<u8>, StoreError> {
        self.lock().body(header)
    }

    pub(crate) fn have(&self, round: Round, root: Digest) -> Result<Have, StoreError> {
        self.lock().have(round, Some(root))
    }

    pub(crate) fn begin_partial(&self, round: Round, index: &[u8]) -> Result<(), StoreError> {
        self.lock().store_partial_index(round, index)
    }

    pub(crate) fn put_partial_leaf(
        &self,
        round: Round,
        leaf: u32,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.lock().store_partial_leaf(round, leaf, bytes)
    }

    pub(crate) fn drop_partial(&self, round: Round) -> Result<(), StoreError> {
        self.lock().drop_partial(round)
    }

    pub(crate) fn finish_partial(&self, round: Round) -> Result<(), StoreError> {
        self.lock().finish_partial(round).map(|_| ())
    }

    /// Removes all snapshots: the state in them is not trusted any more.
    pub(crate) fn drop_snapshots(&self) -> Result<(), StoreError> {
        self.lock().drop_snapshots()
    }

    pub(crate) fn newest_snapshot(&self) -> Result<Option<Round>, StoreError> {
        self.lock().newest_snapshot(Round::MAX)
    }

    /// Writes the state after a round as a snapshot; its bytes.
    pub(crate) fn write_snapshot(
        &self,
        round: Round,
        index: &SnapshotIndex,
        state: &State,
    ) -> Result<u64, StoreError> {
        let writer: SnapshotWriter = self.lock().begin_snapshot(round)?;
        let encoded = index.to_bytes();
        let mut bytes = encoded.len() as u64;
        for leaf in 0..index.leaf_count() {
            let leaf_bytes = state.leaf(leaf);
            bytes += leaf_bytes.len() as u64;
            writer.put_leaf(leaf as u32, &leaf_bytes)?;
        }
        writer.finish(&encoded)?;
        self.lock().adopt_snapshot(round)?;
        Ok(bytes)
    }

    /// Reads a snapshot; every leaf is checked by its digest. A damaged one is discarded.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn load_snapshot(
        &self,
        layout: Arc<crate::config::Layout>,
        round: Round,
    ) -> Result<State, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut store = self.lock();
        let index = store.snapshot_index(round).map_err(|error| text(&error))?;
        let index = SnapshotIndex::from_bytes(&index, &layout).map_err(|error| text(&error))?;
        let mut builder = StateBuilder::new(&index, layout).map_err(|error| text(&error))?;
        let load = |leaf: u32, bytes: &[u8]| {
            builder.put_leaf(leaf as usize, bytes).map_err(|error| error.to_string())
        };
        store.load_snapshot(round, load).map_err(|error| text(&error))?;
        builder.finish().map_err(|error| text(&error))
    }

    pub(crate) fn record_promise(&self, round: Round, attempt: Attempt) -> Result<(), StoreError> {
        self.lock().record_promise(round, attempt)
    }

    pub(crate) fn record_vote(&self, attempt: Attempt, header: &Header) -> Result<(), StoreError> {
        let bytes = codec::encode(header);
        self.lock().record_vote(header.round, attempt, header.digest(), &bytes)
    }

    /// What was promised and signed in a round: the attempt, and the header with its attempt.
    pub(crate) fn votes_of(&self, round: Round) -> (Option<Attempt>, Option<(Attempt, Header)>) {
        let store = self.lock();
        let Some(votes) = store.load_votes().get(&round) else { return (None, None) };
        let signed = votes.voted.as_ref().and_then(|(attempt, _, bytes)| {
            let header = codec::decode::<Header, { crate::base::limits::MAX_HEADER_BYTES }>(bytes);
            header.ok().map(|header| (*attempt, header))
        });
        (votes.promised, signed)
    }

    pub(crate) fn forget_votes_below(&self, round: Round) -> Result<(), StoreError> {
        self.lock().forget_votes_below(round)
    }

    /// Writes what is left of the lease, then the rest: after a crash between the two, positions
    /// are skipped but never used twice.
    pub(crate) fn save_local(
        &self,
        local: &LocalState,
        lease: (u64, u64),
    ) -> Result<(), StoreError> {
        let (first, left) = lease;
        let length = u32::try_from(left).unwrap_or(u32::MAX);
        let mut store = self.lock();
        store.record_leases(&[LeaseUse { round: local.round, first, length, used: 0 }])?;
        store.save_local(local)
    }

    pub(crate) fn load_local(&self) -> Result<Option<LocalState>, StoreError> {
        self.lock().load_local()
    }

    /// What is left of the last lease.
    pub(crate) fn lease_left(&self) -> (u64, u64) {
        let leases = self.lock().leases().unwrap_or_default();
        leases.last().map_or((0, 0), |lease| {
            let used = lease.used.min(lease.length);
            (lease.first + u64::from(used), u64::from(lease.length - used))
        })
    }
}
