//! The handle of a running network.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    base::{
        NodeId,
        limits::{MAX_ADDRESSES, MAX_CONTROL_BYTES, MAX_REPLY_BYTES},
    },
    net::{
        AddressError, BulkError, BulkStream, GossipId, MAX_HELLO_BYTES, Multiaddr, NetError,
        NetLimits, RequestError, ResponseChannel, Traffic, Verdict,
        address::{self, peer_of},
        behaviour::MAX_RECORD_BYTES,
        bulk,
        command::{Command, Errand},
        shared::Shared,
    },
};

/// How long the owner task may take to accept a command: it never waits itself, so this is only
/// reached on a machine that stands still.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a dial of all of a peer's addresses may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(25);
/// How long a look-up or a store in the distributed table may take.
const TABLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long tasks may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Providers that wait to be collected: the table keeps twenty per key.
const PROVIDERS: usize = 64;

/// A cloneable handle of a network. When the last clone is gone, the network stops.
///
/// No call waits for ever: each has a time limit of its own or takes one.
#[derive(Clone, Debug)]
pub struct Net {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
    limits: Arc<NetLimits>,
}

impl Net {
    pub(super) fn new(
        commands: mpsc::Sender<Command>,
        shared: Arc<Shared>,
        limits: NetLimits,
    ) -> Self {
        Self { commands, shared, limits: Arc::new(limits) }
    }

    /// This node's name.
    pub fn node_id(&self) -> NodeId {
        self.shared.me
    }

    /// Addresses this node listens on, each with its peer id.
    pub fn listeners(&self) -> Vec<Multiaddr> {
        self.shared.view().listeners.clone()
    }

    /// Addresses to tell others: those that the operator named, then the ones listened on, at most
    /// [`MAX_ADDRESSES`], each with the peer id.
    pub fn addresses(&self) -> Vec<Multiaddr> {
        let view = self.shared.view();
        view.external.iter().chain(&view.listeners).take(MAX_ADDRESSES).cloned().collect()
    }

    /// Connected peers, in order.
    pub fn connected(&self) -> Vec<NodeId> {
        self.shared.view().connected.keys().copied().collect()
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.shared.view().connected.contains_key(&node)
    }

    /// Bytes moved and events dropped since start.
    pub fn traffic(&self) -> Traffic {
        self.shared.counters.snapshot()
    }

    /// Connects to a peer, at `addrs` and whatever other addresses of it are known.
    ///
    /// # Errors
    /// If no address is known or none leads to the peer.
    pub async fn dial(&self, node: NodeId, addrs: Vec<Multiaddr>) -> Result<(), RequestError> {
        self.add_addresses(node, addrs).await.map_err(stopped)?;
        self.errand(node, DIAL_TIMEOUT, Errand::Connect).await
    }

    /// Connects to the peer that an address names.
    ///
    /// # Errors
    /// If the address names no peer or does not lead to it.
    pub async fn dial_addr(&self, addr: &Multiaddr) -> Result<NodeId, RequestError> {
        let (node, rest) = address::split_peer(addr)?;
        self.dial(node, vec![rest]).await?;
        Ok(node)
    }

    /// Closes all connections to a peer.
    ///
    /// # Errors
    /// If the network is stopped or the id is no key.
    pub async fn disconnect(&self, node: NodeId) -> Result<(), NetError> {
        self.command(Command::Disconnect { peer: key(node)? }).await
    }

    /// Learns addresses of a peer, with or without its peer id; the newest 16 are kept.
    ///
    /// # Errors
    /// If the network is stopped or the id is no key.
    pub async fn add_addresses(&self, node: NodeId, addrs: Vec<Multiaddr>) -> Result<(), NetError> {
        let peer = key(node)?;
        if addrs.is_empty() {
            return Ok(());
        }
        self.command(Command::AddAddresses { peer, addrs }).await
    }

    /// Follows a topic.
    ///
    /// # Errors
    /// If the network is stopped.
    pub async fn subscribe(&self, topic: &str) -> Result<(), NetError> {
        self.command(Command::Subscribe { topic: topic.to_owned(), on: true }).await
    }

