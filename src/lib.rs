//! dilocox

pub mod base;
#[cfg(feature = "node")]
pub mod cli;
pub mod config;
pub mod identity;
#[cfg(feature = "node")]
pub mod node;
#[cfg(feature = "node")]
pub mod observe;
#[cfg(feature = "sim")]
pub mod sim;
pub mod wire;
