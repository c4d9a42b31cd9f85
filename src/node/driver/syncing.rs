//! Fetching what this node lacks: the sync machine between the network, the store and the books.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, task::AbortHandle};

use super::Driver;
use crate::{
    base::{Digest, NodeId, Round, Time},
    net::Net,
    node::{
        ask::{self, CHUNK},
        books::Work,
        training::{Command, vectors::Shared},
    },
    observe::Event,
    proto::{
        deadlines::Deadlines,
        sync::{
            Effect, FetchFailure, IndexReader, Outcome, RequestId, Sync, SyncConfig, SyncLimits,
        },
    },
    wire::{
        Envelope, Header, Message,
        fetch::{Reply, Request},
    },
};

/// How often the members of a header are asked for its body, and how long after a refusal: they may
/// still be writing it.
const BODY_TRIES: u32 = 20;
const BODY_RETRY: Duration = Duration::from_secs(1);

/// A sync under way.
pub(super) struct Syncing {
    pub(super) machine: Sync,
    replies: mpsc::Receiver<(RequestId, Result<Reply, FetchFailure>)>,
    reply_to: mpsc::Sender<(RequestId, Result<Reply, FetchFailure>)>,
    fetches: BTreeMap<RequestId, AbortHandle>,
    since: Instant,
    bytes: u64,
    said: Option<Instant>,
    /// The newest two headers of what is folded.
    chain: Vec<Header>,
    root: Option<Digest>,
    caught_up: bool,
}

impl Syncing {
    /// A presence or certificate that passes by is news for the sync too.
    pub(super) fn overhear(&mut self, now: Time, envelope: &Envelope) {
        match &envelope.message {
            // Whoever fetches itself says a head that it does not have yet, or genesis.
            Message::Presence(presence) if !presence.fetching => {
                self.machine.handle_donor(now, envelope.author, presence.head);
            }
            Message::Goodbye => self.machine.handle_donor_gone(now, envelope.author),
            Message::Committed(certificate) => {
                self.machine.handle_certificate(now, certificate);
            }
            _ => {}
        }
    }

    fn keep(&mut self, header: Header) {
        self.chain.push(header);
        if self.chain.len() > 2 {
            self.chain.remove(0);
        }
    }
}

/// The next reply of a running sync; for ever none if there is no sync.
pub(super) async fn replies(
    syncing: &mut Option<Syncing>,
) -> Option<(RequestId, Result<Reply, FetchFailure>)> {
    match syncing {
        Some(syncing) => syncing.replies.recv().await,
        None => std::future::pending().await,
    }
}

impl Driver {
    /// Starts from a state whose newest headers are `chain`.
    pub(super) fn start_sync(&mut self, chain: Vec<Header>, root: Digest) {
        let state_round = chain.last().map_or(0, |header| header.round);
        let genesis = Header::genesis(&self.founded);
        let layout = Arc::new(self.manifest.layout());
        let elements = layout.elements() as u64;
        let config = SyncConfig {
            run: self.founded.run_id(),
            genesis,
            seed: Digest(self.me.0),
            state_bytes: 8 * elements,
            index: IndexReader::of_layout(layout),
            limits: SyncLimits::for_elements(elements),
        };
        let have = match self.store.have(state_round, root) {
            Ok(have) => have,
            Err(error) => {
                return self.fail(&error.to_string(), "move the run's folder away and join again");
            }
        };
        let (reply_to, replies) = mpsc::channel(64);
        let mut machine = Sync::new(config, have);
        let now = self.clock.now();
        for (node, peer) in self.node.roster().iter().filter(|(_, peer)| !peer.presence.fetching) {
            machine.handle_donor(now, node, peer.presence.head);
        }
        self.replaying = true;
        self.syncing = Some(Syncing {
            machine,
            replies,
            reply_to,
            fetches: BTreeMap::new(),
            since: Instant::now(),
            bytes: 0,
            said: None,
            chain,
            root: Some(root),
            caught_up: false,
        });
    }

    /// The node machine says that it is behind, or that its state is wrong.
    pub(super) fn resync(&mut self, reason: &str, discard: bool) {
        if self.syncing.is_some() {
            return;
        }
        tracing::info!("fetching what is missing: {reason}");
        if discard {
            return self.discard_state(reason);
        }
        let head = self.node.head().clone();
        let root = self.node.head_root().unwrap_or(Digest([0; 32]));
        self.start_sync(vec![head], root);
    }

    /// The own state is not that of the others: start again from genesis, with none of the own
    /// snapshots; bodies are checked against their headers and may stay.
    fn discard_state(&mut self, reason: &str) {
        self.warn(
            &format!("this node's state is wrong and is replaced: {reason}"),
            "test this machine's memory if it happens again",
        );
        self.syncing = None;
        let dropped = self.store.drop_snapshots();
        self.stored(dropped);
        self.books.ask(Work::Reset);
    }

    pub(super) fn donor_gone(&mut self, node: NodeId) {
        let now = self.clock.now();
        if let Some(syncing) = &mut self.syncing {
            syncing.machine.handle_donor_gone(now, node);
        }
    }

