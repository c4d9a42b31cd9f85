//! News from outside the machines, one handler a source.

use std::{sync::Arc, time::Instant};

use super::{Driver, Pending};
use crate::{
    base::{Attempt, Digest, NodeId, Round},
    checkpoint::store::{self, LocalState},
    net::{IncomingBulk, NetEvent},
    node::{
        books::{Done, Work},
        exchange::Outcome,
        training::{
            Command, FreezeReport, Report,
            vectors::{Fragments, Shared},
        },
    },
    observe::Event,
    wire::{BulkHello, Envelope, Header, VERSION, codec},
};

impl Driver {
    pub(super) fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::Listening(_) => self.addresses_changed(),
            NetEvent::PeerConnected { node, .. } => {
                tracing::debug!("connected to {}", node.short())
            }
            NetEvent::PeerDisconnected { node } => {
                let now = self.clock.now();
                self.node.handle_link_lost(now, node);
                self.donor_gone(node);
            }
            NetEvent::Gossip { topic, bytes, from, .. } if topic == self.topic => {
                self.on_envelope(from, &bytes);
            }
            NetEvent::Gossip { .. } => {}
            NetEvent::Message { from, bytes } => self.on_envelope(from, &bytes),
            NetEvent::Request { from, bytes, channel } => {
                self.server.serve(&self.net, from, bytes, channel);
            }
            NetEvent::BulkStream(stream) => self.on_stream(stream),
            NetEvent::DialFailed { node, error, .. } => {
                tracing::debug!("{} cannot be dialled: {error}", short(node));
            }
            NetEvent::BootstrapUnreachable { addr, error, attempt, retry_in } => {
                let address = addr.to_string();
                self.emitter
                    .emit(crate::node::start::unreachable(address, error, attempt, retry_in));
            }
            NetEvent::BootstrapReached { addr, .. } => tracing::info!("reached {addr}"),
        }
    }

    fn on_envelope(&mut self, from: NodeId, bytes: &[u8]) {
        match Envelope::open(bytes, self.founded.run_id()) {
            Ok(envelope) => {
                let now = self.clock.now();
                if let Some(syncing) = &mut self.syncing {
                    syncing.overhear(now, &envelope);
                }
                self.node.handle_envelope(now, envelope);
            }
            Err(error) => tracing::debug!("a message from {} is dropped: {error}", from.short()),
        }
    }

    /// A predecessor offers its stream: hand it to its exchange, or keep it for a moment if the
    /// plan has not come yet.
    fn on_stream(&mut self, stream: IncomingBulk) {
        let refuse = |stream: IncomingBulk, reason: &'static str| {
            self.tasks.spawn(async move {
                let _ = stream.refuse(reason).await;
            });
        };
        let hello = match codec::decode::<BulkHello, 1024>(stream.hello()) {
            Ok(hello) if hello.version == VERSION => hello,
            _ => return refuse(stream, "its hello is malformed or of another version"),
        };
        if hello.run != self.founded.run_id() || hello.from != stream.from() {
            return refuse(stream, "its hello names another run or another sender");
        }
        let open = self.node.head().round + 1;
        if hello.round < open || hello.round > open + 1 {
            return refuse(stream, "its round is not open here");
        }
        if self.waiting_streams.len() >= super::WAITING_STREAMS {
            self.waiting_streams.remove(0);
        }
        self.waiting_streams.push((Instant::now(), hello, stream));
        self.match_streams();
    }

    pub(super) fn on_exchange(&mut self, (round, attempt, outcome): (Round, Attempt, Outcome)) {
        let now = self.clock.now();
        match outcome {
            Outcome::Ready => self.node.handle_ring_ready(now, round, attempt),
            Outcome::Finished { result, sent, received } => {
                self.tally.moved(sent, received);
                self.tally.exchange_ended = Some(Instant::now());
                self.node.handle_ring_finished(now, (round, attempt), &result);
            }
            Outcome::Failed { blame, reason, sent, received } => {
                self.tally.moved(sent, received);
                self.node.handle_ring_failed(now, (round, attempt), blame, reason);
            }
        }
    }

    pub(super) fn on_training(&mut self, report: Report) {
        let now = self.clock.now();
        match report {
            Report::Step { round, steps, sequences, local_steps, learning_rate, step } => {
                self.emitter.emit(Event::Step {
                    round,
                    step: steps,
                    local_steps,
                    loss: step.loss,
                    gradient_norm: step.grad_norm,
                    learning_rate,
                    tokens: step.tokens,
                    seconds: step.seconds,
                });
                self.node.handle_progress(now, steps, sequences);
            }
            Report::Frozen(Some(report)) => self.on_frozen(*report),
            Report::Frozen(None) => {
                self.warn(
                    "the pseudo-gradient is not finite: this node leaves the round and trains on \
                     from the anchor",
                    "if it happens again, lower inner.learning_rate in a new run",
                );
                self.node.handle_frozen(now, None);
            }
            Report::Validated { round, loss, seconds } => self.on_validated(round, loss, seconds),
            Report::Unusable(what) => self.warn(
                &format!("{what}; training goes on from the anchor"),
                "if it happens again, lower inner.learning_rate in a new run",
            ),
            Report::Failed(error) => {
                self.fail(&format!("training cannot go on: {error}"), "start the node again");
            }
        }
    }

    /// A segment is frozen: write it down before anybody hears of it, so that a crash from here on
    /// costs only the segment that follows.
    fn on_frozen(&mut self, report: FreezeReport) {
        let now = self.clock.now();
        let frozen = report.frozen;
        let local = LocalState {
            round: frozen.round,
            contributed: self.tally.contributed,
            trained: self.tally.sequences,
            error: Vec::new(),
            frozen: Some(store::Frozen {
                round: frozen.round,
                weight: frozen.weight,
                delta: report.delta.to_vec(),
            }),
            moments: report.moments.clone(),
        };
        if let Err(error) = self.store.save_local(&local, report.lease) {
            self.warn(
                &format!("the local state cannot be written: {error}"),
                "free disk space: a crash now would cost the running round",
            );
        }
        self.tally.sequences += report.totals.sequences;
        self.say_round(&report);
        self.pending = Some(Pending { frozen, delta: report.delta });
        self.node.handle_frozen(now, Some(frozen));
    }

    pub(super) fn on_books(&mut self, done: Done) {
        match done {
            Done::Folded { header, anchor, residual, contributed } => {
                self.on_folded(&header, anchor, residual, contributed);
            }
            Done::Root { round, root } => self.on_root(round, root),
            Done::Installed { round, root, anchor } => self.on_installed(round, root, anchor),
            Done::Checked { header, valid } => self.on_checked(&header, valid),
            Done::Snapshot { round, bytes, seconds } => {
                self.emitter.emit(Event::Snapshot { round, bytes, seconds });
            }
            Done::SnapshotFailed { round, error } => self.warn(
                &format!("the snapshot after round {round} cannot be written: {error}"),
                "free disk space; the run goes on, and the next snapshot is tried as usual",
            ),
            Done::Failed { round, error } => self.on_fold_failed(round, error),
        }
    }

    fn on_folded(
        &mut self,
        header: &Header,
        anchor: Shared,
        residual: Option<Fragments>,
        contributed: bool,
    ) {
        let now = self.clock.now();
        self.anchor = Arc::clone(&anchor);
        if residual.is_some() {
            let frozen = self.pending.take().map(|pending| pending.frozen);
            if let (false, Some(frozen)) = (contributed, frozen)
                && frozen.weight > 0
            {
                self.say_missed(frozen.round, "the round was committed without this node's part");
            }
        }
        if contributed {
            self.tally.contributed = header.round;
        }
        self.served.set_head(header);
        self.tell_training(Command::Folded { anchor, residual });
        self.say_exchange(header, contributed);
        if self.replaying {
            return self.replayed(header.round);
        }
        self.node.handle_folded(now, header.round);
        self.validate_in_turn(header);
    }

    fn on_root(&mut self, round: Round, root: Digest) {
        let now = self.clock.now();
        self.say_committed(round, root);
        if self.replaying {
            return self.replayed_root(round, root);
        }
        self.node.handle_root(now, round, root);
        if self.last_round.is_some_and(|last| round >= last) && round <= self.manifest.run.rounds {
            self.last_round = None;
            self.leave("the round given with --rounds is committed");
        }
    }

    fn on_fold_failed(&mut self, round: Round, error: String) {
        if self.replaying {
            return self.replay_failed(round, error);
        }
        self.fail(
            &format!("round {round} cannot be folded: {error}"),
            "start the node again: it fetches what is missing from its peers",
        );
    }

    /// A body that was fetched for the node machine is here: store it, then check it.
    pub(super) fn on_body(&mut self, header: Box<Header>, body: Result<Vec<u8>, String>) {
        match body {
            Ok(bytes) => {
                if let Err(error) = self.store.put_body(header.round, &bytes) {
                    return self.warn(&error.to_string(), "free disk space");
                }
                self.books.ask(Work::Check { header });
            }
            Err(reason) => {
                tracing::info!("the body of round {} is not to be had: {reason}", header.round);
                // Proposed only: others vote without this node. Committed: it must be had.
                if self.store.head_round() >= header.round {
                    self.resync(
                        &format!("no member gave the body of round {}", header.round),
                        false,
                    );
                }
            }
        }
    }

    fn on_checked(&mut self, header: &Header, valid: Result<(), String>) {
        let now = self.clock.now();
        match valid {
            Ok(()) => self.node.handle_body_stored(now, header.digest()),
            Err(error) => tracing::warn!("a proposed header is not signed: {error}"),
        }
    }

    /// Measures an anchor, if this node trains.
    pub(super) fn validate(&mut self, round: Round) {
        let anchor = Arc::clone(&self.anchor);
        self.tell_training(Command::Validate { round, anchor });
    }

    /// One member measures each anchor, so that it costs nobody much; everybody the last one.
    fn validate_in_turn(&mut self, header: &Header) {
        let first = header.members.first().is_some_and(|member| member.node == self.me);
        if header.round <= self.manifest.run.rounds
            && (first || header.round == self.manifest.run.rounds)
        {
            self.validate(header.round);
        }
    }
}

fn short(node: Option<NodeId>) -> String {
    node.map_or_else(|| "a peer".to_owned(), |node| node.short())
}
