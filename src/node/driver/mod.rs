//! The driver: carries out what the node machine asks for, and tells it what happened.
//!
//! ```text
//!   net events ─┐                              ┌─► net: send, gossip
//!   training ───┤                              ├─► training thread (`training`)
//!   books ──────┼─► Driver ─► proto::Node ─► Effect ─► books thread (`books`)
//!   exchange ───┤     one task, one loop       ├─► exchange task (`exchange`)
//!   sync ───────┤                              └─► store: ledger, promises
//!   timers ─────┘
//! ```
//!
//! One task owns everything; others are reached through bounded channels. Heavy work is elsewhere:
//! steps on the training thread, folds and hashes on the books thread, frames in the exchange's
//! task, replies to peers in tasks of their own. What must survive a crash is synced to disk before
//! the next effect is begun.
//!
//! | file | subject |
//! |---|---|
//! | `effects` | one arm per effect |
//! | `inputs` | one handler per source of news |
//! | `peers` | connections: who is dialled, who is served |
//! | `syncing` | the sync machine while this node is behind |
//! | `say` | events for people and scripts |

mod effects;
mod inputs;
mod peers;
mod say;
mod syncing;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use self::{say::Tally, syncing::Syncing};
use super::{
    NodeError, Outcome,
    books::{Books, Done},
    clock::Clock,
    exchange::{self, Running},
    serve::{Served, Server},
    shutdown::Shutdown,
    store::Store,
    training::{Report, Training, vectors::Shared},
};
use crate::{
    base::{Attempt, NodeId, Round},
    checkpoint::store::DataDir,
    codec::BucketSpec,
    config::{FoundedManifest, Manifest},
    identity::Identity,
    net::{IncomingBulk, Net, NetEvent},
    observe::Emitter,
    proto::node::{Frozen, Node},
    wire::{BulkHello, Header},
};

/// Direct messages under way: each peer of a full exchange may be sent a few.
const SENDS: usize = 512;
/// Streams of predecessors whose plan is not known here yet.
const WAITING_STREAMS: usize = 8;
/// How long such a stream is kept.
const STREAM_PATIENCE: Duration = Duration::from_secs(10);
/// How often connections are looked after.
const UPKEEP: Duration = Duration::from_secs(5);
/// How long a finished node serves those who are still fetching.
const SERVE_AFTER_END: Duration = Duration::from_secs(60);

/// Everything that a driver is made from.
pub(crate) struct Parts {
    pub(crate) founded: FoundedManifest,
    pub(crate) identity: Identity,
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) events: mpsc::Receiver<NetEvent>,
    pub(crate) store: Store,
    pub(crate) server: Server,
    pub(crate) served: Served,
    pub(crate) books: (Books, mpsc::Receiver<Done>),
    /// `None`: this node keeps state but does not train.
    pub(crate) training: Option<(Training, mpsc::Receiver<Report>)>,
    pub(crate) emitter: Emitter,
    pub(crate) shutdown: Shutdown,
    pub(crate) node: Node,
    pub(crate) start: Start,
    /// Leave after this round.
    pub(crate) last_round: Option<Round>,
    pub(crate) keep_serving: bool,
    /// Held for its lock, and for the addresses that are remembered.
    /// `None`: another part of this process owns data directory and network.
    pub(crate) dir: Option<DataDir>,
}

/// Where this process starts from.
pub(crate) struct Start {
    /// Headers up to the state's round: the last two, at least.
    pub(crate) chain: Vec<Header>,
    /// The state's anchor and root.
    pub(crate) anchor: Shared,
    pub(crate) root: crate::base::Digest,
    /// Whether nobody is waited for: this node founds the run, or was given no first contact.
    pub(crate) lone: bool,
    /// The frozen pseudo-gradient from before a restart.
    pub(crate) pending: Option<Pending>,
}

/// A frozen pseudo-gradient that waits for its exchange.
pub(crate) struct Pending {
    pub(crate) frozen: Frozen,
    pub(crate) delta: Shared,
}

/// The body of a header, or why it is not to be had.
type FetchedBody = (Box<Header>, Result<Vec<u8>, String>);

