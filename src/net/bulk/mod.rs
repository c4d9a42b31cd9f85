//! Bulk streams: long-lived, framed, one peer to another, with back-pressure.
//!
//! ```text
//! opener                              acceptor
//!   hello (<= 1 KiB)        ------>     event BulkStream: look at the hello,
//!   accepted | refused why  <------     accept() or refuse(why)
//!   frame, frame, ..        <----->     frame, frame, ..
//!   end mark                <----->     end mark
//! ```
//!
//! Everything is length-prefixed (u32, little-endian). A length of 2^32-1 is the end mark: a stream
//! that ends without it was lost. libp2p's own stream crate drops inbound streams when the acceptor
//! is slow and has no timeouts; hence a behaviour of our own, which hands raw streams to tasks, and
//! the handshake above it.

mod behaviour;
mod handler;
mod handshake;
mod receiver;
mod sender;
mod stream;

pub(super) use behaviour::{Behaviour, Inbound};
pub(super) use handler::Opened;
pub use handshake::IncomingBulk;
pub(super) use handshake::{offer, read_hello};
pub use receiver::BulkReceiver;
pub use sender::BulkSender;
pub use stream::BulkStream;

use libp2p::StreamProtocol;

/// The protocol of bulk streams.
const BULK_PROTOCOL: StreamProtocol = StreamProtocol::new("/dilocox/bulk/1");
/// Bytes of the hello with which a stream is offered.
pub const MAX_HELLO_BYTES: usize = 1024;
/// The length that marks the end of a stream.
const END_MARK: u32 = u32::MAX;
/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
