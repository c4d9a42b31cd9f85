//! Every change on disk goes through here: durable, atomic, and able to fail on purpose in tests.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::StoreError;

/// Changes files. Reading needs none of it, except that errors are typed the same way.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    #[cfg(test)]
    fault: Option<std::sync::Arc<super::tests::Fault>>,
}

/// What a file of the store may be opened by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// As the user's mask says.
    Usual,
    /// The owner alone.
    Secret,
}

impl Disk {
    #[cfg(test)]
    pub(super) fn faulty(fault: std::sync::Arc<super::tests::Fault>) -> Self {
        Self { fault: Some(fault) }
    }

    /// Bytes that may be written of `wanted`; an error stands for a crash or a full disk.
    #[cfg(test)]
    fn gate(&self, wanted: usize) -> (usize, io::Result<()>) {
        self.fault.as_ref().map_or((wanted, Ok(())), |fault| fault.gate(wanted))
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    fn gate(&self, wanted: usize) -> (usize, io::Result<()>) {
        (wanted, Ok(()))
    }

    /// Whether waiting for the real disk would tell nothing: a simulated crash loses no cache.
    #[cfg(test)]
    fn simulated(&self) -> bool {
        self.fault.is_some()
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    fn simulated(&self) -> bool {
        false
    }

    fn step(&self) -> io::Result<()> {
        self.gate(0).1
    }

    fn try_write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let (allowed, outcome) = self.gate(bytes.len());
        file.write_all(&bytes[..allowed])?;
        outcome
    }

    /// Creates a folder and those above it.
    pub(super) fn create_dir(&self, path: &Path) -> Result<(), StoreError> {
        self.step()
            .and_then(|()| fs::create_dir_all(path))
            .map_err(|e| StoreError::io("create the folder", path, e))
    }

    /// Creates an empty file, or empties one.
    pub(super) fn create(&self, path: &Path, access: Access) -> Result<File, StoreError> {
        let mut options = OpenOptions::new();
        options.write(true).read(true).create(true).truncate(true);
        #[cfg(unix)]
        if access == Access::Secret {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        #[cfg(not(unix))]
        let _ = access;
        self.step().and_then(|()| options.open(path)).map_err(|e| StoreError::io("create", path, e))
    }

    /// Opens a file for reading and writing, creating it if need be.
    pub(super) fn open_rw(&self, path: &Path) -> Result<File, StoreError> {
        let mut options = OpenOptions::new();
        options.write(true).read(true).create(true).truncate(false);
        self.step().and_then(|()| options.open(path)).map_err(|e| StoreError::io("open", path, e))
    }

    /// Writes at the file's position.
    pub(super) fn write(
        &self,
        file: &mut File,
        path: &Path,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.try_write(file, bytes).map_err(|e| StoreError::io("write", path, e))
    }

    /// Writes at `offset`.
    pub(super) fn write_at(
        &self,
        file: &mut File,
        path: &Path,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        file.seek(SeekFrom::Start(offset)).map_err(|e| StoreError::io("seek in", path, e))?;
        self.write(file, path, bytes)
    }

    /// Forces a file's bytes to the disk.
    pub(super) fn sync(&self, file: &File, path: &Path) -> Result<(), StoreError> {
        self.step()
            .and_then(|()| if self.simulated() { Ok(()) } else { file.sync_all() })
            .map_err(|e| StoreError::io("force to disk", path, e))
    }

    /// Forces a folder's entries to the disk.
    pub(super) fn sync_dir(&self, path: &Path) -> Result<(), StoreError> {
        self.step().map_err(|e| StoreError::io("force to disk", path, e))?;
        if cfg!(unix) && !self.simulated() {
            File::open(path)
                .and_then(|dir| dir.sync_all())
                .map_err(|e| StoreError::io("force to disk", path, e))?;
        }
        Ok(())
    }

    /// Cuts or extends a file.
    pub(super) fn set_len(&self, file: &File, path: &Path, len: u64) -> Result<(), StoreError> {
        self.step().and_then(|()| file.set_len(len)).map_err(|e| StoreError::io("cut", path, e))
    }

    /// Renames a file or folder and makes that durable.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        self.step()
            .and_then(|()| fs::rename(from, to))
            .map_err(|e| StoreError::io("rename", from, e))?;
        to.parent().map_or(Ok(()), |dir| self.sync_dir(dir))
    }

    /// Removes a file, if it is there.
    pub(super) fn remove_file(&self, path: &Path) -> Result<(), StoreError> {
        let outcome = self.step().and_then(|()| fs::remove_file(path));
        ignore_missing(outcome).map_err(|e| StoreError::io("remove", path, e))
    }

    /// Removes a folder with everything in it, if it is there.
    pub(super) fn remove_dir(&self, path: &Path) -> Result<(), StoreError> {
        let outcome = self.step().and_then(|()| fs::remove_dir_all(path));
        ignore_missing(outcome).map_err(|e| StoreError::io("remove", path, e))
    }

    /// Replaces a file's content: it is the old one or the new one, never a mixture.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        self.replace_with(path, Access::Usual, |file, temporary| self.write(file, temporary, bytes))
    }

    /// Replaces a file's content by what `fill` writes.
    pub(super) fn replace_with(
        &self,
        path: &Path,
        access: Access,
        fill: impl FnOnce(&mut File, &Path) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let temporary = temporary_of(path);
        let write = || {
            // A mode is only set at creation: a leftover must not pass its own on.
            self.remove_file(&temporary)?;
            let mut file = self.create(&temporary, access)?;
            fill(&mut file, &temporary)?;
            self.sync(&file, &temporary)?;
            drop(file);
            self.rename(&temporary, path)
        };
        write().inspect_err(|_| {
            // Best effort: the next replace removes it as well.
            let _ = self.remove_file(&temporary);
        })
    }
}

/// Where a file is written before it takes its name.
pub(super) fn temporary_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

fn ignore_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Reads a whole file of at most `max` bytes.
pub(super) fn read(path: &Path, max: u64) -> Result<Vec<u8>, StoreError> {
    let file = File::open(path).map_err(|e| StoreError::io("read", path, e))?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|e| StoreError::io("read", path, e))?;
    if bytes.len() as u64 > max {
        let problem = format!("it has more than the {max} bytes that it can have");
        return Err(StoreError::damaged(path, problem, "remove it"));
    }
    Ok(bytes)
}

/// Reads `len` bytes at `offset`.
pub(super) fn read_at(path: &Path, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0; len];
    let mut read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut bytes)
    };
    read().map_err(|e| StoreError::io("read", path, e))?;
    Ok(bytes)
}

/// Length of a file; None if it is not there.
pub(super) fn length(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len())
}

/// Names of a folder's entries, sorted; empty if it is not there.
pub(super) fn names(path: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io("list", path, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| StoreError::io("list", path, e))?;
        names.extend(entry.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
