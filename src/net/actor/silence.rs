//! Connections whose other end has fallen silent.
//!
//! A connection is silent when no ping was answered for [`NetLimits::ping_interval`] and
//! [`NetLimits::ping_timeout`] together, and its peer's bulk streams stood still for the latter: a
//! full send queue on a slow link delays pings by seconds, so an overdue ping alone proves nothing.
//! Answers are counted, not failures: libp2p's ping keeps the first failure to itself, and the next
//! one takes ten seconds more.
//!
//! [`NetLimits::ping_interval`]: crate::net::NetLimits::ping_interval
//! [`NetLimits::ping_timeout`]: crate::net::NetLimits::ping_timeout

use std::collections::BTreeMap;

use libp2p::{PeerId, ping, swarm::ConnectionId};
use tokio::time::Instant;

use super::Owner;
use crate::net::address::node_of;

/// Ping timeouts that a connection lives on while a reply to a request is awaited, whose bytes are
/// not seen moving.
const PATIENCE: u32 = 2;

/// Connections and when they last answered.
pub(super) type Vigil = BTreeMap<ConnectionId, Watched>;

/// A connection that is to answer pings.
pub(super) struct Watched {
    peer: PeerId,
    answered: Instant,
    check_at: Instant,
}

impl Owner {
    /// A new connection, or a sign of life on an old one.
    pub(super) fn on_alive(&mut self, peer: PeerId, connection: ConnectionId) {
        let answered = Instant::now();
        let check_at = answered + self.limits.ping_interval + self.limits.ping_timeout;
        self.vigil.insert(connection, Watched { peer, answered, check_at });
    }

    /// A ping was answered, or not.
    pub(super) fn on_ping(&mut self, ping::Event { peer, connection, result }: ping::Event) {
        match result {
            Ok(_) => self.on_alive(peer, connection),
            Err(ping::Failure::Unsupported) => drop(self.vigil.remove(&connection)),
            Err(failure) => tracing::debug!(%peer, %failure, "a ping failed"),
        }
    }

    /// When the next connection is to be looked at.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.vigil.values().map(|watched| watched.check_at).min()
    }

    /// Closes the connections that are due and show no life.
    pub(super) fn close_silent(&mut self, now: Instant) {
        let window = self.limits.ping_timeout;
        let overdue = self.limits.ping_interval + window;
        let mut silent = Vec::new();
        for (connection, watched) in &mut self.vigil {
            if watched.check_at > now {
                continue;
            }
            watched.check_at = now + window / 2;
            let moving = node_of(&watched.peer)
                .is_some_and(|node| self.shared.activity(node).within(window));
            let patient = now < watched.answered + overdue + window * PATIENCE
                && self.requests.values().any(|(peer, _)| *peer == watched.peer);
            if !moving && !patient {
                silent.push((*connection, watched.peer));
            }
        }
        for (connection, peer) in silent {
            tracing::info!(%peer, "a silent connection is closed");
            self.vigil.remove(&connection);
            self.swarm.close_connection(connection);
        }
    }
}
