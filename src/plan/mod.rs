//! Pure functions of (manifest, members, round, seed).

pub mod feistel;

pub use feistel::Permutation;