    /// Stops following a topic.
    ///
    /// # Errors
    /// If the network is stopped.
    pub async fn unsubscribe(&self, topic: &str) -> Result<(), NetError> {
        self.command(Command::Subscribe { topic: topic.to_owned(), on: false }).await
    }

    /// Publishes to everybody who follows a topic. Bytes that were published already are not sent
    /// again, which is no error.
    ///
    /// # Errors
    /// If the message is too large, nobody connected follows the topic, or all queues are full.
    pub async fn publish(&self, topic: &str, bytes: Vec<u8>) -> Result<(), NetError> {
        check_len(bytes.len(), MAX_CONTROL_BYTES)?;
        let topic = topic.to_owned();
        self.ask(COMMAND_TIMEOUT, |answer| Command::Publish { topic, bytes, answer }).await
    }

    /// Judges a gossip message, where [`NetConfig::validate_gossip`](crate::net::NetConfig) is on.
    ///
    /// # Errors
    /// If the network is stopped.
    pub async fn report(&self, id: GossipId, verdict: Verdict) -> Result<(), NetError> {
        self.command(Command::Report { id, verdict }).await
    }

    /// Sends a one-way message; done when the peer has queued it for its consumer. Dials the peer
    /// if it is not connected.
    ///
    /// # Errors
    /// If the peer cannot be reached, is busy, or does not acknowledge in time
    /// ([`NetLimits::message_timeout`]).
    pub async fn send(&self, node: NodeId, bytes: Vec<u8>) -> Result<(), RequestError> {
        check_request(&bytes)?;
        let limit = self.limits.message_timeout;
        self.errand(node, limit, |answer| Errand::Message(bytes, answer)).await
    }

    /// Sends a request and waits for its reply. Dials the peer if it is not connected.
    ///
    /// # Errors
    /// If the peer cannot be reached, is busy, or does not reply in time.
    pub async fn request(
        &self,
        node: NodeId,
        bytes: Vec<u8>,
        limit: Duration,
    ) -> Result<Vec<u8>, RequestError> {
        check_request(&bytes)?;
        self.errand(node, limit, |answer| Errand::Request(bytes, answer)).await
    }

    /// Replies to a request. Nothing tells whether the reply arrived; the peer may have given up.
    ///
    /// # Errors
    /// If the reply is too large or the network is stopped.
    pub async fn respond(&self, channel: ResponseChannel, bytes: Vec<u8>) -> Result<(), NetError> {
        check_len(bytes.len(), MAX_REPLY_BYTES)?;
        self.command(Command::Respond { channel, bytes }).await
    }

    /// Opens a bulk stream with a hello of at most [`MAX_HELLO_BYTES`], and waits until the peer
    /// accepts it. Dials the peer if it is not connected.
    ///
    /// # Errors
    /// If the peer cannot be reached, refuses, or does not answer in time.
    pub async fn open_bulk(
        &self,
        node: NodeId,
        hello: &[u8],
        limit: Duration,
    ) -> Result<BulkStream, BulkError> {
        if hello.len() > MAX_HELLO_BYTES {
            return Err(BulkError::TooLarge { len: hello.len(), max: MAX_HELLO_BYTES });
        }
        let open = async {
            let mut stream = self.errand(node, limit, Errand::Bulk).await?.0;
            bulk::offer(&mut stream, hello).await?;
            Ok(BulkStream::new(node, stream, &self.shared))
        };
        timeout(limit, open).await.unwrap_or(Err(BulkError::Timeout))
    }

    /// Lists this node under a key in the distributed table, now and again until
    /// [`Net::stop_providing`].
    ///
    /// # Errors
    /// If the network is stopped.
    pub async fn provide(&self, key: [u8; 32]) -> Result<(), NetError> {
        self.command(Command::Provide { key, on: true }).await
    }

    /// Stops renewing the listing; it expires within half an hour.
    ///
    /// # Errors
    /// If the network is stopped.
    pub async fn stop_providing(&self, key: [u8; 32]) -> Result<(), NetError> {
        self.command(Command::Provide { key, on: false }).await
    }

