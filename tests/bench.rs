//! The benches as a person runs them: real processes, the whole exchange.
#![cfg(feature = "node")]

use std::process::Command;

use dilocox::observe::BenchReport;

fn bench(arguments: &str) -> (BenchReport, serde_json::Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_dilocox-node"))
        .arg("bench")
        .args(arguments.split(' '))
        .arg("--json")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(text.lines().count(), 1, "{text}{errors}");
    (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap())
}

fn has_the_documented_fields(json: &serde_json::Value) {
    for field in ["seconds", "bytes_sent_per_peer", "relative_error", "shares"] {
        assert!(json.get(field).is_some_and(|value| !value.is_null()), "{field}: {json}");
    }
}

#[test]
fn the_codec_is_measured() {
    let (report, json) = bench("codec --peers 3 --floats 10000 --rounds 3");
    has_the_documented_fields(&json);
    assert!((0.03..0.2).contains(&report.relative_error), "{report:?}");
    assert!((report.shares.values().sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn the_exchange_is_measured_between_processes() {
    let (report, json) = bench("allreduce --peers 2 --floats 20000 --rounds 2");
    has_the_documented_fields(&json);
    assert!((0.03..0.2).contains(&report.relative_error), "{report:?}");
    assert_eq!(report.rounds, 2);
    // 313 blocks in chunks of 156 and 157: one reduced at 4 bits, the other gathered at 5; all
    // codes once and the tensor's pair of maxima.
    assert_eq!(report.payload_bytes_per_peer, 8 * (156 * 4 + 157 * 5) + 313 + 2);
    // Four frames with heads: proofs in all, and a commitment in one.
    let heads = report.bytes_sent_per_peer - report.payload_bytes_per_peer;
    assert!((4 * 100..4 * 200).contains(&heads), "{heads}");
    assert!((report.shares.values().sum::<f64>() - 1.0).abs() < 1e-9);
}

#[test]
fn uneven_rings_and_wide_integers_are_exact() {
    let (report, _) = bench("allreduce --peers 3 --floats 20001 --rounds 1 --bits 16");
    assert!(report.relative_error < 1e-4, "{report:?}");
    let (codec, _) = bench("codec --peers 3 --floats 20001 --rounds 1 --bits 16");
    assert_eq!(report.payload_bytes_per_peer, codec.payload_bytes_per_peer);
    assert!((report.relative_error - codec.relative_error).abs() < 1e-9);
}
