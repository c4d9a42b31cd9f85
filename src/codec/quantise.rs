//! Values to integers against agreed scales, and integer sums back to a mean.
//!
//! Each element is one chain of f32 operations, rounded one by one, so that every machine gets the
//! same bits; loops run over independent elements and vectorise (DESIGN section 4).

use rayon::prelude::*;

use crate::codec::{
    BLOCK, Bits, CodecError, OMEGA_ONE,
    error::{expect_finite, expect_len},
    proposal::weight,
    step,
};

/// Blocks that one thread takes at a time.
const PARALLEL_BLOCKS: usize = 1024;

/// q = clamp(rint(x * (omega/256) / s), -L, L), ties to even; a block of code 0 becomes zeros.
///
/// `values` are padded to whole blocks, one of `codes` for each.
///
/// # Errors
/// If a value is NaN or infinite, or the number of values is not 64 a code.
///
/// # Panics
/// If `omega` is not in 1..=256.
pub fn quantise(
    values: &[f32],
    omega: u16,
    codes: &[u8],
    bits: Bits,
) -> Result<Vec<i32>, CodecError> {
    expect_len(values.len(), codes.len() * BLOCK)?;
    expect_finite(values)?;
    let weight = weight(omega);
    let mut quantised = vec![0; values.len()];
    let (from, _) = values.as_chunks::<BLOCK>();
    let (to, _) = quantised.as_chunks_mut::<BLOCK>();
    let blocks = to.par_iter_mut().zip(from).zip(codes).with_min_len(PARALLEL_BLOCKS);
    blocks.filter(|(_, code)| **code != 0).for_each(|((to, from), code)| {
        quantise_block(from, weight, step(*code, bits), bits.level(), to);
    });
    Ok(quantised)
}

fn quantise_block(from: &[f32; BLOCK], weight: f32, step: f32, level: i32, to: &mut [i32; BLOCK]) {
    let level = level as f32;
    for (q, x) in to.iter_mut().zip(from) {
        *q = rint((x * weight / step).clamp(-level, level));
    }
}

/// The nearest integer, ties to even, of a value of at most 2^23. At 2^23 an f32's last place is
/// 1, so the addition itself rounds; no call into a maths library, and it vectorises everywhere.
fn rint(x: f32) -> i32 {
    const WHOLE: f32 = 8_388_608.0;
    let magnitude = (x.abs() + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits()) as i32;
    let sign = x.to_bits() as i32 >> 31;
    (magnitude ^ sign).wrapping_sub(sign)
}

/// The mean of a job: (f32(sum) * s) / (divisor / 256) for each element, in this order.
///
/// `divisor` is the sum of the omegas of the members that the job has. `None` for a divisor of 0:
/// the job is unfinished and moves nothing.
///
/// # Panics
/// If there are not 64 sums a code.
pub fn dequantise_mean(sums: &[i32], codes: &[u8], bits: Bits, divisor: u32) -> Option<Vec<f32>> {
    (divisor != 0).then(|| scaled(sums, codes, bits, divisor as f32 / f32::from(OMEGA_ONE)))
}

