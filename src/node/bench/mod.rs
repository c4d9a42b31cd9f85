//! Measuring the exchange.
//!
//! | file | subject |
//! |---|---|
//! | `codec` | encode, sum and decode in this process |
//! | `allreduce` | the whole exchange between processes: the parent that starts and asks them |
//! | `peer` | one of those processes: network, exchange task, decoding |
//! | `talk` | the lines between parent and peers |
//! | `vectors` | the contributions, and how far a mean is from the exact one |
//!
//! Every member contributes seeded Gaussian values, so that whoever knows the members' numbers can
//! compute the exact mean. A round is what a node does with an accepted plan and a frozen
//! pseudo-gradient, up to the decoded mean; training, agreement and the disk are not in it.

mod allreduce;
mod codec;
mod peer;
mod talk;
mod vectors;

pub use allreduce::bench_allreduce;
pub use codec::bench_codec;
pub use peer::bench_peer;

use std::sync::Arc;

use super::NodeError;
use crate::{
    codec::{Bits, BucketSpec, buckets, chunk_range, packed_len, unit_range_bytes, units},
    config::{FragmentSpec, Init, Layout, TensorSpec},
    observe::BenchPart,
};

/// The buckets of a model of one tensor with so many elements.
fn specs(floats: usize, bits: Bits) -> Arc<[BucketSpec]> {
    let tensor = TensorSpec {
        name: "bench".to_owned(),
        shape: vec![floats],
        init: Init::Constant(0.0),
        decay: false,
    };
    let fragment = FragmentSpec { name: "bench".to_owned(), tensors: vec![tensor] };
    buckets(&Layout { fragments: vec![fragment] }, bits).into()
}

fn bits(bits: u8) -> Result<Bits, NodeError> {
    Bits::try_from(bits).map_err(|error| NodeError::Usage {
        what: error.to_string(),
        help: "choose another --bits".to_owned(),
    })
}

/// Payload bytes that the member at `position` of a ring sends in one exchange: scales and sums,
/// each reduced chunk by chunk at the width of its hop and gathered at the width of all.
fn payload_bytes(specs: &[BucketSpec], bits: Bits, members: usize, position: usize) -> u64 {
    let successor = (position + 1) % members;
    let hops = |chunk: usize| (position + members - chunk) % members;
    let one = |spec: &BucketSpec, chunk: usize| {
        let scales = unit_range_bytes(spec, chunk_range(units(spec), members, chunk)).len();
        let blocks = chunk_range(spec.blocks, members, chunk).len();
        let reduce = match hops(chunk) {
            0 => 0,
            contributions => scales + packed_len(blocks, bits, contributions),
        };
        let gather = match chunk == successor {
            true => 0,
            false => scales + packed_len(blocks, bits, members),
        };
        (reduce + gather) as u64
    };
    specs.iter().map(|spec| (0..members).map(|chunk| one(spec, chunk)).sum::<u64>()).sum()
}

/// The most that any member sends.
fn most_payload_bytes(specs: &[BucketSpec], bits: Bits, members: usize) -> u64 {
    match members {
        1 => 0,
        _ => (0..members).map(|me| payload_bytes(specs, bits, members, me)).max().unwrap_or(0),
    }
}

/// The median; the mean of the middle two of an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

/// Parts with their shares of all of them.
fn parts(seconds: impl IntoIterator<Item = (&'static str, f64)>) -> Vec<BenchPart> {
    let seconds: Vec<_> = seconds.into_iter().collect();
    let total: f64 = seconds.iter().map(|(_, seconds)| seconds).sum();
    let part = |(part, seconds): (&str, f64)| BenchPart {
        part: part.to_owned(),
        seconds,
        share: if total > 0.0 { seconds / total } else { 0.0 },
        gigabytes_per_second: None,
        of_memcpy: None,
    };
    seconds.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }

    #[test]
    fn payloads_are_those_of_the_widths() {
        // Two members, 64 blocks: half of the scales each way twice, half of the sums at 4 and at
        // 5 bits; the tensor's one pair of maxima is in the second half.
        let specs = specs(64 * 64, Bits::B4);
        let sums = 32 * 8 * (4 + 5);
        let both: Vec<u64> = (0..2).map(|me| payload_bytes(&specs, Bits::B4, 2, me)).collect();
        assert_eq!(both.iter().sum::<u64>(), 2 * (sums + 64 + 2));
        let codes = |bytes: u64| bytes - sums;
        assert_eq!([codes(both[0]), codes(both[1])], [66, 66]);
        // Far from block edges the average over members is the formula of the design.
        let specs = super::specs(64 * 8 * 1000, Bits::B4);
        let total: u64 = (0..8).map(|me| payload_bytes(&specs, Bits::B4, 8, me)).sum();
        let bits: u64 = (1..8).map(|m| u64::from(crate::codec::sum_width(Bits::B4, m))).sum();
        let sums = 8 * 1000 * 8 * (bits + 7 * 7);
        assert_eq!(total, sums + 2 * 7 * (8 * 1000 + 2));
        assert_eq!(most_payload_bytes(&specs, Bits::B4, 1), 0);
    }

    #[test]
    fn shares_add_up() {
        let parts = parts([("a", 1.0), ("b", 3.0)]);
        assert_eq!(parts.iter().map(|part| part.share).collect::<Vec<_>>(), [0.25, 0.75]);
    }
}
