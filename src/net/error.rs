//! What can go wrong, one enum per kind of operation.

use crate::{base::NodeId, net::AddressError};

/// The network could not be started, or a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Something else holds an address that was asked for explicitly.
    #[error(
        "cannot listen on {addr}: the port is taken; end the program that holds it, or choose another one with --listen"
    )]
    PortTaken {
        /// The address.
        addr: String,
    },
    /// The default port and its successors are all taken.
    #[error(
        "cannot listen on {addr}: this port and the {tried} after it are taken; choose a free one with --listen"
    )]
    NoFreePort {
        /// The first address tried.
        addr: String,
        /// Ports tried after the first.
        tried: u16,
    },
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {addr}: {reason}; give an address of this machine, such as /ip4/0.0.0.0/tcp/4001, with --listen"
    )]
    Listen {
        /// The address.
        addr: String,
        /// What the system said.
        reason: String,
    },
    /// An address is not usable.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A message is too large.
    #[error("{len} bytes are more than the {max} that a message may have")]
    TooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Nobody who is connected follows the topic (yet).
    #[error("no connected peer follows this topic")]
    NobodyListens,
    /// Queues towards peers are full; try again later.
    #[error("the network is busy")]
    Busy,
    /// The network has been shut down.
    #[error("the network is shut down")]
    Stopped,
    /// The network could not be set up.
    #[error("the network could not be set up: {0}")]
    Setup(String),
    /// A look-up or a store in the distributed table failed.
    #[error("the distributed table did not answer: {0}")]
    Table(String),
}

/// A message or request did not reach its peer, or no answer came back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The address or id cannot belong to a node.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The peer is not connected and no address of it is known.
    #[error("no address of {0} is known")]
    NoAddress(NodeId),
    /// The peer could not be dialled.
    #[error("the peer cannot be reached: {0}")]
    Unreachable(String),
    /// No answer in time; the peer may or may not have acted on it.
    #[error("no answer in time")]
    Timeout,
    /// The peer took the message and refused it because its queues are full.
    #[error("the peer is busy")]
    Busy,
    /// The peer does not speak this protocol.
    #[error("the peer does not speak this version of the protocol")]
    Unsupported,
    /// The connection ended, or the peer gave no reply.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// More bytes than a message may have.
    #[error("{len} bytes are more than the {max} allowed")]
    TooLarge {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// This node has too many messages under way.
    #[error("too many messages are under way")]
    Overloaded,
    /// The network has been shut down.
    #[error("the network is shut down")]
    Stopped,
}

/// A bulk stream could not be opened, or broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BulkError {
    /// The peer could not be reached.
    #[error(transparent)]
    Connect(#[from] RequestError),
    /// The peer said no.
    #[error("the peer refused the stream: {0}")]
    Refused(String),
    /// No progress in time.
    #[error("the stream made no progress in time")]
    Timeout,
    /// The stream ended without the sender's closing mark.
    #[error("the stream was lost: {0}")]
    Lost(String),
    /// A frame is larger than allowed; nothing was allocated for it.
    #[error("a frame of {len} bytes is more than the {max} allowed")]
    TooLarge {
        /// Bytes announced or given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The stream was closed by this side.
    #[error("the stream is closed")]
    Closed,
}
