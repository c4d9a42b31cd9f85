//! Partial sums at exactly the width that they need.
//!
//! A sum of m contributions lies in -L*m..=L*m; it is written as v + L*m in ceil(log2(2Lm+1)) bits,
//! lowest bit first, value after value without gaps. A block of 64 values is 8 bytes times the
//! width, so blocks, and with them chunks, start at whole bytes (DESIGN section 4).
//!
//! The loops are written for groups of eight values, `W` whole bytes, and compiled once for every
//! width: all shifts are constants then.

use crate::{
    base::limits,
    codec::{BLOCK, Bits, CodecError, error::expect_len},
};

/// Values of a group: their bits fill whole bytes at every width.
const GROUP: usize = 8;

/// Bits of a partial sum of `contributions` contributions: ceil(log2(2*L*m + 1)), 2 to 30.
///
/// # Panics
/// If there are none, or more than an exchange has members.
pub fn sum_width(bits: Bits, contributions: usize) -> u32 {
    (2 * limit(bits, contributions) as u32 + 1).next_power_of_two().trailing_zeros()
}

/// L*m: the largest magnitude of a sum of `contributions` contributions.
pub(crate) fn limit(bits: Bits, contributions: usize) -> i32 {
    let allowed = 1..=limits::MAX_MEMBERS;
    assert!(allowed.contains(&contributions), "{contributions} contributions to one sum");
    bits.level() * contributions as i32
}

/// Bytes of `blocks` blocks of packed sums.
pub fn packed_len(blocks: usize, bits: Bits, contributions: usize) -> usize {
    blocks * BLOCK / 8 * sum_width(bits, contributions) as usize
}

/// Appends the packed `values`, whole blocks of them, to `out`.
///
/// # Panics
/// If the values are no whole blocks, or one is larger than its contributions can have made it.
pub fn pack_sums(values: &[i32], bits: Bits, contributions: usize, out: &mut Vec<u8>) {
    assert!(values.len().is_multiple_of(BLOCK), "{} values are no whole blocks", values.len());
    let limit = limit(bits, contributions);
    let within = values.iter().fold(true, |all, &v| all & (v >= -limit) & (v <= limit));
    assert!(within, "a sum of {contributions} contributions is beyond {limit}");
    let start = out.len();
    out.resize(start + packed_len(values.len() / BLOCK, bits, contributions), 0);
    pack_at(sum_width(bits, contributions), values, limit, &mut out[start..]);
}

/// Adds packed sums of `contributions` contributions to `into`.
///
/// # Errors
/// If the length is not that of `into` at this width, or a value is beyond 2*L*m; `into` is
/// unchanged then.
///
/// # Panics
/// If `into` is no whole blocks.
pub fn unpack_sums_add(
    bytes: &[u8],
    bits: Bits,
    contributions: usize,
    into: &mut [i32],
) -> Result<(), CodecError> {
    assert!(into.len().is_multiple_of(BLOCK), "{} values are no whole blocks", into.len());
    expect_len(bytes.len(), packed_len(into.len() / BLOCK, bits, contributions))?;
    let (width, limit) = (sum_width(bits, contributions), limit(bits, contributions));
    if unpack_at::<false>(width, bytes, limit, into) {
        return Ok(());
    }
    // Wrapping additions are undone exactly; only a liar's bytes are read twice.
    unpack_at::<true>(width, bytes, limit, into);
    let mut sums = vec![0; into.len()];
    unpack_at::<false>(width, bytes, limit, &mut sums);
    let index = sums.iter().position(|v| !(-limit..=limit).contains(v)).unwrap_or(0);
    Err(CodecError::SumTooLarge { index, contributions })
}

/// `blocks` blocks of packed sums as integers.
///
/// # Errors
/// As [`unpack_sums_add`].
pub fn unpack_sums(
    bytes: &[u8],
    bits: Bits,
    contributions: usize,
    blocks: usize,
) -> Result<Vec<i32>, CodecError> {
    expect_len(bytes.len(), packed_len(blocks, bits, contributions))?;
    let mut sums = vec![0; blocks * BLOCK];
    unpack_sums_add(bytes, bits, contributions, &mut sums)?;
    Ok(sums)
}

/// Calls `$call` with the constant `W` equal to `$width`.
macro_rules! with_width {
    ($width:expr, $W:ident => $call:expr, $($n:literal)*) => {
        match $width {
            $($n => { const $W: usize = $n; $call })*
            other => unreachable!("sums of {other} bits"),
        }
    };
}

