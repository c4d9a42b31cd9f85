//! The network, built over the layout's named tensors.

mod llama;
pub(crate) mod parameters;
mod sample;

pub use llama::Llama;
pub use parameters::{Parameters, ShapeMismatch};
pub use sample::sample;

#[cfg(test)]
mod tests;
