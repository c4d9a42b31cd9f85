//! What can go wrong between values, scales and bytes.

/// Values or bytes cannot be coded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A value is NaN or infinite; nothing may be contributed from it.
    #[error("value {index} is NaN or infinite; drop this contribution")]
    NotFinite {
        /// Position of the first such value.
        index: usize,
    },
    /// Bytes or values are not as many as the bucket has.
    #[error("{found} bytes or values where {expected} were expected")]
    WrongLength {
        /// What was given.
        found: usize,
        /// What fits.
        expected: usize,
    },
    /// A packed sum is larger than its contributions can have made it.
    #[error("packed sum {index} is beyond what {contributions} contributions can reach")]
    SumTooLarge {
        /// Position of the first such sum.
        index: usize,
        /// Contributions that the sum is said to hold.
        contributions: usize,
    },
}

/// Refuses any length but the expected one.
pub(crate) fn expect_len(found: usize, expected: usize) -> Result<(), CodecError> {
    if found == expected { Ok(()) } else { Err(CodecError::WrongLength { found, expected }) }
}

/// Refuses NaN and infinities. One pass that vectorises: a finite f32 has an exponent below 255.
pub(crate) fn expect_finite(values: &[f32]) -> Result<(), CodecError> {
    let largest = values.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    if largest < f32::INFINITY.to_bits() {
        return Ok(());
    }
    let index = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
    Err(CodecError::NotFinite { index })
}