    /// Other nodes that are listed under a key, in order; what was found in time. The table keeps
    /// at most twenty.
    ///
    /// # Errors
    /// If the network is stopped.
    pub async fn find_providers(
        &self,
        key: [u8; 32],
        limit: Duration,
    ) -> Result<Vec<NodeId>, NetError> {
        let deadline = Instant::now() + limit;
        let (found, mut finds) = mpsc::channel(PROVIDERS);
        self.command(Command::FindProviders { key, found }).await?;
        let mut nodes = Vec::new();
        while let Ok(Some(node)) = timeout_at(deadline, finds.recv()).await {
            nodes.push(node);
        }
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// Stores a small value in the distributed table. Anybody may overwrite it: sign what matters.
    ///
    /// # Errors
    /// If the value is too large or no peer took it.
    pub async fn put_record(&self, key: [u8; 32], value: Vec<u8>) -> Result<(), NetError> {
        check_len(value.len(), MAX_RECORD_BYTES - 1)?;
        self.ask(TABLE_TIMEOUT, |answer| Command::PutRecord { key, value, answer }).await
    }

    /// A value from the distributed table, as the first peer that has one tells it; none if nobody
    /// has.
    ///
    /// # Errors
    /// If nobody answered.
    pub async fn get_record(&self, key: [u8; 32]) -> Result<Option<Vec<u8>>, NetError> {
        self.ask(TABLE_TIMEOUT, |answer| Command::GetRecord { key, answer }).await
    }

    /// Looks for a peer's addresses in the distributed table; what is found is remembered for
    /// dials. Empty if nobody knows it.
    ///
    /// # Errors
    /// If the network is stopped or the look-up took too long.
    pub async fn find_peer(&self, node: NodeId) -> Result<Vec<Multiaddr>, NetError> {
        let peer = key(node)?;
        self.ask(TABLE_TIMEOUT, |answer| Command::FindPeer { peer, answer }).await
    }

    /// Closes all connections in order and waits until every task has ended, seven seconds at most.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if timeout(SHUTDOWN_TIMEOUT, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!(left = self.shared.tasks.len(), "network tasks did not end in time");
        }
    }

    async fn errand<T>(
        &self,
        node: NodeId,
        limit: Duration,
        errand: impl FnOnce(oneshot::Sender<Result<T, RequestError>>) -> Errand,
    ) -> Result<T, RequestError> {
        let peer = peer_of(node).ok_or(AddressError::NotAKey(node))?;
        let (answer, outcome) = oneshot::channel();
        let errand = errand(answer);
        let run = async {
            self.command(Command::Errand { peer, errand }).await.map_err(stopped)?;
            outcome.await.unwrap_or(Err(RequestError::Stopped))
        };
        timeout(limit, run).await.unwrap_or(Err(RequestError::Timeout))
    }

    async fn ask<T>(
        &self,
        limit: Duration,
        command: impl FnOnce(oneshot::Sender<Result<T, NetError>>) -> Command,
    ) -> Result<T, NetError> {
        let (answer, outcome) = oneshot::channel();
        self.command(command(answer)).await?;
        match timeout(limit, outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(NetError::Stopped)),
            Err(_) => Err(NetError::Table("no answer in time".to_owned())),
        }
    }

    async fn command(&self, command: Command) -> Result<(), NetError> {
        match timeout(COMMAND_TIMEOUT, self.commands.send(command)).await {
            Ok(sent) => sent.map_err(|_| NetError::Stopped),
            Err(_) => Err(NetError::Busy),
        }
    }
}

fn key(node: NodeId) -> Result<libp2p::PeerId, AddressError> {
    peer_of(node).ok_or(AddressError::NotAKey(node))
}

fn check_len(len: usize, max: usize) -> Result<(), NetError> {
    if len > max { Err(NetError::TooLarge { len, max }) } else { Ok(()) }
}

fn check_request(bytes: &[u8]) -> Result<(), RequestError> {
    let (len, max) = (bytes.len(), MAX_CONTROL_BYTES);
    if len > max { Err(RequestError::TooLarge { len, max }) } else { Ok(()) }
}

fn stopped(error: NetError) -> RequestError {
    match error {
        NetError::Address(error) => RequestError::Address(error),
        NetError::Busy => RequestError::Overloaded,
        _ => RequestError::Stopped,
    }
}
