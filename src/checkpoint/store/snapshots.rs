//! Snapshots on disk: whole ones, the one that is being written, the one that is being fetched.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    StoreError,
    disk::{self, Access, Disk},
    snapshot_files::{StoredSnapshot, index_path, leaf_path, read_index, read_leaf, sync_folder},
};
use crate::{
    base::{Digest, Round},
    proto::sync::{IndexReader, PartialSnapshot},
};

/// Whole snapshots by round.
pub(super) type SnapshotIndex = BTreeMap<Round, StoredSnapshot>;

/// The folder of snapshots.
#[derive(Debug)]
pub(super) struct Snapshots {
    disk: Disk,
    dir: PathBuf,
    reader: IndexReader,
}

impl Snapshots {
    /// Opens the folder. Unfinished writing is removed; what is damaged is removed and named.
    pub(super) fn open(
        disk: &Disk,
        dir: &Path,
        reader: IndexReader,
        root_after: impl Fn(Round) -> Option<Digest>,
        warnings: &mut Vec<String>,
    ) -> Result<(Self, SnapshotIndex), StoreError> {
        disk.create_dir(dir)?;
        let mut index = SnapshotIndex::new();
        for name in disk::names(dir)? {
            let path = dir.join(&name);
            if name.ends_with(".writing") || name.ends_with(".gone") {
                disk.remove_dir(&path)?;
            }
            let Ok(round) = name.parse::<Round>() else { continue };
            match StoredSnapshot::open(&path, round, &reader, root_after(round)) {
                Ok(snapshot) => drop(index.insert(round, snapshot)),
                Err(error) => {
                    warnings.push(format!("the snapshot of round {round} is discarded: {error}"));
                    disk.remove_dir(&path)?;
                }
            }
        }
        Ok((Self { disk: disk.clone(), dir: dir.to_owned(), reader }, index))
    }

    fn whole_dir(&self, round: Round) -> PathBuf {
        self.dir.join(format!("{round:010}"))
    }

    fn partial_dir(&self, round: Round) -> PathBuf {
        self.dir.join(format!("{round:010}.partial"))
    }

    /// Starts writing the state after `round`.
    pub(super) fn writer(&self, round: Round) -> Result<SnapshotWriter, StoreError> {
        let dir = self.dir.join(format!("{round:010}.writing"));
        self.disk.remove_dir(&dir)?;
        self.disk.create_dir(&dir)?;
        let (disk, target) = (self.disk.clone(), self.whole_dir(round));
        Ok(SnapshotWriter { disk, round, dir, target, finished: false })
    }

    /// Looks at a snapshot that has been written or fetched.
    pub(super) fn look(
        &self,
        round: Round,
        root: Option<Digest>,
    ) -> Result<StoredSnapshot, StoreError> {
        StoredSnapshot::open(&self.whole_dir(round), round, &self.reader, root)
    }

    /// Removes a whole snapshot: first from its name, so that no half of it is ever seen.
    pub(super) fn remove(&self, round: Round) -> Result<(), StoreError> {
        remove_whole(&self.disk, &self.whole_dir(round))
    }

    /// Keeps the index of a snapshot that is being fetched.
    pub(super) fn store_index(&self, round: Round, bytes: &[u8]) -> Result<(), StoreError> {
        let dir = self.partial_dir(round);
        self.disk.create_dir(&dir)?;
        self.disk.replace(&index_path(&dir), bytes)
    }

    /// Keeps a leaf of a snapshot that is being fetched. It is forced to the disk with all others
    /// at the end; a leaf that a crash has damaged is fetched again.
    pub(super) fn store_leaf(
        &self,
        round: Round,
        leaf: u32,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        write_leaf(&self.disk, &self.partial_dir(round), leaf, bytes)
    }

    /// Makes a fetched snapshot a whole one.
    pub(super) fn finish(&self, round: Round, root: Option<Digest>) -> Result<(), StoreError> {
        let dir = self.partial_dir(round);
        if dir.is_dir() {
            StoredSnapshot::open(&dir, round, &self.reader, root)?;
            sync_folder(&self.disk, &dir)?;
            let target = self.whole_dir(round);
            remove_whole(&self.disk, &target)?;
            self.disk.rename(&dir, &target)?;
        }
        Ok(())
    }

    /// Removes the unfinished snapshot of a round.
    pub(super) fn drop_partial(&self, round: Round) -> Result<(), StoreError> {
        self.disk.remove_dir(&self.partial_dir(round))
    }

    /// Removes all unfinished snapshots except the one of `round`.
    pub(super) fn drop_partials(&self, except: Option<Round>) -> Result<(), StoreError> {
        for round in self.partial_rounds()?.into_iter().filter(|&round| Some(round) != except) {
            self.drop_partial(round)?;
        }
        Ok(())
    }

    fn partial_rounds(&self) -> Result<BTreeSet<Round>, StoreError> {
        let names = disk::names(&self.dir)?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(".partial")?.parse().ok()).collect())
    }

    /// The newest unfinished snapshot, with the leaves that have their digests.
    pub(super) fn partial(&self) -> Result<Option<PartialSnapshot>, StoreError> {
        for round in self.partial_rounds()?.into_iter().rev() {
            let dir = self.partial_dir(round);
            let Ok((index, table)) = read_index(&dir, round, &self.reader) else {
                self.drop_partial(round)?;
                continue;
            };
            let leaves = (0..table.leaves.len() as u32)
                .filter(|&leaf| read_leaf(&dir, &table, leaf).is_ok())
                .collect();
            return Ok(Some(PartialSnapshot { round, index, leaves }));
        }
        Ok(None)
    }
}

fn remove_whole(disk: &Disk, dir: &Path) -> Result<(), StoreError> {
    if !dir.exists() {
        return Ok(());
    }
    let gone = dir.with_extension("gone");
    disk.remove_dir(&gone)?;
    disk.rename(dir, &gone)?;
    disk.remove_dir(&gone)
}

fn write_leaf(disk: &Disk, dir: &Path, leaf: u32, bytes: &[u8]) -> Result<(), StoreError> {
    let path = leaf_path(dir, leaf);
    let write = || {
        let mut file = disk.create(&path, Access::Usual)?;
        disk.write(&mut file, &path, bytes)
    };
    write().inspect_err(|_| {
        // Best effort: a cut leaf does not have its digest and is written again.
        let _ = disk.remove_file(&path);
    })
}

/// Writes one snapshot, leaf by leaf, on any thread. Dropped before it is finished, it leaves
/// nothing. Afterwards [`RunStore::adopt_snapshot`](super::RunStore::adopt_snapshot) makes it known.
#[derive(Debug)]
pub struct SnapshotWriter {
    disk: Disk,
    round: Round,
    dir: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl SnapshotWriter {
    /// The snapshot's round.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Writes a leaf.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put_leaf(&self, leaf: u32, bytes: &[u8]) -> Result<(), StoreError> {
        write_leaf(&self.disk, &self.dir, leaf, bytes)
    }

    /// Writes the index, forces everything to the disk and gives the snapshot its name.
    ///
    /// # Errors
    /// If it cannot be written; then no snapshot of the round exists.
    pub fn finish(mut self, index: &[u8]) -> Result<Round, StoreError> {
        self.disk.replace(&index_path(&self.dir), index)?;
        sync_folder(&self.disk, &self.dir)?;
        remove_whole(&self.disk, &self.target)?;
        self.disk.rename(&self.dir, &self.target)?;
        self.finished = true;
        Ok(self.round)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: opening the store removes it as well.
            let _ = self.disk.remove_dir(&self.dir);
        }
    }
}
