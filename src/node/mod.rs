//! The node: the only module that sees both halves.

mod error;
mod keyfile;
pub mod options;
mod run;
pub mod shutdown;

pub use error::{NodeError, Outcome, RunRow, table};
pub use keyfile::{load_or_create_identity, peer_id_text};
pub use run::{bench_allreduce, bench_codec, bootstrap, generate, run, runs};
pub use shutdown::Shutdown;
