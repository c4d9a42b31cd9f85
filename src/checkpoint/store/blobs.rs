//! Data files by content: `blobs/<digest>/` with `index`, and `data`, or `data.part` while some
//! chunks are missing.
//!
//! A user's file is copied, never linked: a blob must not change when its owner edits the
//! original. Which chunks of a partial blob are there is found out by hashing it on open: a bitmap
//! beside it could be ahead of the data after a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    StoreError,
    bodies::{MAX_INDEX_BYTES, read_chunk},
    disk::{self, Access, Disk},
};
use crate::{
    base::{Digest, limits::BLOB_CHUNK_BYTES},
    config::manifest::BlobRef,
    wire::{
        blob::{BlobIndex, MAX_CHUNKS},
        codec,
    },
};

/// A store of blobs; clones share it.
#[derive(Clone, Debug)]
pub struct BlobStore {
    disk: Disk,
    dir: PathBuf,
    limit: Option<u64>,
    known: Arc<Mutex<BTreeMap<Digest, Entry>>>,
}

#[derive(Clone, Debug)]
struct Entry {
    index: Arc<BlobIndex>,
    missing: BTreeSet<u32>,
}

impl BlobStore {
    pub(super) fn open(disk: &Disk, dir: &Path, limit: Option<u64>) -> Result<Self, StoreError> {
        disk.create_dir(dir)?;
        let known = Arc::default();
        let store = Self { disk: disk.clone(), dir: dir.to_owned(), limit, known };
        for name in disk::names(dir)? {
            let Ok(digest) = name.parse::<Digest>() else {
                // An import that was interrupted.
                if name.ends_with(".importing") {
                    disk.remove_dir(&dir.join(&name))?;
                }
                continue;
            };
            match store.look(digest) {
                Ok(entry) => drop(store.lock().insert(digest, entry)),
                Err(error) => tracing::warn!("a data file is fetched again: {error}"),
            }
        }
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, Entry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, digest: Digest) -> PathBuf {
        self.dir.join(digest.to_string())
    }

    fn look(&self, digest: Digest) -> Result<Entry, StoreError> {
        let dir = self.folder(digest);
        let path = dir.join("index");
        let remedy = "remove its folder: it is fetched from a peer";
        let damaged = |problem: String| StoreError::damaged(&path, problem, remedy);
        let bytes = disk::read(&path, MAX_INDEX_BYTES as u64)?;
        let index: BlobIndex =
            codec::decode::<_, MAX_INDEX_BYTES>(&bytes).map_err(|e| damaged(e.to_string()))?;
        index.verify(digest).map_err(|e| damaged(e.to_string()))?;
        let missing = if disk::length(&dir.join("data")) == Some(index.bytes) {
            BTreeSet::new()
        } else {
            let part = dir.join("data.part");
            let lacks = |&chunk: &u32| read_chunk(&part, &index, chunk).is_err();
            (0..index.chunks.len() as u32).filter(lacks).collect()
        };
        Ok(Entry { index: Arc::new(index), missing })
    }

    /// Bytes of all blobs, whether complete or promised room.
    pub fn bytes(&self) -> u64 {
        self.lock().values().map(|entry| entry.index.bytes).sum()
    }

