//! Commands from the handle, one function each.

use libp2p::{
    Multiaddr, PeerId,
    gossipsub::{IdentTopic, MessageAcceptance, PublishError},
    kad::{Quorum, Record, RecordKey},
};
use tokio::time::Instant;

use super::{Owner, queries::Query};
use crate::net::{GossipId, NetError, ResponseChannel, Verdict, codec::Reply, command::Command};

/// Look-ups in the distributed table under way.
const MAX_QUERIES: usize = 256;

impl Owner {
    /// Carries a command out.
    pub(super) fn on_command(&mut self, command: Command) {
        match command {
            Command::AddAddresses { peer, addrs } => self.add_addresses(peer, addrs),
            Command::Errand { peer, errand } => self.on_errand(peer, errand),
            Command::Disconnect { peer } => drop(self.swarm.disconnect_peer_id(peer)),
            Command::Subscribe { topic, on } => self.subscribe(topic, on),
            Command::Publish { topic, bytes, answer } => {
                drop(answer.send(self.publish(topic, bytes)));
            }
            Command::Report { id, verdict } => self.report(&id, verdict),
            Command::Respond { channel, bytes } => self.respond(channel, bytes),
            Command::Provide { key, on } => self.provide(key, on),
            Command::FindProviders { .. }
            | Command::PutRecord { .. }
            | Command::GetRecord { .. }
            | Command::FindPeer { .. } => self.start_query(command),
        }
    }

    fn add_addresses(&mut self, peer: PeerId, addrs: Vec<Multiaddr>) {
        let swarm = &self.swarm;
        // The list's first is the caller's favourite, and the newest is dialled first.
        for addr in addrs.into_iter().take(crate::base::limits::MAX_ADDRESSES).rev() {
            self.book.add(peer, addr, |other| swarm.is_connected(other));
        }
    }

    fn subscribe(&mut self, topic: String, on: bool) {
        let topic = IdentTopic::new(topic);
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        if !on {
            gossip.unsubscribe(&topic);
        } else if let Err(error) = gossip.subscribe(&topic) {
            tracing::warn!(%topic, %error, "not subscribed");
        }
    }

    fn publish(&mut self, topic: String, bytes: Vec<u8>) -> Result<(), NetError> {
        let len = bytes.len();
        match self.swarm.behaviour_mut().gossip.publish(IdentTopic::new(topic), bytes) {
            Ok(_) => {
                self.shared.counters.control_sent(len);
                Ok(())
            }
            Err(PublishError::Duplicate) => Ok(()),
            Err(PublishError::NoPeersSubscribedToTopic) => Err(NetError::NobodyListens),
            Err(_) => Err(NetError::Busy),
        }
    }

    /// Passes a verdict on to the gossip protocol.
    pub(super) fn report(&mut self, id: &GossipId, verdict: Verdict) {
        if !self.validate_gossip {
            return;
        }
        let acceptance = match verdict {
            Verdict::Accept => MessageAcceptance::Accept,
            Verdict::Reject => MessageAcceptance::Reject,
            Verdict::Ignore => MessageAcceptance::Ignore,
        };
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        gossip.report_message_validation_result(&id.message, &id.source, acceptance);
    }

    fn respond(&mut self, channel: ResponseChannel, bytes: Vec<u8>) {
        let requests = &mut self.swarm.behaviour_mut().requests;
        if requests.send_response(channel.0, Reply::Taken(bytes)).is_err() {
            tracing::debug!("a reply came too late: its peer is gone or gave up");
        }
    }

    fn provide(&mut self, key: [u8; 32], on: bool) {
        if on {
            self.provided.insert(key);
            self.announce(key);
        } else {
            self.provided.remove(&key);
            self.swarm.behaviour_mut().kad.stop_providing(&RecordKey::new(&key));
        }
    }

    fn announce(&mut self, key: [u8; 32]) {
        if let Err(error) = self.swarm.behaviour_mut().kad.start_providing(RecordKey::new(&key)) {
            tracing::warn!(%error, "a key cannot be provided");
        }
    }

    /// Lists this node again once the table has grown: a listing made when nobody was known
    /// reached nobody.
    pub(super) fn reprovide(&mut self, now: Instant) {
        if self.reprovide_at.is_none_or(|at| at > now) {
            return;
        }
        self.reprovide_at = None;
        let keys: Vec<[u8; 32]> = self.provided.iter().copied().collect();
        keys.into_iter().for_each(|key| self.announce(key));
    }

    fn start_query(&mut self, command: Command) {
        if self.queries.len() >= MAX_QUERIES {
            return refuse(command);
        }
        let kad = &mut self.swarm.behaviour_mut().kad;
        let (id, query) = match command {
            Command::FindProviders { key, found } => {
                (kad.get_providers(RecordKey::new(&key)), Query::Providers(found))
            }
            Command::GetRecord { key, answer } => {
                (kad.get_record(RecordKey::new(&key)), Query::Get(answer))
            }
            Command::FindPeer { peer, answer } => {
                (kad.get_closest_peers(peer), Query::Peer(peer, answer))
            }
            Command::PutRecord { key, value, answer } => {
                let record = Record::new(RecordKey::new(&key), value);
                match kad.put_record(record, Quorum::One) {
                    Ok(id) => (id, Query::Put(answer)),
                    Err(error) => {
                        drop(answer.send(Err(NetError::Table(error.to_string()))));
                        return;
                    }
                }
            }
            _ => return,
        };
        self.queries.insert(id, query);
    }
}

fn refuse(command: Command) {
    match command {
        Command::PutRecord { answer, .. } => drop(answer.send(Err(NetError::Busy))),
        Command::GetRecord { answer, .. } => drop(answer.send(Err(NetError::Busy))),
        Command::FindPeer { answer, .. } => drop(answer.send(Err(NetError::Busy))),
        // Dropping the channel of finds ends that look-up.
        _ => {}
    }
}
