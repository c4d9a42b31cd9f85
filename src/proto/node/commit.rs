//! Voting, certificates and the fold.

use std::collections::BTreeMap;

use super::{Effect, Mode, Node, Notice, Promise, Timer, ballot::Stage};
use crate::{
    base::{Attempt, Bounded, Digest, NodeId, Round, Time, limits::MAX_ATTEMPTS},
    identity::Signature,
    wire::{
        Certificate, Envelope, Header, MemberSet, Message, Plan, SignedHeader, Vote, domain,
        vote_bytes,
    },
};

/// What a finished (or skipped) ring leaves, once its results are on the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct RingResult {
    /// The distinct member sets of the jobs, with their divisors.
    pub member_sets: Vec<MemberSet>,
    /// Number of jobs.
    pub jobs: u32,
    /// Merkle root over (job, member set, digest).
    pub jobs_root: Digest,
    /// Length of the body.
    pub body_bytes: u64,
    /// The body's name as a blob.
    pub body: Digest,
}

impl Node {
    /// The ring of an attempt is finished and its results are synced to disk.
    pub fn handle_ring_finished(
        &mut self,
        now: Time,
        (round, attempt): (Round, Attempt),
        result: &RingResult,
    ) {
        let Some(accepted) = self.ballot.accepted.as_mut() else { return };
        let plan = std::sync::Arc::clone(&accepted.plan);
        let fits = plan.round == round && plan.attempt == attempt && round == self.head.round + 1;
        if !fits || self.folding.is_some() || self.ballot.failed {
            return;
        }
        accepted.stage = Stage::Done;
        let author = accepted.author;
        let Some(header) = header(&plan, &self.head, result) else { return };
        self.ballot.remember(&header);
        self.ballot.stored.insert(header.digest());
        self.timers.set(Timer::Attempt, now + self.config.deadlines.signatures);
        let voters = header.electorate(&self.head);
        let outside = voters.iter().any(|voter| header.position(*voter).is_none());
        // The author tells them; an author outside the plan does not know the header.
        let teller = plan.position(author).map_or(plan.members[0].node, |_| author);
        if teller == self.me && outside {
            let signed = SignedHeader { attempt, header: header.clone() };
            self.gossip(Message::HeaderProposed(Box::new(signed)));
        }
        self.vote(now, attempt, header);
        self.settle(now);
    }

    /// The body of a header is verified and stored.
    pub fn handle_body_stored(&mut self, now: Time, header: Digest) {
        // A body may come twice: once for a vote, once for the commit.
        if !self.ballot.stored.insert(header) {
            return;
        }
        if self.folding.as_ref().is_some_and(|folding| folding.digest() == header) {
            self.commit();
        } else if let Some(attempt) = self.ballot.wanted.remove(&header)
            && let Some(header) = self.ballot.header(&header).cloned()
        {
            self.vote(now, attempt, header);
        }
        self.settle(now);
    }

    /// Signs a header whose results are on this node's disk, if it is a voter and has not promised
    /// a higher attempt.
    fn vote(&mut self, now: Time, attempt: Attempt, header: Header) {
        let voter = header.electorate(&self.head).contains(&self.me);
        let higher = self.ballot.promised.is_some_and(|promised| promised > attempt);
        let signed_higher = self.ballot.signed.as_ref().is_some_and(|s| s.attempt > attempt);
        if !voter || higher || signed_higher || !self.config.trains {
            return;
        }
        let promise = Promise::Vote { attempt, header: Box::new(header.clone()) };
        self.effects.push_back(Effect::Persist(promise));
        self.memory.signed = Some((attempt, header.clone()));
        self.ballot.signed = Some(SignedHeader { attempt, header });
        self.send_vote(now);
    }

    /// Sends the signature on the header signed last; again until there is a certificate.
    pub(super) fn send_vote(&mut self, now: Time) {
        let Some(SignedHeader { attempt, header }) = &self.ballot.signed else { return };
        let (round, attempt, digest) = (header.round, *attempt, header.digest());
        let bytes = vote_bytes(self.config.run, round, attempt, digest);
        let signature = self.identity.sign(domain::VOTE, &bytes);
        self.timers.set(Timer::Repeat, now + self.config.deadlines.repeat);
        let mut to = self.candidates(attempt);
        to.extend(self.ballot.accepted.as_ref().map(|accepted| accepted.author));
        to.push(self.me);
        self.send_all(to, &Message::Voted { round, attempt, header: digest, signature });
    }

