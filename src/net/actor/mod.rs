//! The task that owns the swarm.

mod book;
mod bootstrap;
mod commands;
mod dials;
mod events;
mod queries;
mod silence;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm,
    core::transport::{ListenerId, TransportError},
    identity::Keypair,
    request_response::OutboundRequestId,
    swarm::{self, ConnectionId, SwarmEvent},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    base::{Digest, Stream},
    net::{
        IncomingBulk, Net, NetConfig, NetError, NetEvent, NetLimits, RequestError,
        address::{multiaddr_with_peer, peer_of, split_peer, without_peer},
        behaviour::{Behaviour, BehaviourEvent},
        command::{Answer, Command, Errand},
        listen::{PortGuard, listen_error, take_port},
        outbox::Outbox,
        shared::Shared,
        transport,
    },
};

use book::Book;
use bootstrap::Bootstrap;
use queries::Query;
use silence::Vigil;

/// Commands that wait for the owner task.
const COMMANDS: usize = 128;
/// Inbound bulk streams whose hello has been read and that wait for the owner task.
const INCOMING: usize = 64;
/// How long after the table has grown listings are renewed, so that growth in bursts costs one.
const REPROVIDE_PAUSE: Duration = Duration::from_millis(300);
/// How long to wait at start until the addresses listened on are known.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long closing all connections may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Starts a network: listens, begins to dial the bootstrap peers, and returns the handle and the
/// one receiver of events. Needs a tokio runtime.
///
/// # Errors
/// If an address cannot be listened on, or a bootstrap address names no peer.
pub async fn start(config: NetConfig) -> Result<(Net, mpsc::Receiver<NetEvent>), NetError> {
    let (events, receiver) = mpsc::channel(config.limits.events.max(1));
    let (sender, commands) = mpsc::channel(COMMANDS);
    let shared = Arc::new(Shared::new(&config));
    let mut owner = Owner::new(&config, Arc::clone(&shared), Outbox::new(events), commands)?;
    owner.listen(&config).await?;
    let net = Net::new(sender, Arc::clone(&shared), config.limits);
    shared.tasks.spawn(owner.run());
    Ok((net, receiver))
}

/// The owner of the swarm and of everything that belongs to its connections.
struct Owner {
    swarm: Swarm<Behaviour>,
    shared: Arc<Shared>,
    limits: NetLimits,
    validate_gossip: bool,
    outbox: Outbox,
    commands: mpsc::Receiver<Command>,
    incoming: mpsc::Receiver<IncomingBulk>,
    incoming_sender: mpsc::Sender<IncomingBulk>,
    bootstrap: Bootstrap,
    book: Book,
    /// Errands that wait for a connection to their peer.
    waiting: BTreeMap<PeerId, Vec<Errand>>,
    /// Dials that were begun for errands.
    dials: HashMap<ConnectionId, PeerId>,
    /// Where the other end of each connection was seen.
    seen: HashMap<ConnectionId, Seen>,
    vigil: Vigil,
    messages: HashMap<OutboundRequestId, Answer<(), RequestError>>,
    requests: HashMap<OutboundRequestId, (PeerId, Answer<Vec<u8>, RequestError>)>,
    queries: HashMap<libp2p::kad::QueryId, Query>,
    provided: BTreeSet<[u8; 32]>,
    reprovide_at: Option<Instant>,
    ports: Vec<PortGuard>,
}

/// The other end of a connection.
struct Seen {
    addr: Multiaddr,
    inbound: bool,
}

