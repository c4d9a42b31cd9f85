//! What members sign, and how a bucket that somebody else finished is checked.

use std::{borrow::Cow, collections::BTreeSet};

use crate::{
    base::{Attempt, Digest, NodeId, Round, RunId},
    codec::{Bits, BucketSpec, CodecError, InvalidResult, JobResult},
    identity::{BadSignature, Identity, Signature},
    proto::ring::ChunkProof,
    wire::{HopProof, JobId, JobKind, JobPhase, Member, codec, domain, member_set_digest},
};

/// What all signatures of one exchange cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal {
    pub(super) run: RunId,
    pub(super) round: Round,
    pub(super) attempt: Attempt,
    /// Name of the member set.
    pub(super) set: Digest,
}

impl Seal {
    /// Signs a partial result for the next member.
    pub(super) fn sign_hop(
        &self,
        identity: &Identity,
        job: JobId,
        chunk: u8,
        hop: u8,
        digest: Digest,
    ) -> HopProof {
        let bytes = self.hop_bytes(job, chunk, hop, digest);
        HopProof { digest, signature: identity.sign(domain::HOP, &bytes) }
    }

    /// Checks a partial result's signature.
    pub(super) fn verify_hop(
        &self,
        sender: NodeId,
        job: JobId,
        chunk: u8,
        hop: u8,
        proof: &HopProof,
    ) -> Result<(), BadSignature> {
        let bytes = self.hop_bytes(job, chunk, hop, proof.digest);
        proof.signature.verify(sender, domain::HOP, &bytes)
    }

    /// Signs a finished chunk.
    pub(super) fn sign_chunk(
        &self,
        identity: &Identity,
        job: JobId,
        chunk: u8,
        digest: Digest,
    ) -> HopProof {
        let bytes = self.chunk_bytes(job, chunk, digest);
        HopProof { digest, signature: identity.sign(domain::CHUNK, &bytes) }
    }

    /// Checks an owner's signature.
    pub(super) fn verify_chunk(
        &self,
        owner: NodeId,
        job: JobId,
        chunk: u8,
        digest: Digest,
        signature: &Signature,
    ) -> Result<(), BadSignature> {
        signature.verify(owner, domain::CHUNK, &self.chunk_bytes(job, chunk, digest))
    }

    fn hop_bytes(&self, job: JobId, chunk: u8, hop: u8, digest: Digest) -> Vec<u8> {
        codec::encode(&(self.run, self.round, self.attempt, job, chunk, hop, self.set, digest))
    }

    /// Without the attempt: a finished chunk stands in later ones too.
    fn chunk_bytes(&self, job: JobId, chunk: u8, digest: Digest) -> Vec<u8> {
        codec::encode(&(self.run, self.round, job, self.set, chunk, digest))
    }
}

/// A job of a bucket.
pub(super) const fn job_id(bucket: u32, kind: JobKind) -> JobId {
    JobId { bucket, phase: JobPhase::Plain, kind }
}

/// A finished bucket that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBucket {
    /// The result does not fit bucket, bits and plan.
    #[error(transparent)]
    Result(#[from] InvalidResult),
    /// The result holds another number of contributions than the set has members.
    #[error("{found} contributions where the member set has {expected}")]
    Contributions {
        /// Members of the set.
        expected: usize,
        /// Contributions in the result.
        found: usize,
    },
    /// The proofs are not one by each member of the set.
    #[error("the {0} proofs are not one by each member")]
    Owners(usize),
    /// A signature does not fit.
    #[error(transparent)]
    Signature(#[from] BadSignature),
}

/// A bucket that others finished, with what is known of it from elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct BucketClaim<'a> {
    /// The run.
    pub run: RunId,
    /// The round.
    pub round: Round,
    /// The bucket.
    pub bucket: u32,
    /// Its shape.
    pub spec: &'a BucketSpec,
    /// Payload bits of the exchange.
    pub bits: Bits,
    /// Members whose width the result is packed at: at least as many as it holds.
    pub plan_members: usize,
    /// The members that the result holds, with their omegas, in any order: the proofs name the
    /// ring's.
    pub members: &'a [Member],
    /// Codes and sums.
    pub result: &'a JobResult,
    /// The owners' signatures, by chunk.
    pub proofs: &'a [ChunkProof],
}

impl BucketClaim<'_> {
    /// Checks lengths, ranges and every owner's signature.
    ///
    /// # Errors
    /// If anything does not hold; the bucket then has to be exchanged again.
    pub fn verify(&self) -> Result<(), InvalidBucket> {
        self.result.validate(self.spec, self.bits, self.plan_members)?;
        let (expected, found) = (self.members.len(), self.result.members.len());
        if expected != found {
            return Err(InvalidBucket::Contributions { expected, found });
        }
        let owners: BTreeSet<NodeId> = self.proofs.iter().map(|proof| proof.owner).collect();
        let members: BTreeSet<NodeId> = self.members.iter().map(|member| member.node).collect();
        if owners != members || self.proofs.len() != expected {
            return Err(InvalidBucket::Owners(self.proofs.len()));
        }
        self.verify_signatures()
    }

    fn verify_signatures(&self) -> Result<(), InvalidBucket> {
        let set = member_set_digest(self.members);
        let seal = Seal { run: self.run, round: self.round, attempt: 0, set };
        let job = job_id(self.bucket, JobKind::Sums);
        let result = self.as_signed().map_err(InvalidResult::from)?;
        let digests = result.chunk_digests(self.bits, result.members.len());
        for (chunk, (proof, digest)) in self.proofs.iter().zip(digests).enumerate() {
            seal.verify_chunk(proof.owner, job, chunk as u8, digest, &proof.signature)?;
        }
        Ok(())
    }

    /// The result as its ring signed it: packed at the width of its own members.
    fn as_signed(&self) -> Result<Cow<'_, JobResult>, CodecError> {
        let JobResult { members, ref codes, .. } = *self.result;
        if members.len() == self.plan_members {
            return Ok(Cow::Borrowed(self.result));
        }
        let sums = self.result.unpacked(self.bits, self.plan_members)?;
        let narrow = JobResult::new(members, codes.clone(), &sums, self.bits, members.len());
        Ok(Cow::Owned(narrow))
    }
}
