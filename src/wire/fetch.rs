//! Requests for what others hold, and the replies.

use serde::{Deserialize, Serialize};

use crate::{
    base::{Bounded, Digest, Round, RunId, limits},
    wire::{
        Certificate, Head, VERSION,
        blob::BlobIndex,
        codec::{self, DecodeError},
    },
};

/// Runs in one reply.
pub const MAX_RUNS: usize = 256;
/// Snapshots that a node offers.
pub const MAX_SNAPSHOTS: usize = 8;

/// What is asked for. The comment on each variant is its tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// 0: the runs that the peer knows.
    Runs,
    /// 1: a founded manifest.
    Manifest(RunId),
    /// 2: certificates from a round on.
    Chain {
        /// The run.
        run: RunId,
        /// The first round wanted.
        from: Round,
    },
    /// 3: the snapshots that the peer holds.
    Snapshots(RunId),
    /// 4: the index of a blob.
    BlobIndex(Digest),
    /// 5: one chunk of a blob.
    BlobChunk {
        /// The blob.
        blob: Digest,
        /// The chunk.
        chunk: u32,
    },
    /// 6: one leaf of a snapshot.
    SnapshotLeaf {
        /// The run.
        run: RunId,
        /// The snapshot's round.
        round: Round,
        /// The leaf.
        leaf: u32,
    },
}

/// A run in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Its name, UTF-8.
    pub name: Bounded<u8, { limits::MAX_TEXT }>,
    /// Parameters of its model.
    pub parameters: u64,
    /// The newest header that the peer knows.
    pub head: Head,
    /// Rounds in all.
    pub rounds: Round,
    /// Members of the newest header.
    pub members: u16,
    /// Validation loss that the peer measured last, if it trains.
    pub loss: Option<f32>,
}

/// A snapshot on offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOffer {
    /// State after this round.
    pub round: Round,
    /// The blob of its index.
    pub index: Digest,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// 0
    Runs(Bounded<RunSummary, MAX_RUNS>),
    /// 1: canonical bytes of the founded manifest.
    Manifest(Bounded<u8, { limits::MAX_MANIFEST_BYTES }>),
    /// 2
    Chain(Bounded<Certificate, { limits::MAX_CHAIN_PAGE }>),
    /// 3
    Snapshots(Bounded<SnapshotOffer, MAX_SNAPSHOTS>),
    /// 4
    BlobIndex(BlobIndex),
    /// 5: for a blob chunk or a snapshot leaf.
    Bytes(Bounded<u8, { limits::BLOB_CHUNK_BYTES }>),
    /// 6: the peer does not have it.
    NotFound,
    /// 7: the peer is busy; try another one first.
    Busy,
    /// 8: the peer speaks another version.
    Version(u16),
}

impl Request {
    /// The wire form, led by the version.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(&(VERSION, self))
    }

    /// Decodes a request; a sender of another version is told so.
    ///
    /// # Errors
    /// If it is malformed; `Ok(Err(version))` if it is of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Result<Self, u16>, DecodeError> {
        let version = bytes.get(..2).map_or(VERSION, |v| u16::from_le_bytes([v[0], v[1]]));
        if version != VERSION {
            return Ok(Err(version));
        }
        let (_, request): (u16, Self) = codec::decode::<_, 256>(bytes)?;
        Ok(Ok(request))
    }
}

impl Reply {
    /// The wire form. Long byte replies are not encoded element by element.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes_reply(bytes),
            other => codec::encode(other),
        }
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// If it is malformed or too large.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode::<_, { limits::MAX_REPLY_BYTES }>(bytes)
    }
}

/// The wire form of [`Reply::Bytes`] without a copy into a bounded list first.
pub fn bytes_reply(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 + bytes.len());
    out.extend_from_slice(&5u32.to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
    out
}
