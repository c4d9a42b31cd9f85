//! Who is alive, and what this node says of itself.

use std::time::Duration;

use super::{Effect, Mode, Node, Notice, Timer, bounded_text};
use crate::{
    base::{Bounded, NodeId, Time},
    proto::roster::Change,
    wire::{Head, Message, Presence},
};

impl Node {
    /// The last link to a peer is lost.
    pub fn handle_link_lost(&mut self, now: Time, node: NodeId) {
        self.roster.link_lost(node);
        self.coordinate(now);
        self.settle(now);
    }

    /// The node's own addresses have changed.
    pub fn set_addresses(&mut self, now: Time, addresses: Vec<String>) {
        self.config.addresses = addresses;
        self.timers.set(Timer::Presence, now);
    }

    /// Leave: finish the exchange that this node is ready for, but take no longer than `grace`.
    pub fn leave(&mut self, now: Time, grace: Duration) {
        self.leaving = true;
        let idle = self.ballot.accepted.is_none()
            && self.folding.is_none()
            && self.contribution().is_none();
        if idle || self.mode != Mode::Active {
            self.say_goodbye();
        } else {
            self.timers.set(Timer::Leave, now + grace);
        }
        self.settle(now);
    }

    pub(super) fn say_goodbye(&mut self) {
        if self.mode == Mode::Left {
            return;
        }
        self.gossip(Message::Goodbye);
        self.mode = Mode::Left;
        self.timers = super::Timers::default();
        self.effects.push_back(Effect::Left);
    }

    pub(super) fn send_presence(&mut self, now: Time) {
        let peers = self.roster.len() + 1;
        let deadlines = self.config.deadlines;
        let lifetime = deadlines.lifetime(peers, self.segment.median_duration());
        let addresses: Vec<_> =
            self.config.addresses.iter().take(16).map(|text| bounded_text(text)).collect();
        let presence = Presence {
            lifetime_ms: u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX),
            expects: self.expects(),
            head: self.own_head(),
            status: self.status(),
            fetching: self.mode == Mode::Syncing,
            addresses: Bounded::try_from(addresses).unwrap_or_default(),
        };
        let envelope = self.seal(Message::Presence(presence));
        self.effects.push_back(Effect::Gossip(envelope));
        self.timers.set(Timer::Presence, now + deadlines.presence_period(peers));
    }

    /// The next round that this node can be ready for.
    fn expects(&self) -> u64 {
        let next = self.open() + u64::from(self.frozen.is_some());
        next.max(self.first_round)
    }

    pub(super) fn on_presence(
        &mut self,
        now: Time,
        author: NodeId,
        stamp: (u64, u64),
        presence: Presence,
    ) {
        let ahead = self.is_behind(presence.head);
        let change = self.roster.handle_presence(now, author, stamp, presence);
        if change == Change::Ignored {
            return;
        }
        self.presumed.remove(&author);
        if let Some(at) = self.roster.next_expiry() {
            self.timers.set_earliest(Timer::Expiry, at);
        }
        if ahead && self.mode == Mode::Active {
            self.timers.set_earliest(Timer::Behind, now + self.config.deadlines.repeat);
        }
        if change == Change::Joined {
            self.notify(Notice::PeerJoined(author));
            // Let the newcomer know of this node at once.
            self.timers.set_earliest(Timer::Presence, now + Duration::from_millis(50));
        }
        self.announce(now, false);
        self.coordinate(now);
    }

    pub(super) fn on_goodbye(&mut self, now: Time, author: NodeId, stamp: (u64, u64)) {
        let presumed = self.presumed.remove(&author).is_some();
        if self.roster.handle_goodbye(author, stamp) || presumed {
            self.notify(Notice::PeerLeft { node: author, reason: "it said goodbye" });
            self.give_up_orphan(now);
            self.announce(now, false);
            self.coordinate(now);
        }
    }

    pub(super) fn expire(&mut self, now: Time) {
        let dead = self.roster.expire(now);
        self.presumed.retain(|_, at| *at > now);
        for node in dead {
            self.notify(Notice::PeerLeft { node, reason: "its presence has expired" });
        }
        let next = self.roster.next_expiry().into_iter().chain(self.presumed.values().copied());
        if let Some(at) = next.min() {
            self.timers.set(Timer::Expiry, at);
        }
        self.give_up_orphan(now);
        self.announce(now, false);
        self.coordinate(now);
    }

    /// Whether a head carries more signed weight than the own one, or as much in more rounds.
    fn is_behind(&self, head: Head) -> bool {
        (head.weight, head.round) > (self.head.weight, self.head.round)
    }

    pub(super) fn check_behind(&mut self, now: Time) {
        if self.mode != Mode::Active {
            return;
        }
        let Some((peer, head)) = self.roster.best_head() else { return };
        if self.folding.is_some() && head.round == self.open() {
            // This node is folding the very round.
            let again = now + self.config.deadlines.repeat;
            return self.timers.set(Timer::Behind, again);
        }
        if self.is_behind(head) {
            self.mode = Mode::Syncing;
            let reason = format!(
                "{} stands on a heavier head of round {}, this node on round {}",
                peer.short(),
                head.round,
                self.head.round
            );
            self.effects.push_back(Effect::Sync { reason, discard: false });
        }
    }
}
