//! The protocol's machines: they decide, and never act.
//!
//! Time and messages come in as arguments, effects go out as data; the simulator, the tests and the
//! real node drive the same code. [`node`] composes presence, agreement and commit; [`ring`] runs
//! the exchange of one plan; [`sync`] fetches what a node lacks.

pub mod deadlines;
pub mod node;
pub mod order;
pub mod ring;
pub mod roster;
pub mod sync;
