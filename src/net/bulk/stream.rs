//! An accepted bulk stream.

use std::sync::Arc;

use futures::AsyncReadExt;
use libp2p::Stream;

use super::{BulkReceiver, BulkSender};
use crate::{base::NodeId, net::shared::Shared};

/// A stream of frames in both directions, to be split into its two halves.
#[derive(Debug)]
pub struct BulkStream {
    peer: NodeId,
    sender: BulkSender,
    receiver: BulkReceiver,
}

impl BulkStream {
    pub(in crate::net) fn new(peer: NodeId, stream: Stream, shared: &Arc<Shared>) -> Self {
        let activity = shared.activity(peer);
        let (read, write) = stream.split();
        Self {
            peer,
            sender: BulkSender::new(write, Arc::clone(shared), Arc::clone(&activity)),
            receiver: BulkReceiver::new(read, Arc::clone(shared), activity),
        }
    }

    /// The node at the other end.
    pub fn peer(&self) -> NodeId {
        self.peer
    }

    /// The two halves, which may live in different tasks.
    pub fn split(self) -> (BulkSender, BulkReceiver) {
        (self.sender, self.receiver)
    }
}
