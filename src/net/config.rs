//! What a network needs to know at start, and its bounds.

use std::time::Duration;

use crate::{identity::Identity, net::Multiaddr};

/// How to start a network. [`NetConfig::new`] gives one that works.
#[derive(Debug, Clone)]
pub struct NetConfig {
    /// The node's key, which is its name.
    pub identity: Identity,
    /// Addresses to listen on; empty means that nobody can dial this node.
    pub listen: Vec<Multiaddr>,
    /// Whether a taken port gives way to the next free one (for defaults), or is an error.
    pub default_port_fallback: bool,
    /// Addresses under which others reach this node, as an operator knows them.
    pub external: Vec<Multiaddr>,
    /// Peers to be connected to for ever, each with `/p2p/<peer id>`.
    pub bootstrap: Vec<Multiaddr>,
    /// Whether to store and answer for others in the distributed table.
    pub kad_server: bool,
    /// Program and version, told to peers.
    pub agent: String,
    /// Whether gossip waits for [`Net::report`](crate::net::Net::report) before it is forwarded.
    pub validate_gossip: bool,
    /// Bytes per second sent on bulk streams and in replies, all peers together.
    pub upload_limit: Option<u64>,
    /// Bytes per second received on bulk streams and in replies, all peers together.
    pub download_limit: Option<u64>,
    /// For tests: frames of bulk streams leave the sender this much later, as on a long link.
    pub test_latency: Option<Duration>,
    /// Bounds and timeouts.
    pub limits: NetLimits,
}

impl NetConfig {
    /// A configuration that listens nowhere and knows nobody.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            listen: Vec::new(),
            default_port_fallback: false,
            external: Vec::new(),
            bootstrap: Vec::new(),
            kad_server: true,
            agent: concat!("dilocox/", env!("CARGO_PKG_VERSION")).to_owned(),
            validate_gossip: false,
            upload_limit: None,
            download_limit: None,
            test_latency: None,
            limits: NetLimits::default(),
        }
    }
}

/// Bounds and timeouts of a network.
#[derive(Debug, Clone)]
pub struct NetLimits {
    /// Events that wait for the consumer; beyond it gossip is dropped and requests are refused.
    pub events: usize,
    /// Connections that others may open to this node.
    pub inbound_connections: u32,
    /// Connections that this node opens.
    pub outbound_connections: u32,
    /// Connections to one peer: two that dialled each other, and one more that replaces a dying one.
    pub connections_per_peer: u32,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// How often a connection is probed.
    pub ping_interval: Duration,
    /// How long a connection is believed alive after a probe that stays unanswered while its bulk
    /// streams stand still.
    pub ping_timeout: Duration,
    /// How long a one-way message may wait for its acknowledgement.
    pub message_timeout: Duration,
    /// The longest that a request may wait for its reply, whatever its caller says.
    pub request_timeout: Duration,
    /// How long a bulk sender waits without progress before it gives up.
    pub bulk_stall: Duration,
    /// The longest pause between two tries at an unreachable bootstrap peer.
    pub bootstrap_backoff_max: Duration,
    /// How often the distributed table is refreshed.
    pub kad_refresh: Duration,
}

impl Default for NetLimits {
    fn default() -> Self {
        Self {
            events: 1024,
            inbound_connections: 512,
            outbound_connections: 512,
            connections_per_peer: 3,
            idle_timeout: Duration::from_secs(300),
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(180),
            bulk_stall: Duration::from_secs(60),
            bootstrap_backoff_max: Duration::from_secs(60),
            kad_refresh: Duration::from_secs(60),
        }
    }
}
