//! Finished jobs, and the body of a round: what a header commits to, ready to be folded.
//!
//! Every length follows from the bucket, the bits and the number of plan members, and is checked
//! against the bytes before anything is decoded.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    base::{Bitmap, Digest, limits},
    codec::{
        BLOCK, Bits, BucketSpec, CodecError, bytes, chunk_digest, chunk_range, dequantise_mean,
        job_digest,
        merkle::JobLeaf,
        pack::{limit, pack_sums, packed_len, unpack_sums},
    },
    wire::codec,
};

/// Most bytes of an encoded result: a bucket at 2 bits grows to 8 in the sum of 64 members, four
/// times its 4 MiB, and its codes are less than 1 MiB.
pub const MAX_RESULT_BYTES: usize = 5 * super::bucket::BUCKET_BYTES;

/// Bytes of an encoded result apart from codes and sums: members, contributions, two lengths.
const RESULT_HEAD: usize = 8 + 2 + 8 + 8;

/// The outcome of one job: the agreed scales and the exact integer sums of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// Positions in the plan's ring order of the members that the sums hold.
    pub members: Bitmap,
    /// Contributions in the sums: as many as members.
    pub contributions: u16,
    /// The agreed code of every block.
    #[serde(with = "bytes")]
    pub codes: Vec<u8>,
    /// The sums, packed at the width of all plan members.
    #[serde(with = "bytes")]
    pub sums: Vec<u8>,
}

/// A result that does not fit its bucket and plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidResult {
    /// Bytes that do not spell a result of this bucket.
    #[error("the result is malformed: {0}")]
    Malformed(String),
    /// The member set is empty, reaches beyond the plan, or is not as large as said.
    #[error(
        "member set {members:?} with {contributions} contributions in a plan of {plan_members}"
    )]
    Members {
        /// The set.
        members: Bitmap,
        /// Contributions said to be in the sums.
        contributions: u16,
        /// Members of the plan.
        plan_members: usize,
    },
    /// Codes or sums are not as many as the bucket has, or a sum is too large.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// The sum of the omegas of `members`: the divisor of a job, times 256.
///
/// # Panics
/// If a member has no omega.
pub fn divisor(members: Bitmap, omegas: &[u16]) -> u32 {
    members.iter().map(|member| u32::from(omegas[member])).sum()
}

impl JobResult {
    /// Packs the exact sums of `members` for a plan of `plan_members`.
    ///
    /// # Panics
    /// If a sum is larger than the members can have made it.
    pub fn new(
        members: Bitmap,
        codes: Vec<u8>,
        sums: &[i32],
        bits: Bits,
        plan_members: usize,
    ) -> Self {
        let mut packed = Vec::new();
        pack_sums(sums, bits, plan_members, &mut packed);
        Self { members, contributions: members.len() as u16, codes, sums: packed }
    }

    /// Bytes of an encoded result of this bucket.
    pub fn encoded_len(spec: &BucketSpec, bits: Bits, plan_members: usize) -> usize {
        RESULT_HEAD + spec.blocks + packed_len(spec.blocks, bits, plan_members)
    }

    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes and validates a result from a stranger.
    ///
    /// # Errors
    /// If the bytes are no valid result of this bucket and plan.
    pub fn from_bytes(
        bytes: &[u8],
        spec: &BucketSpec,
        bits: Bits,
        plan_members: usize,
    ) -> Result<Self, InvalidResult> {
        let expected = Self::encoded_len(spec, bits, plan_members);
        if bytes.len() != expected {
            return Err(CodecError::WrongLength { found: bytes.len(), expected }.into());
        }
        let result: Self = codec::decode::<_, MAX_RESULT_BYTES>(bytes)
            .map_err(|error| InvalidResult::Malformed(error.to_string()))?;
        result.validate(spec, bits, plan_members)?;
        Ok(result)
    }