    pub(super) fn on_voted(
        &mut self,
        now: Time,
        author: NodeId,
        attempt: Attempt,
        header: Digest,
        signature: Signature,
    ) {
        let bytes = vote_bytes(self.config.run, self.open(), attempt, header);
        if attempt >= MAX_ATTEMPTS {
            return;
        }
        if signature.verify(author, domain::VOTE, &bytes).is_err() {
            return;
        }
        // A node votes once an attempt: an author's vote for another header replaces nothing.
        let repeated = self
            .ballot
            .votes
            .iter()
            .any(|((a, _), votes)| *a == attempt && votes.contains_key(&author));
        let known = author == self.me
            || self.head.position(author).is_some()
            || self.roster.contains(author);
        if repeated || !known {
            return;
        }
        self.ballot.votes.entry((attempt, header)).or_default().insert(author, signature);
        self.try_certify(now, attempt, header);
    }

    fn try_certify(&mut self, now: Time, attempt: Attempt, digest: Digest) {
        let Some(header) = self.ballot.header(&digest).cloned() else { return };
        let Some(votes) = self.ballot.votes.get(&(attempt, digest)) else { return };
        let voters = header.electorate(&self.head);
        let signed: BTreeMap<NodeId, Signature> =
            votes.iter().filter(|(v, _)| voters.contains(v)).map(|(&v, &s)| (v, s)).collect();
        if signed.len() * 2 <= voters.len() {
            return;
        }
        let votes: Vec<Vote> =
            signed.into_iter().map(|(voter, signature)| Vote { voter, signature }).collect();
        let Ok(votes) = Bounded::try_from(votes) else { return };
        let certificate = Certificate { header, attempt, votes };
        self.gossip(Message::Committed(Box::new(certificate)));
        self.settle(now);
    }

    pub(super) fn on_header_proposed(&mut self, now: Time, author: NodeId, signed: SignedHeader) {
        let SignedHeader { attempt, header } = signed;
        let digest = header.digest();
        let follows = header.round == self.open()
            && header.parent == self.head_digest
            && self.head_root.is_some_and(|root| root == header.root_before);
        let ours = self.ballot.accepted.as_ref().is_some_and(|accepted| {
            let teller = accepted.author == author || accepted.plan.position(author).is_some();
            accepted.plan.attempt == attempt && teller
        });
        if !follows || !ours || !self.ballot.remember(&header) {
            return;
        }
        if self.ballot.stored.contains(&digest) {
            if self.ballot.signed.as_ref().is_none_or(|s| s.attempt < attempt) {
                self.vote(now, attempt, header);
            }
        } else {
            self.ballot.wanted.insert(digest, attempt);
            let accepted = self.ballot.accepted.as_ref().filter(|_| !self.ballot.failed);
            let running = accepted.is_some_and(|a| a.stage == Stage::Running);
            if !running && self.ballot.fetching.insert(digest) {
                self.effects.push_back(Effect::FetchBody(Box::new(header)));
            }
        }
        // Votes may have arrived before the header.
        let attempts: Vec<Attempt> =
            self.ballot.votes.keys().filter(|(_, d)| *d == digest).map(|(a, _)| *a).collect();
        for attempt in attempts {
            self.try_certify(now, attempt, digest);
        }
        if !self.ballot.failed {
            self.timers.set(Timer::Attempt, now + self.config.deadlines.signatures * 2);
        }
    }

