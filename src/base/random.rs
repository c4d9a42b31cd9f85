//! Seeded random streams: the same label gives the same numbers on every machine.
//!
//! The generator is blake3's extendable output, so a stream can be entered at any position and
//! streams with different labels are independent.

use crate::base::Digest;

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    reader: blake3::OutputReader,
    buffer: [u8; 64],
    used: usize,
}

impl Stream {
    /// The stream named by `seed` and `label`.
    pub fn new(seed: &Digest, label: &str) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(seed.as_bytes());
        hasher.update(label.as_bytes());
        Self { reader: hasher.finalize_xof(), buffer: [0; 64], used: 64 }
    }

    /// The same stream from byte `position` (a multiple of 64) on.
    pub fn at(seed: &Digest, label: &str, position: u64) -> Self {
        let mut stream = Self::new(seed, label);
        stream.reader.set_position(position);
        stream
    }

    /// The next eight bytes as a little-endian number.
    pub fn next_u64(&mut self) -> u64 {
        if self.used == 64 {
            self.reader.fill(&mut self.buffer);
            self.used = 0;
        }
        let mut word = [0; 8];
        word.copy_from_slice(&self.buffer[self.used..self.used + 8]);
        self.used += 8;
        u64::from_le_bytes(word)
    }

    /// A number in 0..`bound`, uniform up to a bias below 2^-64 * bound. Zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A bell-shaped value of mean 0 and variance 1: the centred sum of four 16-bit uniforms, so
    /// that it is one exact integer and one multiplication, the same on every machine
    /// (a library's logarithm is not). Bounded by 3.47.
    pub fn bell_f32(&mut self) -> f32 {
        let word = self.next_u64();
        let sum: u32 = (0..4).map(|i| (word >> (16 * i)) as u32 & 0xffff).sum();
        // The variance of the sum is 4 * (2^32 - 1) / 12; its root is 37837.2272.
        (sum as i32 - 2 * 0xffff) as f32 * (1.0 / 37_837.227)
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last as u64 + 1) as usize;
            items.swap(last, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_can_be_entered_anywhere() {
        let seed = Digest::of(b"seed");
        let mut a = Stream::new(&seed, "x");
        let first: Vec<u64> = (0..16).map(|_| a.next_u64()).collect();
        let mut b = Stream::at(&seed, "x", 64);
        assert_eq!(b.next_u64(), first[8]);
        assert_ne!(Stream::new(&seed, "y").next_u64(), first[0]);
    }

    #[test]
    fn golden_first_word() {
        let mut stream = Stream::new(&Digest([0; 32]), "golden");
        let words = [stream.next_u64(), stream.next_u64()];
        let mut again = Stream::new(&Digest([0; 32]), "golden");
        assert_eq!([again.next_u64(), again.next_u64()], words);
    }

    #[test]
    fn bell_values_have_mean_zero_and_variance_one() {
        let mut stream = Stream::new(&Digest::of(b"bell"), "");
        let values: Vec<f64> = (0..20_000).map(|_| f64::from(stream.bell_f32())).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
    }
}
