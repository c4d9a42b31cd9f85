//! What a trainer promises to the node that drives it.

use std::sync::Arc;

use super::*;
use crate::{
    base::{Digest, Stream},
    compute::DeviceChoice,
    config::{EMBEDDED_RUN, Init, Manifest},
    data::{Dataset, Text, stories},
    optim::schedule::learning_rate,
    plan::feistel::sequence_at,
};

fn small() -> Manifest {
    let mut manifest = Manifest::from_toml(EMBEDDED_RUN).unwrap();
    let model = &mut manifest.model;
    (model.hidden_size, model.intermediate_size, model.layers) = (32, 64, 2);
    (model.heads, model.kv_heads, model.sequence_length) = (4, 2, 32);
    (manifest.inner.batch, manifest.inner.micro_batch) = (8, 4);
    manifest.data.validation_sequences = 6;
    manifest
}

/// Genesis-like values; the run's own come from the decide half.
pub(super) fn initial(manifest: &Manifest) -> Vec<Vec<f32>> {
    let mut random = Stream::new(&Digest::of(b"initial"), "");
    let mut value = |init: Init| match init {
        Init::Constant(value) => value,
        Init::Normal(std) => std * random.bell_f32(),
    };
    let layout = manifest.layout();
    let fragment = |spec: &crate::config::FragmentSpec| -> Vec<f32> {
        let tensors = spec.tensors.iter();
        tensors.flat_map(|t| std::iter::repeat_n(t.init, t.elements())).map(&mut value).collect()
    };
    layout.fragments.iter().map(fragment).collect()
}

fn trainer_with(manifest: &Manifest, threads: usize) -> Trainer {
    let text = Text::memory("stories", stories(1, 1 << 16));
    let dataset = Arc::new(Dataset::new(manifest, text).unwrap());
    let config = TrainerConfig { manifest: manifest.clone(), device: DeviceChoice::Cpu, threads };
    let mut trainer = Trainer::new(config, dataset).unwrap();
    trainer.set_parameters(&initial(manifest)).unwrap();
    trainer
}

fn trainer() -> Trainer {
    trainer_with(&small(), 1)
}

const BATCH: [u64; 8] = [0, 3, 1, 4, 9, 2, 6, 5];

#[test]
fn loss_falls_from_the_entropy_of_ignorance() {
    let mut trainer = trainer();
    let start = trainer.validate(None).unwrap();
    assert!((start - 257f64.ln()).abs() < 0.1, "{start}");
    for step in 0..60 {
        let batch: Vec<u64> = (0..8).map(|i| sequence_at(1, step * 8 + i, 1000)).collect();
        let report = trainer.step(&batch, 1e-2).unwrap();
        assert_eq!((report.sequences, report.tokens), (8, 256));
    }
    let end = trainer.validate(None).unwrap();
    assert!(end < 3.2, "{end}");
    assert_eq!(trainer.steps(), 60);
}

#[test]
fn micro_batches_do_not_change_the_step() {
    let mut whole = small();
    whole.inner.micro_batch = 8;
    let (mut a, mut b) = (trainer(), trainer_with(&whole, 1));
    let (first, second) = (a.step(&BATCH, 1e-3).unwrap(), b.step(&BATCH, 1e-3).unwrap());
    assert!((first.loss - second.loss).abs() < 1e-5);
    assert!((first.grad_norm - second.grad_norm).abs() < 1e-4 * first.grad_norm);
}

#[test]
fn threads_change_nothing() {
    let (mut a, mut b) = (trainer_with(&small(), 1), trainer_with(&small(), 3));
    for _ in 0..2 {
        let (first, second) = (a.step(&BATCH, 1e-3).unwrap(), b.step(&BATCH, 1e-3).unwrap());
        assert_eq!((first.loss, first.grad_norm), (second.loss, second.grad_norm));
    }
    assert_eq!(a.parameters().unwrap(), b.parameters().unwrap());
}

#[test]
fn a_restart_goes_on_exactly() {
    let mut a = trainer();
    a.step(&BATCH, 1e-3).unwrap();
    let (parameters, state) = (a.parameters().unwrap(), a.state_bytes());
    let mut b = trainer();
    b.set_parameters(&parameters).unwrap();
    b.restore_state(&state).unwrap();
    a.step(&BATCH, 1e-3).unwrap();
    b.step(&BATCH, 1e-3).unwrap();
    assert_eq!(a.parameters().unwrap(), b.parameters().unwrap());
    b.reset_moments();
    assert_eq!(b.steps(), 0);
    assert!(b.restore_state(&state[1..]).is_err());
}

