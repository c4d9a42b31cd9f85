//! dilocox

pub mod base;
pub mod config;
pub mod identity;
pub mod wire;
