//! A snapshot's folder: `index`, and one file a leaf.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    StoreError,
    disk::{self, Disk},
};
use crate::{
    base::{Digest, Round},
    proto::sync::{IndexReader, LeafTable},
    wire::blob::BlobIndex,
};

/// Bytes of an index at most; those of a stranger's are bounded by sync.
const MAX_INDEX_BYTES: u64 = 1 << 30;
const REMEDY: &str = "it is discarded: an older one or a peer's takes its place";

/// A whole snapshot on disk, as far as lengths show.
#[derive(Clone, Debug)]
pub(super) struct StoredSnapshot {
    pub(super) dir: PathBuf,
    /// The blob of its index.
    pub(super) blob: Arc<BlobIndex>,
    pub(super) table: Arc<LeafTable>,
}

/// Where a leaf lies.
pub(super) fn leaf_path(dir: &Path, leaf: u32) -> PathBuf {
    dir.join(format!("{leaf:08}"))
}

/// Where the index lies.
pub(super) fn index_path(dir: &Path) -> PathBuf {
    dir.join("index")
}

/// The bytes of the index in `dir`, and the leaves it names.
pub(super) fn read_index(
    dir: &Path,
    round: Round,
    reader: &IndexReader,
) -> Result<(Vec<u8>, LeafTable), StoreError> {
    let path = index_path(dir);
    let bytes = disk::read(&path, MAX_INDEX_BYTES)?;
    let table = reader.read(round, &bytes).map_err(|e| StoreError::damaged(&path, e, REMEDY))?;
    Ok((bytes, table))
}

/// One leaf, checked against its digest.
pub(super) fn read_leaf(dir: &Path, table: &LeafTable, leaf: u32) -> Result<Vec<u8>, StoreError> {
    let path = leaf_path(dir, leaf);
    let missing = || StoreError::Missing { what: format!("leaf {leaf} of {}", dir.display()) };
    let wanted = table.leaves.get(leaf as usize).ok_or_else(missing)?;
    let bytes = disk::read(&path, u64::from(wanted.bytes))?;
    if Digest::of(&bytes) != wanted.digest {
        return Err(StoreError::damaged(&path, "it does not have its digest", REMEDY));
    }
    Ok(bytes)
}

impl StoredSnapshot {
    /// Opens a folder: its index must be readable, have `root` if that is known, and every leaf
    /// must have its length. Digests are checked when leaves are read.
    pub(super) fn open(
        dir: &Path,
        round: Round,
        reader: &IndexReader,
        root: Option<Digest>,
    ) -> Result<Self, StoreError> {
        let (bytes, table) = read_index(dir, round, reader)?;
        let damaged = |path: &Path, problem: String| StoreError::damaged(path, problem, REMEDY);
        if root.is_some_and(|root| root != table.root) {
            return Err(damaged(dir, format!("its root {} is not the chain's", table.root)));
        }
        for (leaf, wanted) in table.leaves.iter().enumerate() {
            let path = leaf_path(dir, leaf as u32);
            let found = disk::length(&path);
            if found != Some(u64::from(wanted.bytes)) {
                let problem = format!("it has {found:?} bytes of {}", wanted.bytes);
                return Err(damaged(&path, problem));
            }
        }
        let blob = BlobIndex::of(&bytes).map_err(|e| damaged(dir, e.to_string()))?;
        Ok(Self { dir: dir.to_owned(), blob: Arc::new(blob), table: Arc::new(table) })
    }

    /// Reads every leaf in order, each checked against its digest.
    pub(super) fn read(
        &self,
        mut visit: impl FnMut(u32, &[u8]) -> Result<(), String>,
    ) -> Result<(), StoreError> {
        for leaf in 0..self.table.leaves.len() as u32 {
            let bytes = read_leaf(&self.dir, &self.table, leaf)?;
            visit(leaf, &bytes).map_err(|e| StoreError::damaged(&self.dir, e, REMEDY))?;
        }
        Ok(())
    }
}

/// Forces all files of a folder and its entries to the disk.
pub(super) fn sync_folder(disk: &Disk, dir: &Path) -> Result<(), StoreError> {
    for name in disk::names(dir)? {
        let path = dir.join(name);
        let file = File::open(&path).map_err(|e| StoreError::io("open", &path, e))?;
        disk.sync(&file, &path)?;
    }
    disk.sync_dir(dir)
}
