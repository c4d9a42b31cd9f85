//! Command lines: flags, configuration files, output, exit codes.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Errors go to standard error as
//! `error: what, where` and `help: what to do`. With `--json` nothing but JSON goes to standard
//! output.

pub mod args;
mod commands;
pub mod demo;
pub mod failure;
mod manifest;
mod print;
pub mod settings;
mod start;
mod status;
#[cfg(test)]
mod tests;

pub use start::{bootstrap_main, node_main};