    pub(super) fn on_committed(&mut self, certificate: Box<Certificate>) {
        if self.folding.is_some() || certificate.verify(self.config.run, &self.head).is_err() {
            return;
        }
        let header = Box::new(certificate.header.clone());
        let digest = header.digest();
        let stored = self.ballot.stored.contains(&digest);
        if !stored && !self.is_held(&certificate) {
            return;
        }
        self.timers.clear(Timer::Attempt);
        self.timers.clear(Timer::Coordinate);
        self.timers.clear(Timer::Repeat);
        if self.head_root.is_some_and(|root| root != header.root_before) {
            self.mode = Mode::Syncing;
            let reason = format!(
                "header {} binds another root than this node's after round {}",
                header.round, self.head.round
            );
            self.effects.push_back(Effect::Sync { reason, discard: true });
            return;
        }
        self.notify(Notice::Committed {
            round: header.round,
            attempt: certificate.attempt,
            header: digest,
            members: header.members.iter().map(|member| member.node).collect(),
        });
        if !stored && let Some(accepted) = &self.ballot.accepted {
            let (round, attempt) = (accepted.plan.round, accepted.plan.attempt);
            self.effects.push_back(Effect::AbortRing { round, attempt });
        }
        self.folding_certificate = Some(certificate);
        self.folding = Some(header.clone());
        if stored {
            self.commit();
        } else {
            self.effects.push_back(Effect::FetchBody(header));
        }
    }

    /// The body of the committed header is stored: into the ledger with it.
    fn commit(&mut self) {
        if let (Some(header), Some(certificate)) = (&self.folding, &self.folding_certificate) {
            let (header, certificate) = (header.clone(), certificate.clone());
            self.effects.extend([Effect::Commit(certificate), Effect::Fold(header)]);
        }
    }

    /// Whether anybody alive holds the body of a committed header: whoever has signed it does.
    fn is_held(&self, certificate: &Certificate) -> bool {
        let mut signers = certificate.votes.iter().map(|vote| vote.voter);
        signers.any(|node| node != self.me && self.may_vote(node))
    }

    /// Nodes are gone: if nobody is left who may hold the body that this node waits for, the round
    /// is open again. Those who held it may come back with another branch.
    pub(super) fn give_up_orphan(&mut self, now: Time) {
        let Some(certificate) = &self.folding_certificate else { return };
        let (round, header) = (certificate.header.round, certificate.header.digest());
        if self.ballot.stored.contains(&header) || self.is_held(certificate) {
            return;
        }
        self.notify(Notice::Orphaned { round, header });
        self.folding = None;
        self.folding_certificate = None;
        let stash: Vec<Envelope> = self.stash.drain(..).collect();
        for envelope in stash {
            self.route(now, envelope);
        }
        self.try_freeze();
        if self.ballot.accepted.is_some() && !self.ballot.failed {
            return self.give_up(now, None, "nobody alive has its body".to_owned());
        }
        self.announce(now, true);
        self.coordinate(now);
    }

    /// A committed round is folded; its root follows with [`Node::handle_root`].
    pub fn handle_folded(&mut self, now: Time, round: Round) {
        let Some(header) = self.folding.take() else { return };
        debug_assert_eq!(header.round, round, "folds come back in order");
        let certificate = self.folding_certificate.take();
        self.set_head(*header, certificate, None);
        self.timers.set(Timer::Presence, now);
        if round > self.last_round() {
            self.finish();
        } else if !self.leaving {
            self.opened(now);
        }
        if self.leaving {
            self.say_goodbye();
        }
        self.settle(now);
    }

    /// The state root after a folded round is computed.
    pub fn handle_root(&mut self, now: Time, round: Round, root: Digest) {
        if round == self.head.round {
            self.head_root = Some(root);
            self.resume_deferred(now);
            self.coordinate(now);
        }
        self.settle(now);
    }
}

/// The header that a plan and its results make; every member makes the same one.
fn header(plan: &Plan, parent: &Header, result: &RingResult) -> Option<Header> {
    let trained: u64 = plan.members.iter().map(|member| u64::from(member.weight)).sum();
    Some(Header {
        round: plan.round,
        parent: plan.parent,
        voters: plan.voters,
        members: plan.members.clone(),
        guests: plan.guests.clone(),
        member_sets: Bounded::try_from(result.member_sets.clone()).ok()?,
        jobs: result.jobs,
        jobs_root: result.jobs_root,
        rank: plan.rank,
        bits: plan.bits,
        gather_bits: plan.gather_bits,
        local_steps: plan.local_steps,
        size: plan.size,
        feedback: plan.feedback,
        cursor: plan.cursor,
        body_bytes: result.body_bytes,
        body: result.body,
        root_before: plan.root_before,
        weight: parent.weight.saturating_add(trained),
    })
}