/// The driver's state.
pub(crate) struct Driver {
    manifest: Arc<Manifest>,
    founded: FoundedManifest,
    identity: Identity,
    me: NodeId,
    topic: String,
    clock: Clock,
    net: Net,
    store: Store,
    served: Served,
    server: Server,
    specs: Arc<[BucketSpec]>,
    books: Books,
    training: Option<Training>,
    emitter: Emitter,
    shutdown: Shutdown,
    node: Node,
    anchor: Shared,
    pending: Option<Pending>,
    exchange: Option<Running>,
    exchange_said: mpsc::Sender<(Round, Attempt, exchange::Outcome)>,
    waiting_streams: Vec<(Instant, BulkHello, IncomingBulk)>,
    syncing: Option<Syncing>,
    bodies: mpsc::Sender<FetchedBody>,
    tasks: TaskTracker,
    sends: Arc<Semaphore>,
    tally: Tally,
    joined: bool,
    /// Rounds whose folds have been asked for by the sync, not by the node machine.
    replaying: bool,
    lone: bool,
    last_round: Option<Round>,
    keep_serving: bool,
    finished_at: Option<Instant>,
    left: bool,
    failed: Option<NodeError>,
    dir: Option<DataDir>,
    dialled: BTreeMap<NodeId, Instant>,
}

/// What the driver listens to.
struct Inputs {
    net: mpsc::Receiver<NetEvent>,
    training: Option<mpsc::Receiver<Report>>,
    books: mpsc::Receiver<Done>,
    exchange: mpsc::Receiver<(Round, Attempt, exchange::Outcome)>,
    bodies: mpsc::Receiver<FetchedBody>,
}

impl Driver {
    /// Runs a node until its run is finished, an end is asked for, or it cannot go on.
    ///
    /// # Errors
    /// If it cannot go on.
    pub(crate) async fn run(parts: Parts) -> Result<Outcome, NodeError> {
        let (mut driver, mut inputs, start) = Self::new(parts);
        driver.begin(start).await;
        let mut upkeep = tokio::time::interval(UPKEEP);
        upkeep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut leaving = false;
        while !driver.done() {
            driver.carry_out().await;
            if !leaving && driver.served_long_enough() {
                leaving = true;
                driver.leave("the run is finished");
                continue;
            }
            let deadline = driver.next_deadline();
            let clock = driver.clock;
            let shutdown = driver.shutdown.clone();
            tokio::select! {
                biased;
                () = shutdown.requested(), if !leaving => {
                    leaving = true;
                    driver.leave("a signal");
                }
                Some(done) = inputs.books.recv() => driver.on_books(done),
                Some(said) = inputs.exchange.recv() => driver.on_exchange(said),
                Some(report) = recv(&mut inputs.training) => driver.on_training(report),
                Some((header, body)) = inputs.bodies.recv() => driver.on_body(header, body),
                Some((id, reply)) = syncing::replies(&mut driver.syncing) => driver.on_reply(id, reply),
                event = inputs.net.recv() => match event {
                    Some(event) => driver.on_net(event),
                    None => driver.fail("the network has stopped", "start the node again"),
                },
                () = clock.sleep_until(deadline) => driver.on_deadline(),
                _ = upkeep.tick() => driver.upkeep(),
            }
        }
        driver.end(inputs).await
    }

    fn new(parts: Parts) -> (Self, Inputs, Start) {
        let manifest = Arc::new(parts.founded.founding.manifest.clone());
        let (exchange_said, exchange) = mpsc::channel(32);
        let (bodies, bodies_in) = mpsc::channel(4);
        let (books, books_in) = parts.books;
        let (training, training_in) = parts.training.unzip();
        let run = parts.founded.run_id();
        let driver = Self {
            specs: super::start::specs(&manifest),
            topic: super::start::topic(run),
            me: parts.identity.node_id(),
            served: parts.served,
            anchor: Arc::clone(&parts.start.anchor),
            manifest,
            founded: parts.founded,
            identity: parts.identity,
            clock: parts.clock,
            net: parts.net,
            store: parts.store,
            server: parts.server,
            books,
            training,
            emitter: parts.emitter,
            shutdown: parts.shutdown,
            node: parts.node,
            pending: None,
            exchange: None,
            exchange_said,
            waiting_streams: Vec::new(),
            syncing: None,
            bodies,
            tasks: TaskTracker::new(),
            sends: Arc::new(Semaphore::new(SENDS)),
            tally: Tally::default(),
            joined: false,
            replaying: false,
            lone: parts.start.lone,
            last_round: parts.last_round,
            keep_serving: parts.keep_serving,
            finished_at: None,
            left: false,
            failed: None,
            dir: parts.dir,
            dialled: BTreeMap::new(),
        };
        let inputs = Inputs {
            net: parts.events,
            training: training_in,
            books: books_in,
            exchange,
            bodies: bodies_in,
        };
        (driver, inputs, parts.start)
    }

