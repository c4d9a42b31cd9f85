//! The node: the only module that sees both halves.
//!
//! | file | subject |
//! |---|---|
//! | `options` | what a process is told |
//! | `start`, `found`, `join` | from options to a run: data directory, network, manifest, data, state |
//! | `driver` | the loop that carries out what [`crate::proto::node`] decides |
//! | `training`, `books`, `exchange` | the heavy work, each beside the loop: steps, folds, frames |
//! | `serve`, `ask` | both ends of a fetch |
//! | `bench`, `meter` | what an exchange costs |
//! | `bootstrap` | the peer that does not train |

mod ask;
mod bench;
mod books;
mod bootstrap;
mod clock;
mod driver;
mod error;
mod exchange;
mod found;
mod join;
mod keyfile;
mod meter;
pub mod options;
mod run;
mod serve;
pub mod shutdown;
mod start;
mod store;
mod training;

pub use crate::compute::threads::quiet_candle;
pub use bench::{bench_allreduce, bench_codec, bench_peer};
pub use bootstrap::bootstrap;
pub use error::{NodeError, Outcome, RunRow, table};
pub use keyfile::{load_or_create_identity, peer_id_text};
pub use run::{generate, runs};
pub use shutdown::Shutdown;
pub use start::run;
