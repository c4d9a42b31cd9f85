//! A small set of indices below 64: members of a plan or voters of a round.

use serde::{Deserialize, Serialize};

/// A set of positions 0..64, in one word.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Bitmap(pub u64);

impl Bitmap {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Positions 0..`len`.
    pub const fn full(len: usize) -> Self {
        if len >= 64 { Self(u64::MAX) } else { Self((1 << len) - 1) }
    }

    /// Adds a position; positions from 64 on are a bug of the caller.
    pub fn insert(&mut self, index: usize) {
        assert!(index < 64, "bitmap position {index} out of range");
        self.0 |= 1 << index;
    }

    /// Whether the position is in the set.
    pub const fn contains(self, index: usize) -> bool {
        index < 64 && self.0 >> index & 1 == 1
    }

    /// The number of positions in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no position is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The positions in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&index| self.contains(index))
    }
}

impl FromIterator<usize> for Bitmap {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::EMPTY;
        indices.into_iter().for_each(|index| set.insert(index));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in() {
        let set: Bitmap = [0, 5, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!(set.len(), 3);
        assert!(!set.contains(64));
        assert_eq!(Bitmap::full(64).len(), 64);
        assert_eq!(Bitmap::full(3).0, 7);
    }
}
