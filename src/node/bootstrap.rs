//! The bootstrap peer: first contact, distributed table, manifests and data it has been shown.
//!
//! It asks every peer that connects for the runs it knows, keeps their manifests and data, passes
//! their gossip on, and answers whoever asks. With an archive it also follows each run as a node
//! that does not train: it folds every round and keeps snapshots and deltas, so that a run survives
//! all its volunteers leaving.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    NodeError, Outcome, ask,
    books::{self, Books, Setting},
    driver::{Driver, Parts, Start},
    join,
    options::BootstrapOptions,
    serve::Served,
    shutdown::Shutdown,
    start::{self, Base, NetOptions},
};
use crate::{
    base::{NodeId, RunId},
    config::FoundedManifest,
    net::{Net, NetEvent},
    observe::{Emitter, Event},
    proto::{
        deadlines::Deadlines,
        node::{Node, NodeConfig},
        roster::Roster,
    },
    wire::{Envelope, Header, Message},
};

/// Runs that a bootstrap peer serves; more are not taken.
const MAX_RUNS: usize = 64;
/// Peers that are being asked for their runs.
const ASKING: usize = 32;
/// How often connected peers are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// Events that wait for one run's archive.
const EVENTS: usize = 1024;

/// Runs a bootstrap peer until an end is asked for.
///
/// # Errors
/// If it cannot start or cannot go on.
pub async fn bootstrap(
    options: BootstrapOptions,
    emitter: Emitter,
    shutdown: Shutdown,
) -> Result<Outcome, NodeError> {
    let base = Base::open(&options.data_dir, options.disk_limit.map(|size| size.bytes()))?;
    let net_options = NetOptions {
        listen: &options.listen,
        external: &options.external,
        bootstrap: &options.bootstrap,
        upload: options.upload_limit.map(|rate| rate.bytes_per_second()),
        download: options.download_limit.map(|rate| rate.bytes_per_second()),
    };
    let (net, mut events) = start::network(&base.identity, &net_options).await?;
    start::listening(&net).await;
    let http = start::endpoint(options.http, &emitter, &shutdown).await?;
    start::say_started(&emitter, &net, "bootstrap", None, (http, &options.data_dir));
    let stored = base.dir.runs()?;
    let mut service = Service {
        archive: options.archive,
        data_dir: options.data_dir.clone(),
        base,
        net: net.clone(),
        emitter: emitter.clone(),
        shutdown: shutdown.clone(),
        runs: BTreeMap::new(),
        asking: BTreeSet::new(),
        answers: JoinSet::new(),
        archives: JoinSet::new(),
    };
    for run in stored {
        match service.base.dir.manifest(run) {
            Ok(founded) => service.take(founded).await?,
            Err(error) => tracing::warn!("{error}"),
        }
    }
    let mut again = tokio::time::interval(ASK_AGAIN);
    loop {
        tokio::select! {
            () = shutdown.requested() => break,
            event = events.recv() => match event {
                Some(event) => service.on_net(event),
                None => break,
            },
            Some(answer) = service.answers.join_next() => {
                if let Ok((peer, founded)) = answer {
                    service.asking.remove(&peer);
                    for founded in founded {
                        service.take(founded).await?;
                    }
                }
            }
            Some(ended) = service.archives.join_next() => {
                if let Ok(Err(error)) = ended {
                    tracing::error!("an archive has ended: {error}");
                }
            }
            _ = again.tick() => {
                service.expire();
                for peer in net.connected() {
                    service.ask(peer);
                }
            }
        }
    }
    service.end().await;
    emitter.emit(Event::Stopped { reason: "it was asked to end".to_owned(), round: 0 });
    Ok(Outcome::Stopped)
}

/// A run that is served.
struct Known {
    topic: String,
    served: Served,
    roster: Roster,
    /// Where the run's archive hears of the network.
    archive: Option<mpsc::Sender<NetEvent>>,
}

struct Service {
    archive: bool,
    data_dir: PathBuf,
    base: Base,
    net: Net,
    emitter: Emitter,
    shutdown: Shutdown,
    runs: BTreeMap<RunId, Known>,
    asking: BTreeSet<NodeId>,
    answers: JoinSet<(NodeId, Vec<FoundedManifest>)>,
    archives: JoinSet<Result<Outcome, NodeError>>,
}

impl Service {
    fn on_net(&mut self, event: NetEvent) {
        match event {
            NetEvent::PeerConnected { node, addr } => {
                self.ask(node);
                self.tell_all(|| NetEvent::PeerConnected { node, addr: addr.clone() });
            }
            NetEvent::PeerDisconnected { node } => {
                self.runs.values_mut().for_each(|known| known.roster.link_lost(node));
                self.tell_all(|| NetEvent::PeerDisconnected { node });
            }
            NetEvent::Gossip { topic, from, bytes, id } => {
                let Some((run, known)) = self.runs.iter_mut().find(|(_, k)| k.topic == topic)
                else {
                    return;
                };
                hear(self.base.clock.now(), *run, known, &bytes);
                pass_on(known, NetEvent::Gossip { topic, from, bytes, id });
            }
            NetEvent::Message { from, bytes } => {
                if let Some(known) = run_of(&bytes).and_then(|run| self.runs.get(&run)) {
                    pass_on(known, NetEvent::Message { from, bytes });
                }
            }
            NetEvent::Request { from, bytes, channel } => {
                self.base.server.serve(&self.net, from, bytes, channel);
            }
            NetEvent::BulkStream(stream) => {
                tokio::spawn(async move { stream.refuse("this peer does not train").await });
            }
            NetEvent::BootstrapUnreachable { addr, error, attempt, retry_in } => {
                let address = addr.to_string();
                self.emitter.emit(start::unreachable(address, error, attempt, retry_in));
            }
            NetEvent::Listening(_) => {
                let addresses = self.net.listeners();
                if let Some(address) = addresses.last().cloned() {
                    self.tell_all(|| NetEvent::Listening(address.clone()));
                }
            }
            NetEvent::DialFailed { .. } | NetEvent::BootstrapReached { .. } => {}
        }
    }