    /// Checks member set, lengths, and that no sum is larger than its members can have made it.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn validate(
        &self,
        spec: &BucketSpec,
        bits: Bits,
        plan_members: usize,
    ) -> Result<(), InvalidResult> {
        let Self { members, contributions, .. } = *self;
        let within = members.0 & !Bitmap::full(plan_members).0 == 0;
        if members.is_empty() || !within || usize::from(contributions) != members.len() {
            return Err(InvalidResult::Members { members, contributions, plan_members });
        }
        super::error::expect_len(self.codes.len(), spec.blocks)?;
        let sums = self.unpacked(bits, plan_members)?;
        let limit = limit(bits, members.len());
        match sums.iter().position(|sum| !(-limit..=limit).contains(sum)) {
            Some(index) => {
                Err(CodecError::SumTooLarge { index, contributions: members.len() }.into())
            }
            None => Ok(()),
        }
    }

    /// The sums as integers.
    ///
    /// # Errors
    /// If they are not as many as the codes, or one is beyond its width's range.
    pub fn unpacked(&self, bits: Bits, plan_members: usize) -> Result<Vec<i32>, CodecError> {
        unpack_sums(&self.sums, bits, plan_members, self.codes.len())
    }

    /// The mean of the job's members, padded as the bucket is; `None` if their omegas sum to 0.
    ///
    /// # Errors
    /// As [`unpacked`](Self::unpacked).
    pub fn mean(&self, bits: Bits, omegas: &[u16]) -> Result<Option<Vec<f32>>, CodecError> {
        let sums = self.unpacked(bits, omegas.len())?;
        Ok(dequantise_mean(&sums, &self.codes, bits, divisor(self.members, omegas)))
    }

    /// The digests of the chunks of a ring of `plan_members`, by owner: those that are signed.
    ///
    /// # Panics
    /// If the result was not validated.
    pub fn chunk_digests(&self, bits: Bits, plan_members: usize) -> Vec<Digest> {
        let width = packed_len(1, bits, plan_members);
        let digest = |chunk| {
            let blocks = chunk_range(self.codes.len(), plan_members, chunk);
            let sums = &self.sums[blocks.start * width..blocks.end * width];
            chunk_digest(&self.codes[blocks], sums)
        };
        (0..plan_members).map(digest).collect()
    }

    /// The digest of the job.
    ///
    /// # Panics
    /// As [`chunk_digests`](Self::chunk_digests).
    pub fn digest(&self, job: u32, bits: Bits, plan_members: usize) -> Digest {
        job_digest(job, self.members, &self.chunk_digests(bits, plan_members))
    }
}

/// All jobs of a round, in the order of [`buckets`](crate::codec::buckets); `None` is unfinished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Body {
    /// The results.
    pub jobs: Vec<Option<JobResult>>,
}

/// A body that does not fit the run and plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBody {
    /// Not as many jobs as the model has buckets, or bytes that end early or late.
    #[error("the body does not hold the {jobs} jobs of the model")]
    Shape {
        /// Jobs of the model.
        jobs: usize,
    },
    /// A job is invalid.
    #[error("job {job}: {reason}")]
    Job {
        /// The job's number.
        job: usize,
        /// What is wrong with it.
        reason: InvalidResult,
    },
}

impl Body {
    /// The body of a round in which nothing was finished.
    pub fn empty(jobs: usize) -> Self {
        Self { jobs: vec![None; jobs] }
    }

    /// Most bytes of an encoded body.
    pub fn max_bytes(specs: &[BucketSpec], bits: Bits, plan_members: usize) -> usize {
        let one = |spec| 1 + JobResult::encoded_len(spec, bits, plan_members);
        8 + specs.iter().map(one).sum::<usize>()
    }

    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes and validates a body from a stranger. The lengths of all jobs are known beforehand,
    /// so the bytes are cut first and each job decoded alone.
    ///
    /// # Errors
    /// If the bytes are no valid body of this run and plan.
    pub fn from_bytes(
        bytes: &[u8],
        specs: &[BucketSpec],
        bits: Bits,
        plan_members: usize,
    ) -> Result<Self, InvalidBody> {
        let decode = |(job, (spec, slice)): (usize, (&BucketSpec, Option<&[u8]>))| {
            let result = |bytes| JobResult::from_bytes(bytes, spec, bits, plan_members);
            slice.map(result).transpose().map_err(|reason| InvalidBody::Job { job, reason })
        };
        let slices = cut(bytes, specs, bits, plan_members)
            .ok_or(InvalidBody::Shape { jobs: specs.len() })?;
        let pairs: Vec<_> = specs.iter().zip(slices).enumerate().collect();
        Ok(Self { jobs: pairs.into_par_iter().map(decode).collect::<Result<_, _>>()? })
    }

