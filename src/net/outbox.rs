//! The bounded way from the owner task to the consumer, which never makes the owner wait.
//!
//! - [`Outbox::offer`]: what can be refused (messages, requests, streams) or dropped (gossip). It is
//!   turned down when the channel is full; gossip already when a quarter is left, so that a flood of
//!   it does not starve the rest.
//! - [`Outbox::note`]: what describes the network's state. It waits in a backlog, in which a peer
//!   that came and went leaves no trace, so the backlog holds at most two entries per connection
//!   that the limits allow, and other notes are dropped beyond [`MAX_NOTES`].

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::net::NetEvent;

/// Notes about addresses and dials that wait for a slow consumer; more are dropped.
const MAX_NOTES: usize = 256;

/// Sends events without waiting.
pub(super) struct Outbox {
    events: mpsc::Sender<NetEvent>,
    backlog: VecDeque<NetEvent>,
    gossip_reserve: usize,
}

impl Outbox {
    /// An outbox for a channel.
    pub(super) fn new(events: mpsc::Sender<NetEvent>) -> Self {
        let gossip_reserve = events.max_capacity() / 4;
        Self { events, backlog: VecDeque::new(), gossip_reserve }
    }

    /// Sends an event, or gives it back if the consumer is behind.
    #[expect(clippy::result_large_err, reason = "the event goes back to its owner, who refuses it")]
    pub(super) fn offer(&mut self, event: NetEvent) -> Result<(), NetEvent> {
        let reserve =
            if matches!(event, NetEvent::Gossip { .. }) { self.gossip_reserve } else { 0 };
        if !self.backlog.is_empty() || self.events.capacity() <= reserve {
            return Err(event);
        }
        self.events.try_send(event).map_err(|error| match error {
            mpsc::error::TrySendError::Full(event) | mpsc::error::TrySendError::Closed(event) => {
                event
            }
        })
    }

    /// Sends an event now or as soon as there is room.
    pub(super) fn note(&mut self, event: NetEvent) {
        if let Err(event) = self.offer(event) {
            self.keep(event);
        }
    }

    fn keep(&mut self, event: NetEvent) {
        match &event {
            NetEvent::PeerDisconnected { node } => {
                let came = self.backlog.iter().position(
                    |waiting| matches!(waiting, NetEvent::PeerConnected { node: n, .. } if n == node),
                );
                match came {
                    Some(index) => drop(self.backlog.remove(index)),
                    None => self.backlog.push_back(event),
                }
            }
            NetEvent::PeerConnected { .. } => self.backlog.push_back(event),
            _ if self.backlog.len() < MAX_NOTES => self.backlog.push_back(event),
            _ => tracing::debug!(?event, "the consumer is behind: a note is dropped"),
        }
    }

    /// Moves one waiting note to the channel; never ends while none waits. May be cancelled.
    pub(super) async fn flush_one(&mut self) {
        if self.backlog.is_empty() {
            return std::future::pending().await;
        }
        match self.events.reserve().await {
            Ok(permit) => {
                if let Some(event) = self.backlog.pop_front() {
                    permit.send(event);
                }
            }
            // The consumer is gone: nobody will read them.
            Err(_) => self.backlog.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::NodeId;

    fn connected(id: u8) -> NetEvent {
        let addr = "/ip4/127.0.0.1/tcp/1".parse().unwrap();
        NetEvent::PeerConnected { node: NodeId([id; 32]), addr }
    }

    fn gone(id: u8) -> NetEvent {
        NetEvent::PeerDisconnected { node: NodeId([id; 32]) }
    }

    fn message() -> NetEvent {
        NetEvent::Message { from: NodeId([0; 32]), bytes: Vec::new() }
    }

    #[tokio::test]
    async fn a_peer_that_came_and_went_leaves_no_trace() {
        let (sender, mut events) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender);
        outbox.note(connected(1));
        for id in 2..200 {
            outbox.note(connected(id));
            outbox.note(gone(id));
        }
        outbox.note(gone(1));
        assert_eq!(outbox.backlog.len(), 1);
        assert!(outbox.offer(message()).is_err(), "nothing overtakes a waiting note");
        assert!(matches!(events.recv().await, Some(NetEvent::PeerConnected { .. })));
        outbox.flush_one().await;
        assert!(matches!(events.recv().await, Some(NetEvent::PeerDisconnected { .. })));
        assert!(outbox.offer(message()).is_ok());
        assert!(outbox.offer(message()).is_err());
    }
}
