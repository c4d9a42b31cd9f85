//! The network: moves bytes between nodes, and knows nothing of rounds.
//!
//! ```text
//!   Net (handle, cloneable) -- commands --> owner task --- swarm (libp2p)
//!   consumer               <--- events ----     |            TCP, Noise, yamux, names
//!   BulkSender, BulkReceiver <-- raw streams ---+            gossip, messages, requests,
//!                                                            bulk, distributed table, ping
//! ```
//!
//! One task owns the swarm. Everybody else holds a [`Net`], whose calls send bounded commands, and
//! one consumer reads [`NetEvent`]s from a bounded channel. The owner never waits for anybody: what
//! the consumer cannot take is refused, dropped and counted, or (changes of connections) kept in a
//! backlog bounded by the connection limits. So a slow consumer costs messages, never the network.
//!
//! - **Messages** ([`Net::send`]) are acknowledged once they are in the peer's event channel;
//!   **requests** ([`Net::request`]) bring a reply. Both are length-prefixed bytes with bounds that
//!   are checked before memory is taken (`codec`).
//! - **Gossip** ([`Net::publish`]) is anonymous: payloads carry their own signatures, and equal
//!   bytes are one message.
//! - **Bulk streams** ([`Net::open_bulk`]) are ours, see `bulk`: frames with back-pressure, a rate
//!   limit, and for tests an injected latency.
//! - **Dead peers**: a killed process resets its connections at once. A machine that vanished is
//!   noticed when its pings are overdue by [`NetLimits::ping_timeout`] and its bulk streams made no
//!   progress in that time either (a full send queue on a slow link delays pings).
//! - **Bootstrap** peers are dialled for ever, with growing, jittered pauses.
//!
//! libp2p's types stay in here, except [`Multiaddr`]. Not here: relays, hole punching, QUIC, finding
//! out one's own public address (others learn it from where they see a node).

mod actor;
mod address;
mod behaviour;
mod bulk;
mod codec;
mod command;
mod config;
mod error;
mod event;
mod handle;
mod limiter;
mod listen;
mod outbox;
mod shared;
#[cfg(test)]
mod tests;
mod transport;

pub use actor::start;
pub use address::{AddressError, multiaddr_with_peer, parse_peer_addr, peer_id_text, split_peer};
pub use bulk::{BulkReceiver, BulkSender, BulkStream, IncomingBulk, MAX_HELLO_BYTES};
pub use config::{NetConfig, NetLimits};
pub use error::{BulkError, NetError, RequestError};
pub use event::{GossipId, NetEvent, ResponseChannel, Verdict};
pub use handle::Net;
pub use libp2p::Multiaddr;
pub use limiter::RateLimiter;
pub use shared::Traffic;
