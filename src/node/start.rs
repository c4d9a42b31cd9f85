//! From options to a running driver: data directory, network, run, state.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    NodeError, Outcome,
    books::{self, Books, Setting},
    clock::Clock,
    driver::{Driver, Parts, Pending, Start},
    found, join,
    options::{Device, Http, Listen, NodeOptions},
    serve::{Served, Server},
    shutdown::Shutdown,
    store::Store,
    training::{Command, Resume, Training, vectors},
};
use crate::{
    base::{NodeId, Round, RunId},
    checkpoint::store::{BlobStore, DataDir, LocalState, StoreError},
    codec::{Bits, BucketSpec, buckets, size_code},
    compute::DeviceChoice,
    config::{FoundedManifest, Manifest},
    data::Dataset,
    identity::Identity,
    net::{self, Multiaddr, Net, NetConfig, NetEvent},
    observe::{Emitter, Event, http},
    outer::State,
    proto::{
        deadlines::Deadlines,
        node::{Frozen, Memory, Node, NodeConfig},
        sync::IndexReader,
    },
    train::TrainerConfig,
    wire::Header,
};

/// A contribution that was committed longer ago than this leaves nothing to feed back
/// (DESIGN section 5, forks).
const ERROR_KEPT_ROUNDS: u64 = 16;

/// The buckets of a run.
pub(crate) fn specs(manifest: &Manifest) -> Arc<[BucketSpec]> {
    let bits = Bits::try_from(manifest.compression.bits).unwrap_or(Bits::B4);
    buckets(&manifest.layout(), bits).into()
}

/// The gossip topic of a run.
pub(crate) fn topic(run: RunId) -> String {
    format!("dilocox/1/{run}")
}

/// The event for a bootstrap peer that does not answer.
pub(crate) fn unreachable(address: String, error: String, attempt: u32, retry: Duration) -> Event {
    Event::BootstrapUnreachable {
        address,
        error,
        attempts: attempt,
        retry_seconds: retry.as_secs_f64(),
        remedy: "check the address and that the peer runs; it is tried again for ever".to_owned(),
    }
}

impl From<StoreError> for NodeError {
    fn from(error: StoreError) -> Self {
        let help = match error {
            StoreError::Locked { .. } => {
                "stop the other node, or give this one its own --data-dir".to_owned()
            }
            _ => "check the data directory, its permissions and the free disk space".to_owned(),
        };
        Self::Failed { what: error.to_string(), help }
    }
}

/// What every kind of process here begins with.
pub(crate) struct Base {
    pub(crate) dir: DataDir,
    pub(crate) identity: Identity,
    pub(crate) boot: u64,
    pub(crate) clock: Clock,
    pub(crate) blobs: BlobStore,
    pub(crate) server: Server,
}

impl Base {
    /// Opens the data directory.
    ///
    /// # Errors
    /// If it is in use, or cannot be read or written.
    pub(crate) fn open(path: &Path, disk_limit: Option<u64>) -> Result<Self, NodeError> {
        let dir = DataDir::open(Some(path.to_owned()))?;
        let identity = dir.identity()?;
        let boot = dir.next_boot()?;
        let blobs = dir.blobs(disk_limit)?;
        let server = Server::new();
        Ok(Self { dir, identity, boot, clock: Clock::start(), blobs, server })
    }

    /// Opens the folder of a run.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub(crate) fn store(&self, founded: &FoundedManifest) -> Result<Store, NodeError> {
        let reader = IndexReader::of_layout(Arc::new(founded.founding.manifest.layout()));
        Ok(Store::new(self.dir.create_run(founded, reader, self.blobs.clone())?))
    }
}

/// What the network is told.
pub(crate) struct NetOptions<'a> {
    pub(crate) listen: &'a Listen,
    pub(crate) external: &'a [String],
    pub(crate) bootstrap: &'a [String],
    pub(crate) upload: Option<u64>,
    pub(crate) download: Option<u64>,
}

