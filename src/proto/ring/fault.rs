//! What a frame can be refused for, and what ends an exchange.

use std::time::Duration;

use crate::{
    base::{Attempt, NodeId, Round},
    codec::CodecError,
    identity::BadSignature,
    wire::JobId,
};

/// A frame that is not taken. From the predecessor and of this exchange, each is its sender's
/// fault and ends the exchange; the first three are not and change nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The exchange is over at this member: it has everything, or has failed.
    #[error("the exchange is over here")]
    Over,
    /// The sender is not the predecessor.
    #[error("a frame from {0:?}, which is not the predecessor")]
    NotPredecessor(NodeId),
    /// The frame belongs to another exchange.
    #[error("a frame of round {round}, attempt {attempt}")]
    OtherExchange {
        /// Its round.
        round: Round,
        /// Its attempt.
        attempt: Attempt,
    },
    /// The exchange has no such job.
    #[error("{0:?} is not exchanged")]
    UnknownJob(JobId),
    /// The job lies beyond what a member may send yet.
    #[error("bucket {bucket} is more than {allowed} buckets ahead")]
    Ahead {
        /// The bucket.
        bucket: u32,
        /// Buckets beyond the oldest unfinished one from which frames are taken.
        allowed: usize,
    },
    /// The bucket is finished here.
    #[error("bucket {0} is finished already")]
    Done(u32),
    /// Sums came before the scales they are quantised against.
    #[error("sums of bucket {0} before its scales")]
    Early(u32),
    /// The chunk does not exist, or does not pass this link in this direction.
    #[error("chunk {chunk} does not come this way")]
    Chunk {
        /// The chunk.
        chunk: u8,
    },
    /// All frames of the chunk in this direction are here already.
    #[error("chunk {chunk} is complete already")]
    Repeated {
        /// The chunk.
        chunk: u8,
    },
    /// A finished frame came before this member had added its part.
    #[error("chunk {chunk} is said to be finished without this member's part")]
    Unfinished {
        /// The chunk.
        chunk: u8,
    },
    /// The hop does not fit the members' positions.
    #[error("hop {found} where {expected} was due")]
    Hop {
        /// The hop due.
        expected: u8,
        /// The hop given.
        found: u8,
    },
    /// The frame's units are not the next ones: duplicated, skipped, overlapping or cut otherwise.
    #[error("units {found:?} (first, number) where {expected:?} were due")]
    Units {
        /// First unit and number due.
        expected: (u32, u32),
        /// First unit and number given.
        found: (u32, u32),
    },
    /// The payload is not as long as its units at this width.
    #[error("{found} bytes of payload where {expected} were due")]
    Length {
        /// Bytes due.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The commitment is missing, or where none belongs.
    #[error("a commitment belongs into the first frame of a job's sums, which starts a chunk")]
    Commitment,
    /// The signed digest is missing, or where none belongs.
    #[error("a signed digest belongs into the last frame of a chunk")]
    Proof,
    /// The bytes that came are not those of the signed digest.
    #[error("the bytes of chunk {chunk} do not have the digest that was signed")]
    Digest {
        /// The chunk.
        chunk: u8,
    },
    /// The signature on the digest does not fit.
    #[error(transparent)]
    Signature(#[from] BadSignature),
    /// A value is out of range.
    #[error(transparent)]
    Value(#[from] CodecError),
}

/// Why an exchange ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The predecessor sent nothing for too long.
    #[error("no frame for {0:?}")]
    Stalled(Duration),
    /// A neighbour's stream broke.
    #[error("the link broke")]
    LinkLost,
    /// The predecessor sent what no correct member sends.
    #[error("it broke the protocol: {0}")]
    Fault(#[from] RingFault),
}