    fn make_room(&self, digest: Digest, needed: u64) -> Result<(), StoreError> {
        let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.bytes()));
        if needed > left {
            return Err(StoreError::DiskLimit { digest, needed, left });
        }
        Ok(())
    }

    /// Copies a file into the store, in one pass, with 1 MiB in memory.
    ///
    /// # Errors
    /// If it cannot be read or written, is longer than 32 GiB, or exceeds the limit.
    pub fn import_file(&self, path: &Path) -> Result<BlobRef, StoreError> {
        let not_a_blob = |problem: String| StoreError::NotABlob { path: path.to_owned(), problem };
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| not_a_blob("its name is not UTF-8: rename it".to_owned()))?
            .to_owned();
        let mut source = File::open(path).map_err(|e| StoreError::io("read", path, e))?;
        let expected = source.metadata().map_err(|e| StoreError::io("read", path, e))?.len();
        if expected > (MAX_CHUNKS * BLOB_CHUNK_BYTES) as u64 {
            return Err(not_a_blob(format!("{expected} bytes are more than 32 GiB: cut the file")));
        }
        self.make_room(Digest([0; 32]), expected)?;
        let work = self.dir.join(format!("{name}.importing"));
        let imported = self.import(&mut source, path, &work);
        if imported.is_err() {
            // Best effort: opening the store removes it as well.
            let _ = self.disk.remove_dir(&work);
        }
        let index = imported?;
        let (digest, bytes) = (index.digest(), index.bytes);
        Ok(BlobRef { name, bytes, digest })
    }

    fn import(
        &self,
        source: &mut File,
        path: &Path,
        work: &Path,
    ) -> Result<Arc<BlobIndex>, StoreError> {
        self.disk.remove_dir(work)?;
        self.disk.create_dir(work)?;
        let data = work.join("data");
        let mut file = self.disk.create(&data, Access::Usual)?;
        let (mut bytes, mut chunks) = (0, Vec::new());
        loop {
            let mut chunk = Vec::with_capacity(BLOB_CHUNK_BYTES);
            Read::take(&mut *source, BLOB_CHUNK_BYTES as u64)
                .read_to_end(&mut chunk)
                .map_err(|e| StoreError::io("read", path, e))?;
            if chunk.is_empty() {
                break;
            }
            bytes += chunk.len() as u64;
            chunks.push(Digest::of(&chunk));
            self.disk.write(&mut file, &data, &chunk)?;
        }
        self.disk.sync(&file, &data)?;
        let problem = |e: crate::wire::blob::BlobError| StoreError::NotABlob {
            path: path.to_owned(),
            problem: e.to_string(),
        };
        let index = BlobIndex::of_chunks(bytes, chunks.into_iter()).map_err(problem)?;
        self.disk.replace(&work.join("index"), &codec::encode(&index))?;
        let (digest, index) = (index.digest(), Arc::new(index));
        if !self.is_complete(digest) {
            let target = self.folder(digest);
            self.disk.remove_dir(&target)?;
            self.disk.rename(work, &target)?;
            let entry = Entry { index: index.clone(), missing: BTreeSet::new() };
            self.lock().insert(digest, entry);
        } else {
            self.disk.remove_dir(work)?;
        }
        Ok(index)
    }

    /// Starts fetching a blob whose index a peer has sent.
    ///
    /// # Errors
    /// If the index is not the digest's, the limit is exceeded, or it cannot be written.
    pub fn begin(&self, digest: Digest, index: BlobIndex) -> Result<(), StoreError> {
        index
            .verify(digest)
            .map_err(|e| StoreError::WrongBytes { what: format!("the index of {digest}: {e}") })?;
        if self.lock().contains_key(&digest) {
            return Ok(());
        }
        self.make_room(digest, index.bytes)?;
        let dir = self.folder(digest);
        self.disk.create_dir(&dir)?;
        self.disk.replace(&dir.join("index"), &codec::encode(&index))?;
        let missing = (0..index.chunks.len() as u32).collect();
        self.lock().insert(digest, Entry { index: Arc::new(index), missing });
        Ok(())
    }

    /// The index of a blob that is here or on its way.
    pub fn index(&self, digest: Digest) -> Option<Arc<BlobIndex>> {
        self.lock().get(&digest).map(|entry| entry.index.clone())
    }

    /// Chunks that are missing; None if not even the index is here.
    pub fn missing(&self, digest: Digest) -> Option<BTreeSet<u32>> {
        self.lock().get(&digest).map(|entry| entry.missing.clone())
    }

    /// Whether every chunk is here. The file is then at [`path`](Self::path).
    pub fn is_complete(&self, digest: Digest) -> bool {
        self.path(digest).is_some()
    }

    /// The complete file.
    pub fn path(&self, digest: Digest) -> Option<PathBuf> {
        let path = self.folder(digest).join("data");
        let whole = self.missing(digest).is_some_and(|missing| missing.is_empty());
        (whole && path.is_file()).then_some(path)
    }

    /// One chunk, checked against its digest.
    ///
    /// # Errors
    /// If it is not here, or damaged.
    pub fn get_chunk(&self, digest: Digest, chunk: u32) -> Result<Vec<u8>, StoreError> {
        let missing = || StoreError::Missing { what: format!("chunk {chunk} of {digest}") };
        let entry = self.lock().get(&digest).cloned().ok_or_else(missing)?;
        if entry.missing.contains(&chunk) {
            return Err(missing());
        }
        let whole = self.folder(digest).join("data");
        let path = if whole.is_file() { whole } else { whole.with_extension("part") };
        read_chunk(&path, &entry.index, chunk)
    }

    /// Stores a chunk of a blob that was begun.
    ///
    /// # Errors
    /// If it does not have its digest, the blob was not begun, or it cannot be written.
    pub fn put_chunk(&self, digest: Digest, chunk: u32, bytes: &[u8]) -> Result<(), StoreError> {
        let what = || format!("chunk {chunk} of {digest}");
        let index = self.index(digest).ok_or_else(|| StoreError::Missing { what: what() })?;
        if index.chunks.get(chunk as usize) != Some(&Digest::of(bytes)) {
            return Err(StoreError::WrongBytes { what: what() });
        }
        let part = self.folder(digest).join("data.part");
        let mut file = self.disk.open_rw(&part)?;
        let offset = u64::from(chunk) * BLOB_CHUNK_BYTES as u64;
        self.disk.write_at(&mut file, &part, offset, bytes)?;
        if let Some(entry) = self.lock().get_mut(&digest) {
            entry.missing.remove(&chunk);
        }
        Ok(())
    }

    /// Gives a blob its final name if every chunk is here; false if some are missing.
    ///
    /// # Errors
    /// If it was not begun or cannot be written.
    pub fn complete(&self, digest: Digest) -> Result<bool, StoreError> {
        let missing = self
            .missing(digest)
            .ok_or_else(|| StoreError::Missing { what: format!("blob {digest}") })?;
        let dir = self.folder(digest);
        let (part, whole) = (dir.join("data.part"), dir.join("data"));
        if !missing.is_empty() || whole.is_file() {
            return Ok(missing.is_empty());
        }
        let file = self.disk.open_rw(&part)?;
        self.disk.sync(&file, &part)?;
        self.disk.rename(&part, &whole)?;
        Ok(true)
    }
}
