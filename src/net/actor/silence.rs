//! Connections whose other end does not answer pings.
//!
//! A full send queue on a slow link delays pings by seconds, so a failed ping alone proves nothing:
//! the connection becomes a suspect and is looked at until a ping succeeds, or bulk streams stand
//! still as well.

use std::{collections::BTreeMap, time::Duration};

use libp2p::{PeerId, ping, swarm::ConnectionId};
use tokio::time::Instant;

use super::Owner;
use crate::net::address::node_of;

/// Ping timeouts that a suspect lives while it owes or is owed the reply to a request, whose bytes
/// are not seen moving.
const PATIENCE: u32 = 3;

/// Connections under suspicion.
pub(super) type Suspects = BTreeMap<ConnectionId, Suspect>;

/// A connection on which a ping failed.
pub(super) struct Suspect {
    peer: PeerId,
    since: Instant,
    check_at: Instant,
}

impl Owner {
    /// A ping succeeded or failed.
    pub(super) fn on_ping(&mut self, ping::Event { peer, connection, result }: ping::Event) {
        match result {
            Ok(_) => drop(self.suspects.remove(&connection)),
            Err(ping::Failure::Unsupported) => {}
            Err(failure) => {
                tracing::debug!(%peer, %failure, "a ping failed");
                let now = Instant::now();
                let suspect = Suspect { peer, since: now, check_at: now };
                self.suspects.entry(connection).or_insert(suspect);
                self.check_suspects(now);
            }
        }
    }

    /// When the next suspect is to be looked at.
    pub(super) fn next_suspect(&self) -> Option<Instant> {
        self.suspects.values().map(|suspect| suspect.check_at).min()
    }

    /// Closes the suspects that are due and show no life.
    pub(super) fn check_suspects(&mut self, now: Instant) {
        let window = self.limits.ping_timeout;
        let mut silent = Vec::new();
        for (connection, suspect) in &mut self.suspects {
            if suspect.check_at > now {
                continue;
            }
            suspect.check_at = now + (window / 2).max(Duration::from_millis(1));
            let moving = node_of(&suspect.peer)
                .is_some_and(|node| self.shared.activity(node).within(window));
            let patient = now < suspect.since + window * PATIENCE
                && self.requests.values().any(|(peer, _)| *peer == suspect.peer);
            if !moving && !patient {
                silent.push(*connection);
            }
        }
        for connection in silent {
            if let Some(suspect) = self.suspects.remove(&connection) {
                tracing::info!(peer = %suspect.peer, "a silent connection is closed");
            }
            self.swarm.close_connection(connection);
        }
    }
}
