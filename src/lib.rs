//! dilocox: a peer-to-peer node that trains one language model together with strangers' machines,
//! after DiLoCoX (arXiv 2506.21263) in the setting of OpenDiLoCo (arXiv 2407.07852).
//!
//! No master, no parameter server, no chain. Each node trains H local steps, and at the end of a
//! segment the nodes add up their compressed pseudo-gradients around a ring, exactly, as integers,
//! while the next segment is already running.
//!
//! # Two halves
//!
//! ```text
//! decide   no async, sockets, files, clock, ambient randomness, GPU       features: none, or `sim`
//!   base <- identity <- wire, config <- plan <- proto <- sim
//!   codec, outer <- proto
//! do       features: `node`
//!   compute, model, optim, data, checkpoint <- train
//!   net (libp2p), observe (events)
//!   node     the only module that sees both halves
//!   cli, bin
//! ```
//!
//! The decide half is pure: time, randomness and messages come in as arguments, effects go out as
//! data. The simulator, the tests and the real node drive the very same machines. `tests/
//! architecture.rs` holds the directions of imports, and that no socket, file, clock or entropy is
//! named in the decide half; `cargo test --no-default-features --features sim` builds it alone.
//!
//! # Where to start reading
//!
//! | question | place |
//! |---|---|
//! | what travels | [`wire`], the specification |
//! | how numbers are added so that everybody has the same bits | [`codec`], [`outer`] |
//! | who decides what when | [`proto::node`], [`proto::ring`], [`proto::sync`] |
//! | what a run agrees on | [`config::manifest`] |

pub mod base;
#[cfg(feature = "node")]
pub mod checkpoint;
#[cfg(feature = "node")]
pub mod cli;
pub mod codec;
#[cfg(feature = "node")]
pub mod compute;
pub mod config;
#[cfg(feature = "node")]
pub mod data;
pub mod identity;
#[cfg(feature = "node")]
pub mod model;
#[cfg(feature = "node")]
pub mod net;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "node")]
pub mod observe;
#[cfg(feature = "node")]
pub mod optim;
pub mod outer;
pub mod plan;
pub mod proto;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "node")]
pub mod train;
pub mod wire;
