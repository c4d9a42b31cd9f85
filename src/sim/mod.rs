//! The simulator: the decide half's machines on virtual time.

pub mod cli;