    /// Checks every job.
    ///
    /// # Errors
    /// The first job that does not fit, or another number of jobs than buckets.
    pub fn validate(
        &self,
        specs: &[BucketSpec],
        bits: Bits,
        plan_members: usize,
    ) -> Result<(), InvalidBody> {
        if self.jobs.len() != specs.len() {
            return Err(InvalidBody::Shape { jobs: specs.len() });
        }
        self.jobs.par_iter().zip(specs).enumerate().try_for_each(|(job, (result, spec))| {
            let result = result.as_ref().map_or(Ok(()), |r| r.validate(spec, bits, plan_members));
            result.map_err(|reason| InvalidBody::Job { job, reason })
        })
    }

    /// The leaves of the header's Merkle tree; jobs must have been validated.
    pub fn leaves(&self, bits: Bits, plan_members: usize) -> Vec<JobLeaf> {
        let leaf = |(job, result): (usize, &Option<JobResult>)| {
            let job = job as u32;
            let members = result.as_ref().map_or(Bitmap::EMPTY, |r| r.members);
            let digest = match result {
                Some(result) => result.digest(job, bits, plan_members),
                None => job_digest(job, members, &[]),
            };
            JobLeaf { job, members, digest }
        };
        self.jobs.par_iter().enumerate().map(leaf).collect()
    }
}

/// The encoded results of a body: the count of jobs, then for each a tag and, after tag 1, a result
/// of known length.
fn cut<'a>(
    bytes: &'a [u8],
    specs: &[BucketSpec],
    bits: Bits,
    plan_members: usize,
) -> Option<Vec<Option<&'a [u8]>>> {
    let (count, mut rest) = bytes.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*count) != specs.len() as u64 {
        return None;
    }
    let mut slices = Vec::with_capacity(specs.len().min(limits::MAX_BUCKETS));
    for spec in specs {
        let (&tag, after) = rest.split_first()?;
        let len = match tag {
            0 => 0,
            1 => JobResult::encoded_len(spec, bits, plan_members),
            _ => return None,
        };
        let (result, after) = after.split_at_checked(len)?;
        slices.push((tag == 1).then_some(result));
        rest = after;
    }
    rest.is_empty().then_some(slices)
}

