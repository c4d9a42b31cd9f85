//! Carrying a machine's effects out in the simulated world: what the node's driver does for real.

use std::sync::Arc;

use crate::{
    base::NodeId,
    proto::node::{Effect, Notice, Promise, SegmentStart},
    sim::{event::Event, exchange::skipped, invariants::Fact, network::millis, world::World},
    wire::{Certificate, Envelope, Header, Message},
};

impl World {
    /// Carries out everything that a peer's machine asks for, then sets its next wake-up.
    pub(super) fn pump(&mut self, peer: usize) {
        while let Some(process) = self.peers[peer].process.as_mut() {
            let Some(effect) = process.node.poll_effect() else { break };
            self.peers[peer].effects += 1;
            self.carry_out(peer, effect);
            if self.dies_now(peer) {
                self.crash(peer);
            }
        }
        self.rearm(peer);
        self.check(peer);
    }

    fn carry_out(&mut self, peer: usize, effect: Effect) {
        let (me, boot) = (self.peers[peer].id, self.peers[peer].disk.boot);
        match effect {
            Effect::Send { to, envelope } => {
                self.sent(peer, &envelope.message);
                self.send(peer, to, Arc::new(*envelope));
            }
            Effect::Gossip(envelope) => {
                self.sent(peer, &envelope.message);
                self.gossip(peer, Arc::new(*envelope));
            }
            Effect::Persist(promise) => self.persist(peer, promise),
            Effect::PrepareRing(plan) => {
                self.see(&Fact::Prepared { node: me, plan: &plan });
                self.note(peer, &format!("takes plan {}.{}", plan.round, plan.attempt));
                self.prepare_ring(peer, plan);
            }
            Effect::RunRing { round, attempt } => self.run_ring(peer, (round, attempt)),
            Effect::SkipRing { plan, jobs } => {
                let outcome = skipped(&plan, jobs, &self.problem);
                let (round, attempt, plan) = (plan.round, plan.attempt, plan.digest());
                self.skipped.insert(plan, Arc::new(outcome));
                let event = Event::Skipped { peer, boot, round, attempt, plan };
                self.queue.push(self.moment(), event);
            }
            Effect::AbortRing { round, attempt } => self.abort_ring(peer, (round, attempt)),
            Effect::FetchBody(header) => {
                self.queue.push(self.moment(), Event::FetchBody { peer, boot, header });
            }
            Effect::Commit(certificate) => self.commit(peer, *certificate),
            Effect::Fold(header) => {
                let at = self.now + millis(self.scenario.peers.fold_ms);
                self.queue.push(at, Event::Folded { peer, boot, header });
            }
            Effect::StartSegment(start) => self.start_segment(peer, start),
            Effect::Freeze { round, next } => self.ask_freeze(peer, round, next),
            Effect::Sync { reason, discard } => {
                self.note(peer, &format!("syncs: {reason}"));
                self.begin_sync(peer, discard);
            }
            Effect::Notify(notice) => self.notice(peer, &notice),
            Effect::Finished => {
                self.note(peer, "finished");
                if let Some(process) = self.peers[peer].process.as_mut() {
                    process.finished = true;
                }
            }
            Effect::Left => {
                self.note(peer, "left");
                self.peers[peer].left = true;
                self.stop(peer);
            }
        }
    }

    fn persist(&mut self, peer: usize, promise: Promise) {
        let node = self.peers[peer].id;
        let parent = self.parent_of(peer);
        self.see(&Fact::Persisted { node, parent, promise: &promise });
        let disk = &mut self.peers[peer].disk;
        match promise {
            Promise::Attempt { round, attempt } => disk.promised = Some((round, attempt)),
            Promise::Vote { attempt, header } => disk.signed = Some((attempt, *header)),
        }
    }

    fn parent_of(&self, peer: usize) -> crate::base::Digest {
        let process = self.peers[peer].process.as_ref();
        process.map_or(self.genesis.digest(), |process| process.node.head().digest())
    }

    fn commit(&mut self, peer: usize, certificate: Certificate) {
        let node = self.peers[peer].id;
        let Some(process) = self.peers[peer].process.as_ref() else { return };
        let parent = process.node.head().clone();
        self.see(&Fact::Committed { node, certificate: &certificate, parent: &parent });
        self.counters.commit(self.now, &certificate);
        let disk = &mut self.peers[peer].disk;
        // What lies above the parent is of a branch that was left.
        disk.ledger.truncate(parent.round as usize);
        disk.ledger.push(certificate);
    }

