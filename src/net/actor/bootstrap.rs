//! Peers to be connected to for ever: who is due to be dialled, and when again.

use std::time::Duration;

use libp2p::{Multiaddr, PeerId, swarm::ConnectionId};
use tokio::time::Instant;

use crate::base::Stream;

/// The first pause after a failure; it doubles from then on.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A pause is shortened by up to this share, so that nodes that lost a peer together do not come
/// back together.
const JITTER: f64 = 0.5;

/// The bootstrap peers and their timers.
pub(super) struct Bootstrap {
    peers: Vec<Entry>,
    max_pause: Duration,
    random: Stream,
}

/// One bootstrap address.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The peer.
    pub(super) peer: PeerId,
    /// Where it is.
    pub(super) addr: Multiaddr,
    /// Failures since it was last connected.
    pub(super) attempt: u32,
    due: Option<Instant>,
    dial: Option<ConnectionId>,
}

impl Bootstrap {
    /// All peers are due now.
    pub(super) fn new(
        peers: impl IntoIterator<Item = (PeerId, Multiaddr)>,
        max_pause: Duration,
        random: Stream,
    ) -> Self {
        let due = Some(Instant::now());
        let peers = peers
            .into_iter()
            .map(|(peer, addr)| Entry { peer, addr, attempt: 0, due, dial: None })
            .collect();
        Self { peers, max_pause, random }
    }

    /// When the next peer is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.peers.iter().filter_map(|entry| entry.due).min()
    }

    /// Takes the peers that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(PeerId, Multiaddr)> {
        let due = self.peers.iter_mut().filter(|entry| entry.due.is_some_and(|due| due <= now));
        due.map(|entry| {
            entry.due = None;
            (entry.peer, entry.addr.clone())
        })
        .collect()
    }

    /// Notes that an address is being dialled.
    pub(super) fn dialling(&mut self, addr: &Multiaddr, dial: ConnectionId) {
        for entry in self.peers.iter_mut().filter(|entry| entry.addr == *addr) {
            entry.dial = Some(dial);
        }
    }

    /// A dial failed: plans the next try and says what to report, if the dial was one of ours.
    pub(super) fn failed(&mut self, dial: ConnectionId) -> Option<(Entry, Duration)> {
        let index = self.peers.iter().position(|entry| entry.dial == Some(dial))?;
        Some(self.plan_retry(index))
    }

    /// An address could not even be dialled.
    pub(super) fn refused(&mut self, addr: &Multiaddr) -> Option<(Entry, Duration)> {
        let index = self.peers.iter().position(|entry| entry.addr == *addr)?;
        Some(self.plan_retry(index))
    }

    /// A peer is connected; gives its entries.
    pub(super) fn connected(&mut self, peer: &PeerId) -> Vec<Entry> {
        let mine = self.peers.iter_mut().filter(|entry| entry.peer == *peer);
        mine.map(|entry| {
            (entry.attempt, entry.due, entry.dial) = (0, None, None);
            entry.clone()
        })
        .collect()
    }

    /// A peer is no longer connected: it is due again soon.
    pub(super) fn disconnected(&mut self, peer: &PeerId) {
        for index in 0..self.peers.len() {
            if self.peers[index].peer == *peer {
                let pause = self.pause(0);
                self.peers[index].due = Some(Instant::now() + pause);
            }
        }
    }

    fn plan_retry(&mut self, index: usize) -> (Entry, Duration) {
        let pause = self.pause(self.peers[index].attempt);
        let entry = &mut self.peers[index];
        entry.attempt = entry.attempt.saturating_add(1);
        entry.due = Some(Instant::now() + pause);
        entry.dial = None;
        (entry.clone(), pause)
    }

    fn pause(&mut self, failures: u32) -> Duration {
        let full = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(self.max_pause);
        full.mul_f64(1.0 - JITTER * self.random.unit_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Digest;

    #[tokio::test]
    async fn pauses_grow_up_to_a_bound_and_reset_when_connected() {
        let peer = PeerId::random();
        let addr: Multiaddr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        let random = Stream::new(&Digest([0; 32]), "test");
        let max = Duration::from_secs(20);
        let mut bootstrap = Bootstrap::new([(peer, addr.clone())], max, random);
        assert_eq!(bootstrap.take_due(Instant::now()), [(peer, addr.clone())]);
        assert_eq!(bootstrap.next_due(), None);
        for attempt in 1..10 {
            let (entry, pause) = bootstrap.refused(&addr).unwrap();
            let full = FIRST_PAUSE.saturating_mul(1 << (attempt - 1)).min(max);
            assert_eq!(entry.attempt, attempt);
            assert!(pause <= full && pause >= full / 2, "{attempt}: {pause:?}");
        }
        assert_eq!(bootstrap.connected(&peer).len(), 1);
        assert_eq!(bootstrap.next_due(), None);
        bootstrap.disconnected(&peer);
        assert!(bootstrap.next_due().unwrap() <= Instant::now() + FIRST_PAUSE);
    }
}
