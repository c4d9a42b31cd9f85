//! What the handle asks of the owner task.

use libp2p::{Multiaddr, PeerId};
use tokio::sync::{mpsc, oneshot};

use crate::{
    base::NodeId,
    net::{GossipId, NetError, RequestError, ResponseChannel, Verdict, bulk::Opened},
};

/// Where an outcome goes; dropped if the network stops first.
pub(super) type Answer<T, E> = oneshot::Sender<Result<T, E>>;

/// A command to the owner task.
pub(super) enum Command {
    /// Learn addresses of a peer.
    AddAddresses { peer: PeerId, addrs: Vec<Multiaddr> },
    /// Do something that needs a connection.
    Errand { peer: PeerId, errand: Errand },
    /// Close all connections to a peer.
    Disconnect { peer: PeerId },
    /// Follow a topic, or stop.
    Subscribe { topic: String, on: bool },
    /// Publish on a topic.
    Publish { topic: String, bytes: Vec<u8>, answer: Answer<(), NetError> },
    /// Judge a gossip message.
    Report { id: GossipId, verdict: Verdict },
    /// Reply to a request.
    Respond { channel: ResponseChannel, bytes: Vec<u8> },
    /// Be listed under a key, or stop.
    Provide { key: [u8; 32], on: bool },
    /// Look who is listed under a key; finds go out one by one, the end closes the channel.
    FindProviders { key: [u8; 32], found: mpsc::Sender<NodeId> },
    /// Store a small value.
    PutRecord { key: [u8; 32], value: Vec<u8>, answer: Answer<(), NetError> },
    /// Fetch a small value.
    GetRecord { key: [u8; 32], answer: Answer<Option<Vec<u8>>, NetError> },
    /// Look for addresses of a peer.
    FindPeer { peer: PeerId, answer: Answer<Vec<Multiaddr>, NetError> },
}

/// Something that needs a connection to a peer, and waits while it is dialled.
pub(super) enum Errand {
    /// The connection itself.
    Connect(Answer<(), RequestError>),
    /// A one-way message.
    Message(Vec<u8>, Answer<(), RequestError>),
    /// A request.
    Request(Vec<u8>, Answer<Vec<u8>, RequestError>),
    /// A raw bulk stream.
    Bulk(Answer<Opened, RequestError>),
}

impl Errand {
    /// Ends the errand without success.
    pub(super) fn fail(self, error: RequestError) {
        match self {
            Self::Connect(answer) | Self::Message(_, answer) => drop(answer.send(Err(error))),
            Self::Request(_, answer) => drop(answer.send(Err(error))),
            Self::Bulk(answer) => drop(answer.send(Err(error))),
        }
    }

    /// Whether nobody waits for the outcome any more.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Connect(answer) | Self::Message(_, answer) => answer.is_closed(),
            Self::Request(_, answer) => answer.is_closed(),
            Self::Bulk(answer) => answer.is_closed(),
        }
    }
}