fn pack_at(width: u32, values: &[i32], offset: i32, out: &mut [u8]) {
    with_width!(width, W => pack_width::<W>(values, offset, out),
        2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
}

/// Adds (or, with `UNDO`, subtracts) the values; false if one was beyond 2 * `offset`.
fn unpack_at<const UNDO: bool>(width: u32, bytes: &[u8], offset: i32, into: &mut [i32]) -> bool {
    with_width!(width, W => unpack_width::<W, UNDO>(bytes, offset, into),
        2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
}

fn pack_width<const W: usize>(values: &[i32], offset: i32, out: &mut [u8]) {
    let groups = values.as_chunks::<GROUP>().0;
    for (group, bytes) in groups.iter().zip(out.as_chunks_mut::<W>().0) {
        let mut words = [0u64; 5];
        for (index, value) in group.iter().enumerate() {
            let raw = u64::from(value.wrapping_add(offset) as u32);
            let (word, shift) = (index * W / 64, index * W % 64);
            words[word] |= raw << shift;
            if shift + W > 64 {
                words[word + 1] |= raw >> (64 - shift);
            }
        }
        let (whole, tail) = bytes.as_chunks_mut::<8>();
        whole.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        tail.copy_from_slice(&words[W / 8].to_le_bytes()[..W % 8]);
    }
}

fn unpack_width<const W: usize, const UNDO: bool>(
    bytes: &[u8],
    offset: i32,
    into: &mut [i32],
) -> bool {
    let most = 2 * i64::from(offset);
    let mut beyond = 0;
    for (group, bytes) in into.as_chunks_mut::<GROUP>().0.iter_mut().zip(bytes.as_chunks::<W>().0) {
        let words = words::<W>(bytes);
        for (index, value) in group.iter_mut().enumerate() {
            let raw = raw::<W>(&words, index);
            beyond |= most - i64::from(raw);
            let sum = (raw as i32).wrapping_sub(offset);
            *value = if UNDO { value.wrapping_sub(sum) } else { value.wrapping_add(sum) };
        }
    }
    // Every difference had its sign bit clear.
    beyond >= 0
}

/// A group's bytes as little-endian words.
fn words<const W: usize>(bytes: &[u8; W]) -> [u64; 5] {
    let mut words = [0; 5];
    let (whole, tail) = bytes.as_chunks::<8>();
    words.iter_mut().zip(whole).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    let mut last = [0; 8];
    last[..W % 8].copy_from_slice(tail);
    words[W / 8] = u64::from_le_bytes(last);
    words
}

fn raw<const W: usize>(words: &[u64; 5], index: usize) -> u32 {
    let (word, shift) = (index * W / 64, index * W % 64);
    let low = words[word] >> shift;
    let high = if shift + W > 64 { words[word + 1] << (64 - shift) } else { 0 };
    ((low | high) & ((1 << W) - 1)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{base::Digest, codec::reference};

    fn sums(bits: Bits, contributions: usize, label: &str, blocks: usize) -> Vec<i32> {
        let limit = limit(bits, contributions);
        let mut stream = crate::base::Stream::new(&Digest::of(b"sums"), label);
        let mut value = || stream.below(2 * limit as u64 + 1) as i32 - limit;
        (0..blocks * BLOCK).map(|_| value()).collect()
    }

    #[test]
    fn widths_are_those_of_the_design() {
        let widths = |bits| [1, 2, 8, 32, 64].map(|m| sum_width(bits, m));
        assert_eq!(widths(Bits::B4), [4, 5, 7, 9, 10]);
        assert_eq!(widths(Bits::B2), [2, 3, 5, 7, 8]);
        assert_eq!(widths(Bits::B24), [24, 25, 27, 29, 30]);
        // Reduce-scatter and all-gather of a ring of 8, against 4 bits each way: 1.6 times.
        let scatter: u32 = (1..8).map(|m| sum_width(Bits::B4, m)).sum();
        let ratio = f64::from(scatter + 7 * sum_width(Bits::B4, 8)) / f64::from(2 * 7 * 4);
        assert!((ratio - 1.6).abs() < 0.05, "{ratio}");
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        for bits in Bits::ALL {
            for contributions in [1, 2, 3, 7, 8, 33, 64] {
                let label = format!("{bits} {contributions}");
                pack_sums(&sums(bits, contributions, &label, 3), bits, contributions, &mut bytes);
            }
        }
        let golden = "b0c9cdf199bf94b90970d7b2c105d5415b49b8dc6fecb602431de8b98bb5c9e2";
        assert_eq!(Digest::of(&bytes).to_string(), golden);
    }

    #[test]
    fn golden_block_of_four_bits() {
        let values: Vec<i32> = (0..64).map(|i| i % 15 - 7).collect();
        let mut bytes = Vec::new();
        pack_sums(&values, Bits::B4, 1, &mut bytes);
        assert_eq!(bytes[..8], [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0x0e]);
        assert_eq!(bytes.len(), 32);
    }

    #[test]
    fn packing_appends() {
        let mut bytes = vec![42];
        pack_sums(&[0; BLOCK], Bits::B2, 1, &mut bytes);
        assert_eq!(bytes.len(), 1 + 16);
        assert_eq!(bytes[..2], [42, 0b0101_0101]);
    }

    #[test]
    #[should_panic(expected = "beyond 14")]
    fn a_sum_that_cannot_be_is_a_bug() {
        pack_sums(&[15; BLOCK], Bits::B4, 2, &mut Vec::new());
    }

    #[test]
    fn a_value_beyond_the_limit_changes_nothing() {
        let mut bytes = Vec::new();
        pack_sums(&[7; 2 * BLOCK], Bits::B4, 1, &mut bytes);
        bytes[33] = 0xef;
        let mut into = vec![3; 2 * BLOCK];
        let error = unpack_sums_add(&bytes, Bits::B4, 1, &mut into).unwrap_err();
        assert_eq!(error, CodecError::SumTooLarge { index: 66, contributions: 1 });
        assert_eq!(into, vec![3; 2 * BLOCK]);
    }

    #[test]
    fn a_wrong_length_is_refused() {
        let mut into = vec![0; BLOCK];
        assert!(unpack_sums_add(&[0; 31], Bits::B4, 1, &mut into).is_err());
        assert!(unpack_sums_add(&[0; 33], Bits::B4, 1, &mut into).is_err());
        assert!(unpack_sums(&[], Bits::B4, 1, 1).is_err());
        assert_eq!(unpack_sums(&[], Bits::B4, 1, 0), Ok(vec![]));
    }

    #[test]
    fn partial_sums_add_up_hop_by_hop() {
        let own: Vec<Vec<i32>> = (0..5).map(|i| sums(Bits::B4, 1, &i.to_string(), 2)).collect();
        let mut travelling = own[0].clone();
        for (hop, mine) in own.iter().enumerate().skip(1) {
            let mut bytes = Vec::new();
            pack_sums(&travelling, Bits::B4, hop, &mut bytes);
            travelling = mine.clone();
            unpack_sums_add(&bytes, Bits::B4, hop, &mut travelling).unwrap();
        }
        let total: Vec<i32> = (0..2 * BLOCK).map(|i| own.iter().map(|m| m[i]).sum()).collect();
        assert_eq!(travelling, total);
    }

    proptest! {
        #[test]
        fn every_width_is_the_reference(width in 2u32..=32, seed in any::<u64>()) {
            let mut stream = crate::base::Stream::new(&Digest::of(&seed.to_le_bytes()), "");
            let raw: Vec<u32> =
                (0..2 * BLOCK).map(|_| (stream.next_u64() >> (64 - width)) as u32).collect();
            let values: Vec<i32> = raw.iter().map(|v| v.wrapping_sub(1 << (width - 1)) as i32).collect();
            let offset = (1u32 << (width - 1)) as i32;
            let mut bytes = vec![0; 16 * width as usize];
            pack_at(width, &values, offset, &mut bytes);
            prop_assert_eq!(&bytes, &reference::pack(&raw, width as usize));
            prop_assert_eq!(reference::unpack(&bytes, width as usize, 2 * BLOCK), raw);
            let mut back = vec![5; 2 * BLOCK];
            unpack_at::<false>(width, &bytes, offset, &mut back);
            prop_assert!(back.iter().zip(&values).all(|(b, v)| *b == v.wrapping_add(5)));
            unpack_at::<true>(width, &bytes, offset, &mut back);
            prop_assert_eq!(back, vec![5; 2 * BLOCK]);
        }

        #[test]
        fn unpacking_undoes_packing(which in 0usize..6, contributions in 1usize..=64, seed in 0u32..1000) {
            let bits = Bits::ALL[which];
            let values = sums(bits, contributions, &seed.to_string(), 2);
            let mut bytes = Vec::new();
            pack_sums(&values, bits, contributions, &mut bytes);
            prop_assert_eq!(bytes.len(), packed_len(2, bits, contributions));
            prop_assert_eq!(unpack_sums(&bytes, bits, contributions, 2), Ok(values));
        }

        #[test]
        fn arbitrary_bytes_stay_within_the_limit(bytes in prop::collection::vec(any::<u8>(), 56)) {
            // 7 bits hold 0..=127; 8 contributions at 4 bits reach 112.
            match unpack_sums(&bytes, Bits::B4, 8, 1) {
                Ok(values) => prop_assert!(values.iter().all(|v| v.abs() <= 56)),
                Err(error) => {
                    let is_too_large = matches!(error, CodecError::SumTooLarge { .. });
                    prop_assert!(is_too_large);
                }
            }
        }
    }
}
