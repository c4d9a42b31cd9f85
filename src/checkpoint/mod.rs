//! What a node keeps on disk so that it comes back after a crash at any instruction: the data
//! directory with everything in it, and what a trainer keeps besides the parameters.

pub mod store;
mod trainer_state;

pub use trainer_state::{StateError, TrainerState};
