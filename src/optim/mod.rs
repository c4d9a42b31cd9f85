//! The optimizer of the local steps: AdamW, clipping, and the learning rate.

pub mod adamw;
pub mod clip;
pub mod schedule;

pub use adamw::{AdamW, Moments};
