use super::*;
use crate::{base::Bounded, identity::Identity};

fn embedded() -> Manifest {
    Manifest::from_toml(EMBEDDED_RUN).unwrap()
}

fn found() -> (FoundedManifest, Identity) {
    let founder = Identity::from_bytes(&[3; 32]);
    let founding = Founding {
        manifest: embedded(),
        founder: founder.node_id(),
        created: 1_800_000_000,
        nonce: [9; 16],
        data: Bounded::new(),
    };
    (FoundedManifest::found(founding, &founder), founder)
}

#[test]
fn the_embedded_run_is_about_a_million_parameters() {
    let elements = embedded().layout().elements();
    assert!((700_000..1_300_000).contains(&elements), "{elements}");
}

#[test]
fn a_template_survives_toml() {
    let manifest = embedded();
    assert_eq!(Manifest::from_toml(&manifest.to_toml()).unwrap(), manifest);
}

#[test]
fn impossible_values_are_named() {
    let cases: &[(&str, &str, &str)] = &[
        ("local_steps = 10", "local_steps = 0", "rounds.local_steps"),
        ("vocab_size = 257", "vocab_size = 100", "model.vocab_size"),
        ("heads = 4\nkv", "heads = 3\nkv", "model.heads"),
        ("kv_heads = 4", "kv_heads = 3", "model.kv_heads"),
        ("bits = 4", "bits = 5", "compression.bits"),
        ("bits = 4", "bits = 4\nrank = 4096", "above the smaller dimension"),
        ("micro_batch = 4", "micro_batch = 3", "inner.micro_batch"),
        ("rounds = 30", "rounds = 0", "run.rounds"),
        ("learning_rate = 3e-3", "learning_rate = nan", "inner.learning_rate"),
        ("source = \"stories\"", "source = \"files\"", "data.files"),
        ("bits = 4", "bits = 4\ncolour = 1", "unknown field `colour`"),
        ("strategy = \"dilocox\"", "strategy = \"opendiloco\"", "compression.strategy"),
        ("kind = \"byte\"", "kind = \"runes\"", "unknown tokenizer kind `runes`"),
    ];
    for (from, to, needle) in cases {
        assert!(EMBEDDED_RUN.contains(from), "{from}");
        let error = Manifest::from_toml(&EMBEDDED_RUN.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(needle), "{to}: {error}");
    }
}

#[test]
fn a_founded_manifest_verifies_and_travels() {
    let (founded, _) = found();
    let run = founded.run_id();
    let bytes = founded.to_bytes();
    assert_eq!(FoundedManifest::from_bytes(&bytes, Some(run)).unwrap(), founded);
}

#[test]
fn a_changed_manifest_is_refused() {
    let (mut founded, _) = found();
    let run = founded.run_id();
    founded.founding.manifest.rounds.local_steps = 11;
    assert!(matches!(founded.verify(None), Err(InvalidManifest::Signature { .. })));
    assert!(matches!(founded.verify(Some(run)), Err(InvalidManifest::WrongRun { .. })));
}

#[test]
fn hostile_manifest_bytes_are_refused() {
    let (founded, _) = found();
    let bytes = founded.to_bytes();
    for cut in 0..bytes.len() {
        assert!(FoundedManifest::from_bytes(&bytes[..cut], None).is_err());
    }
}
