//! The protocols of a node, composed.

use std::{sync::Arc, time::Duration};

use libp2p::{
    PeerId, StreamProtocol, connection_limits,
    gossipsub::{
        self, AllowAllSubscriptionFilter, IdentityTransform, MaxCountSubscriptionFilter,
        MessageAuthenticity, MessageId, ValidationMode,
    },
    identify,
    identity::PublicKey,
    kad::{self, store::MemoryStore, store::MemoryStoreConfig},
    ping,
    request_response::{self, ProtocolSupport},
    swarm::NetworkBehaviour,
};

use crate::{
    base::limits::{MAX_CONTROL_BYTES, MAX_REPLY_BYTES},
    net::{NetConfig, NetError, NetLimits, bulk, codec::BytesCodec, shared::Shared},
};

/// One-way messages with an acknowledgement.
const MESSAGE_PROTOCOL: StreamProtocol = StreamProtocol::new("/dilocox/message/1");
/// Requests with a reply.
const REQUEST_PROTOCOL: StreamProtocol = StreamProtocol::new("/dilocox/request/1");
/// The distributed table.
pub(super) const KAD_PROTOCOL: StreamProtocol = StreamProtocol::new("/dilocox/kad/1");
/// What identify calls the protocol family.
const FAMILY: &str = "dilocox/1";
/// Room in a gossip packet for topics and framing.
const GOSSIP_SLACK_BYTES: usize = 1024;
/// Topics of one peer: a run has a few, and a node follows one run.
const MAX_TOPICS: usize = 64;
/// Gossip messages that wait for one slow peer.
const GOSSIP_QUEUE: usize = 512;
/// Messages and requests under way on one connection, both directions together.
const MAX_EXCHANGES: usize = 128;
/// Bytes of a value in the distributed table: a packet there has 16 KiB.
pub(super) const MAX_RECORD_BYTES: usize = 8 * 1024;
/// Connections that are still shaking hands, each direction.
const MAX_PENDING: u32 = 128;

/// The gossip behaviour's full type.
pub(super) type Gossip =
    gossipsub::Behaviour<IdentityTransform, MaxCountSubscriptionFilter<AllowAllSubscriptionFilter>>;

/// Everything that a node speaks. Limits come first, so that nothing else sees refused connections.
#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    limits: connection_limits::Behaviour,
    pub(super) ping: ping::Behaviour,
    pub(super) identify: identify::Behaviour,
    pub(super) kad: kad::Behaviour<MemoryStore>,
    pub(super) gossip: Gossip,
    pub(super) messages: request_response::Behaviour<BytesCodec>,
    pub(super) requests: request_response::Behaviour<BytesCodec>,
    pub(super) bulk: bulk::Behaviour,
}

impl Behaviour {
    /// Composes the behaviour.
    pub(super) fn new(
        key: PublicKey,
        config: &NetConfig,
        shared: &Arc<Shared>,
    ) -> Result<Self, NetError> {
        let me = key.to_peer_id();
        let limits = &config.limits;
        Ok(Self {
            limits: connection_limits(limits),
            ping: ping(limits),
            identify: identify(key, config),
            kad: kademlia(me, config),
            gossip: gossip(config)?,
            messages: exchange(MESSAGE_PROTOCOL, 0, limits.message_timeout, shared),
            requests: exchange(REQUEST_PROTOCOL, MAX_REPLY_BYTES, limits.request_timeout, shared),
            bulk: bulk::Behaviour::default(),
        })
    }
}

fn connection_limits(limits: &NetLimits) -> connection_limits::Behaviour {
    let limits = connection_limits::ConnectionLimits::default()
        .with_max_pending_incoming(Some(MAX_PENDING))
        .with_max_pending_outgoing(Some(MAX_PENDING))
        .with_max_established_incoming(Some(limits.inbound_connections))
        .with_max_established_outgoing(Some(limits.outbound_connections))
        .with_max_established_per_peer(Some(limits.connections_per_peer));
    connection_limits::Behaviour::new(limits)
}

