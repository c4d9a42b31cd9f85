//! One bucket in flight: its scales, then its sums.

use std::{borrow::Cow, sync::Arc};

use crate::{
    base::{Bitmap, Bounded},
    codec::{
        BLOCK, Bits, BucketSpec, JobResult, ScaleProposal, agreed_codes, pack_sums, packed_len,
        propose, quantise, wire_len,
    },
    proto::ring::{ChunkProof, FinishedBucket, context::Context, job::Job, verify::job_id},
    wire::JobKind,
};

/// Most bytes that a bucket in flight holds: contribution and sums, and scales proposed, merged
/// and agreed.
pub fn bucket_bytes(spec: &BucketSpec, bits: Bits, members: usize) -> usize {
    let sums = packed_len(spec.blocks, bits, 1) + packed_len(spec.blocks, bits, members);
    sums + 2 * wire_len(spec) + spec.blocks
}

/// The two jobs of a bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) scales: Job,
    pub(super) sums: Option<Job>,
}

impl Bucket {
    /// Proposes scales.
    pub(super) fn open(cx: &Context, bucket: u32, delta: &[Vec<f32>]) -> Self {
        let spec = &cx.config.specs[bucket as usize];
        let proposal = propose(&values(spec, delta), cx.omega(), spec)
            .expect("the pseudo-gradient was checked at the start");
        let id = job_id(bucket, JobKind::Scales);
        Self { scales: Job::new(cx, id, proposal.to_bytes(), Vec::new()), sums: None }
    }

    /// Quantises against the agreed scales, which are complete, unless that has been done.
    pub(super) fn open_sums(&mut self, cx: &Context, delta: &[Vec<f32>]) -> &mut Job {
        let scales = &self.scales;
        self.sums.get_or_insert_with(|| {
            let bucket = scales.id.bucket;
            let (spec, bits) = (&cx.config.specs[bucket as usize], cx.config.bits);
            let merged = ScaleProposal::from_bytes(scales.bytes(), spec)
                .expect("complete scales have their length");
            let codes = agreed_codes(&merged, cx.place.members, spec);
            let quantised = quantise(&values(spec, delta), cx.omega(), &codes, bits)
                .expect("the pseudo-gradient was checked at the start");
            let mut own = Vec::new();
            pack_sums(&quantised, bits, 1, &mut own);
            Job::new(cx, job_id(bucket, JobKind::Sums), own, codes)
        })
    }

    /// Hands the result out, once the sums are complete.
    pub(super) fn finish(&mut self, cx: &Context) -> Option<Arc<FinishedBucket>> {
        let sums = self.sums.as_mut().filter(|sums| sums.is_complete())?;
        let owners = cx.config.members.iter().map(|member| member.node);
        let proofs: Vec<ChunkProof> = owners
            .zip(sums.proofs())
            .map(|(owner, proof)| ChunkProof { owner, signature: proof.signature })
            .collect();
        let members = cx.place.members;
        let (codes, bytes) = sums.take_result();
        let result = JobResult {
            members: Bitmap::full(members),
            contributions: members as u16,
            codes,
            sums: bytes,
        };
        let finished = Arc::new(FinishedBucket {
            bucket: sums.id.bucket,
            result,
            proofs: Bounded::try_from(proofs).unwrap_or_default(),
            commitment: sums.commitment(),
            predecessor_commitment: sums.predecessor_commitment,
        });
        sums.keep(finished.clone());
        Some(finished)
    }

    pub(super) fn job_mut(&mut self, kind: JobKind) -> Option<&mut Job> {
        match kind {
            JobKind::Scales => Some(&mut self.scales),
            JobKind::Sums => self.sums.as_mut(),
        }
    }

    /// Whether the bucket is finished and everything of it has been sent.
    pub(super) fn is_drained(&self) -> bool {
        self.scales.is_drained() && self.sums.as_ref().is_some_and(Job::is_drained)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.scales.memory() + self.sums.as_ref().map_or(0, Job::memory)
    }
}

/// The bucket's values, padded; copied only where there is padding inside or behind.
fn values<'a>(spec: &BucketSpec, delta: &'a [Vec<f32>]) -> Cow<'a, [f32]> {
    let fragment = &delta[spec.fragment];
    let is_dense = spec.tensors.iter().all(|part| part.elements.is_multiple_of(BLOCK));
    match spec.tensors.first() {
        Some(first) if is_dense => {
            Cow::Borrowed(&fragment[first.offset..first.offset + spec.padded()])
        }
        _ => Cow::Owned(spec.gather(fragment)),
    }
}
