//! The outer state: anchor and momentum of the whole run, as a deterministic fold of its rounds.
//!
//! ```text
//! State::genesis(manifest) --fold(exchange 1)--> A_1 --fold(exchange 2)--> A_2 ...
//!          |                                      |
//!          +------------ root: one digest --------+--> SnapshotIndex + leaves --> StateBuilder
//! ```
//!
//! The same genesis and the same bodies give the same bits on every machine (DESIGN principle 1):
//! every element is one chain of f32 operations that are rounded one by one ([`step`]), and the
//! modes of the float unit are checked first ([`float`]). The state's root is a tree of blake3
//! digests whose leaves can be fetched one by one from anybody ([`snapshot`]). The outer optimizer
//! is Nesterov momentum over pseudo-gradients (arXiv 2311.08105, 2506.21263).
//!
//! Not here: local parameters, inner moments and error buffers, which belong to one node alone.

pub mod float;
pub mod snapshot;
pub mod step;

mod builder;
mod fold;
mod genesis;
mod state;

pub use builder::{BuildError, StateBuilder};
pub use float::WrongFloatMode;
pub use fold::{Exchange, FoldError, fold_fragment};
pub use snapshot::{InvalidIndex, SnapshotIndex};
pub use state::{FragmentState, State};
pub use step::pseudo_gradient;
