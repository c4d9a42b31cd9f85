//! Control messages of one run (DESIGN section 5).

use serde::{Deserialize, Serialize};

use crate::{
    base::{Attempt, Bitmap, Bounded, Digest, NodeId, Round, RunId, limits},
    identity::Signature,
    wire::{Certificate, Guest, Header, Member, codec},
};

/// What a node says to others. The comment on each variant is its tag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// 0: alive; gossiped every period.
    Presence(Presence),
    /// 1: leaves now; gossiped.
    Goodbye,
    /// 2: has frozen its pseudo-gradient; to the first three in the order of (round, attempt).
    Ready(Ready),
    /// 3: the coordinator closes the round: whoever has at least one sequence done freezes now.
    Closing {
        /// The round that closes.
        round: Round,
        /// The coordinator's attempt.
        attempt: Attempt,
        /// Digest of header `round - 1`.
        parent: Digest,
    },
    /// 4: a plan for one attempt; gossiped.
    Propose(Plan),
    /// 5: takes part in a plan, or promises as a voter outside it; to the first three.
    Accept {
        /// The plan's round.
        round: Round,
        /// The plan's attempt.
        attempt: Attempt,
        /// Digest of the plan.
        plan: Digest,
        /// The header of the highest attempt that the author has signed in this round.
        signed: Option<Box<SignedHeader>>,
        /// Jobs that the author holds finished from earlier attempts.
        finished: Finished,
    },
    /// 6: does not take part; gossiped.
    Refused {
        /// The plan's round.
        round: Round,
        /// The plan's attempt.
        attempt: Attempt,
        /// Digest of the plan; all zero when no plan is meant.
        plan: Digest,
        /// Why.
        reason: Refusal,
    },
    /// 7: every member has accepted: ring frames may move; gossiped.
    Start {
        /// The plan's round.
        round: Round,
        /// The plan's attempt.
        attempt: Attempt,
        /// Digest of the plan.
        plan: Digest,
    },
    /// 8: a voter's signature; to the first three. The header is known from the plan and results.
    Voted {
        /// The header's round.
        round: Round,
        /// The attempt under which it is signed.
        attempt: Attempt,
        /// Digest of the header.
        header: Digest,
        /// The voter's signature over ([`vote_bytes`](crate::wire::vote_bytes)).
        signature: Signature,
    },
    /// 9: a header for those who cannot derive it (voters outside the plan), or one that a promise
    /// has reported, proposed again unchanged; gossiped.
    HeaderProposed(Box<SignedHeader>),
    /// 10: a round is committed; gossiped.
    Committed(Box<Certificate>),
}

impl Message {
    /// The message's name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Presence(_) => "presence",
            Self::Goodbye => "goodbye",
            Self::Ready(_) => "ready",
            Self::Closing { .. } => "closing",
            Self::Propose(_) => "propose",
            Self::Accept { .. } => "accept",
            Self::Refused { .. } => "refused",
            Self::Start { .. } => "start",
            Self::Voted { .. } => "voted",
            Self::HeaderProposed(_) => "header_proposed",
            Self::Committed(_) => "committed",
        }
    }
}

/// The newest header that a node has folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its round.
    pub round: Round,
    /// Its digest.
    pub digest: Digest,
    /// Its cumulative weight.
    pub weight: u64,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// 0: trains.
    Training,
    /// 1: fetches state or replays.
    Syncing,
    /// 2: keeps state but does not train (a bootstrap peer with an archive).
    Archive,
    /// 3: has folded the run's last header and serves those who are late.
    Finished,
}

/// "I am alive, and this is where I stand."
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Presence {
    /// For how long after receipt this holds, by the receiver's own clock.
    pub lifetime_ms: u32,
    /// The next round that the node expects to be ready for.
    pub expects: Round,
    /// The newest header that it has folded.
    pub head: Head,
    /// What it is doing.
    pub status: Status,
    /// Whether it is fetching from others.
    pub fetching: bool,
    /// Where it can be dialled, as multiaddresses without peer id.
    pub addresses: Bounded<Bounded<u8, { limits::MAX_TEXT }>, { limits::MAX_ADDRESSES }>,
}

