//! Sync: from what a node has to the network's head, from many donors at once.
//!
//! ```text
//!            certificates, in order,          cheapest way by bytes left
//!            each verified by the voters      +-- replay: bodies state+1..=head
//!  have ---> of the header before      ---->  |                                  ---> CaughtUp
//!            (chain)                          +-- snapshot s: index, leaves,
//!                                                 then bodies s+1..=head
//! ```
//!
//! - A snapshot of round s is taken only if header s+1 is known and its `root_before` is the root
//!   of the snapshot's index. Every leaf and every chunk of a body is checked by its blake3, so
//!   each can come from anybody.
//! - Requests go round-robin over donors; a donor that fails backs off and its requests go to
//!   others; one that sends provably wrong bytes is dropped and named ([`Effect::Blame`]).
//! - The way is chosen anew when offers, donors or the head change. A snapshot that was left for
//!   another way is parked and taken up again if it is chosen again.
//! - Folding is the driver's work: [`Effect::Fold`] asks for it, [`Sync::handle_replayed`] reports
//!   the root, which the next header must name.
//!
//! What it does not do: it chooses between no branches. A donor whose chain does not continue the
//! local one is set aside for certificates and reported ([`Effect::Diverged`]).

mod asking;
mod blob;
mod bodies;
mod chain;
mod choose;
mod config;
mod donors;
mod effect;
mod machine;
mod pace;
mod replies;
mod snapshot;
#[cfg(test)]
mod tests;

pub use config::{Have, IndexReader, LeafRef, LeafTable, PartialSnapshot, SyncConfig, SyncLimits};
pub use effect::{Effect, Fault, FetchFailure, Outcome, RequestId};
pub use machine::{Progress, Sync};