    pub(super) fn on_reply(&mut self, id: RequestId, reply: Result<Reply, FetchFailure>) {
        let now = self.clock.now();
        if let Some(syncing) = &mut self.syncing {
            syncing.fetches.remove(&id);
            if let Ok(Reply::Bytes(bytes)) = &reply {
                syncing.bytes += bytes.len() as u64;
            }
            syncing.machine.handle_reply(now, id, reply);
        }
    }

    /// Carries out what the sync asks for.
    pub(super) fn carry_out_sync(&mut self) {
        while let Some(effect) = self.syncing.as_mut().and_then(|s| s.machine.poll_effect()) {
            self.sync_effect(effect);
        }
        self.go_on_alone();
        self.say_sync();
    }

    /// The state stands at the end of this node's own ledger and nobody is there who could know
    /// more: take part from here, at once where nobody is waited for, else after one lifetime of a
    /// presence, and only if the network is reached at all.
    fn go_on_alone(&mut self) {
        let Some(syncing) = &self.syncing else { return };
        let progress = syncing.machine.progress();
        let at_the_end = progress.state_round == progress.head_round
            && progress.head_round == self.store.head_round()
            && progress.head_round > 0;
        let donors = self.node.roster().iter().any(|(_, peer)| !peer.presence.fetching);
        let lifetime = Deadlines::default().lifetime(1, Duration::ZERO);
        let waited = syncing.since.elapsed() >= lifetime && !self.net.connected().is_empty();
        if !at_the_end || donors || !(self.lone || waited) {
            return;
        }
        if let Some(syncing) = &mut self.syncing {
            syncing.caught_up = true;
        }
        self.adopt_if_ready();
    }

