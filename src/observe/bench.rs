//! What a bench reports, for people and for programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::units::bytes_text;

/// Medians over the rounds of a bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// `codec` or `allreduce`.
    pub bench: String,
    /// Contributions that are summed.
    pub peers: usize,
    /// Elements of the vector.
    pub floats: usize,
    /// Payload bits of an element.
    pub bits: u8,
    /// Rounds that the medians are over.
    pub rounds: usize,
    /// Seconds of one round.
    pub seconds: f64,
    /// Bytes that a peer sends in one round.
    pub bytes_sent_per_peer: u64,
    /// |mean - exact mean| / |exact mean|, in the Euclidean norm.
    pub relative_error: f64,
    /// Share of the time per part (`encode`, `ring`, `decode`, ...); they add up to 1.
    pub shares: BTreeMap<String, f64>,
}

impl BenchReport {
    /// The report for people.
    pub fn to_text(&self) -> String {
        let mut lines = vec![
            format!(
                "{}: {} peers, {} floats at {} bits, median of {} rounds",
                self.bench, self.peers, self.floats, self.bits, self.rounds
            ),
            format!("  seconds             {:.4}", self.seconds),
            format!("  bytes sent per peer {}", bytes_text(self.bytes_sent_per_peer)),
            format!("  relative error      {:.4}", self.relative_error),
        ];
        lines.extend(
            self.shares.iter().map(|(part, share)| format!("  {part:<19} {:.1} %", share * 100.0)),
        );
        lines.join("\n")
    }
}
