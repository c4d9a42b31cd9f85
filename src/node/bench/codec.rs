//! The codec in this process: what a member of a ring computes, without the ring.
//!
//! Bucket by bucket: all members propose, quantise and pack; the sum goes from member to member in
//! pieces of a frame, unpacked, added and packed one bit wider; one member decodes and computes its
//! error buffer. Seconds are those of one member, on all cores where the codec uses them.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use super::{
    NodeError, median, most_payload_bytes, parts,
    vectors::{Distance, Source},
};
use crate::{
    base::limits,
    codec::{
        Bits, BucketSpec, CodecError, OMEGA_ONE, ScaleProposal, TensorPart, agreed_codes,
        dequantise_mean, feedback, pack_sums, packed_len, propose, quantise, unpack_sums,
        unpack_sums_add,
    },
    config::manifest::ErrorFeedback,
    node::options::BenchCodecOptions,
    observe::{BenchPart, BenchReport},
};

/// Measures the codec in this process.
///
/// # Errors
/// If an option is impossible.
pub fn bench_codec(options: &BenchCodecOptions) -> Result<BenchReport, NodeError> {
    let &BenchCodecOptions { floats, members, rounds, .. } = options;
    let bits = super::bits(options.bits)?;
    if !(1..=limits::MAX_MEMBERS).contains(&members) || floats == 0 || rounds == 0 {
        return Err(NodeError::Usage {
            what: format!("{members} members, {floats} floats and {rounds} rounds"),
            help: format!("choose 1 to {} members, at least one of the rest", limits::MAX_MEMBERS),
        });
    }
    let specs = super::specs(floats, bits);
    let mut costs = vec![Cost::default(); rounds];
    let mut distance = Distance::default();
    for (number, spec) in specs.iter().enumerate() {
        let mut bucket = Bucket::new(number, spec, bits, members);
        let mut mean = Vec::new();
        for cost in &mut costs {
            mean = bucket.round(cost).map_err(impossible)?;
        }
        distance = distance + Distance::of(&mean[..bucket.elements], number, members);
    }
    let payload = most_payload_bytes(&specs, bits, members);
    let (parts, memcpy) = rows(&costs, floats, members);
    Ok(BenchReport {
        bench: "codec".to_owned(),
        peers: members,
        floats,
        bits: options.bits,
        rounds,
        seconds: parts.iter().map(|part| part.seconds).sum(),
        bytes_sent_per_peer: payload,
        payload_bytes_per_peer: payload,
        relative_error: distance.relative(),
        shares: parts.iter().map(|part| (part.part.clone(), part.share)).collect(),
        parts,
        memcpy_gigabytes_per_second: Some(memcpy),
        cpu_seconds: None,
        peak_memory_bytes: None,
    })
}

fn impossible(error: CodecError) -> NodeError {
    NodeError::Failed {
        what: format!("the codec refused its own values: {error}"),
        help: "report this with the command line".to_owned(),
    }
}

/// Time of one round over all buckets and members.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    propose: Duration,
    quantise: Duration,
    pack: Duration,
    unpack_add: Duration,
    dequantise: Duration,
    feedback: Duration,
    memcpy: Duration,
}

fn timed<T>(part: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    *part += started.elapsed();
    done
}

/// Medians per part and member, with the rates of the f32 or i32 values that went through; and the
/// rate of copying the vector.
fn rows(costs: &[Cost], floats: usize, members: usize) -> (Vec<BenchPart>, f64) {
    let gigabytes = |vectors: usize| 4e-9 * floats as f64 * vectors as f64;
    let rate = |vectors: usize, seconds: f64| gigabytes(vectors) / seconds.max(1e-12);
    let of = |part: fn(&Cost) -> Duration| {
        median(costs.iter().map(|cost| part(cost).as_secs_f64()).collect())
    };
    let memcpy = rate(1, of(|cost| cost.memcpy));
    // Each with the vectors that went through it, and the members whose work it was.
    let measured = [
        ("propose", of(|cost| cost.propose), members, members),
        ("quantise", of(|cost| cost.quantise), members, members),
        ("pack", of(|cost| cost.pack), 2 * members - 1, members),
        ("unpack_add", of(|cost| cost.unpack_add), 2 * (members - 1), members),
        ("dequantise", of(|cost| cost.dequantise), 1, 1),
        ("feedback", of(|cost| cost.feedback), 1, 1),
    ];
    let each = measured.map(|(part, seconds, _, by)| (part, seconds / by as f64));
    let mut rows = parts(each);
    for (row, (_, seconds, vectors, _)) in rows.iter_mut().zip(measured) {
        if vectors > 0 {
            let rate = rate(vectors, seconds);
            row.gigabytes_per_second = Some(rate);
            row.of_memcpy = Some(rate / memcpy);
        }
    }
    (rows, memcpy)
}

/// One bucket with all members' values.
struct Bucket {
    /// As if the fragment began with it.
    spec: BucketSpec,
    bits: Bits,
    elements: usize,
    values: Vec<Vec<f32>>,
    copy: Vec<f32>,
}

