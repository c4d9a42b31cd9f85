//! dilocox

pub mod base;
#[cfg(feature = "node")]
pub mod checkpoint;
pub mod codec;
pub mod config;
pub mod identity;
pub mod outer;
pub mod proto;
pub mod wire;
