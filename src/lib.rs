//! dilocox

pub mod base;
pub mod codec;
pub mod config;
pub mod identity;
pub mod outer;
pub mod proto;
#[cfg(feature = "sim")]
pub mod sim;
pub mod wire;
