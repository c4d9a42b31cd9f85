//! Which sequences come next: leased positions, and seeded ones where there is no lease.

use crate::{
    base::{Digest, NodeId, Stream},
    plan::feistel,
};

/// A source of sequence numbers (DESIGN section 5, data).
#[derive(Debug)]
pub(crate) struct Positions {
    seed: u64,
    sequences: u64,
    /// First unused position of the lease, and how many are left of it.
    lease: (u64, u64),
    unleased: Stream,
    drawn: u64,
}

impl Positions {
    /// Positions of a run with this seed over a data set of `sequences` (at least one).
    pub(crate) fn new(seed: u64, sequences: u64, me: NodeId, boot: u64) -> Self {
        let label = format!("unleased positions {boot}");
        let unleased = Stream::new(&Digest(me.0), &label);
        Self { seed, sequences, lease: (0, 0), unleased, drawn: 0 }
    }

    /// Takes a new lease; returns how many positions of the old one are skipped by that.
    pub(crate) fn lease(&mut self, first: u64, length: u32) -> u64 {
        let skipped = self.lease.1;
        self.lease = (first, u64::from(length));
        skipped
    }

    /// What is left of the lease: first position and length.
    pub(crate) fn left(&self) -> (u64, u64) {
        self.lease
    }

    /// Restores [`Positions::left`] after a restart.
    pub(crate) fn restore(&mut self, left: (u64, u64)) {
        self.lease = left;
    }

    /// Sequences drawn without a lease since the last call.
    pub(crate) fn take_unleased(&mut self) -> u64 {
        std::mem::take(&mut self.drawn)
    }

    /// The next `count` sequence numbers.
    pub(crate) fn next(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.one()).collect()
    }

    fn one(&mut self) -> u64 {
        if self.lease.1 > 0 {
            let position = self.lease.0;
            self.lease = (position + 1, self.lease.1 - 1);
            return feistel::sequence_at(self.seed, position, self.sequences);
        }
        self.drawn += 1;
        self.unleased.below(self.sequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions() -> Positions {
        Positions::new(1, 100, NodeId([1; 32]), 1)
    }

    #[test]
    fn leased_positions_come_once_and_in_order_of_the_permutation() {
        let mut positions = positions();
        assert_eq!(positions.lease(10, 5), 0);
        let expected: Vec<u64> = (10..15).map(|p| feistel::sequence_at(1, p, 100)).collect();
        assert_eq!(positions.next(3), expected[..3]);
        assert_eq!(positions.left(), (13, 2));
        assert_eq!(positions.next(2), expected[3..]);
        assert_eq!(positions.take_unleased(), 0);
    }

    #[test]
    fn without_a_lease_sequences_are_drawn_and_counted() {
        let mut positions = positions();
        assert!(positions.next(7).iter().all(|&s| s < 100));
        assert_eq!((positions.take_unleased(), positions.take_unleased()), (7, 0));
    }

    #[test]
    fn a_new_lease_skips_the_old_tail() {
        let mut positions = positions();
        positions.lease(0, 8);
        positions.next(3);
        assert_eq!(positions.lease(50, 4), 5);
    }
}
