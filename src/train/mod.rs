//! Local training: the inner steps of one replica. Knows no peers and no rounds.

mod trainer;

pub use trainer::{StepReport, TrainError, Trainer, TrainerConfig};

#[cfg(test)]
mod tests;
