//! Carrying out the node machine's effects, one arm each.

use std::{sync::Arc, time::Instant};

use super::{Driver, syncing};
use crate::{
    base::{Attempt, NodeId, Round},
    codec::Body,
    node::{
        books::Work,
        exchange::{Exchange, Order, result_of},
        training::Command,
    },
    proto::node::{Effect, Notice, Promise, SegmentStart},
    wire::{Certificate, Envelope, Header, Plan},
};

/// Messages published in a row before the loop looks at other news.
const BURST: usize = 256;

impl Driver {
    /// Carries out everything that the machines ask for.
    pub(super) async fn carry_out(&mut self) {
        for _ in 0..BURST {
            let Some(effect) = self.node.poll_effect() else { break };
            self.effect(effect).await;
        }
        self.carry_out_sync();
    }

    async fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, envelope } => self.send(to, &envelope),
            Effect::Gossip(envelope) => self.gossip(&envelope).await,
            Effect::Persist(promise) => self.persist(&promise),
            Effect::PrepareRing(plan) => self.prepare_ring(plan),
            Effect::RunRing { round, attempt } => self.run_ring(round, attempt),
            Effect::SkipRing { plan, jobs } => self.skip_ring(&plan, jobs),
            Effect::AbortRing { round, attempt } => self.abort_ring(round, attempt),
            Effect::FetchBody(header) => self.fetch_body(header),
            Effect::Commit(certificate) => self.commit(&certificate),
            Effect::Fold(header) => self.fold(header),
            Effect::StartSegment(start) => self.start_segment(start),
            Effect::Freeze { round, next } => {
                let anchor = Arc::clone(&self.anchor);
                self.tell_training(Command::Freeze { round, next, anchor });
            }
            Effect::Sync { reason, discard } => self.resync(&reason, discard),
            Effect::Notify(notice) => self.notice(notice),
            Effect::Finished => self.finished(),
            Effect::Left => self.left().await,
        }
    }

    /// Sends in a task of its own; when too many are under way it is dropped and said: the machines
    /// repeat what matters.
    fn send(&self, to: NodeId, envelope: &Envelope) {
        let Ok(permit) = Arc::clone(&self.sends).try_acquire_owned() else {
            tracing::warn!("too many messages under way; one to {} is dropped", to.short());
            return;
        };
        let (net, bytes, name) = (self.net.clone(), envelope.to_bytes(), envelope.message.name());
        self.tasks.spawn(async move {
            if let Err(error) = net.send(to, bytes.clone()).await {
                tracing::debug!("{name} did not reach {}: {error}", to.short());
            }
            drop(permit);
        });
    }

    async fn gossip(&mut self, envelope: &Envelope) {
        let (net, topic) = (self.net.clone(), self.topic.clone());
        match net.publish(&topic, envelope.to_bytes()).await {
            Ok(()) | Err(crate::net::NetError::NobodyListens) => {}
            Err(error) => tracing::debug!("{} is not gossiped: {error}", envelope.message.name()),
        }
    }

    /// A promise that cannot be written must not be given: the node stops.
    fn persist(&mut self, promise: &Promise) {
        let written = match promise {
            Promise::Attempt { round, attempt } => self.store.record_promise(*round, *attempt),
            Promise::Vote { attempt, header } => self.store.record_vote(*attempt, header),
        };
        if let Err(error) = written {
            self.fail(&error.to_string(), "free disk space and start the node again");
        }
    }

    fn prepare_ring(&mut self, plan: Arc<Plan>) {
        let (round, attempt) = (plan.round, plan.attempt);
        if let Some(old) = self.exchange.take() {
            old.abort();
        }
        let Some(pending) = self.pending.as_ref().filter(|p| p.frozen.round == round) else {
            let reason = "no pseudo-gradient is frozen for it".to_owned();
            let now = self.clock.now();
            return self.node.handle_ring_failed(now, (round, attempt), None, reason);
        };
        let store = self.store.clone();
        let deadlines = crate::proto::deadlines::Deadlines::default();
        let running = Exchange {
            identity: self.identity.clone(),
            specs: Arc::clone(&self.specs),
            delta: Arc::clone(&pending.delta),
            net: self.net.clone(),
            clock: self.clock,
            stall: deadlines.stall,
            link_timeout: deadlines.accept,
            store: Arc::new(move |round, bytes: &[u8]| {
                store.put_body(round, bytes).map_err(|error| error.to_string())
            }),
            plan,
        }
        .spawn(&self.tasks, self.exchange_said.clone());
        self.tally.exchange_started = Some(Instant::now());
        self.exchange = Some(running);
        self.match_streams();
    }

    /// Hands streams that came before their plan to the exchange that they belong to.
    pub(super) fn match_streams(&mut self) {
        let Some(exchange) = &self.exchange else { return };
        let waiting = std::mem::take(&mut self.waiting_streams);
        for (since, hello, stream) in waiting {
            if hello.plan == exchange.plan {
                exchange.order(Order::Stream(stream));
            } else if since.elapsed() < super::STREAM_PATIENCE {
                self.waiting_streams.push((since, hello, stream));
            }
        }
    }

    fn run_ring(&mut self, round: Round, attempt: Attempt) {
        let running = self.exchange.as_ref().filter(|e| (e.round, e.attempt) == (round, attempt));
        if !running.is_some_and(|exchange| exchange.order(Order::Run)) {
            let now = self.clock.now();
            let reason = "its exchange is gone".to_owned();
            self.node.handle_ring_failed(now, (round, attempt), None, reason);
        }
    }

    fn skip_ring(&mut self, plan: &Plan, jobs: bool) {
        let body = Body::empty(if jobs { self.specs.len() } else { 0 });
        let bytes = body.to_bytes();
        let now = self.clock.now();
        let attempt = (plan.round, plan.attempt);
        let stored = self.store.put_body(plan.round, &bytes).map_err(|error| error.to_string());
        match stored.and_then(|()| result_of(plan, &body, &bytes)) {
            Ok(result) => self.node.handle_ring_finished(now, attempt, &result),
            Err(reason) => self.node.handle_ring_failed(now, attempt, None, reason),
        }
    }

    fn abort_ring(&mut self, round: Round, attempt: Attempt) {
        if let Some(exchange) = &self.exchange
            && (exchange.round, exchange.attempt) == (round, attempt)
        {
            exchange.abort();
            self.exchange = None;
        }
    }

    fn fetch_body(&mut self, header: Box<Header>) {
        let members: Vec<NodeId> =
            header.members.iter().map(|m| m.node).filter(|n| *n != self.me).collect();
        let (net, bodies) = (self.net.clone(), self.bodies.clone());
        self.tasks.spawn(async move {
            let body = syncing::fetch_body(&net, &header, &members).await;
            let _ = bodies.send((header, body)).await;
        });
    }

    fn commit(&mut self, certificate: &Certificate) {
        if let Err(error) = self.store.append_certificate(certificate) {
            self.fail(&error.to_string(), "free disk space and start the node again");
        }
        // What was promised in rounds that are committed binds nobody any more.
        if let Err(error) = self.store.forget_votes_below(certificate.header.round) {
            tracing::warn!("{error}");
        }
        self.served.set_head(&certificate.header);
    }

    pub(super) fn fold(&mut self, header: Box<Header>) {
        let delta = self
            .pending
            .as_ref()
            .filter(|pending| pending.frozen.round <= header.round)
            .map(|pending| (pending.frozen.round, Arc::clone(&pending.delta)));
        if !self.books.ask(Work::Fold { header, delta }) {
            self.fail("the fold thread has ended", "start the node again");
        }
    }

    fn start_segment(&mut self, start: SegmentStart) {
        let anchor = Arc::clone(&self.anchor);
        self.tell_training(Command::Start { start, anchor });
    }

    pub(super) fn tell_training(&mut self, command: Command) {
        if let Some(training) = &self.training
            && !training.tell(command)
        {
            self.fail("the training thread has ended", "look at the errors above");
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::PeerJoined(peer) => {
                self.dial_present(peer);
                self.say_peer(peer, None);
            }
            Notice::PeerLeft { node, reason } => self.say_peer(node, Some(reason)),
            Notice::Closing { round, reason } => tracing::info!("round {round} closes: {reason}"),
            Notice::AttemptFailed { round, attempt, reason } => {
                tracing::warn!("round {round}, attempt {attempt} is given up: {reason}");
            }
            Notice::Committed { round, attempt, members, .. } => {
                self.tally.committed(round, attempt, &members);
            }
            Notice::Orphaned { round, header } => self.warn(
                &format!(
                    "nobody alive has the body of header {header}: round {round} is open again"
                ),
                "nothing needs to be done; those who have it may come back with another branch",
            ),
            Notice::Fork { round, header } => self.warn(
                &format!("another branch has committed header {header} for round {round}"),
                "the branch with more trained weight goes on; nothing needs to be done",
            ),
        }
    }

    fn finished(&mut self) {
        self.finished_at = Some(Instant::now());
        self.say_finished();
    }

    /// Goodbye is on its way: give it a moment, then end.
    async fn left(&mut self) {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        self.left = true;
        if self.finished_at.is_none() {
            self.say_stopped();
        }
    }
}
