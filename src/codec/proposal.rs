//! Agreeing on scales: every block's largest proposal, and what keeps a liar from inflating them.
//!
//! A member proposes the smallest code that holds its own block ([`propose`]). Around the ring the
//! codes are merged by maximum. Beside them travels, for each tensor part, the pair of the largest
//! and second largest of the members' own maxima: from three members on no block's code goes above
//! the second plus 8, twice its magnitude ([`agreed_codes`]). So a member that proposes too much
//! costs the others one bit of precision at most. Not stopped here: two such members together, and
//! one that forges the merged pair in passing; the signed hops of the ring prove that afterwards.
//!
//! The wire form is `codes ++ tops` in units that a ring can cut into chunks: unit u < blocks is
//! the one byte of block u; unit blocks + t is the two bytes of part t. Merging is associative and
//! commutative, so the result does not depend on the ring's order.

use std::ops::Range;

use rayon::prelude::*;

use crate::codec::{
    BLOCK, BucketSpec, CodecError, OMEGA_ONE, code_for,
    error::{expect_finite, expect_len},
};

/// Codes that a capped block may lie above its tensor's second top: 8 are a factor of two.
pub const HEADROOM: u8 = 8;

/// Members from which on the cap holds; of two, neither can be told to be the liar.
pub const CAPPED_FROM: usize = 3;

/// Blocks that one thread takes at a time.
const PARALLEL_BLOCKS: usize = 1024;

/// The scales that one member, or several merged, ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleProposal {
    /// One code a block.
    pub codes: Vec<u8>,
    /// For every tensor part the largest and second largest of the members' own maxima.
    pub tops: Vec<[u8; 2]>,
}

/// The codes that hold `values` (`spec.padded()` of them) after scaling by `omega`/256.
///
/// # Errors
/// If there are not that many values, or one is NaN or infinite.
pub fn propose(values: &[f32], omega: u16, spec: &BucketSpec) -> Result<ScaleProposal, CodecError> {
    expect_len(values.len(), spec.padded())?;
    expect_finite(values)?;
    let weight = weight(omega);
    let (blocks, _) = values.as_chunks::<BLOCK>();
    let code = |block: &[f32; BLOCK]| code_for(absmax(block, weight));
    let codes: Vec<u8> = blocks.par_iter().with_min_len(PARALLEL_BLOCKS).map(code).collect();
    let own_top = |range: Range<usize>| [codes[range].iter().copied().max().unwrap_or(0), 0];
    let tops = spec.part_blocks().map(|(_, range)| own_top(range)).collect();
    Ok(ScaleProposal { codes, tops })
}

/// omega/256, exact in f32.
///
/// # Panics
/// If omega is not in 1..=256.
pub(crate) fn weight(omega: u16) -> f32 {
    assert!((1..=OMEGA_ONE).contains(&omega), "omega {omega} is not in 1..=256");
    f32::from(omega) / f32::from(OMEGA_ONE)
}

/// The largest magnitude of a block after scaling, by comparing bits, which order as the values do.
fn absmax(block: &[f32; BLOCK], weight: f32) -> f32 {
    let magnitude = |x: &f32| (x * weight).to_bits() as i32 & i32::MAX;
    f32::from_bits(block.iter().map(magnitude).fold(0, i32::max) as u32)
}

impl ScaleProposal {
    /// Takes another proposal for the same bucket in.
    ///
    /// # Panics
    /// If it is for another bucket.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.codes.len(), other.codes.len(), "proposals of two buckets");
        assert_eq!(self.tops.len(), other.tops.len(), "proposals of two buckets");
        merge_codes(&mut self.codes, &other.codes);
        for (top, more) in self.tops.iter_mut().zip(&other.tops) {
            *top = merge_top(*top, *more);
        }
    }

    /// The wire form: `codes ++ tops`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.codes.clone();
        bytes.extend_from_slice(self.tops.as_flattened());
        bytes
    }

    /// Reads the wire form of a whole bucket.
    ///
    /// # Errors
    /// If the length is not [`wire_len`].
    pub fn from_bytes(bytes: &[u8], spec: &BucketSpec) -> Result<Self, CodecError> {
        expect_len(bytes.len(), wire_len(spec))?;
        let (codes, tops) = bytes.split_at(spec.blocks);
        Ok(Self { codes: codes.to_vec(), tops: tops.as_chunks().0.to_vec() })
    }
}