    fn tell_all(&self, event: impl Fn() -> NetEvent) {
        self.runs.values().for_each(|known| pass_on(known, event()));
    }

    /// Asks a peer for runs that are not known yet.
    fn ask(&mut self, peer: NodeId) {
        if self.asking.len() >= ASKING || !self.asking.insert(peer) {
            return;
        }
        let (net, known): (Net, BTreeSet<RunId>) =
            (self.net.clone(), self.runs.keys().copied().collect());
        self.answers.spawn(async move {
            let mut founded = Vec::new();
            for run in ask::runs(&net, &[peer]).await.into_keys() {
                if !known.contains(&run) {
                    founded.extend(ask::manifest(&net, &[peer], run).await);
                }
            }
            (peer, founded)
        });
    }

    /// Serves a run from now on.
    async fn take(&mut self, founded: FoundedManifest) -> Result<(), NodeError> {
        let run = founded.run_id();
        if self.runs.contains_key(&run) {
            return Ok(());
        }
        if self.runs.len() >= MAX_RUNS {
            tracing::warn!("run {run} is not taken: {MAX_RUNS} are served already");
            return Ok(());
        }
        let store = self.base.store(&founded)?;
        let served = self.base.server.add(&founded, store.server());
        let topic = start::topic(run);
        self.net.subscribe(&topic).await.map_err(|error| NodeError::Failed {
            what: format!("gossip of run {run} cannot be joined: {error}"),
            help: "start the bootstrap peer again".to_owned(),
        })?;
        let _ = self.net.provide(run.0).await;
        let (net, blobs, emitter) =
            (self.net.clone(), self.base.blobs.clone(), self.emitter.clone());
        let wanted = founded.clone();
        tokio::spawn(async move {
            if let Err(error) = join::fetch_data(&net, &blobs, &wanted, &[], &emitter).await {
                tracing::warn!("data of run {} is not kept: {error}", wanted.run_id());
            }
        });
        let archive = if self.archive {
            Some(self.start_archive(&founded, store, served.clone())?)
        } else {
            None
        };
        tracing::info!("serving run {run}");
        self.runs.insert(run, Known { topic, served, roster: Roster::default(), archive });
        Ok(())
    }

    /// Follows a run as a node that does not train.
    fn start_archive(
        &mut self,
        founded: &FoundedManifest,
        store: super::store::Store,
        served: Served,
    ) -> Result<mpsc::Sender<NetEvent>, NodeError> {
        let manifest = founded.founding.manifest.clone();
        let (state, chain) = start::newest_state(&store, founded)?;
        let (anchor, root) = (books::anchor(&state), state.root());
        let node = Node::new(
            NodeConfig {
                run: founded.run_id(),
                boot: self.base.boot,
                manifest: manifest.clone(),
                deadlines: Deadlines::default(),
                trains: false,
                addresses: Vec::new(),
            },
            self.base.identity.clone(),
            Header::genesis(founded),
            self.base.clock.now(),
        );
        let setting = Setting {
            me: self.base.identity.node_id(),
            specs: start::specs(&manifest),
            manifest: Arc::new(manifest),
            store: store.clone(),
        };
        let books = Books::start(setting, state).map_err(|source| NodeError::File {
            action: "start the fold thread of",
            path: self.data_dir.clone(),
            source,
        })?;
        let (events, inbox) = mpsc::channel(EVENTS);
        let parts = Parts {
            founded: founded.clone(),
            identity: self.base.identity.clone(),
            clock: self.base.clock,
            net: self.net.clone(),
            events: inbox,
            store,
            server: self.base.server.clone(),
            served,
            books,
            training: None,
            emitter: self.emitter.clone(),
            shutdown: self.shutdown.clone(),
            node,
            start: Start { chain, anchor, root, lone: true, pending: None },
            last_round: None,
            keep_serving: true,
            dir: None,
        };
        self.archives.spawn(Driver::run(parts));
        Ok(events)
    }

    /// Forgets peers that were not heard for long, so that the number of members is right.
    fn expire(&mut self) {
        let now = self.base.clock.now();
        for known in self.runs.values_mut() {
            known.roster.expire(now);
        }
    }

    async fn end(mut self) {
        let archives = async { while self.archives.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.shutdown.remaining(), archives).await;
        self.net.shutdown().await;
    }
}

fn hear(now: crate::base::Time, run: RunId, known: &mut Known, bytes: &[u8]) {
    let Ok(envelope) = Envelope::open(bytes, run) else { return };
    let stamp = (envelope.boot, envelope.sequence);
    match envelope.message {
        Message::Presence(presence) => {
            let head = presence.head;
            known.roster.handle_presence(now, envelope.author, stamp, presence);
            known.served.heard(head, known.roster.training().count());
        }
        Message::Goodbye => {
            known.roster.handle_goodbye(envelope.author, stamp);
        }
        _ => {}
    }
}

/// An archive that is too slow loses messages, as on any network, and catches up by its sync.
fn pass_on(known: &Known, event: NetEvent) {
    if let Some(archive) = &known.archive
        && archive.try_send(event).is_err()
    {
        tracing::debug!("an archive is behind; a message is dropped");
    }
}

/// The run of an envelope: it stands behind the version.
fn run_of(bytes: &[u8]) -> Option<RunId> {
    Some(RunId(bytes.get(2..34)?.try_into().ok()?))
}
