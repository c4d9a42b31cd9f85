//! dilocox

pub mod base;
#[cfg(feature = "node")]
pub mod checkpoint;
#[cfg(feature = "node")]
pub mod compute;
pub mod config;
#[cfg(feature = "node")]
pub mod data;
pub mod identity;
#[cfg(feature = "node")]
pub mod model;
#[cfg(feature = "node")]
pub mod optim;
pub mod plan;
#[cfg(feature = "node")]
pub mod train;
pub mod wire;
