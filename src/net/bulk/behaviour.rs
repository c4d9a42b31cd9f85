//! The behaviour of bulk streams: remembers connections, passes streams through.

use std::{
    collections::{BTreeMap, VecDeque},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId, Stream,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionClosed, ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour,
        NotifyHandler, ToSwarm, behaviour::ConnectionEstablished,
    },
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::handler::{Accepted, Handler, Open, Opened};
use crate::net::RequestError;

/// A peer opened a stream; its hello has not been read.
#[derive(Debug)]
pub(in crate::net) struct Inbound {
    /// The peer.
    pub(in crate::net) peer: PeerId,
    /// The stream.
    pub(in crate::net) stream: Stream,
    /// Given back when the handshake is over.
    pub(in crate::net) permit: OwnedSemaphorePermit,
}

/// Opens and receives raw bulk streams.
#[derive(Default)]
pub(in crate::net) struct Behaviour {
    connections: BTreeMap<PeerId, Vec<ConnectionId>>,
    // As long as commands and inbound streams that the owner has not polled yet; both are bounded.
    actions: VecDeque<ToSwarm<Inbound, Open>>,
}

impl Behaviour {
    /// Opens a stream on the peer's oldest connection; the outcome comes through `reply`, which is
    /// dropped if the connection ends first.
    pub(in crate::net) fn open(
        &mut self,
        peer: PeerId,
        reply: oneshot::Sender<Result<Opened, RequestError>>,
    ) {
        let Some(&connection) = self.connections.get(&peer).and_then(|all| all.first()) else {
            let _ = reply.send(Err(RequestError::Lost("the connection has ended".to_owned())));
            return;
        };
        self.actions.push_back(ToSwarm::NotifyHandler {
            peer_id: peer,
            handler: NotifyHandler::One(connection),
            event: Open { reply },
        });
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Inbound;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<Handler, ConnectionDenied> {
        Ok(Handler::default())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<Handler, ConnectionDenied> {
        Ok(Handler::default())
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id,
                connection_id,
                ..
            }) => self.connections.entry(peer_id).or_default().push(connection_id),
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, .. }) => {
                if let Some(all) = self.connections.get_mut(&peer_id) {
                    all.retain(|&connection| connection != connection_id);
                    if all.is_empty() {
                        self.connections.remove(&peer_id);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        peer: PeerId,
        _: ConnectionId,
        Accepted { stream, permit }: Accepted,
    ) {
        self.actions.push_back(ToSwarm::GenerateEvent(Inbound { peer, stream, permit }));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Inbound, Open>> {
        self.actions.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}
