//! The order of the training sequences: a seeded permutation of 0..n for every epoch that is
//! computed at one position without ever being stored.
//!
//! A balanced Feistel network permutes the numbers of 2w bits, where 4^w is the smallest such
//! power that holds n; a value that lands at n or above is sent through again until it falls below
//! (cycle walking). Since 4^w < 4n, that takes fewer than four passes on average, and the walk
//! ends, because it follows a cycle of a permutation that contains a value below n: the one it
//! started from.

use crate::base::Digest;

/// Rounds of the network. Four make a strong pseudo-random permutation (Luby and Rackoff, 1988);
/// the round function here only mixes, so a few more are spent.
const ROUNDS: usize = 8;

/// A permutation of 0..n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of 0..`n` in `epoch` of the run with this `seed`.
    ///
    /// # Panics
    /// If `n` is zero or above 2^62: data sets are checked to be neither.
    pub fn new(seed: u64, epoch: u64, n: u64) -> Self {
        assert!((1..=1 << 62).contains(&n), "a permutation of {n} elements");
        let bits = u64::BITS - (n - 1).leading_zeros();
        let mut label = b"dilocox/data-order/1".to_vec();
        label.extend(seed.to_le_bytes());
        label.extend(epoch.to_le_bytes());
        let keys = std::array::from_fn(|round| {
            let mut label = label.clone();
            label.push(round as u8);
            let Digest(bytes) = Digest::of(&label);
            u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
        });
        Self { n, half_bits: bits.div_ceil(2), keys }
    }

    /// Where `position` (below n) is sent.
    ///
    /// # Panics
    /// If the position is not below n.
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.n, "position {position} of {}", self.n);
        let mut value = position;
        loop {
            value = self.pass(value);
            if value < self.n {
                return value;
            }
        }
    }

    fn pass(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// SplitMix64's finaliser (Steele, Lea and Flood, 2014).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The training sequence that the run's `cursor` names: cursor / n is the epoch, and the rest is
/// sent through that epoch's permutation.
///
/// # Panics
/// If `n` is zero.
pub fn sequence_at(seed: u64, cursor: u64, n: u64) -> u64 {
    Permutation::new(seed, cursor / n, n).at(cursor % n)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_bijection(seed: u64, epoch: u64, n in 1u64..3000) {
            let permutation = Permutation::new(seed, epoch, n);
            let mut seen = vec![false; n as usize];
            for position in 0..n {
                let value = permutation.at(position);
                prop_assert!(!std::mem::replace(&mut seen[value as usize], true));
            }
        }

        #[test]
        fn huge_sets_stay_in_range(seed: u64, n in 1u64..1 << 62, position: u64) {
            let permutation = Permutation::new(seed, 0, n);
            prop_assert!(permutation.at(position % n) < n);
        }
    }

    #[test]
    fn golden_values() {
        let permutation = Permutation::new(1, 0, 1000);
        let first: Vec<u64> = (0..8).map(|position| permutation.at(position)).collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [u64; 8] = [221, 153, 80, 600, 765, 90, 684, 910];

    #[test]
    fn seeds_and_epochs_give_other_orders() {
        let order = |seed, epoch| -> Vec<u64> {
            let permutation = Permutation::new(seed, epoch, 100);
            (0..100).map(|position| permutation.at(position)).collect()
        };
        assert_ne!(order(1, 0), order(2, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_eq!(sequence_at(1, 103, 100), order(1, 1)[3]);
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        let permutation = Permutation::new(7, 0, 10_000);
        let near =
            (1..10_000).filter(|&p| permutation.at(p).abs_diff(permutation.at(p - 1)) < 10).count();
        // A random order has about 20 such pairs.
        assert!(near < 60, "{near}");
    }
}
