//! Configuration: the manifest that all nodes agree on, and the model's layout that follows from it.
//!
//! Defaults live here and nowhere else; unknown keys are refused; validation is one typed pass.

pub mod layout;
pub mod manifest;
pub mod model;
pub mod units;
pub mod validate;

pub use layout::{FragmentSpec, Init, Layout, TensorSpec};
pub use manifest::{BlobRef, FoundedManifest, Founding, Manifest};
pub use model::ModelConfig;
pub use units::{Rate, Size};
pub use validate::InvalidManifest;

/// The template of the embedded run (`configs/runs/embedded.toml`).
pub const EMBEDDED_RUN: &str = include_str!("../../configs/runs/embedded.toml");

#[cfg(test)]
mod tests;
