//! What a sync asks of its driver, and what it is answered.

use std::time::Duration;

use crate::{
    base::{Digest, NodeId, Round},
    wire::{Certificate, CertificateError, Head, fetch::Request},
};

/// Names a request until it is answered, cancelled or has failed.
pub type RequestId = u64;

/// What the driver carries out, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a peer; answer with [`Sync::handle_reply`](super::Sync::handle_reply).
    Fetch {
        /// The request's name.
        id: RequestId,
        /// Whom.
        node: NodeId,
        /// What.
        request: Request,
        /// After which it is given up; a [`Effect::Cancel`] follows then.
        timeout: Duration,
    },
    /// Stop a request; a late answer is ignored.
    Cancel {
        /// The request.
        id: RequestId,
    },
    /// Append a verified certificate to the ledger.
    StoreCertificate(Box<Certificate>),
    /// Keep the index of a snapshot that is being fetched.
    StoreIndex {
        /// The snapshot's round.
        round: Round,
        /// The bytes of the index.
        bytes: Vec<u8>,
    },
    /// Keep a verified leaf of a snapshot that is being fetched.
    StoreLeaf {
        /// The snapshot's round.
        round: Round,
        /// The leaf's number.
        leaf: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Keep a verified body.
    StoreBody {
        /// Its round.
        round: Round,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A partly fetched snapshot is not wanted any more: its files can go.
    DropPartial {
        /// The snapshot's round.
        round: Round,
    },
    /// All leaves are stored: make them the state. Answer with
    /// [`Sync::handle_replayed`](super::Sync::handle_replayed).
    InstallSnapshot {
        /// The snapshot's round.
        round: Round,
    },
    /// Header and body are stored: fold them into the state. Answer with
    /// [`Sync::handle_replayed`](super::Sync::handle_replayed).
    Fold {
        /// The round.
        round: Round,
    },
    /// The state stands at the newest header that any usable donor has.
    CaughtUp {
        /// The round.
        round: Round,
    },
    /// It cannot go on with the donors there are. It tries again by itself.
    Stuck {
        /// Why, and what to do.
        reason: String,
    },
    /// The state after `round` is not the one that the next header names.
    RootMismatch {
        /// The round.
        round: Round,
        /// The local root.
        have: Digest,
        /// The root in header `round + 1`.
        want: Digest,
    },
    /// A donor has sent what no honest node sends; it is not asked again.
    Blame {
        /// Who.
        node: NodeId,
        /// What it did.
        fault: Fault,
    },
    /// A donor's chain does not continue the local one.
    Diverged {
        /// Who.
        node: NodeId,
        /// The first round at which it is known to differ.
        round: Round,
        /// What it says of itself.
        head: Head,
    },
}

/// How a donor lied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A certificate does not prove its header.
    #[error("it sent a bad certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// It said again and again to be further than it could show.
    #[error("it claims round {claimed} but shows no header {wanted}")]
    EmptyChain {
        /// The round it claims.
        claimed: Round,
        /// The round asked for.
        wanted: Round,
    },
    /// The bytes of a chunk or leaf do not hash to its digest.
    #[error("it sent wrong bytes of {0}")]
    WrongBytes(String),
    /// A blob's index does not hash to the blob's digest, or has an impossible length.
    #[error("it sent a wrong index of {0}")]
    WrongIndex(String),
    /// A snapshot's index is not of the state that the chain names.
    #[error("its snapshot of round {round} is not of this chain: {problem}")]
    WrongSnapshot {
        /// The snapshot's round.
        round: Round,
        /// What is wrong.
        problem: String,
    },
    /// The reply is of another kind than the request, or cannot be decoded.
    #[error("its reply does not fit the request: {0}")]
    WrongReply(String),
}

/// Why a request brought no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchFailure {
    /// The time is over.
    #[error("no reply in time")]
    Timeout,
    /// The connection is lost or cannot be made.
    #[error("the connection is lost")]
    Gone,
    /// The reply cannot be decoded: the donor is blamed.
    #[error("the reply is malformed: {0}")]
    Malformed(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What came of a fold or an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done; the state's root.
    Done(Digest),
    /// It is done; the root is being computed and follows with
    /// [`Sync::handle_root`](super::Sync::handle_root).
    DoneWithoutRoot,
    /// It failed: what was wrong and what to do.
    Failed(String),
}