const _: () = assert!(BLOCK.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::{
        bucket::buckets_of,
        merkle::{merkle_holds, merkle_proof, merkle_root},
        reference::layout_of,
    };

    const BITS: Bits = Bits::B4;
    const PLAN: usize = 3;

    fn specs() -> Vec<BucketSpec> {
        buckets_of(&layout_of(&[&[100, 64], &[700]]), 4)
    }

    fn result(spec: &BucketSpec) -> JobResult {
        let sums: Vec<i32> = (0..spec.padded() as i32).map(|i| i % 29 - 14).collect();
        let members = [0, 2].into_iter().collect();
        JobResult::new(members, vec![170; spec.blocks], &sums, BITS, PLAN)
    }

    fn body() -> Body {
        let mut jobs: Vec<_> = specs().iter().map(|spec| Some(result(spec))).collect();
        jobs[1] = None;
        Body { jobs }
    }

    #[test]
    fn a_result_round_trips_at_its_known_length() {
        let spec = &specs()[0];
        let bytes = result(spec).to_bytes();
        assert_eq!(bytes.len(), JobResult::encoded_len(spec, BITS, PLAN));
        assert_eq!(JobResult::from_bytes(&bytes, spec, BITS, PLAN), Ok(result(spec)));
        assert!(JobResult::from_bytes(&bytes[1..], spec, BITS, PLAN).is_err());
        assert!(JobResult::from_bytes(&bytes, spec, BITS, 8).is_err());
    }

    #[test]
    fn the_largest_result_fits_its_bound() {
        let layout = layout_of(&[&[1 << 26]]);
        for bits in Bits::ALL {
            let specs = crate::codec::buckets(&layout, bits);
            let most = specs.iter().map(|s| JobResult::encoded_len(s, bits, 64)).max().unwrap();
            assert!(most <= MAX_RESULT_BYTES, "{bits} bits: {most}");
        }
    }

    #[test]
    fn impossible_results_are_refused() {
        let spec = &specs()[0];
        let good = result(spec);
        let check = |change: fn(&mut JobResult)| {
            let mut bad = good.clone();
            change(&mut bad);
            bad.validate(spec, BITS, PLAN)
        };
        assert_eq!(check(|_| ()), Ok(()));
        assert!(check(|bad| bad.members = Bitmap::EMPTY).is_err());
        assert!(check(|bad| bad.members = Bitmap(0b1010)).is_err());
        assert!(check(|bad| bad.contributions = 3).is_err());
        assert!(check(|bad| bad.codes.truncate(1)).is_err());
        assert!(check(|bad| bad.sums.truncate(5)).is_err());
        // Two members cannot have made a sum of 21.
        assert!(check(|bad| bad.sums.fill(0)).is_err());
    }

    #[test]
    fn a_body_round_trips() {
        let bytes = body().to_bytes();
        assert!(bytes.len() <= Body::max_bytes(&specs(), BITS, PLAN));
        assert_eq!(Body::from_bytes(&bytes, &specs(), BITS, PLAN), Ok(body()));
        assert_eq!(body().validate(&specs(), BITS, PLAN), Ok(()));
        assert!(body().validate(&specs()[1..], BITS, PLAN).is_err());
    }

    #[test]
    fn golden_body() {
        let golden = "f7c079ca3c542539b0d2572ceab63151b27f6f71ed46d12867358cd9f0ba32b5";
        assert_eq!(Digest::of(&body().to_bytes()).to_string(), golden);
        let golden = "0d2711bb56621c0322c29cdad4b3569652b6d7a05c8aa8c1f6023feac2485c46";
        assert_eq!(merkle_root(&body().leaves(BITS, PLAN)).to_string(), golden);
    }

    #[test]
    fn hostile_lengths_are_refused_before_decoding() {
        let bytes = body().to_bytes();
        let parse = |bytes: &[u8]| Body::from_bytes(bytes, &specs(), BITS, PLAN);
        for at in [0, 8, 8 + 1 + 10, 8 + 1 + 18 + 4] {
            let mut hostile = bytes.clone();
            hostile[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
            assert!(parse(&hostile).is_err(), "at {at}");
        }
        assert!(parse(&[]).is_err());
        assert!(parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(parse(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn jobs_are_proven_against_the_root() {
        let leaves = body().leaves(BITS, PLAN);
        let root = merkle_root(&leaves);
        let proof = merkle_proof(&leaves, 2);
        assert_eq!(merkle_holds(&root, leaves.len(), &leaves[2], &proof), Ok(true));
        assert_eq!(leaves[1].members, Bitmap::EMPTY);
    }

    #[test]
    fn the_mean_divides_by_the_members_that_are_there() {
        let spec = &specs()[0];
        let result = result(spec);
        let mean = result.mean(BITS, &[256, 9, 128]).unwrap().unwrap();
        let sums = result.unpacked(BITS, PLAN).unwrap();
        assert_eq!(Some(mean), dequantise_mean(&sums, &result.codes, BITS, 384));
        assert_eq!(divisor(Bitmap::EMPTY, &[1]), 0);
    }

    proptest! {
        #[test]
        fn flipped_bits_never_panic(at in 0usize..1000, bit in 0u8..8) {
            let mut bytes = body().to_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            if let Ok(body) = Body::from_bytes(&bytes, &specs(), BITS, PLAN) {
                prop_assert_eq!(body.to_bytes(), bytes);
            }
        }
    }
}
