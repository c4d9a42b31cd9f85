//! Where the driver will stand: every entry that the command line calls, not built yet.

use crate::{
    node::{
        NodeError, Outcome, RunRow,
        options::{
            BenchAllreduceOptions, BenchCodecOptions, BootstrapOptions, GenerateOptions,
            NodeOptions, RunsOptions,
        },
        shutdown::Shutdown,
    },
    observe::{BenchReport, Emitter},
};

fn not_built(what: &str) -> NodeError {
    NodeError::Failed {
        what: format!("{what} is not built yet"),
        help: "use a later version".into(),
    }
}

/// Runs a training node until its run is finished or an end is asked for.
///
/// # Errors
/// If it cannot start or cannot go on.
pub async fn run(
    options: NodeOptions,
    emitter: Emitter,
    shutdown: Shutdown,
) -> Result<Outcome, NodeError> {
    let _ = (options, emitter, shutdown);
    Err(not_built("the node"))
}

/// Runs a bootstrap peer until an end is asked for.
///
/// # Errors
/// If it cannot start or cannot go on.
pub async fn bootstrap(
    options: BootstrapOptions,
    emitter: Emitter,
    shutdown: Shutdown,
) -> Result<Outcome, NodeError> {
    let _ = (options, emitter, shutdown);
    Err(not_built("the bootstrap peer"))
}

/// Asks peers for the runs that can be joined.
///
/// # Errors
/// If an address is wrong or nobody answers.
pub async fn runs(options: RunsOptions) -> Result<Vec<RunRow>, NodeError> {
    let _ = options;
    Err(not_built("listing runs"))
}

/// Text that the newest anchor of a data directory writes, and the anchor's round.
///
/// # Errors
/// If the directory holds no run.
pub fn generate(options: &GenerateOptions) -> Result<(u64, String), NodeError> {
    let _ = options;
    Err(not_built("generating text"))
}

/// Measures the codec in this process.
///
/// # Errors
/// If an option is impossible.
pub fn bench_codec(options: &BenchCodecOptions) -> Result<BenchReport, NodeError> {
    let _ = options;
    Err(not_built("this bench"))
}

/// Measures the whole exchange between processes on loopback.
///
/// # Errors
/// If a process cannot be started or fails.
pub async fn bench_allreduce(options: BenchAllreduceOptions) -> Result<BenchReport, NodeError> {
    let _ = options;
    Err(not_built("this bench"))
}