impl Bucket {
    fn new(number: usize, spec: &BucketSpec, bits: Bits, members: usize) -> Self {
        let elements = spec.tensors.iter().map(|part| part.elements).sum();
        let part = TensorPart { tensor: 0, first: 0, elements, offset: 0 };
        let spec = BucketSpec { tensors: vec![part], ..spec.clone() };
        let values = |member| Source { vector: number, member }.values(elements);
        let values = (0..members).map(values).collect();
        Self { copy: vec![0.0; spec.padded()], spec, bits, elements, values }
    }

    /// One exchange of the bucket; its mean.
    fn round(&mut self, cost: &mut Cost) -> Result<Vec<f32>, CodecError> {
        let (spec, bits, members) = (&self.spec, self.bits, self.values.len());
        let mut padded = Vec::with_capacity(members);
        let mut merged: Option<ScaleProposal> = None;
        for values in &self.values {
            let (values, proposal) = timed(&mut cost.propose, || {
                let values = spec.gather(values);
                let proposal = propose(&values, OMEGA_ONE, spec)?;
                Ok::<_, CodecError>((values, proposal))
            })?;
            timed(&mut cost.propose, || match &mut merged {
                Some(merged) => merged.merge(&proposal),
                None => merged = Some(proposal),
            });
            padded.push(values);
        }
        let codes = timed(&mut cost.propose, || {
            merged.map(|merged| agreed_codes(&merged, members, spec)).unwrap_or_default()
        });
        let mut travelling = Vec::new();
        for (before, values) in padded.iter().enumerate() {
            let quantised =
                timed(&mut cost.quantise, || quantise(values, OMEGA_ONE, &codes, bits))?;
            let mut own = Vec::new();
            timed(&mut cost.pack, || pack_sums(&quantised, bits, 1, &mut own));
            travelling = match before {
                0 => own,
                _ => self.hop(cost, &own, &travelling, before)?,
            };
        }
        let divisor = members as u32 * u32::from(OMEGA_ONE);
        let mean = timed(&mut cost.dequantise, || {
            let sums = unpack_sums(&travelling, bits, members, spec.blocks)?;
            Ok::<_, CodecError>(dequantise_mean(&sums, &codes, bits, divisor).unwrap_or_default())
        })?;
        let own = &padded[0];
        let mode = ErrorFeedback::Local;
        black_box(timed(&mut cost.feedback, || {
            feedback(mode, own, true, OMEGA_ONE, &codes, bits, Some(&mean))
        })?);
        timed(&mut cost.memcpy, || black_box(&mut self.copy).copy_from_slice(own));
        Ok(mean)
    }

    /// Adds a member's contribution to the sum of `before` others, in pieces as large as a frame.
    fn hop(
        &self,
        cost: &mut Cost,
        own: &[u8],
        travelling: &[u8],
        before: usize,
    ) -> Result<Vec<u8>, CodecError> {
        let bits = self.bits;
        let blocks = (limits::MAX_FRAME_BYTES / packed_len(1, bits, self.values.len())).max(1);
        let mut out = Vec::with_capacity(packed_len(self.spec.blocks, bits, before + 1));
        let pieces = own.chunks(packed_len(blocks, bits, 1));
        for (own, sum) in pieces.zip(travelling.chunks(packed_len(blocks, bits, before))) {
            let sums = timed(&mut cost.unpack_add, || {
                let blocks = own.len() / packed_len(1, bits, 1);
                let mut sums = unpack_sums(own, bits, 1, blocks)?;
                unpack_sums_add(sum, bits, before, &mut sums)?;
                Ok::<_, CodecError>(sums)
            })?;
            timed(&mut cost.pack, || pack_sums(&sums, bits, before + 1, &mut out));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(members: usize, bits: u8) -> BenchReport {
        bench_codec(&BenchCodecOptions { floats: 10_000, members, bits, rounds: 2 }).unwrap()
    }

    #[test]
    fn four_bits_of_gaussian_values_have_the_error_of_their_step() {
        for members in [1, 2, 5] {
            let report = report(members, 4);
            assert!((0.03..0.2).contains(&report.relative_error), "{}", report.relative_error);
        }
        let error = report(3, 16).relative_error;
        assert!(error < 1e-4, "{error}");
        assert!(report(3, 24).relative_error < error);
    }

    #[test]
    fn bytes_are_those_of_the_widths() {
        // 157 blocks in chunks of 78 and 79: one at 4 bits, the other at 5; all codes once, and the
        // tensor's pair of maxima.
        assert_eq!(report(2, 4).bytes_sent_per_peer, 8 * (78 * 4 + 79 * 5) + 157 + 2);
        assert_eq!(report(1, 4).bytes_sent_per_peer, 0);
    }

    #[test]
    fn every_part_has_a_share() {
        let report = report(3, 4);
        assert_eq!(report.shares.len(), 6);
        assert!((report.shares.values().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(report.parts.iter().all(|part| part.gigabytes_per_second.is_some()));
    }

    #[test]
    fn impossible_options_are_refused() {
        for (members, bits) in [(0, 4), (65, 4), (2, 5)] {
            let options = BenchCodecOptions { floats: 100, members, bits, rounds: 1 };
            assert!(bench_codec(&options).unwrap_err().is_usage());
        }
    }
}
