//! Connections on demand: errands wait while their peer is dialled; bootstrap peers for ever.

use std::error::Error;

use libp2p::{
    PeerId,
    swarm::{
        ConnectionId, DialError,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::time::Instant;

use super::Owner;
use crate::net::{
    NetEvent, RequestError,
    address::{multiaddr_with_peer, node_of},
    command::Errand,
};

/// Errands that wait for connections, all peers together.
const MAX_WAITING: usize = 1024;
/// Messages and requests that wait for their answers.
const MAX_UNANSWERED: usize = 4096;
/// Addresses named in an error.
const MAX_NAMED: usize = 3;

impl Owner {
    /// Runs an errand now, or when its peer is connected.
    pub(super) fn on_errand(&mut self, peer: PeerId, errand: Errand) {
        if self.swarm.is_connected(&peer) {
            return self.run_errand(peer, errand);
        }
        if peer == *self.swarm.local_peer_id() {
            return errand.fail(RequestError::Unreachable("it is this node itself".to_owned()));
        }
        if self.waiting.values().map(Vec::len).sum::<usize>() >= MAX_WAITING {
            return errand.fail(RequestError::Overloaded);
        }
        let errands = self.waiting.entry(peer).or_default();
        errands.retain(|errand| !errand.is_abandoned());
        errands.push(errand);
        self.dial_for_errands(peer);
    }

    /// Dials a peer for which errands wait, unless somebody does already.
    fn dial_for_errands(&mut self, peer: PeerId) {
        let options = DialOpts::peer_id(peer)
            .condition(PeerCondition::DisconnectedAndNotDialing)
            .addresses(self.book.of(&peer))
            .extend_addresses_through_behaviour()
            .build();
        let dial = options.connection_id();
        match self.swarm.dial(options) {
            Ok(()) => drop(self.dials.insert(dial, peer)),
            // The end of the dial under way is an event, and looks at the errands.
            Err(DialError::DialPeerConditionFalse(_)) => {}
            Err(error) => self.fail_errands(peer, &error),
        }
    }

    /// A connection stands: errands run.
    pub(super) fn run_errands(&mut self, peer: PeerId) {
        for errand in self.waiting.remove(&peer).unwrap_or_default() {
            self.run_errand(peer, errand);
        }
    }

    fn run_errand(&mut self, peer: PeerId, errand: Errand) {
        if errand.is_abandoned() {
            return;
        }
        if self.messages.len() + self.requests.len() >= MAX_UNANSWERED {
            return errand.fail(RequestError::Overloaded);
        }
        let behaviour = self.swarm.behaviour_mut();
        match errand {
            Errand::Connect(answer) => drop(answer.send(Ok(()))),
            Errand::Message(bytes, answer) => {
                self.messages.insert(behaviour.messages.send_request(&peer, bytes), answer);
            }
            Errand::Request(bytes, answer) => {
                let id = behaviour.requests.send_request(&peer, bytes);
                self.requests.insert(id, (peer, answer));
            }
            Errand::Bulk(answer) => behaviour.bulk.open(peer, answer),
        }
    }

    /// A dial failed, ours or a behaviour's.
    pub(super) fn on_dial_failed(
        &mut self,
        dial: ConnectionId,
        peer: Option<PeerId>,
        error: &DialError,
    ) {
        self.on_bootstrap_failed(dial, error);
        let ours = self.dials.remove(&dial).is_some();
        let Some(peer) = peer.filter(|peer| self.waiting.contains_key(peer)) else { return };
        if ours { self.fail_errands(peer, error) } else { self.dial_for_errands(peer) }
    }

    fn fail_errands(&mut self, peer: PeerId, error: &DialError) {
        let node = node_of(&peer);
        let reason = match (error, node) {
            (DialError::NoAddresses, Some(node)) => RequestError::NoAddress(node),
            _ => RequestError::Unreachable(describe(error)),
        };
        for errand in self.waiting.remove(&peer).unwrap_or_default() {
            errand.fail(reason.clone());
        }
        let addr = self.book.of(&peer).into_iter().next();
        self.outbox.note(NetEvent::DialFailed { node, addr, error: reason.to_string() });
    }

    /// Dials the bootstrap peers that are due.
    pub(super) fn dial_bootstrap(&mut self, now: Instant) {
        for (peer, addr) in self.bootstrap.take_due(now) {
            if self.swarm.is_connected(&peer) {
                self.on_bootstrap_connected(peer);
                continue;
            }
            let options = DialOpts::peer_id(peer)
                .condition(PeerCondition::Disconnected)
                .addresses(vec![addr.clone()])
                .build();
            self.bootstrap.dialling(&addr, options.connection_id());
            if let Err(error) = self.swarm.dial(options)
                && let Some((entry, pause)) = self.bootstrap.refused(&addr)
            {
                self.report_unreachable(&entry, pause, &error);
            }
        }
    }

    /// A bootstrap peer is connected: the table is filled from it.
    pub(super) fn on_bootstrap_connected(&mut self, peer: PeerId) {
        for entry in self.bootstrap.connected(&peer) {
            let kad = &mut self.swarm.behaviour_mut().kad;
            kad.add_address(&peer, entry.addr.clone());
            if let Err(error) = kad.bootstrap() {
                tracing::debug!(%error, "the table is not filled yet");
            }
            if let Some(node) = node_of(&peer)
                && let Ok(addr) = multiaddr_with_peer(&entry.addr, node)
            {
                self.outbox.note(NetEvent::BootstrapReached { addr, node });
            }
        }
    }

    fn on_bootstrap_failed(&mut self, dial: ConnectionId, error: &DialError) {
        if let Some((entry, pause)) = self.bootstrap.failed(dial) {
            self.report_unreachable(&entry, pause, error);
        }
    }

    fn report_unreachable(
        &mut self,
        entry: &super::bootstrap::Entry,
        retry_in: std::time::Duration,
        error: &DialError,
    ) {
        let addr = node_of(&entry.peer)
            .and_then(|node| multiaddr_with_peer(&entry.addr, node).ok())
            .unwrap_or_else(|| entry.addr.clone());
        let (error, attempt) = (describe(error), entry.attempt);
        self.outbox.note(NetEvent::BootstrapUnreachable { addr, error, attempt, retry_in });
    }
}

/// A dial's failure in one sentence.
fn describe(error: &DialError) -> String {
    match error {
        DialError::NoAddresses => "no address is known".to_owned(),
        DialError::LocalPeerId { .. } => "it is this node itself".to_owned(),
        DialError::WrongPeerId { obtained, address } => {
            format!("another node answers at {address}: {obtained}")
        }
        DialError::Denied { cause } => format!("not allowed: {}", root_cause(cause)),
        DialError::Aborted => "the dial was given up".to_owned(),
        DialError::Transport(errors) => {
            let named = errors.iter().take(MAX_NAMED);
            let named: Vec<String> =
                named.map(|(addr, error)| format!("{addr}: {}", root_cause(error))).collect();
            named.join("; ")
        }
        other => other.to_string(),
    }
}

fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
