//! What can go wrong on disk, each with what, where and the remedy.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::base::{Attempt, Digest, Round};

/// An operation on the data directory failed. What was there before is still there.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, or a quota or file size limit is reached.
    #[error(
        "no space left to {action} {}: free space there, or move --data-dir to a larger disk", 
        path.display()
    )]
    Full {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// The operating system refuses.
    #[error("cannot {action} {}: {source}; {remedy}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Another process uses the directory.
    #[error(
        "the data directory {} is in use by {holder}: stop that node, or give this one another \
         --data-dir",
        dir.display()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Who holds it: `process 1234`.
        holder: String,
    },
    /// The platform names no data directory.
    #[error("this system names no home directory: give --data-dir")]
    NoHome,
    /// Others can read the secret key.
    #[error(
        "the key file {} can be read by others (mode {mode:o}): run `chmod 600 {}`",
        path.display(), path.display()
    )]
    KeyPermissions {
        /// The key file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file is not what was written.
    #[error("{} is damaged: {problem}; {remedy}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The operating system gives no entropy.
    #[error("no random bytes for a new key: {0}; check /dev/urandom")]
    Entropy(String),
    /// A promise or vote contradicts an earlier one.
    #[error(
        "round {round}: {what} attempt {attempt} contradicts what this node has already signed \
         for; it abstains"
    )]
    Conflict {
        /// The round.
        round: Round,
        /// The attempt.
        attempt: Attempt,
        /// `promising` or `signing`.
        what: &'static str,
    },
    /// A certificate does not follow the ledger's last one.
    #[error("header {found} does not follow the ledger, which ends at round {head}")]
    NotNext {
        /// The header's round.
        found: Round,
        /// The ledger's newest round.
        head: Round,
    },
    /// Bytes do not have the digest that they should have.
    #[error("the bytes of {what} do not have their digest: fetch them again")]
    WrongBytes {
        /// What they should be.
        what: String,
    },
    /// The store does not have it.
    #[error("{what} is not in the store")]
    Missing {
        /// What was asked for.
        what: String,
    },
    /// A blob would take more than the limit.
    #[error(
        "blob {digest} needs {needed} bytes, but --disk-limit leaves {left}: raise --disk-limit, \
         or train on less data"
    )]
    DiskLimit {
        /// The blob.
        digest: Digest,
        /// Bytes needed.
        needed: u64,
        /// Bytes left.
        left: u64,
    },
    /// A file that is to be imported cannot be a blob.
    #[error("{}: {problem}", path.display())]
    NotABlob {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}

impl StoreError {
    /// Wraps an error of the operating system.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        use io::ErrorKind::{
            FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
            StorageFull,
        };
        let path = path.to_owned();
        let remedy = match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => return Self::Full { action, path },
            PermissionDenied => "check the owner and mode of the data directory",
            ReadOnlyFilesystem => "remount it writable, or give another --data-dir",
            NotFound => "check that nothing else removes files from the data directory",
            _ => "check the disk, then start again: nothing stored before is lost",
        };
        Self::Io { action, path, source, remedy }
    }

    /// A file that is not what was written.
    pub(super) fn damaged(path: &Path, problem: impl Into<String>, remedy: &'static str) -> Self {
        Self::Damaged { path: path.to_owned(), problem: problem.into(), remedy }
    }

    /// Whether space has run out.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::DiskLimit { .. })
    }

    /// Whether the file is simply not there.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
