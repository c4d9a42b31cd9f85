//! Diagnostics: `tracing` to standard error, filtered by `RUST_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Sends diagnostics to standard error: those that `RUST_LOG` asks for, else warnings and errors.
/// Coloured on a terminal alone. Only the first call has an effect.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .try_init();
}
