//! dilocox

pub mod base;
pub mod config;
pub mod identity;
#[cfg(feature = "node")]
pub mod net;
pub mod wire;
