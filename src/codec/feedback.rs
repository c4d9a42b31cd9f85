//! Error feedback: what an exchange did not carry goes into the next one.
//!
//! `local` keeps delta minus the node's own decompressed contribution; `global` (the paper's
//! Algorithm 2) keeps delta minus the average. Buffers are in unscaled units, whatever omega was.
//! Local business: the residual is not part of the agreed state.

use crate::{
    codec::{Bits, CodecError, error::expect_finite, proposal::weight, quantise, quantise::scaled},
    config::manifest::ErrorFeedback,
};

/// What a contribution carried of its values, in unscaled units: (q * s) / (omega/256).
///
/// # Panics
/// If there are not 64 values a code, or omega is not in 1..=256.
pub fn own_contribution(quantised: &[i32], omega: u16, codes: &[u8], bits: Bits) -> Vec<f32> {
    scaled(quantised, codes, bits, weight(omega))
}

/// The error buffer of a bucket after its exchange, padded as `delta` is.
///
/// - `contributed`: whether this node is in the job's final member set.
/// - `mean`: the job's average, `None` if the job is unfinished.
///
/// Who did not contribute, or whose job is unfinished, gets `delta` back whole in every mode.
///
/// # Errors
/// If a value of `delta` is NaN or infinite: such a delta is to be dropped, not carried on.
///
/// # Panics
/// If delta, codes and mean are of different buckets, or omega is not in 1..=256.
pub fn feedback(
    mode: ErrorFeedback,
    delta: &[f32],
    contributed: bool,
    omega: u16,
    codes: &[u8],
    bits: Bits,
    mean: Option<&[f32]>,
) -> Result<Vec<f32>, CodecError> {
    expect_finite(delta)?;
    let Some(mean) = mean.filter(|_| contributed) else {
        return Ok(delta.to_vec());
    };
    match mode {
        ErrorFeedback::Off => Ok(vec![0.0; delta.len()]),
        ErrorFeedback::Global => Ok(difference(delta, mean)),
        ErrorFeedback::Local => {
            let quantised = quantise(delta, omega, codes, bits)?;
            Ok(difference(delta, &own_contribution(&quantised, omega, codes, bits)))
        }
    }
}

fn difference(a: &[f32], b: &[f32]) -> Vec<f32> {
    assert_eq!(a.len(), b.len(), "values of two buckets");
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{BLOCK, code_for, dequantise_mean, reference::noise};

    const BITS: Bits = Bits::B4;

    fn codes_of(values: &[f32]) -> Vec<u8> {
        let absmax = |block: &[f32]| block.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
        values.chunks(BLOCK).map(|block| code_for(absmax(block))).collect()
    }

    #[test]
    fn local_feedback_telescopes() {
        // What was sent over the rounds, and what is left, is what there was to send.
        let count = BLOCK * 17;
        let (mut error, mut sent, mut given) =
            (vec![0f32; count], vec![0f64; count], vec![0f64; count]);
        for round in 0..20 {
            let gradient = noise(&format!("round {round}"), count);
            let delta: Vec<f32> = gradient.iter().zip(&error).map(|(g, e)| g + e).collect();
            let omega = 256 - 11 * round as u16;
            let codes = codes_of(&delta);
            let quantised = quantise(&delta, omega, &codes, BITS).unwrap();
            let own = own_contribution(&quantised, omega, &codes, BITS);
            error = feedback(ErrorFeedback::Local, &delta, true, omega, &codes, BITS, Some(&own))
                .unwrap();
            for i in 0..count {
                sent[i] += f64::from(own[i]);
                given[i] += f64::from(gradient[i]);
            }
        }
        for i in 0..count {
            let size = 2f64.powi((i / BLOCK % 17) as i32 - 12);
            let gap = (given[i] - sent[i] - f64::from(error[i])).abs();
            assert!(gap < 1e-4 * size, "element {i}: {gap} of {size}");
        }
    }

    #[test]
    fn who_did_not_contribute_gets_everything_back() {
        let delta = noise("back", BLOCK);
        let codes = codes_of(&delta);
        for mode in [ErrorFeedback::Local, ErrorFeedback::Global, ErrorFeedback::Off] {
            let missed = feedback(mode, &delta, false, 256, &codes, BITS, Some(&delta)).unwrap();
            let unfinished = feedback(mode, &delta, true, 256, &codes, BITS, None).unwrap();
            assert_eq!((&missed, &unfinished), (&delta, &delta));
        }
    }

    #[test]
    fn global_feedback_is_the_distance_to_the_average() {
        let (delta, mean) = (noise("mine", BLOCK), noise("mean", BLOCK));
        let codes = codes_of(&delta);
        let error =
            feedback(ErrorFeedback::Global, &delta, true, 9, &codes, BITS, Some(&mean)).unwrap();
        assert!((0..BLOCK).all(|i| error[i] == delta[i] - mean[i]));
        let off = feedback(ErrorFeedback::Off, &delta, true, 9, &codes, BITS, Some(&mean)).unwrap();
        assert_eq!(off, vec![0.0; BLOCK]);
    }

    #[test]
    fn alone_local_and_global_agree() {
        let delta = noise("alone", BLOCK * 4);
        let codes = codes_of(&delta);
        let sums = quantise(&delta, 256, &codes, BITS).unwrap();
        let mean = dequantise_mean(&sums, &codes, BITS, 256).unwrap();
        let keep = |mode| feedback(mode, &delta, true, 256, &codes, BITS, Some(&mean)).unwrap();
        assert_eq!(keep(ErrorFeedback::Local), keep(ErrorFeedback::Global));
    }

    #[test]
    fn what_saturates_stays_in_the_buffer() {
        let (delta, code) = ([4.0; BLOCK], code_for(1.0));
        let mean = [0.0; BLOCK];
        let error =
            feedback(ErrorFeedback::Local, &delta, true, 256, &[code], BITS, Some(&mean)).unwrap();
        assert!(error.iter().all(|e| (e - 3.0).abs() < 1e-6));
    }

    #[test]
    fn a_poisoned_delta_is_not_carried_on() {
        let delta = [f32::NAN; BLOCK];
        let error = feedback(ErrorFeedback::Local, &delta, false, 256, &[1], BITS, None);
        assert_eq!(error, Err(CodecError::NotFinite { index: 0 }));
    }
}