/// (f32(q) * s) / divisor for each element.
pub(crate) fn scaled(quantised: &[i32], codes: &[u8], bits: Bits, divisor: f32) -> Vec<f32> {
    assert_eq!(quantised.len(), codes.len() * BLOCK, "values and codes of two buckets");
    let mut values = vec![0.0; quantised.len()];
    let (from, _) = quantised.as_chunks::<BLOCK>();
    let (to, _) = values.as_chunks_mut::<BLOCK>();
    let blocks = to.par_iter_mut().zip(from).zip(codes).with_min_len(PARALLEL_BLOCKS);
    blocks.for_each(|((to, from), code)| {
        let step = step(*code, bits);
        for (value, &q) in to.iter_mut().zip(from) {
            *value = q as f32 * step / divisor;
        }
    });
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        base::Digest,
        codec::{bound, code_for, reference},
    };

    fn codes_of(values: &[f32]) -> Vec<u8> {
        let absmax = |block: &[f32]| block.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
        values.chunks(BLOCK).map(|block| code_for(absmax(block))).collect()
    }

    #[test]
    fn golden_integers() {
        let values = reference::noise("golden", 64 * 40);
        let codes = codes_of(&values);
        let mut bytes = Vec::new();
        for bits in Bits::ALL {
            for omega in [256, 255, 1] {
                let quantised = quantise(&values, omega, &codes, bits).unwrap();
                bytes.extend(quantised.iter().flat_map(|q| q.to_le_bytes()));
            }
        }
        let golden = "1c99a7737f638a7d28187eb6ad0295a05375ab9e14444a9fafa2273c342e60c6";
        assert_eq!(Digest::of(&bytes).to_string(), golden);
    }

    #[test]
    fn golden_mean() {
        let values = reference::noise("golden", 64 * 40);
        let codes = codes_of(&values);
        let sums = quantise(&values, 256, &codes, Bits::B4).unwrap();
        let mean = dequantise_mean(&sums, &codes, Bits::B4, 256 + 77).unwrap();
        let bytes: Vec<u8> = mean.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
        let golden = "5ff726f6212bd59aad400197a87625c437855e194d4a11db5361131d10ec5865";
        assert_eq!(Digest::of(&bytes).to_string(), golden);
    }

    #[test]
    fn ties_go_to_even_and_the_rest_saturates() {
        let code = code_for(8.0);
        assert_eq!(bound(code), 8.0);
        let step = step(code, Bits::B4);
        let mut values = [0.0; BLOCK];
        let steps = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 7.0, 9.0, -9.0, 1e30, 0.49];
        values.iter_mut().zip(steps).for_each(|(value, n)| *value = n * step);
        let quantised = quantise(&values, 256, &[code], Bits::B4).unwrap();
        assert_eq!(quantised[..11], [0, 2, 2, 0, -2, -2, 7, 7, -7, 7, 0]);
    }

    #[test]
    fn rounding_is_the_library_s() {
        for bits in (0..0x4b00_0000u32).step_by(9_973) {
            let x = f32::from_bits(bits);
            assert_eq!(rint(x), x.round_ties_even() as i32, "{x}");
            assert_eq!(rint(-x), -x.round_ties_even() as i32, "-{x}");
        }
        assert_eq!(rint(8_388_607.0), 8_388_607);
        assert_eq!(rint(8_388_607.5), 8_388_608);
    }

    #[test]
    fn a_block_of_code_zero_is_zeros_whatever_its_values() {
        let values = [1.0; BLOCK];
        assert_eq!(quantise(&values, 256, &[0], Bits::B4), Ok(vec![0; BLOCK]));
        assert_eq!(dequantise_mean(&[0; BLOCK], &[0], Bits::B4, 256), Some(vec![0.0; BLOCK]));
    }

    #[test]
    fn values_that_are_not_finite_or_not_whole_blocks_are_refused() {
        let mut values = [0.0; BLOCK];
        values[63] = f32::NAN;
        assert_eq!(quantise(&values, 1, &[9], Bits::B2), Err(CodecError::NotFinite { index: 63 }));
        assert!(quantise(&values[1..], 1, &[9], Bits::B2).is_err());
    }

    #[test]
    fn an_unfinished_job_has_no_mean() {
        assert_eq!(dequantise_mean(&[0; BLOCK], &[9], Bits::B4, 0), None);
    }

    #[test]
    fn a_death_changes_the_divisor_and_nothing_else() {
        let (sums, codes) = ([5; BLOCK], [200]);
        let three = dequantise_mean(&sums, &codes, Bits::B4, 3 * 256).unwrap();
        let two = dequantise_mean(&sums, &codes, Bits::B4, 2 * 256).unwrap();
        assert!(three.iter().zip(&two).all(|(a, b)| (a * 1.5 - b).abs() < 1e-6 * b));
    }

    #[test]
    fn a_mean_of_four_bits_is_near_the_truth() {
        let members: Vec<Vec<f32>> =
            (0..8).map(|i| reference::noise(&format!("m{i}"), 64 * 34)).collect();
        let codes: Vec<u8> =
            (0..34).map(|b| members.iter().map(|m| codes_of(m)[b]).max().unwrap()).collect();
        let mut sums = vec![0; 64 * 34];
        for member in &members {
            let own = quantise(member, 256, &codes, Bits::B4).unwrap();
            sums.iter_mut().zip(own).for_each(|(sum, q)| *sum += q);
        }
        let mean = dequantise_mean(&sums, &codes, Bits::B4, 8 * 256).unwrap();
        let (mut error, mut size) = (0.0, 0.0);
        for (i, m) in mean.iter().enumerate() {
            let exact = members.iter().map(|v| f64::from(v[i])).sum::<f64>() / 8.0;
            error += (f64::from(*m) - exact).powi(2);
            size += exact.powi(2);
        }
        assert!((error / size).sqrt() < 0.2, "{}", (error / size).sqrt());
    }

    proptest! {
        #[test]
        fn quantising_is_the_reference(
            label in 0u32..1000, omega in 1u16..=256, lower in 0u8..30, which in 0usize..6,
        ) {
            let bits = Bits::ALL[which];
            let values = reference::noise(&label.to_string(), 64 * 20);
            // Lower codes saturate, as under the cap.
            let codes: Vec<u8> =
                codes_of(&values).iter().map(|c| c.saturating_sub(lower)).collect();
            let fast = quantise(&values, omega, &codes, bits).unwrap();
            for (i, q) in fast.iter().enumerate() {
                let slow = reference::quantise(values[i], omega, codes[i / BLOCK], bits);
                prop_assert_eq!(*q, slow);
            }
        }
    }
}