#[test]
fn shifts_move_the_parameters() {
    let mut trainer = trainer();
    let before = trainer.parameters().unwrap();
    let shift: Vec<Vec<f32>> = before.iter().map(|f| vec![0.5; f.len()]).collect();
    trainer.add(&shift).unwrap();
    let after = trainer.parameters().unwrap();
    assert_eq!(after[2][7], before[2][7] + 0.5);
    assert!(trainer.add(&shift[1..]).is_err());
    assert_eq!(trainer.parameters().unwrap(), after);
}

#[test]
fn other_parameters_can_be_validated() {
    let mut trainer = trainer();
    let before = trainer.parameters().unwrap();
    trainer.step(&BATCH, 1e-2).unwrap();
    let (own, other) = (trainer.validate(None).unwrap(), trainer.validate(Some(&before)).unwrap());
    assert_ne!(own, other);
    assert_eq!(trainer.validate(Some(&trainer.parameters().unwrap())).unwrap(), own);
}

#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    let mut trainer = trainer();
    let mut broken = trainer.parameters().unwrap();
    broken[1][5] = f32::NAN;
    trainer.set_parameters(&broken).unwrap();
    let state = trainer.state_bytes();
    let error = trainer.step(&BATCH, 1e-3).unwrap_err();
    assert!(matches!(error, TrainError::NotFinite { steps: 0, .. }), "{error}");
    assert_eq!(trainer.state_bytes(), state);
    assert!(trainer.validate(None).unwrap().is_nan());
}

#[test]
fn impossible_requests_are_errors() {
    let mut trainer = trainer();
    assert!(matches!(trainer.step(&[], 1e-3), Err(TrainError::EmptyBatch)));
    assert!(matches!(trainer.step(&[u64::MAX], 1e-3), Err(TrainError::Data(_))));
    let error = trainer.set_parameters(&[vec![0.0]]).unwrap_err();
    assert!(error.to_string().contains("4"), "{error}");
}

#[test]
fn text_is_generated_from_a_seed() {
    let trainer = trainer();
    let text = trainer.generate("Once", 40, 1.0, 7).unwrap();
    assert_eq!(text, trainer.generate("Once", 40, 1.0, 7).unwrap());
    assert_ne!(text, trainer.generate("Once", 40, 1.0, 8).unwrap());
    assert_eq!(trainer.generate("", 0, 0.0, 0).unwrap(), "");
}

/// Times a step and shows the embedded run's loss with one trainer of 12 sequences a step:
/// `cargo test --release embedded_run_by_one -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, minutes long"]
fn embedded_run_by_one() {
    let number = |name: &str, default: f64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let mut manifest = Manifest::from_toml(EMBEDDED_RUN).unwrap();
    manifest.inner.learning_rate = number("RATE", manifest.inner.learning_rate);
    manifest.inner.micro_batch = number("MICRO", manifest.inner.micro_batch as f64) as usize;
    let batch = number("BATCH", 12.0) as u64;
    let dataset = Arc::new(Dataset::open(&manifest, &[]).unwrap());
    let threads = number("THREADS", 1.0) as usize;
    let config = TrainerConfig { manifest: manifest.clone(), device: DeviceChoice::Cpu, threads };
    let mut trainer = Trainer::new(config, Arc::clone(&dataset)).unwrap();
    trainer.set_parameters(&initial(&manifest)).unwrap();
    println!("round 0 validation {:.3}", trainer.validate(None).unwrap());
    let (h, rounds) = (manifest.rounds.local_steps, manifest.run.rounds);
    let (mut cursor, mut times) = (0, Vec::new());
    for round in 1..=number("ROUNDS", rounds as f64) as u64 {
        let mut loss = 0.0;
        for step in 0..h {
            let share = f64::from(step) / f64::from(h);
            let rate = learning_rate(&manifest.inner, round, share, h, rounds);
            let indices: Vec<u64> = (cursor..cursor + batch)
                .map(|at| sequence_at(manifest.run.seed, at, dataset.sequences()))
                .collect();
            cursor += batch;
            let report = trainer.step(&indices, rate).unwrap();
            times.push(report.seconds * 1e3);
            loss += report.loss / f64::from(h);
        }
        let validation = trainer.validate(None).unwrap();
        println!("round {round} loss {loss:.3} validation {validation:.3}");
    }
    times.sort_by(f64::total_cmp);
    println!("step: median {:.1} ms, least {:.1} ms", times[times.len() / 2], times[0]);
    println!("{}", trainer.generate("Once there was", 200, 0.7, 1).unwrap());
}
