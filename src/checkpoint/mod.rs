//! What a node keeps on disk so that it comes back after a crash at any instruction.

pub mod store;
