//! What a node knows of the open round: readies, the plan, accepts, votes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    base::{Attempt, Digest, NodeId, Round, Time, limits::MAX_ATTEMPTS},
    identity::Signature,
    wire::{Header, Plan, Ready, SignedHeader},
};

/// Headers of one round that are remembered by digest: one for each attempt.
const MAX_HEADERS: usize = MAX_ATTEMPTS as usize;

/// Plans that wait for the root of the round before: three candidates, a few attempts.
pub(super) const MAX_DEFERRED: usize = 8;

/// From this attempt on, unfinished jobs are left unfinished rather than tried again.
pub(super) const EMPTY_FROM: Attempt = 8;

/// Where a node stands in its current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Accepted; the stream to the successor is being opened.
    Linking,
    /// Accepted and said so; waits for `Start`.
    Accepted,
    /// The ring runs.
    Running,
    /// The own ring is finished; waits for the certificate.
    Done,
    /// A voter outside the plan: it has promised.
    Promised,
}

/// A plan that this node has accepted.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) plan: Arc<Plan>,
    pub(super) digest: Digest,
    pub(super) author: NodeId,
    pub(super) stage: Stage,
}

/// The open round.
#[derive(Clone, Debug, Default)]
pub(super) struct Ballot {
    /// The attempt that this node is in, or wants a plan for.
    pub(super) attempt: Attempt,
    pub(super) readies: BTreeMap<Attempt, BTreeMap<NodeId, Ready>>,
    /// When a quorum was first ready, by attempt.
    pub(super) quorum_since: BTreeMap<Attempt, Time>,
    pub(super) closing_sent: bool,
    pub(super) closing_heard: bool,
    pub(super) proposed: BTreeSet<Attempt>,
    /// Who has proposed a plan that does not concern this node.
    pub(super) others: BTreeMap<Attempt, NodeId>,
    pub(super) accepted: Option<Accepted>,
    pub(super) accepts: BTreeMap<Digest, BTreeMap<NodeId, Option<SignedHeader>>>,
    pub(super) started: BTreeSet<Digest>,
    pub(super) refused_links: BTreeSet<(NodeId, NodeId)>,
    /// How often a node was said to have stalled an attempt.
    pub(super) blames: BTreeMap<NodeId, BTreeSet<Attempt>>,
    /// Whom this node holds responsible for its last failed attempt.
    pub(super) blame: Option<NodeId>,
    /// Whether the current attempt failed, so that a higher one may be taken.
    pub(super) failed: bool,
    pub(super) roots: BTreeMap<NodeId, Digest>,
    pub(super) votes: BTreeMap<(Attempt, Digest), BTreeMap<NodeId, Signature>>,
    headers: BTreeMap<Digest, Header>,
    /// Headers whose results are on this node's disk.
    pub(super) stored: BTreeSet<Digest>,
    /// Headers to vote for, under an attempt, as soon as their body is here.
    pub(super) wanted: BTreeMap<Digest, Attempt>,
    /// Headers whose bodies the caller was asked to fetch.
    pub(super) fetching: BTreeSet<Digest>,
    pub(super) promised: Option<Attempt>,
    pub(super) signed: Option<SignedHeader>,
    /// Whether the own plan proposes a reported header again, instead of a ring.
    pub(super) reproposed: bool,
    /// Plans that came before the root of the round before was computed, with their authors.
    pub(super) deferred: Vec<(NodeId, Plan)>,
    /// To whom the own Ready of the current attempt was sent.
    pub(super) ready_to: Vec<NodeId>,
}

impl Ballot {
    /// Remembers a header; false when there are too many of them.
    pub(super) fn remember(&mut self, header: &Header) -> bool {
        let digest = header.digest();
        if !self.headers.contains_key(&digest) && self.headers.len() >= MAX_HEADERS {
            return false;
        }
        self.headers.entry(digest).or_insert_with(|| header.clone());
        true
    }

    /// How many things of others are kept.
    pub(super) fn kept(&self) -> usize {
        let readies: usize = self.readies.values().map(BTreeMap::len).sum();
        let accepts: usize = self.accepts.values().map(BTreeMap::len).sum();
        let votes: usize = self.votes.values().map(BTreeMap::len).sum();
        let blames: usize = self.blames.values().map(BTreeSet::len).sum();
        readies
            + accepts
            + votes
            + blames
            + self.headers.len()
            + self.stored.len()
            + self.started.len()
            + self.refused_links.len()
            + self.roots.len()
            + self.wanted.len()
            + self.fetching.len()
            + self.others.len()
    }

    pub(super) fn header(&self, digest: &Digest) -> Option<&Header> {
        self.headers.get(digest)
    }

    /// The accepted plan, if it is the one named.
    pub(super) fn accepted_plan(&self, digest: Digest) -> Option<&Accepted> {
        self.accepted.as_ref().filter(|accepted| accepted.digest == digest)
    }

    /// Whether a plan of a higher attempt may be taken: none is accepted, it has failed, or this
    /// node has only promised.
    pub(super) fn is_free(&self) -> bool {
        let promised = |accepted: &Accepted| accepted.stage == Stage::Promised;
        self.failed || self.accepted.as_ref().is_none_or(promised)
    }

    /// Goes on to a higher attempt; what was said for lower ones is not needed any more, except
    /// who was ready in the one before.
    pub(super) fn move_to(&mut self, attempt: Attempt) {
        self.attempt = attempt;
        self.failed = true;
        self.closing_sent = false;
        self.readies = self.readies.split_off(&attempt.saturating_sub(2));
        self.quorum_since = self.quorum_since.split_off(&attempt);
    }
}

/// A frozen pseudo-gradient that waits for its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// The segment's round.
    pub round: Round,
    /// Sequences trained on.
    pub weight: u32,
    /// Log code of its norm.
    pub size: u8,
    /// Log code of the feedback ratio.
    pub feedback: u8,
}
