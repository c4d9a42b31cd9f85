//! The simulator: many nodes on virtual time, in one process, from one seed.
//!
//! ```text
//!   scenario.toml ──► World ──► events in order of time ──► the real proto::node::Node of each peer
//!                       ▲                                         │ effects
//!                       └── links, disks, training, exchange ◄────┘
//!                                      │ facts
//!                                 invariants, trace, report
//! ```
//!
//! The machines are the very ones that the real node runs; codec, fold and error feedback too.
//! Abstract are the ring (it takes the time of its bytes and hops and breaks when a member dies) and
//! sync (chain and bodies move at once). Nothing here reads a clock or draws entropy: the same seed
//! gives the same trace, and a failure says how to replay it.

pub mod cli;
mod disk;
mod effects;
mod event;
mod exchange;
mod faults;
mod invariants;
mod network;
mod peer;
mod problem;
mod report;
mod ringing;
mod scenario;
mod syncing;
#[cfg(test)]
mod tests;
mod trace;
mod trainer;
mod training;
mod world;

pub use cli::SimError;
pub use report::Report;
pub use scenario::{ChurnPart, Fault, FaultKind, NetworkPart, PeersPart, RunPart, Scenario};
pub use world::World;