    fn sent(&mut self, peer: usize, message: &Message) {
        let node = self.peers[peer].id;
        let parent = self.parent_of(peer);
        self.counters.control_messages += 1;
        self.see(&Fact::Sent { node, parent, message });
        if self.trace.verbose && !matches!(message, Message::Presence(_)) {
            self.note(peer, &format!("says {}", brief(message)));
        }
    }

    fn send(&mut self, from: usize, to: NodeId, envelope: Arc<Envelope>) {
        let Some(to) = self.index_of(to) else { return };
        self.transmit(from, to, envelope, false);
    }

    fn transmit(&mut self, from: usize, to: usize, envelope: Arc<Envelope>, gossip: bool) {
        let Some(after) = self.network.deliver(from, to) else { return };
        if self.is_up(to) {
            self.queue.push(self.now + after, Event::Deliver { from, to, envelope, gossip });
        }
    }

    fn gossip(&mut self, from: usize, envelope: Arc<Envelope>) {
        for to in (0..self.peers.len()).filter(|&to| to != from) {
            self.transmit(from, to, Arc::clone(&envelope), true);
        }
    }

    /// A control message arrives; gossip is forwarded once.
    pub(super) fn deliver(
        &mut self,
        from: usize,
        to: usize,
        envelope: Arc<Envelope>,
        gossip: bool,
    ) {
        let own = self.peers[to].id == envelope.author;
        let Some(process) = self.peers[to].process.as_mut() else { return };
        if gossip {
            let id = (envelope.author, envelope.boot, envelope.sequence);
            if own || !process.is_new(id) {
                return;
            }
            for next in (0..self.peers.len()).filter(|&next| next != from && next != to) {
                if self.peers[next].id != envelope.author {
                    self.transmit(to, next, Arc::clone(&envelope), true);
                }
            }
        }
        let now = self.now;
        if let Some(process) = self.peers[to].process.as_mut() {
            process.node.handle_envelope(now, Envelope::clone(&envelope));
        }
        self.pump(to);
    }

    fn notice(&mut self, peer: usize, notice: &Notice) {
        match notice {
            Notice::AttemptFailed { round, attempt, reason } => {
                self.counters.failed_attempts += 1;
                self.note(peer, &format!("gives up {round}.{attempt}: {reason}"));
            }
            Notice::Committed { round, attempt, members, .. } => {
                let members = members.len();
                self.note(peer, &format!("commits {round}.{attempt} with {members} members"));
            }
            other => self.note(peer, &format!("{other:?}")),
        }
    }

    /// A line about a peer.
    pub(super) fn note(&mut self, peer: usize, text: &str) {
        self.trace.line(self.now, &format!("  {peer} {text}"));
    }

    fn start_segment(&mut self, peer: usize, start: SegmentStart) {
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        process.trainer.start(start, &process.state);
        process.life += 1;
        process.stepping = false;
        self.next_step(peer);
    }

    /// A committed header that is folded here already is not fetched again.
    pub(super) fn is_folded(&self, peer: usize, header: &Header) -> bool {
        let process = self.peers[peer].process.as_ref();
        process.is_none_or(|process| process.state.round >= header.round)
    }
}

fn brief(message: &Message) -> String {
    match message {
        Message::Ready(ready) => format!("ready {}.{}", ready.round, ready.attempt),
        Message::Propose(plan) => format!(
            "propose {}.{} of {} voters {:?}",
            plan.round,
            plan.attempt,
            plan.members.len(),
            plan.voters
        ),
        Message::Accept { round, attempt, signed, .. } => {
            format!("accept {round}.{attempt} signed {:?}", signed.as_ref().map(|s| s.attempt))
        }
        Message::Refused { round, attempt, reason, .. } => {
            format!("refused {round}.{attempt}: {reason}")
        }
        Message::Start { round, attempt, .. } => format!("start {round}.{attempt}"),
        Message::Voted { round, attempt, .. } => format!("voted {round}.{attempt}"),
        Message::Closing { round, attempt, .. } => format!("closing {round}.{attempt}"),
        Message::HeaderProposed(signed) => {
            format!("header {}.{}", signed.header.round, signed.attempt)
        }
        Message::Committed(certificate) => format!("committed {}", certificate.header.round),
        Message::Presence(_) | Message::Goodbye => message.name().to_owned(),
    }
}
