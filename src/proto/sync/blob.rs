//! A blob on its way: its index, then its chunks from anybody.

use std::collections::BTreeSet;

use crate::{
    base::{Digest, limits::BLOB_CHUNK_BYTES},
    wire::blob::BlobIndex,
};

/// A piece that one request brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The blob's index.
    Index,
    /// One chunk.
    Chunk(u32),
}

/// A piece is not what the digest names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong;

/// A blob that is being assembled.
#[derive(Debug)]
pub(super) struct BlobJob {
    /// Its name.
    pub(super) digest: Digest,
    length: Option<u64>,
    max: u64,
    index: Option<BlobIndex>,
    missing: BTreeSet<Part>,
    chunks: Vec<Vec<u8>>,
    left: usize,
}

impl BlobJob {
    /// A blob whose length is known or not; at most `max` bytes. One that fits into a chunk is
    /// fetched without its index: a single chunk's digest follows from its bytes.
    pub(super) fn new(digest: Digest, length: Option<u64>, max: u64) -> Self {
        let single = length.is_some_and(|length| length <= BLOB_CHUNK_BYTES as u64);
        let first = if single { Part::Chunk(0) } else { Part::Index };
        Self {
            digest,
            length,
            max,
            index: None,
            missing: BTreeSet::from([first]),
            chunks: vec![Vec::new()],
            left: 1,
        }
    }

    /// The next piece that nobody has been asked for.
    pub(super) fn next(&self) -> Option<Part> {
        self.missing.first().copied()
    }

    /// A piece has been asked for.
    pub(super) fn asked(&mut self, part: Part) {
        self.missing.remove(&part);
    }

    /// A piece that was asked for does not come.
    pub(super) fn failed(&mut self, part: Part) {
        self.missing.insert(part);
    }

    /// Takes the index.
    pub(super) fn take_index(&mut self, index: BlobIndex) -> Result<(), Wrong> {
        let fits = index.bytes <= self.max && self.length.is_none_or(|len| len == index.bytes);
        if !fits || index.verify(self.digest).is_err() {
            return Err(Wrong);
        }
        self.left = index.chunks.len();
        self.chunks = vec![Vec::new(); self.left];
        self.missing = (0..self.left as u32).map(Part::Chunk).collect();
        self.index = Some(index);
        Ok(())
    }

    /// Takes a chunk.
    pub(super) fn take_chunk(&mut self, chunk: u32, bytes: Vec<u8>) -> Result<(), Wrong> {
        if !self.chunk_fits(chunk, &bytes) {
            return Err(Wrong);
        }
        let slot = self.chunks.get_mut(chunk as usize).ok_or(Wrong)?;
        *slot = bytes;
        self.left = self.left.saturating_sub(1);
        Ok(())
    }

    fn chunk_fits(&self, chunk: u32, bytes: &[u8]) -> bool {
        match &self.index {
            Some(index) => {
                index.chunk_len(chunk as usize) == bytes.len()
                    && index.chunks.get(chunk as usize) == Some(&Digest::of(bytes))
            }
            None => {
                self.length == Some(bytes.len() as u64)
                    && BlobIndex::of(bytes).is_ok_and(|index| index.digest() == self.digest)
            }
        }
    }

    /// Whether every chunk is there.
    pub(super) fn complete(&self) -> bool {
        self.left == 0
    }

    /// The whole blob; empties the job.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.chunks).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_chunk_needs_no_index() {
        let digest = BlobIndex::of(b"hello").unwrap().digest();
        let mut job = BlobJob::new(digest, Some(5), 100);
        assert_eq!(job.next(), Some(Part::Chunk(0)));
        job.asked(Part::Chunk(0));
        assert_eq!(job.next(), None);
        assert_eq!(job.take_chunk(0, b"hellp".to_vec()), Err(Wrong));
        job.take_chunk(0, b"hello".to_vec()).unwrap();
        assert!(job.complete());
        assert_eq!(job.take(), b"hello");
    }

    #[test]
    fn several_chunks_come_in_any_order() {
        let bytes: Vec<u8> = (0..2 * BLOB_CHUNK_BYTES + 7).map(|i| i as u8).collect();
        let index = BlobIndex::of(&bytes).unwrap();
        let mut job = BlobJob::new(index.digest(), Some(bytes.len() as u64), u64::MAX);
        assert_eq!(job.next(), Some(Part::Index));
        let other = BlobIndex::of(b"x").unwrap();
        assert_eq!(job.take_index(other), Err(Wrong));
        job.take_index(index).unwrap();
        for chunk in [2, 0, 1] {
            job.asked(Part::Chunk(chunk));
            let start = chunk as usize * BLOB_CHUNK_BYTES;
            let end = bytes.len().min(start + BLOB_CHUNK_BYTES);
            job.take_chunk(chunk, bytes[start..end].to_vec()).unwrap();
        }
        assert!(job.complete() && job.next().is_none());
        assert_eq!(job.take(), bytes);
    }

    #[test]
    fn a_blob_above_the_bound_is_refused_before_its_chunks() {
        let index = BlobIndex::of(&[0; 100]).unwrap();
        let mut job = BlobJob::new(index.digest(), None, 99);
        assert_eq!(job.take_index(index), Err(Wrong));
    }
}
