//! Bodies of rounds on disk, by round and digest: a voter has a body on disk before its header is
//! committed, so that several may exist for the open round.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    StoreError,
    disk::{self, Disk},
};
use crate::{
    base::{Digest, Round, limits::BLOB_CHUNK_BYTES},
    wire::{
        blob::{BlobIndex, MAX_CHUNKS},
        codec,
    },
};

/// Bytes of an encoded index at most.
pub(super) const MAX_INDEX_BYTES: usize = 16 + 32 * MAX_CHUNKS;
const REMEDY: &str = "remove it: it is fetched from a peer";

/// A body on disk.
#[derive(Clone, Debug)]
pub(super) struct StoredBody {
    pub(super) round: Round,
    pub(super) path: PathBuf,
    pub(super) index: BlobIndex,
}

impl StoredBody {
    /// One chunk, checked against its digest.
    pub(super) fn chunk(&self, chunk: u32) -> Result<Vec<u8>, StoreError> {
        read_chunk(&self.path, &self.index, chunk)
    }
}

/// Reads one chunk of a blob and checks it.
pub(super) fn read_chunk(
    path: &Path,
    index: &BlobIndex,
    chunk: u32,
) -> Result<Vec<u8>, StoreError> {
    let missing = || StoreError::Missing { what: format!("chunk {chunk} of {}", path.display()) };
    let digest = index.chunks.get(chunk as usize).ok_or_else(missing)?;
    let offset = u64::from(chunk) * BLOB_CHUNK_BYTES as u64;
    let bytes = disk::read_at(path, offset, index.chunk_len(chunk as usize))?;
    if Digest::of(&bytes) != *digest {
        return Err(StoreError::damaged(path, format!("chunk {chunk} has changed"), REMEDY));
    }
    Ok(bytes)
}

/// Bodies by digest.
pub(super) type BodyIndex = BTreeMap<Digest, StoredBody>;

/// The folder of bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    disk: Disk,
    dir: PathBuf,
}

impl Bodies {
    /// Opens the folder; files that are cut off or without index are removed and named.
    pub(super) fn open(
        disk: &Disk,
        dir: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<(Self, BodyIndex), StoreError> {
        disk.create_dir(dir)?;
        let bodies = Self { disk: disk.clone(), dir: dir.to_owned() };
        let (mut index, names) = (BodyIndex::new(), disk::names(dir)?);
        for name in names.iter().filter(|name| name.ends_with(".tmp")) {
            disk.remove_file(&dir.join(name))?;
        }
        let known: BTreeSet<(Round, Digest)> = names.iter().filter_map(|n| parse(n)).collect();
        for (round, digest) in known {
            match bodies.check(round, digest) {
                Ok(body) => drop(index.insert(digest, body)),
                Err(error) => {
                    warnings.push(format!("a body is removed: {error}"));
                    bodies.remove(round, digest)?;
                }
            }
        }
        Ok((bodies, index))
    }

    fn path(&self, round: Round, digest: Digest) -> PathBuf {
        self.dir.join(format!("{round:010}-{digest}"))
    }

    fn check(&self, round: Round, digest: Digest) -> Result<StoredBody, StoreError> {
        let path = self.path(round, digest);
        let damaged = |problem: &str| StoreError::damaged(&path, problem, REMEDY);
        let bytes = disk::read(&index_path(&path), MAX_INDEX_BYTES as u64)?;
        let index: BlobIndex = codec::decode::<_, MAX_INDEX_BYTES>(&bytes)
            .map_err(|_| damaged("its index cannot be read"))?;
        index.verify(digest).map_err(|e| damaged(&e.to_string()))?;
        if disk::length(&path) != Some(index.bytes) {
            return Err(damaged("it is cut off"));
        }
        Ok(StoredBody { round, path, index })
    }

    /// Writes a body; it is on disk when this returns.
    pub(super) fn store(&self, round: Round, bytes: &[u8]) -> Result<StoredBody, StoreError> {
        let too_long = |e| StoreError::WrongBytes { what: format!("body {round}: {e}") };
        let index = BlobIndex::of(bytes).map_err(too_long)?;
        let path = self.path(round, index.digest());
        // The index first: a body without one is removed on open.
        self.disk.replace(&index_path(&path), &codec::encode(&index))?;
        self.disk.replace(&path, bytes)?;
        Ok(StoredBody { round, path, index })
    }

    /// Removes a body, the body before its index.
    pub(super) fn remove(&self, round: Round, digest: Digest) -> Result<(), StoreError> {
        let path = self.path(round, digest);
        self.disk.remove_file(&path)?;
        self.disk.remove_file(&index_path(&path))
    }
}

fn index_path(path: &Path) -> PathBuf {
    path.with_extension("index")
}

fn parse(name: &str) -> Option<(Round, Digest)> {
    let (round, digest) = name.strip_suffix(".index").unwrap_or(name).split_once('-')?;
    Some((round.parse().ok()?, digest.parse().ok()?))
}
