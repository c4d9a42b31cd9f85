//! Bulk streams of one connection.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use libp2p::{
    Stream, StreamProtocol,
    core::upgrade::ReadyUpgrade,
    swarm::{
        ConnectionHandler, ConnectionHandlerEvent, StreamUpgradeError, SubstreamProtocol,
        handler::{
            ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound,
        },
    },
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::BULK_PROTOCOL;
use crate::net::RequestError;

/// Inbound streams of one connection whose hello has not come yet; more are reset.
const MAX_HANDSHAKES: usize = 16;
/// How long the peer may take to agree on the protocol of a stream.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream this side opened.
#[derive(Debug)]
pub(in crate::net) struct Opened(pub(in crate::net) Stream);

/// Asks for a stream.
#[derive(Debug)]
pub(in crate::net) struct Open {
    /// Where the outcome goes.
    pub(super) reply: oneshot::Sender<Result<Opened, RequestError>>,
}

/// A stream that the peer opened.
#[derive(Debug)]
pub(in crate::net) struct Accepted {
    pub(super) stream: Stream,
    pub(super) permit: OwnedSemaphorePermit,
}

/// Passes streams between a connection and the behaviour.
pub(in crate::net) struct Handler {
    opens: VecDeque<Open>,
    accepted: VecDeque<Accepted>,
    handshakes: Arc<Semaphore>,
    waker: Option<Waker>,
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            opens: VecDeque::new(),
            accepted: VecDeque::new(),
            handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
            waker: None,
        }
    }
}

impl Handler {
    fn on_inbound(&mut self, stream: Stream) {
        match Arc::clone(&self.handshakes).try_acquire_owned() {
            Ok(permit) => self.accepted.push_back(Accepted { stream, permit }),
            Err(_) => tracing::debug!("a peer offers too many bulk streams at once: one is reset"),
        }
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Open;
    type ToBehaviour = Accepted;
    type InboundProtocol = ReadyUpgrade<StreamProtocol>;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Open;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol> {
        SubstreamProtocol::new(ReadyUpgrade::new(BULK_PROTOCOL), ())
    }

    fn on_behaviour_event(&mut self, open: Open) {
        self.opens.push_back(open);
        self.wake();
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Open, Accepted>> {
        if let Some(accepted) = self.accepted.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(accepted));
        }
        if let Some(open) = self.opens.pop_front() {
            let protocol = SubstreamProtocol::new(ReadyUpgrade::new(BULK_PROTOCOL), open)
                .with_timeout(NEGOTIATION_TIMEOUT);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<Self::InboundProtocol, Self::OutboundProtocol, (), Open>,
    ) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound {
                protocol: stream,
                ..
            }) => self.on_inbound(stream),
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol: stream,
                info: open,
            }) => drop(open.reply.send(Ok(Opened(stream)))),
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info: open, error }) => {
                drop(open.reply.send(Err(failure(error))));
            }
            _ => {}
        }
    }
}

fn failure(error: StreamUpgradeError<std::convert::Infallible>) -> RequestError {
    match error {
        StreamUpgradeError::Timeout => RequestError::Timeout,
        StreamUpgradeError::NegotiationFailed => RequestError::Unsupported,
        StreamUpgradeError::Io(error) => RequestError::Lost(error.to_string()),
        StreamUpgradeError::Apply(never) => match never {},
    }
}
