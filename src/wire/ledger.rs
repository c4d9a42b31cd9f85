//! Headers and certificates: the ledger of committed rounds.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    base::{Attempt, Bitmap, Bounded, Digest, NodeId, Round, RunId, limits},
    config::FoundedManifest,
    identity::Signature,
    wire::{codec, domain},
};

/// A replica in a plan or header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Who.
    pub node: NodeId,
    /// Sequences that its pseudo-gradient was trained on.
    pub weight: u32,
    /// Its integer share 1..=256 of the largest weight.
    pub omega: u16,
    /// Sequences leased to it for the segment after next.
    pub lease: u32,
}

/// A live peer outside the plan that gets a lease: it is late or syncing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Who.
    pub node: NodeId,
    /// Sequences leased to it for the segment after next.
    pub lease: u32,
}

impl Guest {
    /// Leases to non-members in one header: what fits into 4 KiB beside 64 members.
    pub const MAX: usize = 24;
}

/// The lease of `node` in a list of members and guests that starts at `cursor`.
pub(crate) fn lease(
    members: &[Member],
    guests: &[Guest],
    cursor: u64,
    node: NodeId,
) -> Option<(u64, u32)> {
    let mut first = cursor;
    let leases = members
        .iter()
        .map(|member| (member.node, member.lease))
        .chain(guests.iter().map(|guest| (guest.node, guest.lease)));
    for (holder, length) in leases {
        if holder == node {
            return Some((first, length));
        }
        first = first.saturating_add(u64::from(length));
    }
    None
}

/// Members whose contributions a job holds, and the sum of their omegas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSet {
    /// Positions in the header's member list.
    pub members: Bitmap,
    /// Sum of their omegas; 0: the job is unfinished and changes nothing.
    pub divisor: u32,
}

/// What a committed round is, in at most 4 KiB. It holds no attempt number: two attempts that
/// lead to the same result lead to the same header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The round; 0 is genesis.
    pub round: Round,
    /// Digest of the header before; for genesis, the run's id.
    pub parent: Digest,
    /// Voters of this round, as positions among the parent's members. Empty: none of them is
    /// alive any more, and the members of this header succeed them.
    pub voters: Bitmap,
    /// Members in ring order.
    pub members: Bounded<Member, { limits::MAX_MEMBERS }>,
    /// Leases to others.
    pub guests: Bounded<Guest, { Guest::MAX }>,
    /// The distinct member sets of the jobs.
    pub member_sets: Bounded<MemberSet, { limits::MAX_MEMBER_SETS }>,
    /// Number of jobs.
    pub jobs: u32,
    /// Merkle root over (job, member set, digest).
    pub jobs_root: Digest,
    /// Rank of this exchange; 0: off.
    pub rank: u32,
    /// Payload bits of this exchange.
    pub bits: u8,
    /// Bits of the all-gather; 0: exact sums.
    pub gather_bits: u8,
    /// H of the segment after next.
    pub local_steps: u32,
    /// Median log code of the pseudo-gradients' norms.
    pub size: u8,
    /// Median log code of the feedback ratios.
    pub feedback: u8,
    /// Lease cursor before this header's leases.
    pub cursor: u64,
    /// Length of the body in bytes.
    pub body_bytes: u64,
    /// Digest of the body, as a blob ([`crate::wire::blob`]).
    pub body: Digest,
    /// State root after the round before.
    pub root_before: Digest,
    /// Sequences trained on, summed over this and all earlier rounds.
    pub weight: u64,
}

impl Header {
    /// The header that stands before the first round: its only member is the founder, who is
    /// leased the first two segments, each of `lease` sequences.
    pub fn genesis(manifest: &FoundedManifest) -> Self {
        let founding = &manifest.founding;
        let lease = founding.manifest.max_weight().min(u64::from(u32::MAX / 2)) as u32;
        let founder = Member { node: founding.founder, weight: 0, omega: 256, lease: 2 * lease };
        Self {
            round: 0,
            parent: Digest(manifest.run_id().0),
            voters: Bitmap::EMPTY,
            members: Bounded::try_from(vec![founder]).unwrap_or_default(),
            guests: Bounded::new(),
            member_sets: Bounded::new(),
            jobs: 0,
            jobs_root: Digest([0; 32]),
            rank: founding.manifest.compression.rank,
            bits: founding.manifest.compression.bits,
            gather_bits: founding.manifest.compression.gather_bits,
            local_steps: founding.manifest.rounds.local_steps,
            size: 0,
            feedback: 0,
            cursor: 0,
            body_bytes: 0,
            body: Digest([0; 32]),
            root_before: Digest([0; 32]),
            weight: 0,
        }
    }

    /// The header's name.
    pub fn digest(&self) -> Digest {
        Digest::of_parts("dilocox/header/1", [codec::encode(self).as_slice()])
    }

