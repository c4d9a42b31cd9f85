//! The data directory: lock, identity, boot counter, peers, runs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    BlobStore, RunStore, StoreError,
    disk::{self, Access, Disk},
    sealed,
};
use crate::{
    base::{RunId, limits::MAX_TEXT},
    config::FoundedManifest,
    identity::Identity,
    proto::sync::IndexReader,
};

const BOOT: &[u8; 8] = b"boot\0\0\0\0";
/// Addresses remembered: enough to find a run again after a long pause.
const MAX_PEERS: usize = 256;

/// A data directory, locked until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    disk: Disk,
    // Held for its lock.
    _lock: File,
}

impl DataDir {
    /// Opens and locks a directory, creating it if need be. The default is the platform's data
    /// directory.
    ///
    /// # Errors
    /// If another process holds it, or it cannot be created.
    pub fn open(path: Option<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with(path, Disk::default())
    }

    pub(super) fn open_with(path: Option<PathBuf>, disk: Disk) -> Result<Self, StoreError> {
        let path = match path {
            Some(path) => path,
            None => Self::default_path()?,
        };
        disk.create_dir(&path)?;
        let lock = lock(&disk, &path)?;
        Ok(Self { path, disk, _lock: lock })
    }

    /// Where data is kept when no directory is given.
    ///
    /// # Errors
    /// If the platform names none.
    pub fn default_path() -> Result<PathBuf, StoreError> {
        let dirs = directories::ProjectDirs::from("", "", "dilocox").ok_or(StoreError::NoHome)?;
        Ok(dirs.data_dir().to_owned())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node's key, made at the first call.
    ///
    /// # Errors
    /// If others can read the file, it is damaged, or it cannot be written.
    pub fn identity(&self) -> Result<Identity, StoreError> {
        let path = self.path.join("identity.key");
        if path.exists() {
            check_mode(&path)?;
        }
        match disk::read(&path, 32) {
            Ok(bytes) => {
                let secret: [u8; 32] = bytes.as_slice().try_into().map_err(|_| {
                    let problem = format!("it has {} bytes, a key has 32", bytes.len());
                    StoreError::damaged(
                        &path,
                        problem,
                        "restore it from a backup, or remove it \
                        to become a new node",
                    )
                })?;
                Ok(Identity::from_bytes(&secret))
            }
            Err(error) if error.is_not_found() => self.new_identity(&path),
            Err(error) => Err(error),
        }
    }

    fn new_identity(&self, path: &Path) -> Result<Identity, StoreError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|e| StoreError::Entropy(e.to_string()))?;
        self.disk.replace_with(path, Access::Secret, |file, temporary| {
            self.disk.write(file, temporary, &secret)
        })?;
        Ok(Identity::from_bytes(&secret))
    }

    /// A number greater than at every earlier start, stored before it is returned. It is at least
    /// the Unix time, so that it grows even if the file is lost.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub fn next_boot(&self) -> Result<u64, StoreError> {
        let path = self.path.join("boot");
        let last: u64 = match sealed::read(&path, BOOT, "remove it") {
            Ok(last) => last.unwrap_or(0),
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!("{error}; the boot counter goes on from the clock");
                0
            }
            Err(error) => return Err(error),
        };
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        let boot = last.saturating_add(1).max(clock);
        sealed::write(&self.disk, &path, BOOT, &boot)?;
        Ok(boot)
    }

    /// Runs with a stored manifest.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        let runs = self.path.join("runs");
        let names = disk::names(&runs)?;
        let stored = |name: &String| runs.join(name).join("manifest").is_file();
        Ok(names.iter().filter(|name| stored(name)).filter_map(|name| name.parse().ok()).collect())
    }

    /// Opens a run's folder; `manifest` is stored there if it is not yet.
    ///
    /// # Errors
    /// If it cannot be read or written, or another manifest is there.
    pub fn create_run(
        &self,
        manifest: &FoundedManifest,
        index: IndexReader,
        blobs: BlobStore,
    ) -> Result<RunStore, StoreError> {
        let dir = self.run_dir(manifest.run_id());
        RunStore::create(&self.disk, &dir, manifest, index, blobs)
    }

    /// The manifest of a stored run.
    ///
    /// # Errors
    /// If it is not there, cannot be read, or is not the one that the run's id names.
    pub fn manifest(&self, run: RunId) -> Result<FoundedManifest, StoreError> {
        RunStore::read_manifest(&self.run_dir(run), run)
    }

    /// Data files, by content; `limit` bytes at most.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn blobs(&self, limit: Option<u64>) -> Result<BlobStore, StoreError> {
        BlobStore::open(&self.disk, &self.path.join("blobs"), limit)
    }

    fn run_dir(&self, run: RunId) -> PathBuf {
        self.path.join("runs").join(run.to_string())
    }

    /// Addresses of peers, as stored last. A damaged file is as good as none.
    pub fn peers(&self) -> Vec<String> {
        let path = self.path.join("peers");
        let bytes = disk::read(&path, (MAX_PEERS * (MAX_TEXT + 1)) as u64).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter(|line| line.starts_with('/')).map(str::to_owned).collect()
    }

    /// Stores addresses of peers, the first 256 of them.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn store_peers(&self, peers: &[String]) -> Result<(), StoreError> {
        let plain = |peer: &&String| peer.len() <= MAX_TEXT && !peer.contains(['\n', '\r']);
        let lines: Vec<&str> =
            peers.iter().filter(plain).take(MAX_PEERS).map(String::as_str).collect();
        self.disk.replace(&self.path.join("peers"), (lines.join("\n") + "\n").as_bytes())
    }
}

/// How often a lock that is held is tried again, and how long after: a process that has just been
/// killed, or a child that was being started when the holder let go, still has it for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

fn taken_in_time(file: &File) -> io::Result<bool> {
    for _ in 1..LOCK_TRIES {
        if fs4::fs_std::FileExt::try_lock_exclusive(file)? {
            return Ok(true);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    fs4::fs_std::FileExt::try_lock_exclusive(file)
}

fn lock(disk: &Disk, dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let mut file = disk.open_rw(&path)?;
    if !taken_in_time(&file).map_err(|e| StoreError::io("lock", &path, e))? {
        let mut text = String::new();
        let _ = Read::take(&mut file, 32).read_to_string(&mut text);
        let pid = text.trim().parse::<u32>();
        let holder = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
        return Err(StoreError::Locked { dir: dir.to_owned(), holder });
    }
    disk.set_len(&file, &path, 0)?;
    disk.write_at(&mut file, &path, 0, format!("{}\n", std::process::id()).as_bytes())?;
    Ok(file)
}

#[cfg(unix)]
fn check_mode(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    let meta = fs::metadata(path).map_err(|e| StoreError::io("read", path, e))?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(StoreError::KeyPermissions { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_mode(path: &Path) -> Result<(), StoreError> {
    fs::metadata(path).map(drop).map_err(|e| StoreError::io("read", path, e))
}
