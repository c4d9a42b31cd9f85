//! What the node machine asks for, as data.

use std::sync::Arc;

use crate::{
    base::{Attempt, Digest, NodeId, Round},
    wire::{Certificate, Envelope, Header, Plan},
};

/// Something for the caller to carry out. Effects are carried out in the order in which they are
/// polled, and [`Effect::Persist`] and [`Effect::Commit`] before the next one is begun.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send to one peer.
    Send {
        /// The receiver.
        to: NodeId,
        /// What.
        envelope: Box<Envelope>,
    },
    /// Send to everybody in the run.
    Gossip(Box<Envelope>),
    /// Write down and sync to disk what must survive a crash.
    Persist(Promise),
    /// Open a stream to the successor in the plan and make the ring ready, without sending frames;
    /// answer with [`handle_ring_ready`](super::Node::handle_ring_ready) or `handle_ring_failed`.
    PrepareRing(Arc<Plan>),
    /// Let frames move.
    RunRing {
        /// The plan's round.
        round: Round,
        /// The plan's attempt.
        attempt: Attempt,
    },
    /// Make the results of a plan whose ring is skipped (no job runs); answer with
    /// [`handle_ring_finished`](super::Node::handle_ring_finished).
    SkipRing {
        /// The plan.
        plan: Arc<Plan>,
        /// Whether the header has the manifest's jobs, all unfinished, or (after the last round) none.
        jobs: bool,
    },
    /// Drop ring and streams of an attempt.
    AbortRing {
        /// The plan's round.
        round: Round,
        /// The plan's attempt.
        attempt: Attempt,
    },
    /// Fetch and store the body of a header that this node did not help to make; answer with
    /// [`handle_body_stored`](super::Node::handle_body_stored).
    FetchBody(Box<Header>),
    /// Append a certificate, whose body is stored, to the ledger.
    Commit(Box<Certificate>),
    /// Fold a committed round, whose body is stored; answer with `handle_folded`, then `handle_root`.
    Fold(Box<Header>),
    /// Start a segment from the newest anchor.
    StartSegment(SegmentStart),
    /// Between two steps: freeze the running segment and start the next one; answer with
    /// [`handle_frozen`](super::Node::handle_frozen).
    Freeze {
        /// The segment's round.
        round: Round,
        /// The segment that follows at once; `None` after the last round or where overlap is off.
        next: Option<SegmentStart>,
    },
    /// This node is behind, or its state is not that of the others: fetch what is missing, then
    /// call [`adopt`](super::Node::adopt).
    Sync {
        /// Why, as a sentence.
        reason: String,
        /// Whether the own state is wrong and must be replaced.
        discard: bool,
    },
    /// Something that people want to know.
    Notify(Notice),
    /// The run's last header is folded.
    Finished,
    /// Goodbye is said; nothing more will come.
    Left,
}

/// A segment to be trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStart {
    /// The round it belongs to.
    pub round: Round,
    /// H.
    pub steps: u32,
    /// Steps after which training pauses until the segment is frozen.
    pub max_steps: u32,
    /// Leased data: first position and number of sequences.
    pub lease: Option<(u64, u32)>,
}

/// What a node must not forget (DESIGN section 5, agreement).
#[derive(Clone, Debug, PartialEq)]
pub enum Promise {
    /// It signs nothing for a lower attempt of this round.
    Attempt {
        /// The round.
        round: Round,
        /// The attempt.
        attempt: Attempt,
    },
    /// It has signed a header.
    Vote {
        /// The attempt.
        attempt: Attempt,
        /// The header.
        header: Box<Header>,
    },
}

/// News for people, each with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A peer is there.
    PeerJoined(NodeId),
    /// A peer is gone.
    PeerLeft {
        /// Who.
        node: NodeId,
        /// Why.
        reason: &'static str,
    },
    /// A round closes.
    Closing {
        /// The round.
        round: Round,
        /// Why now, in one sentence.
        reason: String,
    },
    /// A plan was not taken, or an attempt given up.
    AttemptFailed {
        /// The round.
        round: Round,
        /// The attempt.
        attempt: Attempt,
        /// Why.
        reason: String,
    },
    /// A round is committed.
    Committed {
        /// The round.
        round: Round,
        /// The attempt that succeeded.
        attempt: Attempt,
        /// Digest of the header.
        header: Digest,
        /// Members.
        members: Vec<NodeId>,
    },
    /// A committed header is given up: nobody alive has its body. The round is open again.
    Orphaned {
        /// The round.
        round: Round,
        /// The header.
        header: Digest,
    },
    /// Another header was committed for a round that this node has folded.
    Fork {
        /// The round.
        round: Round,
        /// The other header.
        header: Digest,
    },
}
