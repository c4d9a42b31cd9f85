//! What a trainer keeps across a restart besides the parameters: moments and step count, as bytes.

mod trainer_state;

pub use trainer_state::{StateError, TrainerState};
