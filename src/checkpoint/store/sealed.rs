//! Small files with a checksum: `"DLX1" | kind (8 bytes) | blake3 of content | content`.

use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};

use super::{
    StoreError,
    disk::{self, Disk},
};
use crate::{base::Digest, wire::codec};

const MAGIC: &[u8; 4] = b"DLX1";
const HEAD: usize = 4 + 8 + 32;
/// Bytes of a sealed file at most: lists of a few hundred entries.
const MAX_BYTES: usize = 1 << 20;

/// Writes a value.
pub(super) fn write<T: Serialize>(
    disk: &Disk,
    path: &Path,
    kind: &[u8; 8],
    value: &T,
) -> Result<(), StoreError> {
    let content = codec::encode(value);
    let mut bytes = Vec::with_capacity(HEAD + content.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(kind);
    bytes.extend_from_slice(&Digest::of(&content).0);
    bytes.extend_from_slice(&content);
    disk.replace(path, &bytes)
}

/// Reads a value; None if the file is not there.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    kind: &[u8; 8],
    remedy: &'static str,
) -> Result<Option<T>, StoreError> {
    let bytes = match disk::read(path, MAX_BYTES as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = |problem: &str| StoreError::damaged(path, problem, remedy);
    let (head, content) = bytes.split_at_checked(HEAD).ok_or_else(|| damaged("it is cut off"))?;
    if &head[..4] != MAGIC || &head[4..12] != kind {
        return Err(damaged("it is another kind of file"));
    }
    if head[12..] != Digest::of(content).0 {
        return Err(damaged("its checksum differs"));
    }
    codec::decode::<T, MAX_BYTES>(content).map(Some).map_err(|e| damaged(&e.to_string()))
}