/// Starts the network.
///
/// # Errors
/// If an address is wrong or taken.
pub(crate) async fn network(
    identity: &Identity,
    options: &NetOptions<'_>,
) -> Result<(Net, mpsc::Receiver<NetEvent>), NodeError> {
    let (listen, fallback) = match options.listen {
        Listen::Default => (Listen::default_at(super::options::PEER_PORT), true),
        Listen::Explicit(addresses) => (addresses.clone(), false),
    };
    let mut config = NetConfig::new(identity.clone());
    config.listen = parsed(&listen)?;
    config.default_port_fallback = fallback;
    config.external = parsed(options.external)?;
    for text in options.bootstrap {
        net::parse_peer_addr(text).map_err(|error| NodeError::PeerAddress {
            address: text.clone(),
            reason: error.to_string(),
        })?;
    }
    config.bootstrap = parsed(options.bootstrap)?;
    config.upload_limit = options.upload;
    config.download_limit = options.download;
    config.test_latency = test_latency();
    net::start(config).await.map_err(|error| NodeError::Listen {
        address: listen.join(", "),
        reason: error.to_string(),
    })
}

/// For tests: `DILOCOX_TEST_LATENCY_MS` delays every frame of a bulk stream, as a long link does.
fn test_latency() -> Option<Duration> {
    let text = std::env::var("DILOCOX_TEST_LATENCY_MS").ok()?;
    text.parse().ok().map(Duration::from_millis)
}

fn parsed(texts: &[String]) -> Result<Vec<Multiaddr>, NodeError> {
    let parse = |text: &String| {
        text.parse::<Multiaddr>().map_err(|error| NodeError::PeerAddress {
            address: text.clone(),
            reason: error.to_string(),
        })
    };
    texts.iter().map(parse).collect()
}

/// Serves the local HTTP endpoint until the end; its address.
///
/// # Errors
/// If an explicit address is taken.
pub(crate) async fn endpoint(
    choice: Http,
    emitter: &Emitter,
    shutdown: &Shutdown,
) -> Result<Option<String>, NodeError> {
    let listener = match choice {
        Http::Off => return Ok(None),
        Http::Default => {
            let ports = super::options::HTTP_PORT..;
            http::bind_first(ports.take(usize::from(super::options::PORTS_TRIED))).await
        }
        Http::Explicit(address) => tokio::net::TcpListener::bind(address).await,
    };
    let at = match choice {
        Http::Explicit(address) => address,
        _ => ([127, 0, 0, 1], super::options::HTTP_PORT).into(),
    };
    let listener = listener.map_err(|source| NodeError::Http { address: at, source })?;
    let address = listener.local_addr().map(|address| address.to_string()).ok();
    let (board, token) = (emitter.board().clone(), shutdown.token().clone());
    tokio::spawn(async move {
        if let Err(error) = http::serve(listener, board, token.cancelled_owned()).await {
            tracing::warn!("the HTTP endpoint has ended: {error}");
        }
    });
    Ok(address)
}