impl Owner {
    fn new(
        config: &NetConfig,
        shared: Arc<Shared>,
        outbox: Outbox,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, NetError> {
        let keypair = Keypair::ed25519_from_bytes(config.identity.to_bytes())
            .map_err(|error| NetError::Setup(error.to_string()))?;
        let (incoming_sender, incoming) = mpsc::channel(INCOMING);
        Ok(Self {
            swarm: build_swarm(&keypair, config, &shared)?,
            shared,
            limits: config.limits.clone(),
            validate_gossip: config.validate_gossip,
            outbox,
            commands,
            incoming,
            incoming_sender,
            bootstrap: read_bootstrap(config)?,
            book: Book::default(),
            waiting: BTreeMap::new(),
            dials: HashMap::new(),
            seen: HashMap::new(),
            vigil: Vigil::new(),
            messages: HashMap::new(),
            requests: HashMap::new(),
            queries: HashMap::new(),
            provided: BTreeSet::new(),
            reprovide_at: None,
            ports: Vec::new(),
        })
    }

    /// Takes the ports and waits until the addresses are known.
    async fn listen(&mut self, config: &NetConfig) -> Result<(), NetError> {
        for addr in &config.external {
            let full = multiaddr_with_peer(addr, self.shared.me)?;
            self.swarm.add_external_address(without_peer(addr.clone()));
            self.shared.view_mut().external.push(full);
        }
        let mut open = HashSet::new();
        for addr in &config.listen {
            open.insert(self.listen_on(addr, config.default_port_fallback)?);
        }
        let known = async {
            while !open.is_empty() {
                let event = self.swarm.select_next_some().await;
                if let SwarmEvent::NewListenAddr { listener_id, .. } = &event {
                    open.remove(listener_id);
                }
                self.on_swarm_event(event);
            }
        };
        // A listener without addresses (no network yet) is fine: they come as events.
        let _ = timeout(LISTEN_TIMEOUT, known).await;
        Ok(())
    }

    fn listen_on(&mut self, addr: &Multiaddr, fallback: bool) -> Result<ListenerId, NetError> {
        let (addr, guard) = take_port(&without_peer(addr.clone()), fallback)?;
        self.ports.extend(guard);
        self.swarm.listen_on(addr.clone()).map_err(|error| match error {
            TransportError::MultiaddrNotSupported(_) => {
                listen_error(&addr, "only TCP on an IP address of this machine is supported")
            }
            TransportError::Other(error) => listen_error(&addr, &error.to_string()),
        })
    }

    /// Runs until the handles are gone or the network is shut down.
    async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            let timer = self.next_timer();
            tokio::select! {
                () = stop.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.on_command(command),
                    None => break,
                },
                Some(stream) = self.incoming.recv() => self.on_incoming_bulk(stream),
                () = self.outbox.flush_one() => {}
                () = at(timer) => self.on_timer(),
                event = self.swarm.select_next_some() => self.on_swarm_event(event),
            }
        }
        self.say_goodbye().await;
    }

    fn next_timer(&self) -> Option<Instant> {
        [self.bootstrap.next_due(), self.reprovide_at, self.next_check()]
            .into_iter()
            .flatten()
            .min()
    }

    fn on_timer(&mut self) {
        let now = Instant::now();
        self.dial_bootstrap(now);
        self.reprovide(now);
        self.close_silent(now);
    }

    /// Closes all connections, so that peers know at once.
    async fn say_goodbye(mut self) {
        self.shared.stop.cancel();
        let peers: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in peers {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        let closed = async {
            while self.swarm.connected_peers().next().is_some() {
                self.swarm.select_next_some().await;
            }
        };
        let _ = timeout(GOODBYE_TIMEOUT, closed).await;
        let mut view = self.shared.view_mut();
        view.connected.clear();
        view.listeners.clear();
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn build_swarm(
    keypair: &Keypair,
    config: &NetConfig,
    shared: &Arc<Shared>,
) -> Result<Swarm<Behaviour>, NetError> {
    let stall = config.limits.ping_interval + config.limits.ping_timeout;
    let transport = transport::build(keypair, shared, stall)?;
    let behaviour = Behaviour::new(keypair.public(), config, shared)?;
    let tasks = shared.tasks.clone();
    let executor = move |task: Pin<Box<dyn Future<Output = ()> + Send>>| drop(tasks.spawn(task));
    let swarm_config = swarm::Config::with_executor(executor)
        .with_idle_connection_timeout(config.limits.idle_timeout);
    Ok(Swarm::new(transport, behaviour, keypair.public().to_peer_id(), swarm_config))
}

fn read_bootstrap(config: &NetConfig) -> Result<Bootstrap, NetError> {
    let me = config.identity.node_id();
    let mut peers = Vec::new();
    for addr in &config.bootstrap {
        let (node, addr) = split_peer(addr)?;
        match peer_of(node) {
            Some(_) if node == me => tracing::info!(%addr, "a bootstrap peer is this node itself"),
            Some(peer) => peers.push((peer, addr)),
            None => return Err(crate::net::AddressError::NotAKey(node).into()),
        }
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| NetError::Setup(error.to_string()))?;
    let random = Stream::new(&Digest(seed), "net/bootstrap");
    Ok(Bootstrap::new(peers, config.limits.bootstrap_backoff_max, random))
}
