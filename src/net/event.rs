//! What a network tells its consumer.

use std::time::Duration;

use libp2p::{Multiaddr, PeerId, gossipsub::MessageId, request_response};

use crate::{
    base::NodeId,
    net::{bulk::IncomingBulk, codec::Reply},
};

/// Something happened on the network.
///
/// The channel is bounded. While it is full, gossip is dropped and counted, messages, requests and
/// bulk streams are refused as busy, and only what describes connections is kept, one entry per
/// peer, until there is room. So the network never waits for its consumer, and a consumer may call
/// the handle while it handles an event.
#[derive(Debug)]
pub enum NetEvent {
    /// The node can be dialled at this address, which ends in its peer id.
    Listening(Multiaddr),
    /// The first connection to a peer stands.
    PeerConnected {
        /// The peer.
        node: NodeId,
        /// Where it was seen: an address to dial if this node dialled, else a passing one.
        addr: Multiaddr,
    },
    /// The last connection to a peer has ended.
    PeerDisconnected {
        /// The peer.
        node: NodeId,
    },
    /// A gossip message, once per content.
    Gossip {
        /// The topic.
        topic: String,
        /// Who passed it on, which need not be its author.
        from: NodeId,
        /// The payload.
        bytes: Vec<u8>,
        /// For [`Net::report`](crate::net::Net::report), where gossip is validated.
        id: GossipId,
    },
    /// A one-way message; it has been acknowledged.
    Message {
        /// The peer.
        from: NodeId,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// A request that waits for [`Net::respond`](crate::net::Net::respond).
    Request {
        /// The peer.
        from: NodeId,
        /// The payload.
        bytes: Vec<u8>,
        /// Where the reply goes; dropping it ends the request without one.
        channel: ResponseChannel,
    },
    /// A peer offers a bulk stream that waits to be accepted or refused.
    BulkStream(IncomingBulk),
    /// A peer that this node was asked to reach could not be dialled.
    DialFailed {
        /// The peer.
        node: Option<NodeId>,
        /// An address that was tried, if any.
        addr: Option<Multiaddr>,
        /// Why, in one sentence.
        error: String,
    },
    /// A bootstrap peer could not be dialled; the next try is already planned.
    BootstrapUnreachable {
        /// The address, with the peer id.
        addr: Multiaddr,
        /// Why, in one sentence.
        error: String,
        /// Tries since it was last connected, from 1.
        attempt: u32,
        /// When it is tried again.
        retry_in: Duration,
    },
    /// A bootstrap peer is connected.
    BootstrapReached {
        /// The address, with the peer id.
        addr: Multiaddr,
        /// The peer.
        node: NodeId,
    },
}

/// Names one gossip message for a verdict.
#[derive(Debug, Clone)]
pub struct GossipId {
    pub(super) message: MessageId,
    pub(super) source: PeerId,
}

/// What the consumer thinks of a gossip message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Pass it on.
    Accept,
    /// Wrong: do not pass it on.
    Reject,
    /// Useless but harmless: do not pass it on.
    Ignore,
}

/// Where the reply to one request goes.
#[derive(Debug)]
pub struct ResponseChannel(pub(super) request_response::ResponseChannel<Reply>);

impl ResponseChannel {
    /// Whether the peer still waits.
    pub fn is_open(&self) -> bool {
        self.0.is_open()
    }
}