/// "My pseudo-gradient of this round is frozen."
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The round.
    pub round: Round,
    /// The attempt that the author wants a plan for.
    pub attempt: Attempt,
    /// Digest of header `round - 1`, already folded.
    pub parent: Digest,
    /// Sequences trained on (DESIGN section 4, weights).
    pub weight: u32,
    /// Log code of the pseudo-gradient's norm.
    pub size: u8,
    /// Log code of the feedback ratio |e|^2/|delta|^2.
    pub feedback: u8,
    /// Who stalled or lost the previous attempt, as far as the author saw.
    pub blame: Option<NodeId>,
}

/// The agreement on one attempt at one exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The run.
    pub run: RunId,
    /// The round.
    pub round: Round,
    /// The ballot.
    pub attempt: Attempt,
    /// Digest of header `round - 1`.
    pub parent: Digest,
    /// Voters of the round, as positions among the members of the parent header.
    pub voters: Bitmap,
    /// Members in ring order, with weights, omegas and leases for segment `round + 2`.
    pub members: Bounded<Member, { limits::MAX_MEMBERS }>,
    /// Leases for live peers outside the plan, after those of the members.
    pub guests: Bounded<Guest, { Guest::MAX }>,
    /// Rank of the low-rank part; 0: off.
    pub rank: u32,
    /// Payload bits.
    pub bits: u8,
    /// Bits of the all-gather; 0: exact sums.
    pub gather_bits: u8,
    /// H of the segment after next.
    pub local_steps: u32,
    /// Median log code of the pseudo-gradients' norms.
    pub size: u8,
    /// Median log code of the feedback ratios.
    pub feedback: u8,
    /// Lease cursor before this plan's leases.
    pub cursor: u64,
    /// State root after round `round - 1`.
    pub root_before: Digest,
}

impl Plan {
    /// The plan's name.
    pub fn digest(&self) -> Digest {
        Digest::of_parts("dilocox/plan/1", [codec::encode(self).as_slice()])
    }

    /// A node's position in the ring.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| member.node == node)
    }

    /// Lease cursor after this plan's leases.
    pub fn cursor_after(&self) -> u64 {
        let members = self.members.iter().map(|member| u64::from(member.lease));
        let guests = self.guests.iter().map(|guest| u64::from(guest.lease));
        members.chain(guests).fold(self.cursor, u64::saturating_add)
    }

    /// A node's lease: its first position and their number.
    pub fn lease(&self, node: NodeId) -> Option<(u64, u32)> {
        crate::wire::ledger::lease(&self.members, &self.guests, self.cursor, node)
    }
}

/// A header as signed under an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignedHeader {
    /// The attempt.
    pub attempt: Attempt,
    /// The header.
    pub header: Header,
}

/// Jobs that a node holds finished: a bitmap in job order, and one digest over their digests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Bit `i % 8` of byte `i / 8` is job `i`; empty: none.
    pub jobs: Bounded<u8, { limits::MAX_BUCKETS / 8 }>,
    /// Over the digests of the finished jobs in order; all zero for none.
    pub digest: Option<Digest>,
}

/// Why a node does not take part in a plan or attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// 0
    #[error("it has no link to {0:?}")]
    NoLink(NodeId),
    /// 1
    #[error("its attempt {attempt} still makes progress ({progress} frames)")]
    Busy {
        /// The attempt that it is in.
        attempt: Attempt,
        /// Ring frames received in it.
        progress: u32,
    },
    /// 2
    #[error("its root after the round before is {0}")]
    RootDiffers(Digest),
    /// 3
    #[error("it stands on header {digest} of round {round}")]
    OtherHead {
        /// The round of the head.
        round: Round,
        /// Its digest.
        digest: Digest,
    },
    /// 4
    #[error("it has promised attempt {0}")]
    Promised(Attempt),
    /// 5
    #[error("the plan is not valid: {0:?}")]
    Invalid(Bounded<u8, { limits::MAX_TEXT }>),
    /// 6
    #[error("its ring in this attempt has failed at {0:?}")]
    RingFailed(Option<NodeId>),
    /// 7
    #[error("it is leaving")]
    Leaving,
}
