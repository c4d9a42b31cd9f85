//! Payload bits of a quantised element.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::limits;

/// Bits of a quantised element: 2, 3, 4, 8, 16 or 24 (DESIGN section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct Bits(u8);

/// A number of payload bits that the arithmetic does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} payload bits are not supported; choose 2, 3, 4, 8, 16 or 24")]
pub struct UnsupportedBits(pub u8);

impl Bits {
    /// Two bits: -1, 0, 1.
    pub const B2: Self = Self(2);
    /// Three bits: -3 to 3.
    pub const B3: Self = Self(3);
    /// Four bits: -7 to 7, the paper's choice.
    pub const B4: Self = Self(4);
    /// Eight bits: -127 to 127.
    pub const B8: Self = Self(8);
    /// Sixteen bits: OpenDiLoCo's fp16 bytes, as integers.
    pub const B16: Self = Self(16);
    /// 24 bits: f32's mantissa.
    pub const B24: Self = Self(24);
    /// Every supported number.
    pub const ALL: [Self; 6] = [Self::B2, Self::B3, Self::B4, Self::B8, Self::B16, Self::B24];

    /// L = 2^(bits-1) - 1: the largest magnitude of a quantised element.
    pub const fn level(self) -> i32 {
        (1 << (self.0 - 1)) - 1
    }

    /// The number itself.
    pub const fn get(self) -> u8 {
        self.0
    }
}

// Sums of a full exchange stay inside i32, and L and every bound in between are exact in f32.
const _: () = assert!(2 * Bits::B24.level() as i64 * (limits::MAX_MEMBERS as i64) < 1 << 31);
const _: () = assert!(Bits::B24.level() < 1 << 24);

impl TryFrom<u8> for Bits {
    type Error = UnsupportedBits;

    fn try_from(bits: u8) -> Result<Self, UnsupportedBits> {
        let known = Self::ALL.into_iter().find(|known| known.0 == bits);
        known.ok_or(UnsupportedBits(bits))
    }
}

impl From<Bits> for u8 {
    fn from(bits: Bits) -> Self {
        bits.0
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::codec;

    #[test]
    fn levels_are_those_of_the_design() {
        let levels = Bits::ALL.map(Bits::level);
        assert_eq!(levels, [1, 3, 7, 127, 32_767, 8_388_607]);
    }

    #[test]
    fn other_numbers_are_refused_even_from_the_wire() {
        assert_eq!(Bits::try_from(5), Err(UnsupportedBits(5)));
        assert_eq!(codec::decode::<Bits, 1>(&[4]), Ok(Bits::B4));
        assert!(codec::decode::<Bits, 1>(&[7]).is_err());
    }
}
