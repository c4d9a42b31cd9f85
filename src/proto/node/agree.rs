//! Accepting a plan, running its ring, and giving an attempt up.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Effect, Node, Notice, Promise, Timer,
    ballot::{Accepted, MAX_DEFERRED, Stage},
    bounded_text,
    coordinate::omega,
};
use crate::{
    base::{Attempt, Digest, NodeId, Round, Time, limits::MAX_ATTEMPTS},
    wire::{Finished, Header, Message, Plan, Refusal, SignedHeader, electorate},
};

impl Node {
    pub(super) fn on_propose(&mut self, now: Time, author: NodeId, plan: Plan) {
        let digest = plan.digest();
        if self.ballot.accepted_plan(digest).is_some() {
            return;
        }
        if self.defer(author, &plan) {
            return;
        }
        let concerned =
            author == self.me || plan.position(self.me).is_some() || self.votes_on(&plan);
        if let Err(reason) = self.acceptable(author, &plan) {
            if concerned && author != self.me {
                self.refuse(&plan, digest, reason);
            }
            return;
        }
        if concerned {
            self.accept(now, author, plan, digest);
        } else {
            // Somebody coordinates this attempt: as long as it lives, it needs no second plan.
            self.ballot.others.insert(plan.attempt, author);
            if plan.attempt == self.ballot.attempt && self.ballot.is_free() {
                let waits = self.config.deadlines;
                let patience = waits.accept + waits.stall + waits.signatures;
                self.timers.set_earliest(Timer::Attempt, now + patience);
            }
        }
    }

    /// Keeps a plan until the root of the round before is computed here.
    fn defer(&mut self, author: NodeId, plan: &Plan) -> bool {
        let early = self.head_root.is_none() && plan.parent == self.head_digest;
        let deferred = &mut self.ballot.deferred;
        if early && deferred.len() < MAX_DEFERRED {
            deferred.push((author, plan.clone()));
        }
        early
    }

    /// The root is computed: takes in the plans that came before it.
    pub(super) fn resume_deferred(&mut self, now: Time) {
        for (author, plan) in std::mem::take(&mut self.ballot.deferred) {
            self.on_propose(now, author, plan);
        }
    }

    fn votes_on(&self, plan: &Plan) -> bool {
        electorate(plan.voters, &self.head.members, &plan.members).contains(&self.me)
    }

    /// Whether this node may take part in a plan, or why not.
    fn acceptable(&self, author: NodeId, plan: &Plan) -> Result<(), Refusal> {
        if plan.parent != self.head_digest {
            let (round, digest) = (self.head.round, self.head_digest);
            return Err(Refusal::OtherHead { round, digest });
        }
        if self.leaving && self.contribution().is_none() {
            return Err(Refusal::Leaving);
        }
        if let Some(promised) = self.ballot.promised
            && (plan.attempt < promised
                || plan.attempt == promised && self.ballot.accepted.is_none())
        {
            return Err(Refusal::Promised(promised));
        }
        if let Some(accepted) = &self.ballot.accepted {
            let current = accepted.plan.attempt;
            if plan.attempt <= current || !self.ballot.is_free() {
                return Err(Refusal::Busy { attempt: current, progress: 0 });
            }
        }
        let invalid = |what: &str| Refusal::Invalid(bounded_text(what));
        if !self.candidates(plan.attempt).contains(&author) {
            return Err(invalid("its author is not among the first three in the order"));
        }
        self.valid(plan).map_err(invalid)?;
        match self.head_root {
            Some(root) if root != plan.root_before => Err(Refusal::RootDiffers(root)),
            _ => Ok(()),
        }
    }