fn merge_codes(codes: &mut [u8], more: &[u8]) {
    for (code, &more) in codes.iter_mut().zip(more) {
        *code = more.max(*code);
    }
}

/// The two largest of four, the larger one first.
fn merge_top([a, b]: [u8; 2], [c, d]: [u8; 2]) -> [u8; 2] {
    let (high, low) = (a.max(b), a.min(b));
    let (other_high, other_low) = (c.max(d), c.min(d));
    [high.max(other_high), high.min(other_high).max(low).max(other_low)]
}

/// Units of a bucket's proposal: one a block, then one a tensor part.
pub fn units(spec: &BucketSpec) -> usize {
    spec.blocks + spec.tensors.len()
}

/// Bytes of a bucket's proposal on the wire.
pub fn wire_len(spec: &BucketSpec) -> usize {
    unit_start(spec, units(spec))
}

/// The bytes of a range of units within the wire form.
///
/// # Panics
/// If the range reaches beyond [`units`].
pub fn unit_range_bytes(spec: &BucketSpec, units: Range<usize>) -> Range<usize> {
    unit_start(spec, units.start)..unit_start(spec, units.end)
}

fn unit_start(spec: &BucketSpec, unit: usize) -> usize {
    assert!(unit <= units(spec), "unit {unit} of {}", units(spec));
    unit + unit.saturating_sub(spec.blocks)
}

/// Merges wire bytes that start at `first_unit` into `acc`, which holds the same units.
///
/// # Errors
/// If the lengths differ, or the bytes do not end with a unit of the bucket; `acc` is unchanged
/// then.
pub fn merge_units(
    acc: &mut [u8],
    other: &[u8],
    first_unit: usize,
    spec: &BucketSpec,
) -> Result<(), CodecError> {
    expect_len(other.len(), acc.len())?;
    let codes = spec.blocks.saturating_sub(first_unit).min(acc.len());
    let pairs = acc.len() - codes;
    let left = wire_len(spec).saturating_sub(unit_start(spec, first_unit.min(units(spec))));
    if !pairs.is_multiple_of(2) || acc.len() > left {
        return Err(CodecError::WrongLength { found: acc.len(), expected: left });
    }
    let (codes_acc, tops_acc) = acc.split_at_mut(codes);
    let (codes_other, tops_other) = other.split_at(codes);
    merge_codes(codes_acc, codes_other);
    for (top, more) in tops_acc.as_chunks_mut().0.iter_mut().zip(tops_other.as_chunks().0) {
        *top = merge_top(*top, *more);
    }
    Ok(())
}