    fn sync_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Fetch { id, node, request, timeout } => self.fetch(id, node, request, timeout),
            Effect::Cancel { id } => {
                if let Some(fetch) = self.syncing.as_mut().and_then(|s| s.fetches.remove(&id)) {
                    fetch.abort();
                }
            }
            Effect::StoreCertificate(certificate) => {
                let stored = self.store.append_certificate(&certificate);
                self.stored(stored);
                self.served.set_head(&certificate.header);
            }
            Effect::StoreIndex { round, bytes } => {
                let stored = self.store.begin_partial(round, &bytes);
                self.stored(stored);
            }
            Effect::StoreLeaf { round, leaf, bytes } => {
                let stored = self.store.put_partial_leaf(round, leaf, &bytes);
                self.stored(stored);
            }
            Effect::StoreBody { round, bytes } => {
                let stored = self.store.put_body(round, &bytes);
                self.stored(stored);
            }
            Effect::DropPartial { round } => {
                let dropped = self.store.drop_partial(round);
                self.stored(dropped);
            }
            Effect::InstallSnapshot { round } => {
                let finished = self.store.finish_partial(round);
                self.stored(finished);
                self.books.ask(Work::Install { round });
            }
            Effect::Fold { round } => match self.store.header(round) {
                Some(header) => self.fold(Box::new(header)),
                None => self.replay_failed(round, "its header is not stored".to_owned()),
            },
            Effect::CaughtUp { round } => self.caught_up(round),
            Effect::Stuck { reason } => self.say_sync_stuck(reason),
            Effect::RootMismatch { round, have, want } => self.discard_state(&format!(
                "after round {round} it is {have}, and the ledger says {want}"
            )),
            Effect::Blame { node, fault } => {
                tracing::warn!("{} is not asked any more: {fault}", node.short());
            }
            Effect::Diverged { node, round, .. } => {
                tracing::warn!("{} stands on another branch since round {round}", node.short());
            }
        }
    }

    fn stored<T>(&mut self, stored: Result<T, crate::checkpoint::store::StoreError>) {
        if let Err(error) = stored {
            self.fail(&error.to_string(), "free disk space and start the node again: it resumes");
        }
    }

    fn fetch(
        &mut self,
        id: RequestId,
        node: NodeId,
        request: Request,
        timeout: std::time::Duration,
    ) {
        let Some(syncing) = &mut self.syncing else { return };
        let (net, reply_to) = (self.net.clone(), syncing.reply_to.clone());
        let task = self.tasks.spawn(async move {
            let reply = ask::ask(&net, node, &request, timeout).await;
            let _ = reply_to.send((id, reply)).await;
        });
        syncing.fetches.insert(id, task.abort_handle());
    }

    /// A round that the sync asked for is folded; its root follows.
    pub(super) fn replayed(&mut self, round: Round) {
        let now = self.clock.now();
        let header = self.store.header(round);
        if let (Some(syncing), Some(header)) = (&mut self.syncing, header) {
            syncing.keep(header);
            syncing.root = None;
            syncing.machine.handle_replayed(now, round, Outcome::DoneWithoutRoot);
        }
    }

    pub(super) fn replayed_root(&mut self, round: Round, root: Digest) {
        let now = self.clock.now();
        if let Some(syncing) = &mut self.syncing {
            syncing.root = Some(root);
            syncing.machine.handle_root(now, round, root);
        }
        self.adopt_if_ready();
    }

    pub(super) fn replay_failed(&mut self, round: Round, error: String) {
        let now = self.clock.now();
        if let Some(syncing) = &mut self.syncing {
            syncing.machine.handle_replayed(now, round, Outcome::Failed(error));
        }
    }

    pub(super) fn on_installed(&mut self, round: Round, root: Digest, anchor: Shared) {
        let now = self.clock.now();
        self.anchor = Arc::clone(&anchor);
        self.tell_training(Command::Restart { anchor, keep_error: true });
        if self.syncing.is_none() {
            return self.start_sync(vec![Header::genesis(&self.founded)], root);
        }
        let previous = round.checked_sub(1).and_then(|before| self.store.header(before));
        let headers = previous.into_iter().chain(self.store.header(round));
        if let Some(syncing) = &mut self.syncing {
            syncing.chain.clear();
            headers.for_each(|header| syncing.keep(header));
            syncing.root = Some(root);
            syncing.machine.handle_replayed(now, round, Outcome::Done(root));
        }
    }

    fn caught_up(&mut self, round: Round) {
        if let Some(syncing) = &mut self.syncing {
            let head = syncing.chain.last().map_or(0, |header| header.round);
            syncing.caught_up = head == round;
        }
        self.adopt_if_ready();
    }

    /// Takes part, once the state stands at the head and its root is known.
    fn adopt_if_ready(&mut self) {
        let ready = self.syncing.as_ref().is_some_and(|s| s.caught_up && s.root.is_some());
        if !ready {
            return;
        }
        let Some(syncing) = self.syncing.take() else { return };
        syncing.fetches.values().for_each(AbortHandle::abort);
        self.replaying = false;
        let root = syncing.root.unwrap_or(Digest([0; 32]));
        let round = syncing.chain.last().map_or(0, |header| header.round);
        if self.pending.as_ref().is_some_and(|pending| pending.frozen.round <= round) {
            self.pending = None;
        }
        let now = self.clock.now();
        self.node.adopt(now, &syncing.chain, root);
        self.say_joined(round, syncing.bytes);
        if round > self.manifest.run.rounds {
            self.validate(self.manifest.run.rounds);
        }
    }

    fn say_sync(&mut self) {
        let Some(syncing) = &mut self.syncing else { return };
        let progress = syncing.machine.progress();
        let quiet = syncing.said.is_some_and(|at| at.elapsed().as_millis() < 500);
        if quiet || progress.claimed_round == 0 || progress.claimed_round == progress.state_round {
            return;
        }
        syncing.said = Some(Instant::now());
        self.emitter.emit(Event::SyncProgress {
            round: progress.state_round,
            target_round: progress.claimed_round,
            bytes: syncing.bytes,
            total_bytes: syncing.bytes + progress.bytes_left,
            donors: self.node.roster().len(),
        });
    }

    fn say_sync_stuck(&self, reason: String) {
        let seconds = self.syncing.as_ref().map_or(0.0, |s| s.since.elapsed().as_secs_f64());
        self.emitter.emit(Event::Stuck {
            phase: "fetching the run's state".to_owned(),
            missing: reason,
            seconds,
            remedy: "it goes on by itself when a peer that has it is there".to_owned(),
        });
    }
}

/// Fetches the body of one header from its members, chunk by chunk.
///
/// # Errors
/// If none of them has it.
pub(super) async fn fetch_body(
    net: &Net,
    header: &Header,
    members: &[NodeId],
) -> Result<Vec<u8>, String> {
    let mut last = "it has no other members".to_owned();
    for attempt in 0..BODY_TRIES {
        for &member in members {
            match body_from(net, header, member).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => last = format!("{}: {error}", member.short()),
            }
        }
        if attempt + 1 < BODY_TRIES {
            tokio::time::sleep(BODY_RETRY).await;
        }
    }
    Err(last)
}

async fn body_from(net: &Net, header: &Header, member: NodeId) -> Result<Vec<u8>, String> {
    let index = Request::BlobIndex(header.body);
    let index = match ask::ask(net, member, &index, CHUNK).await {
        Ok(Reply::BlobIndex(index)) => index,
        Ok(_) => return Err("it does not have the body".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    index.verify(header.body).map_err(|error| error.to_string())?;
    if index.bytes != header.body_bytes {
        return Err("the index has another length than the header says".to_owned());
    }
    let mut body = Vec::new();
    for (chunk, digest) in index.chunks.iter().enumerate() {
        let request = Request::BlobChunk { blob: header.body, chunk: chunk as u32 };
        match ask::ask(net, member, &request, CHUNK).await {
            Ok(Reply::Bytes(bytes)) if Digest::of(&bytes) == *digest => {
                body.extend_from_slice(&bytes);
            }
            Ok(_) => return Err(format!("chunk {chunk} is wrong or missing")),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(body)
}
