//! The contributions of a bench, and how far a mean of them is from the exact one.

use std::ops::Add;

use rayon::prelude::*;

use crate::base::{Digest, Stream};

/// Elements that share a random stream, and that one thread makes at a time.
const CHUNK: usize = 1 << 16;

/// Where a vector's values come from: one per vector (or bucket) and member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Number of the vector or bucket.
    pub(super) vector: usize,
    /// The member.
    pub(super) member: usize,
}

impl Source {
    /// `len` normally distributed values of mean 0 and variance 1.
    pub(super) fn values(self, len: usize) -> Vec<f32> {
        let mut values = vec![0.0; len];
        let chunks = values.par_chunks_mut(CHUNK).enumerate();
        chunks.for_each(|(index, chunk)| self.fill(index, chunk));
        values
    }

    /// The values of one chunk, by the method of Box and Muller: the same in all processes of one
    /// build on one machine, which is all that a bench needs.
    fn fill(self, chunk: usize, out: &mut [f32]) {
        let Self { vector, member } = self;
        let seed = Digest::of(b"dilocox bench");
        let mut stream = Stream::new(&seed, &format!("{vector} {member} {chunk}"));
        for pair in out.chunks_mut(2) {
            let word = stream.next_u64();
            let unit = |bits: u64| ((bits & 0xff_ffff) + 1) as f32 / (1 << 24) as f32;
            let radius = (-2.0 * unit(word).ln()).sqrt();
            let (sine, cosine) = (unit(word >> 32) * std::f32::consts::TAU).sin_cos();
            pair[0] = radius * cosine;
            if let Some(second) = pair.get_mut(1) {
                *second = radius * sine;
            }
        }
    }
}

/// Squares of what differs and of what should be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distance {
    error: f64,
    size: f64,
}

impl Distance {
    /// The distance of `mean` from the exact mean, in f64, of the members' values.
    pub(super) fn of(mean: &[f32], vector: usize, members: usize) -> Self {
        let one = |(chunk, mean): (usize, &[f32])| {
            let mut sums = vec![0.0; mean.len()];
            let mut values = vec![0.0; mean.len()];
            for member in 0..members {
                Source { vector, member }.fill(chunk, &mut values);
                sums.iter_mut().zip(&values).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            let exact = sums.iter().map(|sum| sum / members as f64);
            mean.iter().zip(exact).fold(Self::default(), |distance, (&mean, exact)| Self {
                error: distance.error + (f64::from(mean) - exact).powi(2),
                size: distance.size + exact.powi(2),
            })
        };
        // Collected first, so that the sum has one order.
        let all: Vec<Self> = mean.par_chunks(CHUNK).enumerate().map(one).collect();
        all.into_iter().fold(Self::default(), Add::add)
    }

    /// |mean - exact| / |exact|.
    pub(super) fn relative(self) -> f64 {
        if self.size > 0.0 { (self.error / self.size).sqrt() } else { 0.0 }
    }
}

impl Add for Distance {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { error: self.error + other.error, size: self.size + other.size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_normal_and_members_differ() {
        let values = Source { vector: 0, member: 3 }.values(100_001);
        let moment = |power| {
            values.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>() / values.len() as f64
        };
        assert!(moment(1).abs() < 0.02, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.02, "{}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.2, "{}", moment(4));
        assert_ne!(values, Source { vector: 0, member: 4 }.values(100_001));
    }

    #[test]
    fn the_exact_mean_has_no_error() {
        let len = CHUNK + 5;
        let all: Vec<_> = (0..3).map(|member| Source { vector: 1, member }.values(len)).collect();
        let exact = |i: usize| all.iter().map(|v| f64::from(v[i])).sum::<f64>() / 3.0;
        let mut mean: Vec<f32> = (0..len).map(|i| exact(i) as f32).collect();
        assert!(Distance::of(&mean, 1, 3).relative() < 1e-7);
        mean.iter_mut().for_each(|x| *x *= 1.5);
        assert!((Distance::of(&mean, 1, 3).relative() - 0.5).abs() < 1e-6);
    }
}
