//! Content-addressed blobs: data files, bodies of rounds, snapshot indices.
//!
//! A blob is cut into chunks of 1 MiB. Its digest is the hash of its length and its chunks'
//! digests (its index), so that every chunk can be checked alone and fetched from anybody.

use serde::{Deserialize, Serialize};

use crate::{
    base::{Bounded, Digest, limits::BLOB_CHUNK_BYTES},
    wire::codec,
};

/// Chunks of a blob: 32 GiB, so that an index fits into one reply.
pub const MAX_CHUNKS: usize = 32 * 1024;

/// The length of a blob and the digests of its chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobIndex {
    /// Length in bytes.
    pub bytes: u64,
    /// blake3 of each chunk.
    pub chunks: Bounded<Digest, MAX_CHUNKS>,
}

/// A blob that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// Longer than 32 GiB.
    #[error("{0} bytes are more than the 32 GiB of a blob: cut the file")]
    TooLong(u64),
    /// The index is not the one that the digest names.
    #[error("the index does not hash to {0}")]
    WrongIndex(Digest),
    /// The number of chunks does not fit the length.
    #[error("{chunks} chunks do not fit {bytes} bytes")]
    Inconsistent {
        /// Chunks listed.
        chunks: usize,
        /// Length stated.
        bytes: u64,
    },
}

impl BlobIndex {
    /// The index of bytes in memory.
    ///
    /// # Errors
    /// If there are more than 32 GiB of them.
    pub fn of(bytes: &[u8]) -> Result<Self, BlobError> {
        Self::of_chunks(bytes.len() as u64, bytes.chunks(BLOB_CHUNK_BYTES).map(Digest::of))
    }

    /// The index of chunks that are hashed elsewhere.
    ///
    /// # Errors
    /// If there are too many.
    pub fn of_chunks(bytes: u64, chunks: impl Iterator<Item = Digest>) -> Result<Self, BlobError> {
        let chunks: Vec<Digest> = chunks.take(MAX_CHUNKS + 1).collect();
        let chunks = Bounded::try_from(chunks).map_err(|_| BlobError::TooLong(bytes))?;
        Ok(Self { bytes, chunks })
    }

    /// The blob's name.
    pub fn digest(&self) -> Digest {
        Digest::of_parts("dilocox/blob/1", [codec::encode(self).as_slice()])
    }

    /// Checks that this is the index of `digest` and consistent in itself.
    ///
    /// # Errors
    /// If it is not.
    pub fn verify(&self, digest: Digest) -> Result<(), BlobError> {
        if self.digest() != digest {
            return Err(BlobError::WrongIndex(digest));
        }
        if self.chunks.len() as u64 != self.bytes.div_ceil(BLOB_CHUNK_BYTES as u64) {
            return Err(BlobError::Inconsistent { chunks: self.chunks.len(), bytes: self.bytes });
        }
        Ok(())
    }

    /// Length of chunk `index`.
    pub fn chunk_len(&self, index: usize) -> usize {
        let start = index as u64 * BLOB_CHUNK_BYTES as u64;
        self.bytes.saturating_sub(start).min(BLOB_CHUNK_BYTES as u64) as usize
    }
}
