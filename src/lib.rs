//! dilocox

pub mod base;
#[cfg(feature = "node")]
pub mod compute;
pub mod config;
pub mod identity;
pub mod wire;
