//! What an exchange gives back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    base::{Bounded, Digest, NodeId, limits},
    codec::JobResult,
    identity::Signature,
    proto::ring::Failure,
};

/// An owner's signature on its chunk of a bucket's sums
/// ([`domain::CHUNK`](crate::wire::domain::CHUNK)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkProof {
    /// The owner.
    pub owner: NodeId,
    /// Its signature.
    pub signature: Signature,
}

/// A bucket that stands: exact sums of all members, and all owners' signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedBucket {
    /// The bucket.
    pub bucket: u32,
    /// Agreed codes and sums; member positions are those of this ring.
    pub result: JobResult,
    /// One proof a chunk, in ring order: what [`BucketClaim`](super::BucketClaim) checks.
    pub proofs: Bounded<ChunkProof, { limits::MAX_MEMBERS }>,
    /// blake3 of this member's own packed contribution. The contribution itself is
    /// [`quantise`](crate::codec::quantise()) of the pseudo-gradient against the agreed codes, so
    /// that error feedback needs nothing else from here.
    pub commitment: Digest,
    /// What the predecessor committed to; `None` for a ring of one.
    pub predecessor_commitment: Option<Digest>,
}

/// A complete exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingOutcome {
    /// Every bucket that was exchanged, in order.
    pub buckets: Vec<Arc<FinishedBucket>>,
    /// What it took until then.
    pub traffic: Traffic,
}

/// Frames and bytes of one member, heads included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames handed out for the successor.
    pub frames_sent: u32,
    /// Their bytes on the wire.
    pub bytes_sent: u64,
    /// Payload bytes among them.
    pub payload_sent: u64,
    /// Frames taken from the predecessor.
    pub frames_received: u32,
    /// Their bytes on the wire.
    pub bytes_received: u64,
    /// Payload bytes among them.
    pub payload_received: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingEvent {
    /// A bucket stands. It may have frames left to forward.
    JobFinished(Arc<FinishedBucket>),
    /// All buckets stand. Frames may be left to forward: see [`Ring::is_drained`](super::Ring::is_drained).
    Finished(RingOutcome),
    /// The exchange is over; buckets that were reported finished stand.
    Failed {
        /// The neighbour to blame.
        peer: Option<NodeId>,
        /// What for.
        reason: Failure,
    },
}
