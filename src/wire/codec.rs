//! Canonical bytes of every message and record. The one file that names bincode.
//!
//! Fixed-width little-endian integers, lengths as u64, enum tags as u32: one value has one
//! encoding, so encoded bytes can be hashed and signed.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Serialize, de::DeserializeOwned};

/// Bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// More bytes than the message may have; nothing was decoded.
    #[error("{len} bytes are more than the {max} allowed")]
    TooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The bytes do not spell a value of the type.
    #[error("malformed bytes: {0}")]
    Malformed(String),
    /// Bytes are left over after the value.
    #[error("{0} bytes after the end of the value")]
    Trailing(usize),
}

fn config<const MAX: usize>() -> Configuration<LittleEndian, Fixint, Limit<MAX>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<MAX>()
}

/// The canonical bytes of `value`.
///
/// # Panics
/// If a `Serialize` implementation fails, which those of this crate do not.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let config = bincode::config::standard().with_fixed_int_encoding();
    bincode::serde::encode_to_vec(value, config).expect("plain data always encodes")
}

/// Decodes a value from all of `bytes`, of which there may be at most `MAX`.
///
/// # Errors
/// If there are too many bytes, they are malformed, or some are left over.
pub fn decode<T: DeserializeOwned, const MAX: usize>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > MAX {
        return Err(DecodeError::TooLarge { len: bytes.len(), max: MAX });
    }
    let (value, used) = bincode::serde::decode_from_slice(bytes, config::<MAX>())
        .map_err(|error| DecodeError::Malformed(error.to_string()))?;
    if used != bytes.len() {
        return Err(DecodeError::Trailing(bytes.len() - used));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Bounded;

    #[test]
    fn golden_bytes() {
        assert_eq!(encode(&(1u8, 2u32, Some(3u16))), [1, 2, 0, 0, 0, 1, 3, 0]);
        assert_eq!(encode(&vec![7u8]), [1, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn hostile_lengths_do_not_allocate() {
        let mut bytes = encode(&vec![0u64; 2]);
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode::<Vec<u64>, 64>(&bytes).is_err());
        bytes[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        assert!(decode::<Bounded<u64, 8>, 64>(&bytes).is_err());
        assert!(matches!(decode::<u8, 1>(&[1, 2]), Err(DecodeError::TooLarge { .. })));
        assert_eq!(decode::<u8, 8>(&[1, 2]), Err(DecodeError::Trailing(1)));
    }
}
