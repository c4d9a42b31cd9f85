//! What the swarm reports, one function per kind.

use std::sync::Arc;

use libp2p::{
    Multiaddr, PeerId,
    core::ConnectedPoint,
    gossipsub, identify,
    multiaddr::Protocol,
    request_response::{self, Message, OutboundFailure, OutboundRequestId},
    swarm::{ConnectionId, SwarmEvent},
};

use super::{BehaviourEvent, Owner, Seen};
use crate::{
    base::limits::MAX_ADDRESSES,
    net::{
        GossipId, IncomingBulk, NetEvent, RequestError, ResponseChannel, Verdict,
        address::{ip_of, multiaddr_with_peer, node_of, tcp_port_of, usable, without_peer},
        behaviour::KAD_PROTOCOL,
        bulk::{Inbound, read_hello},
        codec::Reply,
    },
};

impl Owner {
    /// Handles an event of the swarm.
    pub(super) fn on_swarm_event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.on_behaviour_event(event),
            SwarmEvent::NewListenAddr { address, .. } => self.on_listening(&address),
            SwarmEvent::ExpiredListenAddr { address, .. } => self.on_not_listening(&address),
            SwarmEvent::ListenerClosed { addresses, .. } => {
                addresses.iter().for_each(|address| self.on_not_listening(address));
            }
            SwarmEvent::ConnectionEstablished {
                peer_id,
                connection_id,
                endpoint,
                num_established,
                ..
            } => self.on_connected(peer_id, connection_id, endpoint, num_established.get() == 1),
            SwarmEvent::ConnectionClosed {
                peer_id, connection_id, num_established, cause, ..
            } => {
                tracing::debug!(%peer_id, ?cause, left = num_established, "connection closed");
                self.on_closed(peer_id, connection_id, num_established == 0);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.on_dial_failed(connection_id, peer_id, &error);
            }
            SwarmEvent::IncomingConnectionError { error, send_back_addr, .. } => {
                tracing::debug!(%send_back_addr, %error, "an inbound connection failed");
            }
            _ => {}
        }
    }

    fn on_behaviour_event(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Ping(event) => self.on_ping(event),
            BehaviourEvent::Identify(identify::Event::Received {
                connection_id,
                peer_id,
                info,
            }) => self.on_identified(connection_id, peer_id, &info),
            BehaviourEvent::Kad(event) => self.on_kad(event),
            BehaviourEvent::Gossip(event) => self.on_gossip(event),
            BehaviourEvent::Messages(event) => self.on_message_event(event),
            BehaviourEvent::Requests(event) => self.on_request_event(event),
            BehaviourEvent::Bulk(inbound) => self.on_inbound_bulk(inbound),
            BehaviourEvent::Identify(_) => {}
        }
    }

    fn on_listening(&mut self, address: &Multiaddr) {
        let Ok(addr) = multiaddr_with_peer(address, self.shared.me) else { return };
        self.shared.view_mut().listeners.push(addr.clone());
        self.outbox.note(NetEvent::Listening(addr));
    }

    fn on_not_listening(&self, address: &Multiaddr) {
        let mut view = self.shared.view_mut();
        view.listeners.retain(|addr| without_peer(addr.clone()) != *address);
    }

    fn on_connected(
        &mut self,
        peer: PeerId,
        connection: ConnectionId,
        endpoint: ConnectedPoint,
        first: bool,
    ) {
        let inbound = endpoint.is_listener();
        let addr = without_peer(endpoint.get_remote_address().clone());
        if !inbound {
            let swarm = &self.swarm;
            self.book.add(peer, addr.clone(), |other| swarm.is_connected(other));
        }
        self.seen.insert(connection, Seen { addr: addr.clone(), inbound });
        self.dials.remove(&connection);
        self.on_alive(peer, connection);
        if first && let Some(node) = node_of(&peer) {
            self.shared.view_mut().connected.insert(node, Arc::default());
            self.outbox.note(NetEvent::PeerConnected { node, addr });
            self.on_bootstrap_connected(peer);
        }
        self.run_errands(peer);
    }

    fn on_closed(&mut self, peer: PeerId, connection: ConnectionId, last: bool) {
        self.seen.remove(&connection);
        self.vigil.remove(&connection);
        if last && let Some(node) = node_of(&peer) {
            self.shared.view_mut().connected.remove(&node);
            self.outbox.note(NetEvent::PeerDisconnected { node });
            self.bootstrap.disconnected(&peer);
        }
    }

    /// Learns where a peer can be dialled, from what it says and from where it was seen.
    fn on_identified(&mut self, connection: ConnectionId, peer: PeerId, info: &identify::Info) {
        let Some(seen) = self.seen.get(&connection) else { return };
        let claimed = info.listen_addrs.iter().take(MAX_ADDRESSES).cloned();
        let mut addrs: Vec<Multiaddr> = claimed.filter(|addr| usable(addr, &seen.addr)).collect();
        if seen.inbound {
            addrs.extend(mapped(&seen.addr, &addrs));
        }
        let in_table = info.protocols.contains(&KAD_PROTOCOL);
        for addr in addrs {
            let swarm = &self.swarm;
            self.book.add(peer, addr.clone(), |other| swarm.is_connected(other));
            if in_table {
                self.swarm.behaviour_mut().kad.add_address(&peer, addr);
            }
        }
    }

    fn on_gossip(&mut self, event: gossipsub::Event) {
        let gossipsub::Event::Message { propagation_source: source, message_id, message } = event
        else {
            return;
        };
        let Some(from) = node_of(&source) else { return };
        self.shared.counters.control_received(message.data.len());
        let id = GossipId { message: message_id, source };
        let (topic, bytes) = (message.topic.into_string(), message.data);
        if let Err(NetEvent::Gossip { id, .. }) =
            self.outbox.offer(NetEvent::Gossip { topic, from, bytes, id })
        {
            self.shared.counters.gossip_dropped(1);
            self.report(&id, Verdict::Ignore);
        }
    }

    fn on_message_event(&mut self, event: request_response::Event<Vec<u8>, Reply>) {
        match event {
            request_response::Event::Message { peer, message, .. } => match message {
                Message::Request { request, channel, .. } => {
                    let reply = self.take_message(peer, request);
                    let _ = self.swarm.behaviour_mut().messages.send_response(channel, reply);
                }
                Message::Response { request_id, response } => {
                    self.on_acknowledged(request_id, taken(response).map(drop));
                }
            },
            request_response::Event::OutboundFailure { request_id, error, .. } => {
                self.on_acknowledged(request_id, Err(failure(error)));
            }
            _ => {}
        }
    }

    fn take_message(&mut self, peer: PeerId, bytes: Vec<u8>) -> Reply {
        let Some(from) = node_of(&peer) else { return Reply::Busy };
        match self.outbox.offer(NetEvent::Message { from, bytes }) {
            Ok(()) => Reply::Taken(Vec::new()),
            Err(_) => {
                self.shared.counters.refused_busy(1);
                Reply::Busy
            }
        }
    }

    fn on_acknowledged(&mut self, id: OutboundRequestId, outcome: Result<(), RequestError>) {
        if let Some(answer) = self.messages.remove(&id) {
            let _ = answer.send(outcome);
        }
    }

    fn on_request_event(&mut self, event: request_response::Event<Vec<u8>, Reply>) {
        match event {
            request_response::Event::Message { peer, message, .. } => match message {
                Message::Request { request, channel, .. } => {
                    self.on_request(peer, request, ResponseChannel(channel));
                }
                Message::Response { request_id, response } => {
                    self.on_reply(request_id, taken(response));
                }
            },
            request_response::Event::OutboundFailure { request_id, error, .. } => {
                self.on_reply(request_id, Err(failure(error)));
            }
            _ => {}
        }
    }

    fn on_request(&mut self, peer: PeerId, bytes: Vec<u8>, channel: ResponseChannel) {
        let Some(from) = node_of(&peer) else { return };
        let offered = self.outbox.offer(NetEvent::Request { from, bytes, channel });
        if let Err(NetEvent::Request { channel, .. }) = offered {
            self.shared.counters.refused_busy(1);
            let _ = self.swarm.behaviour_mut().requests.send_response(channel.0, Reply::Busy);
        }
    }

    fn on_reply(&mut self, id: OutboundRequestId, outcome: Result<Vec<u8>, RequestError>) {
        if let Some((_, answer)) = self.requests.remove(&id) {
            let _ = answer.send(outcome);
        }
    }

    /// Reads the hello of a stream in a task of its own, which ends within seconds.
    fn on_inbound_bulk(&mut self, Inbound { peer, mut stream, permit }: Inbound) {
        let Some(from) = node_of(&peer) else { return };
        let (shared, incoming) = (Arc::clone(&self.shared), self.incoming_sender.clone());
        let stop = self.shared.stop.clone();
        let read = async move {
            match read_hello(&mut stream).await {
                Ok(hello) => {
                    let _ = incoming.send(IncomingBulk::new(from, hello, stream, shared)).await;
                }
                Err(error) => tracing::debug!(%from, %error, "a bulk stream without a hello"),
            }
            drop(permit);
        };
        self.shared.tasks.spawn(async move {
            stop.run_until_cancelled(read).await;
        });
    }

    /// Offers a stream to the consumer; refuses it if that is behind.
    pub(super) fn on_incoming_bulk(&mut self, stream: IncomingBulk) {
        if let Err(NetEvent::BulkStream(stream)) = self.outbox.offer(NetEvent::BulkStream(stream)) {
            self.shared.counters.refused_busy(1);
            let stop = self.shared.stop.clone();
            self.shared.tasks.spawn(async move {
                stop.run_until_cancelled(stream.refuse("the node is busy")).await;
            });
        }
    }
}

/// The address that a router may map to the peer: where it was seen, with a port it listens on.
fn mapped(seen: &Multiaddr, claimed: &[Multiaddr]) -> Option<Multiaddr> {
    let ip = ip_of(seen)?;
    if claimed.iter().any(|addr| ip_of(addr) == Some(ip)) {
        return None;
    }
    let port = claimed.iter().find_map(tcp_port_of)?;
    Some(Multiaddr::from(ip).with(Protocol::Tcp(port)))
}

fn taken(reply: Reply) -> Result<Vec<u8>, RequestError> {
    match reply {
        Reply::Taken(bytes) => Ok(bytes),
        Reply::Busy => Err(RequestError::Busy),
    }
}

fn failure(error: OutboundFailure) -> RequestError {
    match error {
        OutboundFailure::DialFailure => RequestError::Unreachable(error.to_string()),
        OutboundFailure::Timeout => RequestError::Timeout,
        OutboundFailure::ConnectionClosed => {
            RequestError::Lost("it was closed before a reply came".to_owned())
        }
        OutboundFailure::UnsupportedProtocols => RequestError::Unsupported,
        OutboundFailure::Io(error) => RequestError::Lost(error.to_string()),
    }
}
