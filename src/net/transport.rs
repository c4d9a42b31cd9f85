//! TCP with names, metered and watched, then Noise and yamux.
//!
//! Two things differ from libp2p's default stack:
//! - Dials use a fresh local port. With the listening port reused, two nodes that dial each other at
//!   the same time over a long link meet in TCP's simultaneous open: both believe that they dialled,
//!   and the handshake fails on both sides.
//! - A socket that takes no bytes for a while is given up, so that closing a connection to a machine
//!   that vanished does not wait for the kernel's quarter of an hour.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{AsyncRead, AsyncWrite};
use libp2p::{
    Multiaddr, PeerId, Transport,
    core::{
        muxing::StreamMuxerBox,
        transport::{Boxed, DialOpts, ListenerId, PortUse, TransportError, TransportEvent},
        upgrade::Version,
    },
    dns, identity, noise, tcp, yamux,
};
use tokio::time::{Sleep, sleep};

use crate::net::{NetError, shared::Shared};

/// How long one address may take to connect and shake hands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds the transport. `stall` is how long a socket may refuse bytes.
pub(super) fn build(
    keypair: &identity::Keypair,
    shared: &Arc<Shared>,
    stall: Duration,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, NetError> {
    let noise = noise::Config::new(keypair).map_err(|error| NetError::Setup(error.to_string()))?;
    let shared = Arc::clone(shared);
    Ok(with_names()
        .map(move |socket, _| Metered { socket, shared, stall, waiting: None })
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(yamux::Config::default())
        .timeout(CONNECT_TIMEOUT)
        .boxed())
}

type Tcp = FreshPort<tcp::tokio::Transport>;

/// TCP with name look-up as the system does it; without name servers where it names none.
fn with_names() -> dns::tokio::Transport<Tcp> {
    let tcp = || FreshPort(tcp::tokio::Transport::new(tcp::Config::default().nodelay(true)));
    dns::tokio::Transport::system(tcp()).unwrap_or_else(|error| {
        tracing::warn!(%error, "no name servers: only numeric addresses can be dialled");
        let (config, options) = (dns::ResolverConfig::default(), dns::ResolverOpts::default());
        dns::tokio::Transport::custom(tcp(), config, options)
    })
}

/// A transport whose dials never reuse the listening port.
struct FreshPort<T>(T);

impl<T: Transport + Unpin> Transport for FreshPort<T> {
    type Output = T::Output;
    type Error = T::Error;
    type ListenerUpgrade = T::ListenerUpgrade;
    type Dial = T::Dial;

    fn listen_on(
        &mut self,
        id: ListenerId,
        addr: Multiaddr,
    ) -> Result<(), TransportError<Self::Error>> {
        self.0.listen_on(id, addr)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.0.remove_listener(id)
    }

    fn dial(
        &mut self,
        addr: Multiaddr,
        options: DialOpts,
    ) -> Result<Self::Dial, TransportError<Self::Error>> {
        self.0.dial(addr, DialOpts { port_use: PortUse::New, ..options })
    }

    fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        Pin::new(&mut self.get_mut().0).poll(cx)
    }
}

/// A socket that counts its bytes and fails when it takes none for too long.
struct Metered<S> {
    socket: S,
    shared: Arc<Shared>,
    stall: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    /// Passes a write's outcome on; an error once the socket has been full for `stall`.
    fn watch<R>(
        &mut self,
        outcome: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if outcome.is_ready() {
            self.waiting = None;
            return outcome;
        }
        let stall = self.stall;
        let timer = self.waiting.get_or_insert_with(|| Box::pin(sleep(stall)));
        timer.as_mut().poll(cx).map(|()| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no bytes any more"))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if let Poll::Ready(Ok(bytes)) = read {
            self.shared.counters.wire_received(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buffer);
        if let Poll::Ready(Ok(bytes)) = written {
            self.shared.counters.wire_sent(bytes);
        }
        self.watch(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.watch(flushed, cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.socket).poll_close(cx);
        self.watch(closed, cx)
    }
}