/// Says that this process accepts peers, with the command that joins it.
pub(crate) fn say_started(
    emitter: &Emitter,
    net: &Net,
    role: &str,
    run: Option<RunId>,
    (http, data_dir): (Option<String>, &Path),
) {
    let listen: Vec<String> = net.addresses().iter().map(ToString::to_string).collect();
    let reachable =
        listen.iter().find(|text| !text.contains("127.0.0.1") && !text.contains("/::1/"));
    let address = reachable.or(listen.first()).cloned().unwrap_or_default();
    emitter.emit(Event::Started {
        node_id: net.node_id(),
        peer_id: net::peer_id_text(net.node_id()).unwrap_or_default(),
        role: role.to_owned(),
        run_id: run,
        listen,
        join_command: format!("dilocox-node --bootstrap {address}"),
        http,
        data_dir: data_dir.display().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
}

/// Waits until the network listens, so that the address can be told.
pub(crate) async fn listening(net: &Net) {
    for _ in 0..100 {
        if !net.listeners().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a training node until its run is finished or an end is asked for.
///
/// # Errors
/// If it cannot start or cannot go on.
pub async fn run(
    options: NodeOptions,
    emitter: Emitter,
    shutdown: Shutdown,
) -> Result<Outcome, NodeError> {
    let base = Base::open(&options.data_dir, options.disk_limit.map(|size| size.bytes()))?;
    let plan = Intent::of(&options, &base.dir)?;
    // Founding checks manifest and data before the network is bothered.
    let founded = match plan {
        Intent::Found => Some(found::found(&options, &base)?),
        Intent::Resume(run) => Some(base.dir.manifest(run)?),
        Intent::Join => None,
    };
    let (net, mut events) = network(
        &base.identity,
        &NetOptions {
            listen: &options.listen,
            external: &[],
            bootstrap: &options.bootstrap,
            upload: options.upload_limit.map(|rate| rate.bytes_per_second()),
            download: options.download_limit.map(|rate| rate.bytes_per_second()),
        },
    )
    .await?;
    listening(&net).await;
    let http = endpoint(options.http, &emitter, &shutdown).await?;
    let run = founded.as_ref().map(FoundedManifest::run_id);
    say_started(&emitter, &net, "node", run, (http, base.dir.path()));
    let prepared = tokio::select! {
        prepared = prepare(&options, &base, &net, founded, &emitter) => prepared,
        () = attend(&net, &mut events, &base.server, &emitter) => Err(NodeError::Failed {
            what: "the network has stopped".to_owned(),
            help: "start the node again".to_owned(),
        }),
        () = shutdown.requested() => {
            net.shutdown().await;
            emitter.emit(Event::Stopped { reason: "it was asked to end".to_owned(), round: 0 });
            return Ok(Outcome::Stopped);
        }
    };
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            net.shutdown().await;
            return Err(error);
        }
    };
    let parts = assemble(&options, base, (net, events), prepared, plan, emitter, shutdown)?;
    Driver::run(parts).await
}

/// Attends to the network while there is no driver yet: others' questions are answered, so that
/// nobody waits for this node, and a bootstrap peer that does not answer is said. Ends when the
/// network does.
async fn attend(
    net: &Net,
    events: &mut mpsc::Receiver<NetEvent>,
    server: &Server,
    emitter: &Emitter,
) {
    while let Some(event) = events.recv().await {
        match event {
            NetEvent::Request { from, bytes, channel } => server.serve(net, from, bytes, channel),
            NetEvent::BootstrapUnreachable { addr, error, attempt, retry_in } => {
                emitter.emit(unreachable(addr.to_string(), error, attempt, retry_in));
            }
            NetEvent::BootstrapReached { addr, .. } => tracing::info!("reached {addr}"),
            // Presences come again; connections and addresses are looked up by the driver.
            _ => {}
        }
    }
}

/// Whether a node has nobody to wait for: it founds the run, or it is the only member so far and
/// was given no first contact.
fn alone(intent: Intent, options: &NodeOptions, store: &Store, me: NodeId) -> bool {
    let only = || store.head().members.iter().all(|member| member.node == me);
    intent == Intent::Found || (options.bootstrap.is_empty() && only())
}

/// What a start is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Found,
    Resume(RunId),
    Join,
}

impl Intent {
    fn of(options: &NodeOptions, dir: &DataDir) -> Result<Self, NodeError> {
        let stored = dir.runs()?;
        let usage = |what: String, help: &str| NodeError::Usage { what, help: help.to_owned() };
        match (&options.run, stored.as_slice(), options.run_id) {
            (Some(_), [run, ..], _) => Err(usage(
                format!("{} already holds run {run}", dir.path().display()),
                "leave out --run to go on with it, or give this run its own --data-dir",
            )),
            (Some(_), [], _) => Ok(Self::Found),
            (None, stored, Some(wanted)) if stored.contains(&wanted) => Ok(Self::Resume(wanted)),
            (None, _, Some(wanted)) if options.bootstrap.is_empty() => Err(usage(
                format!("run {wanted} is not in {}", dir.path().display()),
                "name a peer that knows it with --bootstrap",
            )),
            (None, _, Some(_)) => Ok(Self::Join),
            (None, [run], None) => Ok(Self::Resume(*run)),
            (None, [], None) if options.bootstrap.is_empty() => Ok(Self::Found),
            (None, [], None) => Ok(Self::Join),
            (None, several, None) => Err(usage(
                format!("{} holds {} runs", dir.path().display(), several.len()),
                "choose one with --run-id",
            )),
        }
    }
}

/// A run that can be driven.
struct Prepared {
    founded: FoundedManifest,
    store: Store,
    served: Served,
    dataset: Arc<Dataset>,
    state: State,
    chain: Vec<Header>,
    local: Option<LocalState>,
}

async fn prepare(
    options: &NodeOptions,
    base: &Base,
    net: &Net,
    founded: Option<FoundedManifest>,
    emitter: &Emitter,
) -> Result<Prepared, NodeError> {
    let (founded, tellers) = match founded {
        Some(founded) => (founded, Vec::new()),
        None => join::choose(net, options.run_id, emitter).await?,
    };
    let run = founded.run_id();
    let store = base.store(&founded)?;
    let served = base.server.add(&founded, store.server());
    let _ = net.subscribe(&topic(run)).await;
    join::fetch_data(net, &base.blobs, &founded, &tellers, emitter).await?;
    let manifest = founded.founding.manifest.clone();
    let files = found::files(&base.blobs, &founded)?;
    let loading = tokio::task::spawn_blocking({
        let store = store.clone();
        let founded = founded.clone();
        move || -> Result<_, NodeError> {
            let dataset = Dataset::open(&manifest, &files).map_err(|error| NodeError::Data {
                what: "of this run".to_owned(),
                problem: error.to_string(),
            })?;
            let (state, chain) = newest_state(&store, &founded)?;
            Ok((dataset, state, chain, local(&store)))
        }
    });
    let (dataset, state, chain, local) = loading.await.map_err(|error| NodeError::Failed {
        what: format!("the run's state cannot be loaded: {error}"),
        help: "start the node again".to_owned(),
    })??;
    Ok(Prepared { founded, store, served, dataset: Arc::new(dataset), state, chain, local })
}

/// The newest stored state: the newest usable snapshot, or genesis; and the two headers up to it.
pub(crate) fn newest_state(
    store: &Store,
    founded: &FoundedManifest,
) -> Result<(State, Vec<Header>), NodeError> {
    let manifest = &founded.founding.manifest;
    while let Some(round) = store.newest_snapshot()? {
        match store.load_snapshot(Arc::new(manifest.layout()), round) {
            Ok(state) => {
                let rounds = round.saturating_sub(1)..=round;
                let chain = rounds.filter_map(|round| store.header(round)).collect();
                return Ok((state, chain));
            }
            Err(error) => {
                tracing::warn!("the snapshot after round {round} is not usable: {error}");
                store.drop_snapshots()?;
            }
        }
    }
    Ok((State::genesis(manifest), vec![Header::genesis(founded)]))
}

/// The local state, if it can be read: without it the node goes on, but its last contribution's
/// rest and its moments are lost.
fn local(store: &Store) -> Option<LocalState> {
    store.load_local().unwrap_or_else(|error| {
        tracing::warn!("the local state is not usable and starts anew: {error}");
        None
    })
}

fn assemble(
    options: &NodeOptions,
    base: Base,
    (net, events): (Net, mpsc::Receiver<NetEvent>),
    prepared: Prepared,
    intent: Intent,
    emitter: Emitter,
    shutdown: Shutdown,
) -> Result<Parts, NodeError> {
    let Prepared { founded, store, served, dataset, state, chain, local } = prepared;
    let manifest = founded.founding.manifest.clone();
    let me = base.identity.node_id();
    say_run(&emitter, &founded, state.round, intent);
    let last_round = options.rounds.filter(|last| *last < manifest.run.rounds);
    let (training, reports) = Training::start(
        TrainerConfig {
            manifest: manifest.clone(),
            device: match options.device {
                Device::Auto => DeviceChoice::Auto,
                Device::Cpu => DeviceChoice::Cpu,
            },
            threads: options.threads.get(),
        },
        dataset,
        (me, base.boot),
    )
    .map_err(|error| NodeError::Failed {
        what: error.to_string(),
        help: "choose another --device or fewer --threads".to_owned(),
    })?;
    let anchor = books::anchor(&state);
    let root = state.root();
    let round = state.round;
    let setting = Setting {
        me,
        specs: specs(&manifest),
        manifest: Arc::new(manifest.clone()),
        store: store.clone(),
    };
    let lone = alone(intent, options, &store, me);
    let pending = resume(&training, &anchor, local, &setting, round);
    let mut node = Node::new(
        NodeConfig {
            run: founded.run_id(),
            boot: base.boot,
            manifest: manifest.clone(),
            deadlines: Deadlines::default(),
            trains: true,
            addresses: Vec::new(),
        },
        base.identity.clone(),
        Header::genesis(&founded),
        base.clock.now(),
    );
    node.remember(memory(&store, pending.as_ref()));
    let books = Books::start(setting, state).map_err(|error| NodeError::Failed {
        what: format!("the fold thread cannot be started: {error}"),
        help: "free memory or raise the limit on threads".to_owned(),
    })?;
    Ok(Parts {
        founded,
        identity: base.identity,
        clock: base.clock,
        net,
        events,
        store,
        server: base.server,
        served,
        books,
        training: Some((training, reports)),
        emitter,
        shutdown,
        node,
        start: Start { chain, anchor, root, lone, pending },
        last_round,
        keep_serving: options.keep_serving,
        dir: Some(base.dir),
    })
}

fn say_run(emitter: &Emitter, founded: &FoundedManifest, round: Round, intent: Intent) {
    let manifest = &founded.founding.manifest;
    let (run_id, name) = (founded.run_id(), manifest.run.name.clone());
    let parameters = manifest.layout().elements() as u64;
    let rounds = manifest.run.rounds;
    match intent {
        Intent::Found => emitter.emit(Event::Founded { run_id, name, parameters, rounds }),
        Intent::Resume(_) => {
            emitter.emit(Event::Resumed { run_id, name, round, parameters, rounds });
        }
        Intent::Join => {}
    }
}

/// Hands the training thread what it had before a restart; what still waits for its exchange.
fn resume(
    training: &Training,
    anchor: &vectors::Shared,
    local: Option<LocalState>,
    setting: &Setting,
    state_round: u64,
) -> Option<Pending> {
    let newest = setting.store.head_round();
    let usable = local.filter(|local| local.round + ERROR_KEPT_ROUNDS > newest);
    let moments = usable.as_ref().map(|local| local.moments.clone());
    let frozen = usable.and_then(|local| local.frozen);
    // Folded already: what is left of it goes into the next one. Else its fold is still to come, or
    // comes again while the state is replayed.
    let (folded, waiting) = match frozen {
        Some(frozen) if frozen.round <= state_round => (Some(frozen), None),
        frozen => (None, frozen),
    };
    let error = folded.and_then(|frozen| {
        let round = frozen.round;
        let residual = setting.residual_of_folded(round, &frozen.delta);
        let lost =
            |error: &String| tracing::warn!("what was left of round {round} is lost: {error}");
        residual.inspect_err(lost).ok()
    });
    training.tell(Command::Resume(Box::new(Resume {
        anchor: Arc::clone(anchor),
        error,
        moments,
        lease: setting.store.lease_left(),
        joined_late: newest > 0,
    })));
    waiting.map(|frozen| Pending {
        frozen: Frozen {
            round: frozen.round,
            weight: frozen.weight,
            size: size_code(vectors::squares(&frozen.delta).sqrt()),
            feedback: 0,
        },
        delta: Arc::new(frozen.delta),
    })
}

/// What the node has promised and signed before a restart.
fn memory(store: &Store, pending: Option<&Pending>) -> Memory {
    let open = store.head_round() + 1;
    let (promised, signed) = store.votes_of(open);
    Memory {
        promised: promised.map(|attempt| (open, attempt)),
        signed,
        frozen: pending.map(|pending| pending.frozen),
    }
}