    /// Checks everything in a plan that follows from what is agreed.
    fn valid(&self, plan: &Plan) -> Result<(), &'static str> {
        let compression = &self.config.manifest.compression;
        let agreed = plan.run == self.config.run
            && plan.attempt < MAX_ATTEMPTS
            && plan.rank == compression.rank
            && plan.bits == compression.bits
            && plan.gather_bits == compression.gather_bits
            && plan.local_steps == self.h()
            && plan.cursor == self.head.cursor_after();
        if !agreed {
            return Err("it does not continue what is agreed");
        }
        let names: BTreeSet<NodeId> = plan.members.iter().map(|member| member.node).collect();
        if names.is_empty() || names.len() != plan.members.len() {
            return Err("its members are empty or repeat");
        }
        let largest = plan.members.iter().map(|member| member.weight).max().unwrap_or(0);
        let fair = plan.members.iter().all(|member| {
            member.weight == self.capped(member.weight)
                && member.omega == omega(member.weight, largest)
                && member.lease == self.lease_length(member.weight)
        });
        if !fair {
            return Err("its weights, omegas or leases break the rules");
        }
        let own = plan.members.iter().find(|member| member.node == self.me);
        if own.is_some_and(|own| self.frozen.is_none_or(|f| self.capped(f.weight) != own.weight)) {
            return Err("it gives this node another weight than it has said");
        }
        let known: BTreeSet<usize> = self.voter_bits().iter().collect();
        let named: BTreeSet<usize> = plan.voters.iter().collect();
        if named.iter().any(|&i| i >= self.head.members.len()) || !known.is_subset(&named) {
            return Err("it leaves out voters that are alive");
        }
        Ok(())
    }

    fn refuse(&mut self, plan: &Plan, digest: Digest, reason: Refusal) {
        let (round, attempt) = (plan.round, plan.attempt);
        let told = reason.to_string();
        self.notify(Notice::AttemptFailed { round, attempt, reason: format!("refused: {told}") });
        self.gossip(Message::Refused { round, attempt, plan: digest, reason });
    }

    fn accept(&mut self, now: Time, author: NodeId, plan: Plan, digest: Digest) {
        let (round, attempt) = (plan.round, plan.attempt);
        if let Some(old) = self.ballot.accepted.take() {
            let (round, attempt) = (old.plan.round, old.plan.attempt);
            self.effects.push_back(Effect::AbortRing { round, attempt });
        }
        self.effects.push_back(Effect::Persist(Promise::Attempt { round, attempt }));
        self.memory.promised = Some((round, attempt));
        self.ballot.promised = Some(attempt);
        self.ballot.attempt = attempt;
        self.ballot.failed = false;
        let plan = Arc::new(plan);
        let member = plan.position(self.me).is_some();
        let rings = member && !self.skips_ring(&plan);
        let stage = match (member, rings) {
            (true, true) => Stage::Linking,
            (true, false) => Stage::Accepted,
            (false, _) => Stage::Promised,
        };
        self.ballot.accepted = Some(Accepted { plan: Arc::clone(&plan), digest, author, stage });
        self.timers.clear(Timer::Repeat);
        self.timers.set(Timer::Attempt, now + self.config.deadlines.accept);
        if rings {
            self.effects.push_back(Effect::PrepareRing(plan));
        } else {
            self.send_accept(now);
        }
    }

    /// Stream and ring of the accepted plan are ready.
    pub fn handle_ring_ready(&mut self, now: Time, round: Round, attempt: Attempt) {
        if let Some(accepted) = self.current(round, attempt)
            && accepted.stage == Stage::Linking
        {
            accepted.stage = Stage::Accepted;
            let digest = accepted.digest;
            self.send_accept(now);
            if self.ballot.started.contains(&digest) {
                self.begin();
            }
        }
        self.settle(now);
    }

    /// The ring of an attempt has failed: its stream could not be opened, it broke or stalled, or a
    /// frame was wrong.
    pub fn handle_ring_failed(
        &mut self,
        now: Time,
        (round, attempt): (Round, Attempt),
        blame: Option<NodeId>,
        reason: String,
    ) {
        let me = self.me;
        let Some(accepted) = self.current(round, attempt) else { return };
        if matches!(accepted.stage, Stage::Done | Stage::Promised) {
            return;
        }
        let linking = accepted.stage == Stage::Linking;
        let digest = accepted.digest;
        let successor = successor(&accepted.plan, me);
        let refusal = match (linking, successor) {
            (true, Some(successor)) => {
                self.ballot.refused_links.insert((me, successor));
                Refusal::NoLink(successor)
            }
            _ => Refusal::RingFailed(blame),
        };
        self.gossip(Message::Refused { round, attempt, plan: digest, reason: refusal });
        self.give_up(now, blame, reason);
        self.settle(now);
    }

    fn current(&mut self, round: Round, attempt: Attempt) -> Option<&mut Accepted> {
        let accepted = self.ballot.accepted.as_mut()?;
        let fits = accepted.plan.round == round && accepted.plan.attempt == attempt;
        (fits && !self.ballot.failed && self.folding.is_none()).then_some(accepted)
    }

    /// Says again what may not have been heard: Ready, Accept, or the signature.
    pub(super) fn repeat(&mut self, now: Time) {
        let accepted = self.ballot.accepted.as_ref().filter(|_| !self.ballot.failed);
        let signed = self.ballot.signed.as_ref().map(|signed| signed.attempt);
        match accepted.map(|accepted| (accepted.stage, accepted.plan.attempt)) {
            Some((_, attempt)) if signed == Some(attempt) => self.send_vote(now),
            Some((Stage::Accepted | Stage::Promised, _)) => self.send_accept(now),
            Some(_) => {}
            None => self.announce(now, true),
        }
    }

    fn send_accept(&mut self, now: Time) {
        self.timers.set(Timer::Repeat, now + self.config.deadlines.repeat / 2);
        let Some(accepted) = &self.ballot.accepted else { return };
        let (round, attempt) = (accepted.plan.round, accepted.plan.attempt);
        let mut to = self.candidates(attempt);
        to.push(accepted.author);
        let message = Message::Accept {
            round,
            attempt,
            plan: accepted.digest,
            signed: self.ballot.signed.clone().map(Box::new),
            finished: Finished::default(),
        };
        self.send_all(to, &message);
    }

    /// A member repeats its Accept because it has not heard the Start.
    fn say_start_again(&mut self, to: NodeId, digest: Digest) {
        let Some(accepted) = self.ballot.accepted_plan(digest) else { return };
        let (round, attempt) = (accepted.plan.round, accepted.plan.attempt);
        if to != self.me && !self.ballot.reproposed {
            self.send(to, Message::Start { round, attempt, plan: digest });
        }
    }

    pub(super) fn on_accept(
        &mut self,
        now: Time,
        author: NodeId,
        plan: Digest,
        signed: Option<SignedHeader>,
    ) {
        let Some(accepted) = self.ballot.accepted_plan(plan) else { return };
        let voter = electorate(accepted.plan.voters, &self.head.members, &accepted.plan.members)
            .contains(&author);
        if accepted.author != self.me || !(voter || accepted.plan.position(author).is_some()) {
            return;
        }
        let signed = signed.filter(|s| s.header.parent == self.head_digest);
        self.ballot.accepts.entry(plan).or_default().insert(author, signed);
        if self.ballot.started.contains(&plan) {
            return self.say_start_again(author, plan);
        }
        self.try_start(now, plan);
    }

    /// As the plan's author: start it when all members have accepted and more than half of the
    /// voters have promised.
    fn try_start(&mut self, now: Time, digest: Digest) {
        let Some(accepted) = self.ballot.accepted_plan(digest) else { return };
        if self.ballot.started.contains(&digest) {
            return;
        }
        let plan = Arc::clone(&accepted.plan);
        let Some(accepts) = self.ballot.accepts.get(&digest) else { return };
        let voters = electorate(plan.voters, &self.head.members, &plan.members);
        let promised = voters.iter().filter(|voter| accepts.contains_key(voter)).count();
        let all = plan.members.iter().all(|member| accepts.contains_key(&member.node));
        if !all || promised * 2 <= voters.len() {
            return;
        }
        let signed = accepts.values().flatten().max_by_key(|s| s.attempt);
        let signed = signed.filter(|signed| self.can_commit(&signed.header)).cloned();
        let (round, attempt) = (plan.round, plan.attempt);
        self.ballot.started.insert(digest);
        self.ballot.reproposed = signed.is_some();
        match signed {
            Some(SignedHeader { header, .. }) => {
                self.gossip(Message::HeaderProposed(Box::new(SignedHeader { attempt, header })));
            }
            None => self.gossip(Message::Start { round, attempt, plan: digest }),
        }
        self.timers.set(Timer::Attempt, now + self.config.deadlines.accept);
    }

    /// Whether more than half of a header's voters are alive. If they are not, those who are go on
    /// without it: if it was committed after all, by nodes that are gone, that is another branch.
    fn can_commit(&self, header: &Header) -> bool {
        let voters = header.electorate(&self.head);
        let alive = voters.iter().filter(|voter| self.may_vote(**voter)).count();
        alive * 2 > voters.len()
    }

    pub(super) fn on_start(&mut self, now: Time, author: NodeId, plan: Digest) {
        let Some(accepted) = self.ballot.accepted_plan(plan) else { return };
        let stage = accepted.stage;
        if author != accepted.author || self.ballot.failed {
            return;
        }
        self.ballot.started.insert(plan);
        match stage {
            Stage::Accepted => {
                self.timers.clear(Timer::Repeat);
                self.begin();
            }
            Stage::Promised => {
                self.timers.clear(Timer::Repeat);
                let patience = self.config.deadlines.stall + self.config.deadlines.signatures;
                self.timers.set(Timer::Attempt, now + patience);
            }
            Stage::Linking | Stage::Running | Stage::Done => {}
        }
    }

    /// Runs the accepted plan: its ring watches its own progress from here on.
    fn begin(&mut self) {
        let ending = self.open() > self.last_round();
        let Some(plan) = self.ballot.accepted.as_ref().map(|a| Arc::clone(&a.plan)) else { return };
        let skip = self.skips_ring(&plan);
        if let Some(accepted) = self.ballot.accepted.as_mut() {
            accepted.stage = Stage::Running;
        }
        self.timers.clear(Timer::Attempt);
        let (round, attempt) = (plan.round, plan.attempt);
        self.effects.push_back(if skip {
            Effect::SkipRing { plan, jobs: !ending }
        } else {
            Effect::RunRing { round, attempt }
        });
    }

    pub(super) fn on_refused(
        &mut self,
        now: Time,
        author: NodeId,
        attempt: Attempt,
        plan: Digest,
        reason: Refusal,
    ) {
        if let Refusal::RootDiffers(root) = reason {
            self.on_root_differs(author, root);
        }
        if let Refusal::Promised(promised) = reason
            && self.head.position(author).is_some()
        {
            self.follow(now, promised.saturating_add(1));
        }
        let Some(accepted) = self.ballot.accepted_plan(plan) else {
            return self.follow_refusal(now, author, attempt);
        };
        let successor = successor(&accepted.plan, author);
        if attempt < self.ballot.attempt || accepted.plan.position(author).is_none() {
            return;
        }
        let blame = match &reason {
            Refusal::NoLink(to) if successor == Some(*to) => {
                self.ballot.refused_links.insert((author, *to));
                None
            }
            Refusal::RingFailed(blame) => *blame,
            Refusal::OtherHead { .. } | Refusal::Leaving => {
                // It will not take part in this round: twice blamed means left out.
                self.ballot.blames.entry(author).or_default().extend([attempt, attempt + 1]);
                Some(author)
            }
            _ => None,
        };
        if author != self.me && !self.ballot.failed {
            let promised = match reason {
                Refusal::Promised(promised) => promised.saturating_add(1),
                _ => 0,
            };
            self.give_up(now, blame, format!("{} refused: {reason}", author.short()));
            self.follow(now, promised);
        }
    }

    /// An attempt of which this node has no plan has failed for somebody: it will not wait for it.
    fn follow_refusal(&mut self, now: Time, author: NodeId, attempt: Attempt) {
        let known = author != self.me && self.roster.contains(author);
        let none = self.ballot.accepted.as_ref().is_none_or(|a| a.plan.attempt < attempt);
        if known && none {
            self.follow(now, attempt.saturating_add(1));
        }
    }

    /// Others are in a higher attempt: this node joins them, unless its own still runs.
    pub(super) fn follow(&mut self, now: Time, attempt: Attempt) {
        let ahead = attempt > self.ballot.attempt && attempt < MAX_ATTEMPTS;
        if !ahead || !self.ballot.is_free() {
            return;
        }
        self.ballot.move_to(attempt);
        self.ballot.blame = None;
        self.timers.clear(Timer::Attempt);
        self.announce(now, true);
        self.coordinate(now);
    }

    /// Another voter reports another root: who is alone with its own fetches the others' state.
    fn on_root_differs(&mut self, author: NodeId, root: Digest) {
        self.ballot.roots.insert(author, root);
        let voters = self.voters();
        let others = voters.iter().filter(|voter| **voter != self.me);
        let same = others.filter(|v| self.ballot.roots.get(v) == Some(&root)).count();
        if self.head_root != Some(root) && same * 2 > voters.len() {
            self.mode = super::Mode::Syncing;
            let reason = format!("most voters have root {root} after round {}", self.head.round);
            self.effects.push_back(Effect::Sync { reason, discard: true });
        }
    }

    pub(super) fn attempt_overdue(&mut self, now: Time) {
        let Some(accepted) = self.ballot.accepted.as_ref().filter(|_| !self.ballot.failed) else {
            // The plan that this node is not part of has led to nothing that it has heard of.
            return self.follow(now, self.ballot.attempt.saturating_add(1));
        };
        let plan = &accepted.plan;
        let (what, blame) = match accepted.stage {
            Stage::Linking => ("no link to the successor in time", None),
            Stage::Accepted => ("no start in time", self.silent(accepted.digest)),
            Stage::Running => return,
            Stage::Done => ("no certificate in time", None),
            Stage::Promised => ("no header in time", None),
        };
        let (round, attempt, digest) = (plan.round, plan.attempt, accepted.digest);
        let reason = Refusal::RingFailed(blame);
        self.gossip(Message::Refused { round, attempt, plan: digest, reason });
        self.give_up(now, blame, what.to_owned());
    }

    /// As the plan's author: a member that has not answered.
    fn silent(&self, plan: Digest) -> Option<NodeId> {
        let accepted = self.ballot.accepted_plan(plan).filter(|a| a.author == self.me)?;
        let accepts = self.ballot.accepts.get(&plan)?;
        let mut members = accepted.plan.members.iter().map(|member| member.node);
        members.find(|node| !accepts.contains_key(node))
    }

    /// Goes on to the next attempt.
    pub(super) fn give_up(&mut self, now: Time, blame: Option<NodeId>, reason: String) {
        let Some(accepted) = &self.ballot.accepted else { return };
        let (round, attempt) = (accepted.plan.round, accepted.plan.attempt);
        self.notify(Notice::AttemptFailed { round, attempt, reason });
        self.effects.push_back(Effect::AbortRing { round, attempt });
        self.ballot.move_to((attempt + 1).min(MAX_ATTEMPTS - 1));
        self.ballot.blame = blame;
        self.timers.clear(Timer::Attempt);
        self.announce(now, true);
        self.coordinate(now);
    }
}

/// Who comes after `node` in the ring, if anybody does.
fn successor(plan: &Plan, node: NodeId) -> Option<NodeId> {
    let position = plan.position(node)?;
    let next = &plan.members[(position + 1) % plan.members.len()];
    (next.node != node).then_some(next.node)
}
