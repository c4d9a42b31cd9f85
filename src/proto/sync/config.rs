//! What a sync is told at its start.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use crate::{
    base::{Digest, Round, RunId, limits::BLOB_CHUNK_BYTES},
    config::Layout,
    outer::{SnapshotIndex, snapshot},
    wire::Header,
};

/// One leaf of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRef {
    /// blake3 of its bytes.
    pub digest: Digest,
    /// Its length; at most 1 MiB, so that it fits into one reply.
    pub bytes: u32,
}

/// What sync must know of a snapshot's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafTable {
    /// The state root that the leaves add up to.
    pub root: Digest,
    /// The leaves in order.
    pub leaves: Vec<LeafRef>,
}

/// Decodes the index of the snapshot of a round; bounded, and checked against the model.
#[derive(Clone)]
pub struct IndexReader(Arc<ReadIndex>);

type ReadIndex = dyn Fn(Round, &[u8]) -> Result<LeafTable, String> + Send + std::marker::Sync;

impl IndexReader {
    /// A reader of one's own, for tests and simulations.
    pub fn new(
        read: impl Fn(Round, &[u8]) -> Result<LeafTable, String> + Send + std::marker::Sync + 'static,
    ) -> Self {
        Self(Arc::new(read))
    }

    /// The reader for a model's [`SnapshotIndex`].
    pub fn of_layout(layout: Arc<Layout>) -> Self {
        let lengths: Vec<u32> =
            snapshot::spans(&layout).iter().map(|span| span.bytes() as u32).collect();
        Self::new(move |round, bytes| {
            let index = SnapshotIndex::from_bytes(bytes, &layout).map_err(|e| e.to_string())?;
            if index.round != round {
                return Err(format!("it is of round {}, not {round}", index.round));
            }
            let pairs = index.digests().zip(&lengths);
            let leaves = pairs.map(|(&digest, &bytes)| LeafRef { digest, bytes }).collect();
            Ok(LeafTable { root: index.root(), leaves })
        })
    }

    /// Reads an index.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn read(&self, round: Round, bytes: &[u8]) -> Result<LeafTable, String> {
        (self.0)(round, bytes)
    }
}

impl fmt::Debug for IndexReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexReader")
    }
}

/// What a node agrees on and bounds before it syncs.
#[derive(Clone, Debug)]
pub struct SyncConfig {
    /// The run.
    pub run: RunId,
    /// The header of round 0.
    pub genesis: Header,
    /// Seeds the order in which donors are asked; the node's own id does.
    pub seed: Digest,
    /// Bytes of a folded state, to weigh a snapshot against replay before its index is known.
    pub state_bytes: u64,
    /// Decodes snapshots' indices.
    pub index: IndexReader,
    /// Bounds and delays.
    pub limits: SyncLimits,
}

/// Bounds and delays of a sync.
#[derive(Clone, Copy, Debug)]
pub struct SyncLimits {
    /// Requests in flight at one donor: enough to fill a link of 4 MiB delay and bandwidth.
    pub per_donor: usize,
    /// Requests in flight in total: 1 MiB of memory each.
    pub total: usize,
    /// Donors that are used at once; more are ignored.
    pub donors: usize,
    /// No request times out sooner.
    pub timeout_floor: Duration,
    /// No request times out later.
    pub timeout_ceiling: Duration,
    /// Pause after a donor's first failure; it doubles with each further one.
    pub backoff_floor: Duration,
    /// Longest pause.
    pub backoff_ceiling: Duration,
    /// How often offers are asked again, and a stuck sync tries again.
    pub recheck: Duration,
    /// Bytes of a snapshot's index at most.
    pub max_index_bytes: u64,
    /// Bytes of a snapshot's leaves at most.
    pub max_snapshot_bytes: u64,
    /// Bytes of one body at most.
    pub max_body_bytes: u64,
    /// Bytes of bodies that are assembled in memory at once (one body always may be).
    pub body_window_bytes: u64,
    /// Bodies that are assembled at once.
    pub body_window: usize,
    /// Links of the chain that are kept ahead of the state.
    pub max_links: usize,
}

impl SyncLimits {
    /// Limits for a model of `elements` parameters.
    pub fn for_elements(elements: u64) -> Self {
        // Anchor, momentum, bases (at most as large again) and, for global steps, two moments.
        let state = elements.saturating_mul(5 * 4).saturating_add(64 << 20);
        Self {
            per_donor: 4,
            total: 32,
            donors: 64,
            timeout_floor: Duration::from_secs(2),
            timeout_ceiling: Duration::from_secs(600),
            backoff_floor: Duration::from_millis(500),
            backoff_ceiling: Duration::from_secs(60),
            recheck: Duration::from_secs(20),
            // 64 bytes of index for each leaf of at least 4 KiB, and room for small tensors.
            max_index_bytes: state / 64 + (1 << 20),
            max_snapshot_bytes: state,
            // An exact sum at 32 bits, signatures and digests.
            max_body_bytes: elements.saturating_mul(8).saturating_add(64 << 20),
            body_window_bytes: 256 << 20,
            body_window: 64,
            max_links: 1 << 20,
        }
    }
}

/// A snapshot whose fetch was interrupted.
#[derive(Clone, Debug)]
pub struct PartialSnapshot {
    /// State after this round.
    pub round: Round,
    /// The bytes of its index, as given by [`Effect::StoreIndex`](super::Effect::StoreIndex).
    pub index: Vec<u8>,
    /// Leaves that are on disk and whose digests were checked.
    pub leaves: BTreeSet<u32>,
}

/// What a node has when it starts to sync.
#[derive(Clone, Debug)]
pub struct Have {
    /// Verified headers in order, ending with the newest one known. They must reach back to
    /// `state_round`; earlier ones are ignored. Empty stands for genesis alone.
    pub headers: Vec<Header>,
    /// The round after which the folded state stands; 0 is genesis.
    pub state_round: Round,
    /// The state's root, if it was computed.
    pub state_root: Option<Digest>,
    /// A snapshot of an interrupted join.
    pub partial: Option<PartialSnapshot>,
    /// Bodies on disk of rounds above `state_round`.
    pub bodies: BTreeSet<Round>,
}

impl Have {
    /// A new node: genesis and nothing else.
    pub fn genesis() -> Self {
        Self {
            headers: Vec::new(),
            state_round: 0,
            state_root: None,
            partial: None,
            bodies: BTreeSet::new(),
        }
    }
}

impl LeafTable {
    /// Checks the table against the bounds and gives the sum of its leaves' bytes.
    pub(super) fn total_bytes(&self, limits: &SyncLimits) -> Result<u64, String> {
        if let Some(leaf) = self.leaves.iter().find(|leaf| leaf.bytes as usize > BLOB_CHUNK_BYTES) {
            return Err(format!("a leaf of {} bytes is longer than 1 MiB", leaf.bytes));
        }
        let total: u64 = self.leaves.iter().map(|leaf| u64::from(leaf.bytes)).sum();
        if total > limits.max_snapshot_bytes {
            let max = limits.max_snapshot_bytes;
            return Err(format!("{total} bytes of leaves are more than the {max} allowed"));
        }
        if u32::try_from(self.leaves.len()).is_err() {
            return Err("it has too many leaves".to_owned());
        }
        Ok(total)
    }
}
