//! Ring frames and the hello of the stream that carries them.

use serde::{Deserialize, Serialize};

use crate::{
    base::{Attempt, Digest, NodeId, Round, RunId, limits},
    identity::Signature,
    wire::codec::{self, DecodeError},
};

/// First bytes of a bulk stream: which exchange its frames belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkHello {
    /// [`VERSION`](crate::wire::VERSION) of the opener.
    pub version: u16,
    /// The run.
    pub run: RunId,
    /// The round.
    pub round: Round,
    /// The attempt.
    pub attempt: Attempt,
    /// Digest of the plan.
    pub plan: Digest,
    /// The opener; the receiver checks it against the connection's peer.
    pub from: NodeId,
}

/// Which part of a matrix a job reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobPhase {
    /// 0: plain blocks.
    Plain,
    /// 1: the left factor P of the low-rank part.
    P,
    /// 2: the right factor Q.
    Q,
}

/// What a job agrees on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobKind {
    /// 0: scale codes: maxima.
    Scales,
    /// 1: quantised values: sums.
    Sums,
}

/// One ring job: a bucket's scales or sums in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId {
    /// Index of the bucket over all fragments.
    pub bucket: u32,
    /// Phase of the low-rank part.
    pub phase: JobPhase,
    /// Scales or sums.
    pub kind: JobKind,
}

/// Direction of a ring pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// 0: partial results on the way to the chunk's owner.
    Reduce,
    /// 1: the finished chunk on the way to everybody.
    Gather,
}

/// A signed digest of a chunk: of a partial result by the member that hands it on (`Reduce`), or
/// of the finished chunk by its owner (`Gather`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopProof {
    /// blake3 of the chunk's bytes as sent in this pass and hop.
    pub digest: Digest,
    /// By the sender (`Reduce`, [`domain::HOP`](crate::wire::domain::HOP)) or the owner
    /// (`Gather`, [`domain::CHUNK`](crate::wire::domain::CHUNK)).
    pub signature: Signature,
}

/// Head of a ring frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHeader {
    /// The round.
    pub round: Round,
    /// The attempt.
    pub attempt: Attempt,
    /// The job.
    pub job: JobId,
    /// Reduce or gather.
    pub pass: Pass,
    /// The chunk: its number is its owner's position in the ring.
    pub chunk: u8,
    /// `Reduce`: contributions in the partial result (1..N). `Gather`: hops from the owner (1..N).
    pub hop: u8,
    /// First unit of the frame, counted from the chunk's start. A unit of a sum is a block of 64
    /// elements; of scales, a block's code or a tensor's pair of maxima.
    pub first_unit: u32,
    /// Units in the frame.
    pub units: u32,
    /// Commitment to the sender's quantised contribution to this job: in the first frame that it
    /// sends of the job.
    pub commitment: Option<Digest>,
    /// In the last frame of the chunk.
    pub proof: Option<HopProof>,
}

/// A ring frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub header: FrameHeader,
    /// Packed units.
    pub payload: Vec<u8>,
}

/// A frame that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Its head is malformed.
    #[error("a ring frame's head is malformed: {0}")]
    Head(#[from] DecodeError),
    /// It is cut off or too large.
    #[error("a ring frame of {0} bytes is cut off or too large")]
    Length(usize),
}

/// Bytes of an encoded frame head at most.
const MAX_HEAD: usize = 1000;

impl Frame {
    /// The wire form: length of the head (u16, little-endian), head, payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = codec::encode(&self.header);
        let mut bytes = Vec::with_capacity(2 + head.len() + self.payload.len());
        bytes.extend_from_slice(&(head.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// If it is too large, cut off or malformed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FrameError> {
        let length = FrameError::Length(bytes.len());
        if bytes.len() < 2 || bytes.len() > limits::MAX_FRAME_WIRE_BYTES {
            return Err(length);
        }
        let head_len = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        let head = bytes.get(2..2 + head_len).ok_or(length.clone())?;
        let header = codec::decode::<_, MAX_HEAD>(head)?;
        let payload = &bytes[2 + head_len..];
        if payload.len() > limits::MAX_FRAME_BYTES {
            return Err(length);
        }
        Ok(Self { header, payload: payload.to_vec() })
    }
}