    /// Lease cursor after this header's leases.
    pub fn cursor_after(&self) -> u64 {
        let members = self.members.iter().map(|member| u64::from(member.lease));
        let guests = self.guests.iter().map(|guest| u64::from(guest.lease));
        members.chain(guests).fold(self.cursor, u64::saturating_add)
    }

    /// A node's lease: its first position and their number.
    pub fn lease(&self, node: NodeId) -> Option<(u64, u32)> {
        lease(&self.members, &self.guests, self.cursor, node)
    }

    /// A node's position among the members.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// Whose signatures commit this header: its voters among the parent's members, or, when none
    /// of those is alive, its own members.
    pub fn electorate(&self, parent: &Self) -> Vec<NodeId> {
        electorate(self.voters, &parent.members, &self.members)
    }
}

/// See [`Header::electorate`].
pub(crate) fn electorate(voters: Bitmap, parent: &[Member], members: &[Member]) -> Vec<NodeId> {
    if voters.is_empty() {
        return members.iter().map(|member| member.node).collect();
    }
    voters.iter().filter_map(|i| parent.get(i)).map(|member| member.node).collect()
}

/// What a voter signs: run, round, attempt and header.
pub fn vote_bytes(run: RunId, round: Round, attempt: Attempt, header: Digest) -> Vec<u8> {
    codec::encode(&(run, round, attempt, header))
}

/// A name for a set of members and their omegas that does not depend on the ring's order, so that
/// an owner's signature on a chunk holds across attempts.
pub fn member_set_digest<'a>(members: impl IntoIterator<Item = &'a Member>) -> Digest {
    let set: BTreeSet<_> = members.into_iter().map(|member| (member.node, member.omega)).collect();
    Digest::of_parts("dilocox/members/1", [codec::encode(&set).as_slice()])
}

/// One voter's signature in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Who signs.
    pub voter: NodeId,
    /// Over [`vote_bytes`].
    pub signature: Signature,
}

/// A header with the signatures of more than half of its voters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// What is committed.
    pub header: Header,
    /// The attempt that the signatures cover.
    pub attempt: Attempt,
    /// The signatures.
    pub votes: Bounded<Vote, { limits::MAX_MEMBERS }>,
}

/// A certificate that does not prove its header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It does not follow the header given.
    #[error("header {round} does not follow header {parent}")]
    NotNext {
        /// The certificate's round.
        round: Round,
        /// The round it should follow.
        parent: Round,
    },
    /// Cursor or weight do not continue the parent's.
    #[error("header {round}: `{field}` does not continue the header before")]
    Discontinuous {
        /// The certificate's round.
        round: Round,
        /// The field.
        field: &'static str,
    },
    /// Too few valid signatures of voters.
    #[error(
        "header {round} has {valid} valid signatures of {voters} voters: more than half are needed"
    )]
    NoQuorum {
        /// The certificate's round.
        round: Round,
        /// Valid signatures.
        valid: usize,
        /// Voters.
        voters: usize,
    },
}

impl Certificate {
    /// Checks that the certificate commits a header that follows `parent`.
    ///
    /// # Errors
    /// If it does not follow, or more than half of its voters have not validly signed.
    pub fn verify(&self, run: RunId, parent: &Header) -> Result<(), CertificateError> {
        let header = &self.header;
        let round = header.round;
        if round != parent.round + 1 || header.parent != parent.digest() {
            return Err(CertificateError::NotNext { round, parent: parent.round });
        }
        self.continuous(parent)?;
        let voters = header.electorate(parent);
        let bytes = vote_bytes(run, round, self.attempt, header.digest());
        let signed: BTreeSet<NodeId> = self
            .votes
            .iter()
            .filter(|vote| voters.contains(&vote.voter))
            .filter(|vote| vote.signature.verify(vote.voter, domain::VOTE, &bytes).is_ok())
            .map(|vote| vote.voter)
            .collect();
        if signed.len() * 2 <= voters.len() {
            return Err(CertificateError::NoQuorum {
                round,
                valid: signed.len(),
                voters: voters.len(),
            });
        }
        Ok(())
    }

    fn continuous(&self, parent: &Header) -> Result<(), CertificateError> {
        let header = &self.header;
        let broken = |field| Err(CertificateError::Discontinuous { round: header.round, field });
        if header.cursor != parent.cursor_after() {
            return broken("cursor");
        }
        let trained: u64 = header.members.iter().map(|member| u64::from(member.weight)).sum();
        if header.weight != parent.weight.saturating_add(trained) {
            return broken("weight");
        }
        let names: BTreeSet<NodeId> = header.members.iter().map(|member| member.node).collect();
        if names.is_empty() || names.len() != header.members.len() {
            return broken("members");
        }
        Ok(())
    }
}