fn ping(limits: &NetLimits) -> ping::Behaviour {
    ping::Behaviour::new(
        ping::Config::new().with_interval(limits.ping_interval).with_timeout(limits.ping_timeout),
    )
}

fn identify(key: PublicKey, config: &NetConfig) -> identify::Behaviour {
    // Without its cache: the owner task keeps addresses, after it has looked at them.
    identify::Behaviour::new(
        identify::Config::new(FAMILY.to_owned(), key)
            .with_agent_version(config.agent.clone())
            .with_push_listen_addr_updates(true)
            .with_cache_size(0),
    )
}

fn kademlia(me: PeerId, config: &NetConfig) -> kad::Behaviour<MemoryStore> {
    let store = MemoryStoreConfig { max_value_bytes: MAX_RECORD_BYTES, ..Default::default() };
    let mut table = kad::Config::new(KAD_PROTOCOL);
    table
        .set_query_timeout(Duration::from_secs(30))
        .set_periodic_bootstrap_interval(Some(config.limits.kad_refresh))
        // A node that vanishes is out of the lists after half an hour.
        .set_provider_record_ttl(Some(Duration::from_secs(30 * 60)))
        .set_provider_publication_interval(Some(Duration::from_secs(10 * 60)))
        .set_record_ttl(Some(Duration::from_secs(60 * 60)))
        .set_replication_interval(Some(Duration::from_secs(30 * 60)))
        .set_publication_interval(Some(Duration::from_secs(20 * 60)));
    let mut kad = kad::Behaviour::with_config(me, MemoryStore::with_config(me, store), table);
    kad.set_mode(Some(if config.kad_server { kad::Mode::Server } else { kad::Mode::Client }));
    kad
}

/// Gossip without authors: payloads carry their own signatures, and equal bytes are one message.
/// The mesh holds 4 to 12 peers where there are so many; a publisher sends to everybody it knows,
/// so a small network needs no mesh and a large one saves a hop.
fn gossip(config: &NetConfig) -> Result<Gossip, NetError> {
    let mut builder = gossipsub::ConfigBuilder::default();
    builder
        .validation_mode(ValidationMode::Anonymous)
        .message_id_fn(|message| MessageId::new(blake3::hash(&message.data).as_bytes()))
        .max_transmit_size(MAX_CONTROL_BYTES + GOSSIP_SLACK_BYTES)
        .flood_publish(true)
        .mesh_n_low(4)
        .mesh_n(6)
        .mesh_n_high(12)
        .mesh_outbound_min(2)
        .heartbeat_initial_delay(Duration::from_millis(200))
        .heartbeat_interval(Duration::from_millis(700))
        // A restarted or healed peer is back in the mesh soon.
        .prune_backoff(Duration::from_secs(10))
        .duplicate_cache_time(Duration::from_secs(120))
        .connection_handler_queue_len(GOSSIP_QUEUE);
    if config.validate_gossip {
        builder.validate_messages();
    }
    let setup = |error: String| NetError::Setup(error);
    let filter = MaxCountSubscriptionFilter {
        filter: AllowAllSubscriptionFilter {},
        max_subscribed_topics: MAX_TOPICS,
        max_subscriptions_per_request: MAX_TOPICS,
    };
    gossipsub::Behaviour::new_with_subscription_filter(
        MessageAuthenticity::Anonymous,
        builder.build().map_err(|error| setup(error.to_string()))?,
        filter,
    )
    .map_err(|error| setup(error.to_owned()))
}

fn exchange(
    protocol: StreamProtocol,
    max_reply: usize,
    timeout: Duration,
    shared: &Arc<Shared>,
) -> request_response::Behaviour<BytesCodec> {
    let codec =
        BytesCodec { max_request: MAX_CONTROL_BYTES, max_reply, shared: Arc::clone(shared) };
    let config = request_response::Config::default()
        .with_request_timeout(timeout)
        .with_max_concurrent_streams(MAX_EXCHANGES);
    request_response::Behaviour::with_codec(codec, [(protocol, ProtocolSupport::Full)], config)
}
