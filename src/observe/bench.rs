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
    /// Seconds of one round: `codec`: of one member's work; `allreduce`: of the slowest peer.
    pub seconds: f64,
    /// Bytes that a peer sends in one round, heads of frames included; the most of all peers.
    pub bytes_sent_per_peer: u64,
    /// Payloads among them: scales and packed integers.
    pub payload_bytes_per_peer: u64,
    /// |mean - exact mean| / |exact mean|, in the Euclidean norm.
    pub relative_error: f64,
    /// Share of the time per part (`encode`, `ring`, `decode`, ...); they add up to 1.
    pub shares: BTreeMap<String, f64>,
    /// The same with seconds, in the order of the work.
    pub parts: Vec<BenchPart>,
    /// Rate at which the vector is copied in memory, in 10^9 bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcpy_gigabytes_per_second: Option<f64>,
    /// Processor seconds of one round, all peers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Peak of resident memory of a peer; the most of all peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

/// One part of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchPart {
    /// Its name.
    pub part: String,
    /// Seconds of one member.
    pub seconds: f64,
    /// Share of all parts.
    pub share: f64,
    /// 10^9 bytes of unpacked values (4 an element) a second, where that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gigabytes_per_second: Option<f64>,
    /// That rate over the one of copying memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_memcpy: Option<f64>,
}

impl BenchReport {
    /// The report for people.
    pub fn to_text(&self) -> String {
        let mut lines = vec![
            format!(
                "{}: {} peers, {} floats at {} bits, median of {} rounds",
                self.bench, self.peers, self.floats, self.bits, self.rounds
            ),
            String::new(),
        ];
        let mut line = |name: &str, value: String| lines.push(format!("  {name:<20} {value}"));
        line("seconds", format!("{:.6}", self.seconds));
        line("bytes sent per peer", bytes_text(self.bytes_sent_per_peer));
        line("payload among them", bytes_text(self.payload_bytes_per_peer));
        line("relative error", format!("{:.4}", self.relative_error));
        if let Some(rate) = self.memcpy_gigabytes_per_second {
            line("copying memory", format!("{rate:.2} GB/s"));
        }
        if let Some(seconds) = self.cpu_seconds {
            line("processor seconds", format!("{seconds:.2} of all peers"));
        }
        if let Some(bytes) = self.peak_memory_bytes {
            line("memory of a peer", bytes_text(bytes));
        }
        lines.push(String::new());
        let has_rates = self.parts.iter().any(|part| part.gigabytes_per_second.is_some());
        let rates = if has_rates { "     GB/s  of memcpy" } else { "" };
        lines.push(format!("  {:<12} {:>10} {:>8}{rates}", "part", "seconds", "share"));
        lines.extend(self.parts.iter().map(BenchPart::to_text));
        lines.join("\n")
    }
}

impl BenchPart {
    fn to_text(&self) -> String {
        let Self { part, seconds, share, .. } = self;
        let row = format!("  {part:<12} {seconds:>10.6} {:>6.1} %", share * 100.0);
        match (self.gigabytes_per_second, self.of_memcpy) {
            (Some(rate), Some(of)) => format!("{row} {rate:>8.2} {:>8.0} %", of * 100.0),
            _ => row,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_for_programs_and_a_table_for_people() {
        let part = BenchPart {
            part: "encode".to_owned(),
            seconds: 0.25,
            share: 1.0,
            gigabytes_per_second: Some(3.5),
            of_memcpy: Some(0.5),
        };
        let report = BenchReport {
            bench: "codec".to_owned(),
            peers: 4,
            floats: 1000,
            bits: 4,
            rounds: 5,
            seconds: 0.25,
            bytes_sent_per_peer: 1234,
            payload_bytes_per_peer: 1200,
            relative_error: 0.1,
            shares: [("encode".to_owned(), 1.0)].into(),
            parts: vec![part],
            memcpy_gigabytes_per_second: Some(7.0),
            cpu_seconds: None,
            peak_memory_bytes: None,
        };
        let json = serde_json::to_string(&report).unwrap();
        assert!(!json.contains('\n') && !json.contains("null"), "{json}");
        assert_eq!(serde_json::from_str::<BenchReport>(&json).unwrap(), report);
        let text = report.to_text();
        let table: Vec<&str> = text.lines().skip(8).collect();
        let wanted = [
            "  part            seconds    share     GB/s  of memcpy",
            "  encode         0.250000  100.0 %     3.50       50 %",
        ];
        assert_eq!(table, wanted, "{text}");
    }
}
