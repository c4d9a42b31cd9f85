//! Addresses of peers, newest first, bounded.

use std::collections::{BTreeMap, VecDeque};

use libp2p::{Multiaddr, PeerId};

use crate::{
    base::limits::{MAX_ADDRESSES, MAX_ROSTER},
    net::address::without_peer,
};

/// Longest address that is kept, in bytes.
const MAX_ADDRESS_BYTES: usize = 256;

/// What is known about where peers are.
#[derive(Debug, Default)]
pub(super) struct Book(BTreeMap<PeerId, VecDeque<Multiaddr>>);

impl Book {
    /// Learns an address. When the book is full, a peer that `keep` does not want makes room.
    pub(super) fn add(&mut self, peer: PeerId, addr: Multiaddr, keep: impl Fn(&PeerId) -> bool) {
        let addr = without_peer(addr);
        if addr.is_empty() || addr.len() > MAX_ADDRESS_BYTES || !self.make_room(&peer, keep) {
            return;
        }
        let known = self.0.entry(peer).or_default();
        known.retain(|other| *other != addr);
        known.push_front(addr);
        known.truncate(MAX_ADDRESSES);
    }

    /// The peer's addresses.
    pub(super) fn of(&self, peer: &PeerId) -> Vec<Multiaddr> {
        self.0.get(peer).into_iter().flatten().cloned().collect()
    }

    fn make_room(&mut self, peer: &PeerId, keep: impl Fn(&PeerId) -> bool) -> bool {
        if self.0.len() < MAX_ROSTER || self.0.contains_key(peer) {
            return true;
        }
        let leaves = self.0.keys().find(|other| !keep(other)).copied();
        leaves.is_some_and(|other| self.0.remove(&other).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_addresses_are_kept() {
        let mut book = Book::default();
        let peer = PeerId::random();
        let addr = |port: usize| format!("/ip4/10.0.0.1/tcp/{port}").parse::<Multiaddr>().unwrap();
        for port in 1..=MAX_ADDRESSES + 5 {
            book.add(peer, addr(port), |_| true);
        }
        book.add(peer, addr(MAX_ADDRESSES), |_| true);
        assert_eq!(book.of(&peer).len(), MAX_ADDRESSES);
        assert_eq!(book.of(&peer)[0], addr(MAX_ADDRESSES));
    }
}
