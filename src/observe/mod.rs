//! Events, their way out, and where a node stands.
//!
//! ```text
//! node --emit--> Emitter --bounded queue--> output thread --> Sink: JSON lines | text and a bar
//!                   |
//!                   +--> Board --> status, metrics
//! ```
//!
//! Emitting never blocks: when the reader is slow, `step` events are dropped first, and counted.
//! Diagnostics (`tracing`) are something else; they go to standard error ([`log`]).
//!
#![doc = include_str!("EVENTS.md")]

mod bench;
mod board;
mod emitter;
mod event;
pub mod http;
pub mod log;
mod queue;
#[cfg(test)]
pub(crate) mod samples;
pub mod sink;
#[cfg(test)]
mod tests;
pub mod text;

pub use bench::{BenchPart, BenchReport};
pub use board::{Board, Standing};
pub use emitter::{Emitter, Output};
pub use event::{DemoResult, Event, Stamped};
pub use sink::Sink;
