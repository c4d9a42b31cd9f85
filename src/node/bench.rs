//! Measuring the exchange.

use super::{
    NodeError,
    options::{BenchAllreduceOptions, BenchCodecOptions},
};
use crate::observe::BenchReport;

fn later(what: &str) -> NodeError {
    NodeError::Failed {
        what: format!("{what} is not built yet"),
        help: "use a later version".into(),
    }
}

/// Measures the codec in this process.
///
/// # Errors
/// If an option is impossible.
pub fn bench_codec(_options: &BenchCodecOptions) -> Result<BenchReport, NodeError> {
    Err(later("bench codec"))
}

/// Measures the whole exchange between processes on loopback.
///
/// # Errors
/// If a process cannot be started or fails.
pub async fn bench_allreduce(_options: BenchAllreduceOptions) -> Result<BenchReport, NodeError> {
    Err(later("bench allreduce"))
}
