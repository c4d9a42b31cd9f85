//! What belongs to this node alone and survives a restart: error buffers, a frozen
//! pseudo-gradient, moments. One file, replaced once a round:
//! `"DLXLOCAL" | length of head u32 | head | f32 values, little-endian | moments | blake3 of all`.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{
    StoreError,
    disk::{self, Access, Disk},
};
use crate::{
    base::{Bounded, Round, limits::MAX_FRAGMENTS},
    wire::codec,
};

const MAGIC: &[u8; 8] = b"DLXLOCAL";
const MAX_HEAD: usize = 64 * 1024;
/// Values converted at a time.
const BATCH: usize = 64 * 1024;
const REMEDY: &str = "remove it: the node goes on with empty error buffers and fresh moments";

/// A pseudo-gradient that is frozen for an exchange that has not been committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Frozen {
    /// The exchange's round.
    pub round: Round,
    /// Sequences it was trained on.
    pub weight: u32,
    /// The values, by fragment.
    pub delta: Vec<Vec<f32>>,
}

/// A node's own state at the end of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalState {
    /// The round whose segment has ended.
    pub round: Round,
    /// The last committed round that holds a contribution of this node; 0: none.
    pub contributed: Round,
    /// Sequences trained on in all.
    pub trained: u64,
    /// Error buffers, by fragment; empty: all zero.
    pub error: Vec<Vec<f32>>,
    /// What waits for its exchange.
    pub frozen: Option<Frozen>,
    /// The trainer's moments, in its own format.
    pub moments: Vec<u8>,
}

type Lengths = Bounded<u64, MAX_FRAGMENTS>;

#[derive(Serialize, Deserialize)]
struct Head {
    round: Round,
    contributed: Round,
    trained: u64,
    error: Lengths,
    frozen: Option<(Round, u32, Lengths)>,
    moments: u64,
}

/// How much of a lease was used, so that no position is counted twice after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseUse {
    /// The segment that the lease is for.
    pub round: Round,
    /// Its first position.
    pub first: u64,
    /// Its length.
    pub length: u32,
    /// Positions used, from the first on.
    pub used: u32,
}

fn lengths(fragments: &[Vec<f32>]) -> Lengths {
    let lengths: Vec<u64> = fragments.iter().map(|values| values.len() as u64).collect();
    assert!(lengths.len() <= MAX_FRAGMENTS, "a model of {} fragments", lengths.len());
    Lengths::try_from(lengths).unwrap_or_default()
}

/// Replaces the file.
pub(super) fn save(disk: &Disk, path: &Path, state: &LocalState) -> Result<(), StoreError> {
    let head = codec::encode(&Head {
        round: state.round,
        contributed: state.contributed,
        trained: state.trained,
        error: lengths(&state.error),
        frozen: state.frozen.as_ref().map(|f| (f.round, f.weight, lengths(&f.delta))),
        moments: state.moments.len() as u64,
    });
    disk.replace_with(path, Access::Usual, |file, temporary| {
        let mut hasher = blake3::Hasher::new();
        let mut put = |bytes: &[u8]| {
            hasher.update(bytes);
            disk.write(file, temporary, bytes)
        };
        put(MAGIC)?;
        put(&(head.len() as u32).to_le_bytes())?;
        put(&head)?;
        let frozen = state.frozen.iter().flat_map(|frozen| &frozen.delta);
        for values in state.error.iter().chain(frozen) {
            for batch in values.chunks(BATCH) {
                let bytes: Vec<u8> = batch.iter().flat_map(|value| value.to_le_bytes()).collect();
                put(&bytes)?;
            }
        }
        for batch in state.moments.chunks(4 * BATCH) {
            put(batch)?;
        }
        let sum = hasher.finalize();
        disk.write(file, temporary, sum.as_bytes())
    })
}

/// Reads the file; None if it is not there.
pub(super) fn load(path: &Path) -> Result<Option<LocalState>, StoreError> {
    let Some(length) = disk::length(path) else { return Ok(None) };
    let file = File::open(path).map_err(|e| StoreError::io("read", path, e))?;
    let mut reader = Checked { path, file: BufReader::new(file), hasher: blake3::Hasher::new() };
    let magic = reader.take(MAGIC.len())?;
    let head_len = reader.take(4)?;
    let head_len = u32::from_le_bytes([head_len[0], head_len[1], head_len[2], head_len[3]]);
    if magic != MAGIC || head_len as usize > MAX_HEAD {
        return Err(StoreError::damaged(path, "it is another kind of file", REMEDY));
    }
    let head: Head = codec::decode::<_, MAX_HEAD>(&reader.take(head_len as usize)?)
        .map_err(|e| StoreError::damaged(path, e.to_string(), REMEDY))?;
    // Nothing is allocated before the file is known to be as long as it says.
    if Some(length) != (MAGIC.len() as u64 + 4 + u64::from(head_len) + 32).checked_add_body(&head) {
        return Err(StoreError::damaged(path, "it is cut off", REMEDY));
    }
    let error = reader.fragments(&head.error)?;
    let frozen = match head.frozen {
        Some((round, weight, lengths)) => {
            Some(Frozen { round, weight, delta: reader.fragments(&lengths)? })
        }
        None => None,
    };
    let moments = reader.take(head.moments as usize)?;
    reader.finish()?;
    let Head { round, contributed, trained, .. } = head;
    Ok(Some(LocalState { round, contributed, trained, error, frozen, moments }))
}

trait CheckedLength {
    fn checked_add_body(self, head: &Head) -> Option<u64>;
}

impl CheckedLength for u64 {
    fn checked_add_body(self, head: &Head) -> Option<u64> {
        let frozen = head.frozen.iter().flat_map(|(_, _, lengths)| lengths.iter());
        head.error
            .iter()
            .chain(frozen)
            .try_fold(self, |sum, len| sum.checked_add(len.checked_mul(4)?))?
            .checked_add(head.moments)
    }
}

struct Checked<'a> {
    path: &'a Path,
    file: BufReader<File>,
    hasher: blake3::Hasher,
}

impl Checked<'_> {
    fn take(&mut self, len: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; len];
        self.file.read_exact(&mut bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                StoreError::damaged(self.path, "it is cut off", REMEDY)
            }
            _ => StoreError::io("read", self.path, error),
        })?;
        self.hasher.update(&bytes);
        Ok(bytes)
    }

    fn fragments(&mut self, lengths: &Lengths) -> Result<Vec<Vec<f32>>, StoreError> {
        lengths.iter().map(|&len| self.values(len as usize)).collect()
    }

    fn values(&mut self, len: usize) -> Result<Vec<f32>, StoreError> {
        let mut values = Vec::with_capacity(len);
        while values.len() < len {
            let bytes = self.take(4 * BATCH.min(len - values.len()))?;
            let batch = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
            values.extend(batch);
        }
        Ok(values)
    }

    fn finish(mut self) -> Result<(), StoreError> {
        let sum = self.hasher.finalize();
        let stored = self.take(32)?;
        if stored != sum.as_bytes() {
            return Err(StoreError::damaged(self.path, "its checksum differs", REMEDY));
        }
        Ok(())
    }
}
