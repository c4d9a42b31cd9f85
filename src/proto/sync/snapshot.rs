//! A snapshot on its way: its index, then its leaves from everybody who offers it.

use std::collections::BTreeSet;

use crate::{
    base::{Digest, Round},
    proto::sync::{LeafTable, SyncConfig, blob::BlobJob},
};

/// A snapshot that is being fetched, or was left for another way.
#[derive(Debug)]
pub(super) struct SnapshotJob {
    /// State after this round.
    pub(super) round: Round,
    /// The blob of its index.
    pub(super) index: Digest,
    /// The index on its way; None once it is there.
    pub(super) blob: Option<BlobJob>,
    table: Option<LeafTable>,
    missing: BTreeSet<u32>,
    asked: BTreeSet<u32>,
    left_bytes: u64,
}

impl SnapshotJob {
    /// A snapshot of which nothing is known but its index's digest.
    pub(super) fn new(config: &SyncConfig, round: Round, index: Digest) -> Self {
        Self {
            round,
            index,
            blob: Some(BlobJob::new(index, None, config.limits.max_index_bytes)),
            table: None,
            missing: BTreeSet::new(),
            asked: BTreeSet::new(),
            left_bytes: config.state_bytes,
        }
    }

    /// Takes the table of leaves, of which `stored` are on disk.
    pub(super) fn take_table(&mut self, table: LeafTable, stored: &BTreeSet<u32>) {
        self.blob = None;
        self.missing =
            (0..table.leaves.len() as u32).filter(|leaf| !stored.contains(leaf)).collect();
        self.left_bytes =
            self.missing.iter().map(|&leaf| u64::from(table.leaves[leaf as usize].bytes)).sum();
        self.table = Some(table);
    }

    /// The state root that the index leads to, once it is there.
    pub(super) fn root(&self) -> Option<Digest> {
        self.table.as_ref().map(|table| table.root)
    }

    /// Bytes still to fetch, an estimate before the index is there.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Number of leaves stored and in all.
    pub(super) fn leaves(&self) -> (usize, usize) {
        let all = self.table.as_ref().map_or(0, |table| table.leaves.len());
        (all - self.missing.len() - self.asked.len(), all)
    }

    /// Whether everything is stored.
    pub(super) fn complete(&self) -> bool {
        self.table.is_some() && self.missing.is_empty() && self.asked.is_empty()
    }

    /// The next leaf that nobody has been asked for.
    pub(super) fn next(&self) -> Option<u32> {
        self.missing.first().copied()
    }

    /// A leaf has been asked for.
    pub(super) fn asked(&mut self, leaf: u32) {
        if self.missing.remove(&leaf) {
            self.asked.insert(leaf);
        }
    }

    /// A leaf that was asked for does not come.
    pub(super) fn failed(&mut self, leaf: u32) {
        if self.asked.remove(&leaf) {
            self.missing.insert(leaf);
        }
    }

    /// Whether `bytes` are the leaf.
    pub(super) fn fits(&self, leaf: u32, bytes: &[u8]) -> bool {
        let entry = self.table.as_ref().and_then(|table| table.leaves.get(leaf as usize));
        entry.is_some_and(|entry| {
            entry.bytes as usize == bytes.len() && entry.digest == Digest::of(bytes)
        })
    }

    /// The leaf is stored.
    pub(super) fn stored(&mut self, leaf: u32, bytes: usize) {
        if self.asked.remove(&leaf) {
            self.left_bytes = self.left_bytes.saturating_sub(bytes as u64);
        }
    }
}
