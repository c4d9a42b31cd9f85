//! Who is believed alive: the last presence of each peer and when it expires.
//!
//! A presence replaces an older one of the same author (boot counter, then sequence number). It is
//! aged on the receiver's own clock, for the lifetime that its sender wrote. A peer whose last link
//! was lost is *suspect* until it is heard again: nobody waits for it, but it still votes until it
//! expires.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    base::{NodeId, Time, limits::MAX_ROSTER},
    wire::{Head, Presence, Status},
};

/// What is known of a live peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its newest presence.
    pub presence: Presence,
    /// Whether its last link was lost since it was heard.
    pub suspect: bool,
    boot: u64,
    sequence: u64,
    expires: Time,
}

/// How a message changed the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A peer is there that was not.
    Joined,
    /// A known peer was heard again.
    Renewed,
    /// The message was old, or the roster is full.
    Ignored,
}

/// The peers that a node believes alive; itself is not among them.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    peers: BTreeMap<NodeId, Peer>,
    /// Newest (boot, sequence) of peers that left, so that an old presence does not revive them.
    departed: BTreeMap<NodeId, (u64, u64)>,
}

impl Roster {
    /// Takes in a presence.
    pub fn handle_presence(
        &mut self,
        now: Time,
        author: NodeId,
        (boot, sequence): (u64, u64),
        presence: Presence,
    ) -> Change {
        if !self.is_newer(author, (boot, sequence)) {
            return Change::Ignored;
        }
        let known = self.peers.contains_key(&author);
        if !known && self.peers.len() >= MAX_ROSTER {
            return Change::Ignored;
        }
        let lifetime = Duration::from_millis(u64::from(presence.lifetime_ms.clamp(1000, 600_000)));
        let expires = now + lifetime;
        let peer = Peer { presence, suspect: false, boot, sequence, expires };
        self.peers.insert(author, peer);
        self.departed.remove(&author);
        if known { Change::Renewed } else { Change::Joined }
    }

    /// Takes in a goodbye; whether the peer was there.
    pub fn handle_goodbye(&mut self, author: NodeId, (boot, sequence): (u64, u64)) -> bool {
        if !self.is_newer(author, (boot, sequence)) {
            return false;
        }
        self.depart(author, (boot, sequence));
        self.peers.remove(&author).is_some()
    }

    /// The peer was heard in another way.
    pub fn heard(&mut self, author: NodeId) {
        if let Some(peer) = self.peers.get_mut(&author) {
            peer.suspect = false;
        }
    }

    /// The last link to the peer is lost.
    pub fn link_lost(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.suspect = true;
        }
    }

    /// Removes the peers whose presence has expired and names them.
    pub fn expire(&mut self, now: Time) -> Vec<NodeId> {
        let dead: Vec<NodeId> =
            self.peers.iter().filter(|(_, p)| p.expires <= now).map(|(&node, _)| node).collect();
        for &node in &dead {
            if let Some(peer) = self.peers.remove(&node) {
                self.depart(node, (peer.boot, peer.sequence));
            }
        }
        dead
    }

    /// When the next presence expires.
    pub fn next_expiry(&self) -> Option<Time> {
        self.peers.values().map(|peer| peer.expires).min()
    }

    /// A live peer.
    pub fn get(&self, node: NodeId) -> Option<&Peer> {
        self.peers.get(&node)
    }

    /// Whether the peer is believed alive.
    pub fn contains(&self, node: NodeId) -> bool {
        self.peers.contains_key(&node)
    }

    /// All live peers in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Peer)> {
        self.peers.iter().map(|(&node, peer)| (node, peer))
    }

    /// Live peers that train.
    pub fn training(&self) -> impl Iterator<Item = (NodeId, &Peer)> {
        self.iter().filter(|(_, peer)| peer.presence.status == Status::Training)
    }

    /// Number of live peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether nobody else is there.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// The heaviest head that any live peer stands on, with that peer; of equal ones the furthest.
    pub fn best_head(&self) -> Option<(NodeId, Head)> {
        self.iter()
            .map(|(node, peer)| (node, peer.presence.head))
            .max_by_key(|(_, head)| (head.weight, head.round))
    }

    fn is_newer(&self, author: NodeId, stamp: (u64, u64)) -> bool {
        let known = self.peers.get(&author).map(|peer| (peer.boot, peer.sequence));
        known.or_else(|| self.departed.get(&author).copied()).is_none_or(|seen| stamp > seen)
    }

    fn depart(&mut self, node: NodeId, stamp: (u64, u64)) {
        if self.departed.len() >= MAX_ROSTER {
            self.departed.pop_first();
        }
        self.departed.insert(node, stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bounded, Digest};

    const A: NodeId = NodeId([1; 32]);

    fn presence(lifetime_ms: u32) -> Presence {
        Presence {
            lifetime_ms,
            expects: 1,
            head: Head { round: 0, digest: Digest([0; 32]), weight: 0 },
            status: Status::Training,
            fetching: false,
            addresses: Bounded::new(),
        }
    }

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_peer_lives_as_long_as_its_presence() {
        let mut roster = Roster::default();
        assert_eq!(roster.handle_presence(at(0), A, (1, 1), presence(4000)), Change::Joined);
        assert_eq!(roster.next_expiry(), Some(at(4)));
        assert!(roster.expire(at(3)).is_empty());
        assert_eq!(roster.handle_presence(at(3), A, (1, 2), presence(4000)), Change::Renewed);
        assert!(roster.expire(at(6)).is_empty());
        assert_eq!(roster.expire(at(7)), [A]);
        assert!(roster.is_empty());
    }

    #[test]
    fn an_old_presence_revives_nobody() {
        let mut roster = Roster::default();
        roster.handle_presence(at(0), A, (2, 5), presence(4000));
        assert_eq!(roster.handle_presence(at(1), A, (2, 5), presence(4000)), Change::Ignored);
        assert_eq!(roster.handle_presence(at(1), A, (1, 9), presence(4000)), Change::Ignored);
        assert!(roster.handle_goodbye(A, (2, 6)));
        assert_eq!(roster.handle_presence(at(1), A, (2, 6), presence(4000)), Change::Ignored);
        assert_eq!(roster.handle_presence(at(1), A, (3, 1), presence(4000)), Change::Joined);
    }

    #[test]
    fn an_old_goodbye_removes_nobody() {
        let mut roster = Roster::default();
        roster.handle_presence(at(0), A, (2, 5), presence(4000));
        assert!(!roster.handle_goodbye(A, (2, 4)));
        assert!(roster.contains(A));
    }

    #[test]
    fn a_lost_link_makes_suspect_until_heard() {
        let mut roster = Roster::default();
        roster.handle_presence(at(0), A, (1, 1), presence(4000));
        roster.link_lost(A);
        assert!(roster.get(A).unwrap().suspect);
        roster.heard(A);
        assert!(!roster.get(A).unwrap().suspect);
    }

    #[test]
    fn the_roster_is_bounded() {
        let mut roster = Roster::default();
        for i in 0..MAX_ROSTER as u64 + 10 {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&i.to_le_bytes());
            roster.handle_presence(at(0), NodeId(id), (1, 1), presence(4000));
        }
        assert_eq!(roster.len(), MAX_ROSTER);
    }
}
