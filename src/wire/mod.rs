//! The wire specification.

pub mod codec;
