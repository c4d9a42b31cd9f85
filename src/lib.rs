//! dilocox

pub mod base;
pub mod config;
pub mod identity;
pub mod proto;
pub mod wire;