    /// Says hello to the run and takes part from where the state stands, or fetches what is missing.
    async fn begin(&mut self, start: Start) {
        if let Err(error) = self.net.subscribe(&self.topic).await {
            self.warn(&format!("gossip cannot be joined: {error}"), "restart the node");
        }
        let run = self.founded.run_id();
        let _ = self.net.provide(run.0).await;
        self.pending = start.pending;
        self.addresses_changed();
        let ledger = self.store.head();
        self.served.set_head(&ledger);
        if start.lone && ledger.round == 0 {
            self.validate(0);
            let now = self.clock.now();
            self.node.adopt(now, &start.chain, start.root);
            self.say_joined(0, 0);
        } else {
            self.start_sync(start.chain, start.root);
        }
        self.upkeep();
    }

    fn done(&self) -> bool {
        let said = self.finished_at.is_none() || self.finish_said();
        (self.left && said) || self.failed.is_some()
    }

    /// A finished node serves until nobody fetches any more, for a minute at most.
    fn served_long_enough(&self) -> bool {
        let Some(at) = self.finished_at.filter(|_| !self.keep_serving) else { return false };
        let last = self.manifest.run.rounds + 1;
        let waits = |peer: &crate::proto::roster::Peer| {
            peer.presence.fetching
                || peer.presence.expects <= last && peer.presence.head.round < last
        };
        let others = self.node.roster().iter().any(|(_, peer)| waits(peer));
        (!others && self.finish_said()) || at.elapsed() > SERVE_AFTER_END
    }

    fn next_deadline(&self) -> Option<crate::base::Time> {
        let sync = self.syncing.as_ref().and_then(|syncing| syncing.machine.poll_timeout());
        [self.node.poll_timeout(), sync].into_iter().flatten().min()
    }

    fn on_deadline(&mut self) {
        let now = self.clock.now();
        if self.node.poll_timeout().is_some_and(|at| at <= now) {
            self.node.handle_timeout(now);
        }
        if let Some(syncing) = &mut self.syncing
            && syncing.machine.poll_timeout().is_some_and(|at| at <= now)
        {
            syncing.machine.handle_timeout(now);
        }
    }

    fn leave(&mut self, reason: &str) {
        tracing::info!("leaving: {reason}");
        let now = self.clock.now();
        let grace = self.shutdown.remaining().saturating_sub(Duration::from_secs(2));
        self.node.leave(now, grace);
    }

    fn fail(&mut self, what: &str, help: &str) {
        if self.failed.is_none() {
            self.failed = Some(NodeError::Failed { what: what.to_owned(), help: help.to_owned() });
        }
    }

    /// Ends every part, in the order in which they depend on each other.
    async fn end(mut self, inputs: Inputs) -> Result<Outcome, NodeError> {
        if let Some(exchange) = self.exchange.take() {
            exchange.abort();
        }
        // Reports and results that nobody reads any more must not hold their threads.
        drop(inputs);
        self.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(2), self.tasks.wait()).await;
        let (books, training) = (self.books, self.training);
        let threads = tokio::task::spawn_blocking(move || {
            if let Some(training) = training {
                training.stop();
            }
            books.stop();
        });
        let _ = tokio::time::timeout(Duration::from_secs(5), threads).await;
        if self.dir.is_some() {
            self.net.shutdown().await;
        }
        match self.failed {
            Some(error) => Err(error),
            None if self.finished_at.is_some() => Ok(Outcome::Finished),
            None => Ok(Outcome::Stopped),
        }
    }
}

/// The next report, for ever none if nobody trains.
async fn recv(reports: &mut Option<mpsc::Receiver<Report>>) -> Option<Report> {
    match reports {
        Some(reports) => reports.recv().await,
        None => std::future::pending().await,
    }
}
