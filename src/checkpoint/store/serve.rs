//! Replies to peers: read-only, at most a page or 1 MiB at a time, on any thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    BlobStore, StoreError,
    bodies::{BodyIndex, StoredBody, read_chunk},
    ledger::{self, LedgerIndex},
    snapshot_files::{StoredSnapshot, index_path, read_leaf},
    snapshots::SnapshotIndex,
};
use crate::{
    base::{Bounded, Digest, Round, RunId, limits},
    wire::{
        blob::BlobIndex,
        fetch::{MAX_SNAPSHOTS, Reply, Request, SnapshotOffer},
    },
};

/// What is on disk; the lock is held for look-ups only, never while a file is read.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) manifest: Vec<u8>,
    pub(super) ledger: LedgerIndex,
    pub(super) bodies: BodyIndex,
    pub(super) snapshots: SnapshotIndex,
}

/// The catalog as the store and its servers share it.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Catalog>>);

impl Shared {
    pub(super) fn new(catalog: Catalog) -> Self {
        Self(Arc::new(Mutex::new(catalog)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Catalog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one run's state to peers. Clones share it; it does not keep the store open.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) run: RunId,
    pub(super) shared: Shared,
    pub(super) blobs: BlobStore,
}

impl Server {
    /// Answers a request for this run. [`Request::Runs`] is the node's to answer: the store does
    /// not know what the node does with the run.
    pub fn reply(&self, request: &Request) -> Reply {
        let reply = match *request {
            Request::Manifest(run) if run == self.run => self.manifest(),
            Request::Chain { run, from } if run == self.run => self.chain(from),
            Request::Snapshots(run) if run == self.run => Ok(self.snapshots()),
            Request::BlobIndex(blob) => Ok(self.blob_index(blob)),
            Request::BlobChunk { blob, chunk } => self.blob_chunk(blob, chunk),
            Request::SnapshotLeaf { run, round, leaf } if run == self.run => self.leaf(round, leaf),
            Request::Runs
            | Request::Manifest(_)
            | Request::Chain { .. }
            | Request::Snapshots(_)
            | Request::SnapshotLeaf { .. } => Ok(Reply::NotFound),
        };
        reply.unwrap_or_else(|error| {
            if !matches!(error, StoreError::Missing { .. }) && !error.is_not_found() {
                tracing::warn!("a peer's request is not served: {error}");
            }
            Reply::NotFound
        })
    }

    fn manifest(&self) -> Result<Reply, StoreError> {
        let bytes = self.shared.lock().manifest.clone();
        Ok(Bounded::try_from(bytes).map_or(Reply::NotFound, Reply::Manifest))
    }

    fn chain(&self, from: Round) -> Result<Reply, StoreError> {
        let (path, spans) = self.shared.lock().ledger.locate(from, limits::MAX_CHAIN_PAGE);
        let page: Result<Vec<_>, _> = spans.iter().map(|&span| ledger::read(&path, span)).collect();
        Ok(Bounded::try_from(page?).map_or(Reply::NotFound, Reply::Chain))
    }

    fn snapshots(&self) -> Reply {
        let catalog = self.shared.lock();
        let newest = catalog.snapshots.iter().rev().take(MAX_SNAPSHOTS);
        let offers: Vec<_> = newest
            .map(|(&round, snapshot)| SnapshotOffer { round, index: snapshot.blob.digest() })
            .collect();
        Bounded::try_from(offers).map_or(Reply::NotFound, Reply::Snapshots)
    }

    fn body(&self, blob: Digest) -> Option<StoredBody> {
        self.shared.lock().bodies.get(&blob).cloned()
    }

    fn index_of_snapshot(&self, blob: Digest) -> Option<StoredSnapshot> {
        let catalog = self.shared.lock();
        catalog.snapshots.values().find(|snapshot| snapshot.blob.digest() == blob).cloned()
    }

    fn blob_index(&self, blob: Digest) -> Reply {
        let found = self
            .body(blob)
            .map(|body| body.index)
            .or_else(|| self.index_of_snapshot(blob).map(|s| BlobIndex::clone(&s.blob)))
            .or_else(|| self.blobs.index(blob).map(|index| BlobIndex::clone(&index)));
        found.map_or(Reply::NotFound, Reply::BlobIndex)
    }

    fn blob_chunk(&self, blob: Digest, chunk: u32) -> Result<Reply, StoreError> {
        if let Some(body) = self.body(blob) {
            return Ok(bytes(body.chunk(chunk)?));
        }
        if let Some(snapshot) = self.index_of_snapshot(blob) {
            return Ok(bytes(read_chunk(&index_path(&snapshot.dir), &snapshot.blob, chunk)?));
        }
        Ok(bytes(self.blobs.get_chunk(blob, chunk)?))
    }

    fn leaf(&self, round: Round, leaf: u32) -> Result<Reply, StoreError> {
        let snapshot = self.shared.lock().snapshots.get(&round).cloned();
        let missing = || StoreError::Missing { what: format!("the snapshot of round {round}") };
        let snapshot = snapshot.ok_or_else(missing)?;
        Ok(bytes(read_leaf(&snapshot.dir, &snapshot.table, leaf)?))
    }
}

fn bytes(bytes: Vec<u8>) -> Reply {
    Bounded::try_from(bytes).map_or(Reply::NotFound, Reply::Bytes)
}