/// The codes that `members` quantise against: the merged ones, capped against inflation.
///
/// # Panics
/// If `merged` is for another bucket.
pub fn agreed_codes(merged: &ScaleProposal, members: usize, spec: &BucketSpec) -> Vec<u8> {
    assert_eq!(merged.codes.len(), spec.blocks, "a proposal of another bucket");
    assert_eq!(merged.tops.len(), spec.tensors.len(), "a proposal of another bucket");
    let mut codes = merged.codes.clone();
    if members < CAPPED_FROM {
        return codes;
    }
    for ((_, blocks), [_, second]) in spec.part_blocks().zip(&merged.tops) {
        let cap = second.saturating_add(HEADROOM);
        codes[blocks].iter_mut().for_each(|code| *code = cap.min(*code));
    }
    codes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{
        bucket::buckets_of,
        reference::{self, layout_of, noise, small_layouts},
    };

    fn spec() -> BucketSpec {
        buckets_of(&layout_of(&[&[100, 64, 70]]), 100).remove(0)
    }

    fn proposals(spec: &BucketSpec) -> Vec<ScaleProposal> {
        let one = |i: usize| noise(&format!("member {i}"), spec.padded());
        (0..4).map(|i| propose(&one(i), 256 - 50 * i as u16, spec).unwrap()).collect()
    }

    #[test]
    fn a_proposal_holds_its_own_blocks() {
        let spec = spec();
        let values = noise("own", spec.padded());
        let proposal = propose(&values, 77, &spec).unwrap();
        for (block, &code) in values.chunks(BLOCK).zip(&proposal.codes) {
            let most = block.iter().map(|x| (x * 77.0 / 256.0).abs()).fold(0.0, f32::max);
            assert_eq!(code, reference::code_for(most));
        }
        let first = proposal.codes[..2].iter().max().unwrap();
        assert_eq!(proposal.tops[0], [*first, 0]);
        assert_eq!(proposal.tops.len(), 3);
    }

    #[test]
    fn values_that_are_not_finite_are_refused() {
        let spec = spec();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![0.0; spec.padded()];
            values[70] = bad;
            assert_eq!(propose(&values, 256, &spec), Err(CodecError::NotFinite { index: 70 }));
        }
        assert!(propose(&[0.0; 64], 256, &spec).is_err());
    }

    #[test]
    fn a_liar_cannot_inflate_scales_beyond_twice_the_second() {
        let spec = spec();
        let honest = ScaleProposal { codes: vec![100; 5], tops: vec![[100, 0]; 3] };
        let liar = ScaleProposal { codes: vec![255; 5], tops: vec![[255, 0]; 3] };
        let mut merged = honest.clone();
        merged.merge(&liar);
        assert_eq!(agreed_codes(&merged, 2, &spec), [255; 5]);
        merged.merge(&honest);
        assert_eq!(agreed_codes(&merged, 3, &spec), [108; 5]);
    }

    #[test]
    fn the_cap_saturates_and_leaves_zero_blocks_alone() {
        let spec = spec();
        let merged = ScaleProposal {
            codes: vec![0, 255, 9, 3, 255],
            tops: vec![[255, 250], [9, 0], [255, 1]],
        };
        assert_eq!(agreed_codes(&merged, 3, &spec), [0, 255, 8, 3, 9]);
    }

    #[test]
    fn units_are_bytes_then_pairs() {
        let spec = spec();
        assert_eq!((units(&spec), wire_len(&spec)), (8, 11));
        assert_eq!(unit_range_bytes(&spec, 0..5), 0..5);
        assert_eq!(unit_range_bytes(&spec, 4..7), 4..9);
        assert_eq!(unit_range_bytes(&spec, 8..8), 11..11);
    }

    #[test]
    fn torn_or_surplus_units_change_nothing() {
        let spec = spec();
        let mut acc = [1, 1, 1];
        assert!(merge_units(&mut acc, &[9, 9, 9], 3, &spec).is_err());
        assert!(merge_units(&mut acc, &[9, 9], 3, &spec).is_err());
        assert!(merge_units(&mut acc, &[9, 9, 9], 7, &spec).is_err());
        assert!(merge_units(&mut acc, &[9, 9, 9], usize::MAX, &spec).is_err());
        assert_eq!(acc, [1, 1, 1]);
        merge_units(&mut acc, &[9, 8, 2], 4, &spec).unwrap();
        assert_eq!(acc, [9, 8, 2]);
    }

    #[test]
    fn the_wire_form_round_trips_and_has_one_length() {
        let spec = spec();
        let proposal = proposals(&spec).remove(0);
        let bytes = proposal.to_bytes();
        assert_eq!(ScaleProposal::from_bytes(&bytes, &spec), Ok(proposal));
        assert!(ScaleProposal::from_bytes(&bytes[1..], &spec).is_err());
    }

    proptest! {
        #[test]
        fn merging_does_not_depend_on_the_order(order in Just([0usize, 1, 2, 3]).prop_shuffle()) {
            let spec = spec();
            let all = proposals(&spec);
            let fold = |order: &[usize]| {
                let mut merged = all[order[0]].clone();
                order[1..].iter().for_each(|&i| merged.merge(&all[i]));
                merged
            };
            let straight = fold(&[0, 1, 2, 3]);
            prop_assert_eq!(&fold(&order), &straight);
            let mut left = fold(&order[..2]);
            left.merge(&fold(&order[2..]));
            prop_assert_eq!(&left, &straight);
            let mut tops: Vec<u8> = all.iter().map(|p| p.tops[0][0]).collect();
            tops.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(straight.tops[0].as_slice(), &tops[..2]);
        }

        #[test]
        fn merging_chunks_of_bytes_is_merging(layout in small_layouts(), pieces in 1usize..6) {
            let spec = &buckets_of(&layout, 100)[0];
            let all = proposals(spec);
            let (mut bytes, other) = (all[0].to_bytes(), all[1].to_bytes());
            for piece in 0..pieces {
                let range = piece * units(spec) / pieces..(piece + 1) * units(spec) / pieces;
                let at = unit_range_bytes(spec, range.clone());
                merge_units(&mut bytes[at.clone()], &other[at], range.start, spec).unwrap();
            }
            let mut merged = all[0].clone();
            merged.merge(&all[1]);
            prop_assert_eq!(bytes, merged.to_bytes());
        }
    }
}
