//! The network against PyTorch: `tests/reference/make_llama.py` wrote the numbers.

use std::ops::Range;

use candle_core::{Device, Var};
use serde::Deserialize;

use super::*;
use crate::{
    compute::host,
    config::{
        ModelConfig,
        model::{Architecture, Norm},
    },
    optim::{
        AdamW,
        adamw::Step,
        clip::{clip_factor, global_norm},
    },
};

const LENGTH: usize = 7;
const BATCH: usize = 3;

#[derive(Deserialize)]
struct Reference {
    losses: Vec<f64>,
    norms: Vec<f64>,
    logits: Vec<f32>,
    gradient: Vec<f32>,
    after: Vec<f32>,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../../tests/reference/llama.json")).unwrap()
}

fn config() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Llama,
        vocab_size: 23,
        hidden_size: 12,
        intermediate_size: 20,
        layers: 2,
        heads: 3,
        kv_heads: 1,
        sequence_length: LENGTH,
        rope_base: 10_000.0,
        norm_epsilon: 1e-5,
        norm: Norm::Rms,
    }
}

/// The script's `initial`.
fn model() -> Llama {
    let model = Llama::new(&config(), &Device::Cpu).unwrap();
    let mut number = 0;
    let value = |tensor: usize, i: usize, vector: bool| {
        let value = ((i * 37 + tensor * 11 + i * i % 13) % 61) as f32 - 30.0;
        if vector { 1.0 + value / 256.0 } else { value / 64.0 }
    };
    let fragments: Vec<Vec<f32>> = (model.parameters().layout().fragments.iter())
        .map(|fragment| {
            let mut flat = Vec::new();
            for tensor in &fragment.tensors {
                let vector = tensor.shape.len() == 1;
                flat.extend((0..tensor.elements()).map(|i| value(number, i, vector)));
                number += 1;
            }
            flat
        })
        .collect();
    model.parameters().set(&fragments).unwrap();
    model
}

/// The script's `windows`.
fn windows(step: usize) -> Vec<u32> {
    (0..BATCH * (LENGTH + 1)).map(|i| ((i * 5 + i * i % 7 + step * 3) % 23) as u32).collect()
}

/// Largest difference over the largest magnitude.
fn distance(ours: &[f32], reference: &[f32]) -> f32 {
    assert_eq!(ours.len(), reference.len());
    let scale = reference.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    ours.iter().zip(reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / scale
}

fn gradient(model: &Llama, step: usize) -> (f64, Vec<Vec<f32>>) {
    let loss = model.loss(&windows(step), LENGTH).unwrap();
    let mut sums = model.parameters().flat();
    model.parameters().add_gradients(&loss.backward().unwrap(), &mut sums).unwrap();
    (f64::from(loss.to_scalar::<f32>().unwrap()), sums)
}

#[test]
fn logits_are_pytorchs() {
    let inputs: Vec<u32> =
        windows(0).chunks(LENGTH + 1).flat_map(|window| window[..LENGTH].to_vec()).collect();
    let logits = model().logits(&inputs, LENGTH).unwrap();
    let ours: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
    let distance = distance(&ours, &reference().logits);
    assert!(distance < 2e-6, "{distance}");
}

#[test]
fn gradients_are_pytorchs() {
    let (loss, gradient) = gradient(&model(), 0);
    let reference = reference();
    assert!((loss - reference.losses[0]).abs() < 1e-6, "{loss}");
    let distance = distance(&gradient.concat(), &reference.gradient);
    assert!(distance < 2e-6, "{distance}");
}

#[test]
fn five_clipped_steps_of_adamw_are_pytorchs() {
    let (model, reference) = (model(), reference());
    let adamw = AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
    let (mut first, mut second) = (model.parameters().flat(), model.parameters().flat());
    for (step, (expected, norm)) in reference.losses.iter().zip(&reference.norms).enumerate() {
        let (loss, gradient) = gradient(&model, step);
        assert!((loss - expected).abs() < 1e-5, "step {step}: {loss}, not {expected}");
        let found = global_norm(&gradient);
        assert!((found / norm - 1.0).abs() < 1e-5, "step {step}: {found}, not {norm}");
        let (number, gradient_scale) = (step as u64 + 1, clip_factor(found, 0.5));
        let update = |fragment: usize, range: Range<usize>, decay, var: &Var| {
            let step = Step { number, rate: 1e-2, gradient_scale, decay };
            let gradient = &gradient[fragment][range.clone()];
            let moments = (&mut first[fragment][range.clone()], &mut second[fragment][range]);
            host::write(var, |theta| adamw.update(theta, gradient, moments, &step))
        };
        model.parameters().for_each(update).unwrap();
    }
    let distance = distance(&model.parameters().to_vecs().unwrap().concat(), &reference.after);
    assert!(distance < 1e-5, "{distance}");
}

#[test]
fn later_tokens_change_nothing_before_them() {
    let model = model();
    let (a, b) = ([1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 20, 6, 7]);
    let logits = |tokens: &[u32]| model.logits(tokens, 7).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(logits(&a)[..4], logits(&b)[..4]);
    assert_ne!(logits(&a)[4..], logits(&b)[4..]);
}

#[test]
fn a_sequence_does_not_see_its_neighbours() {
    let model = model();
    let logits = |tokens: &[u32]| model.logits(tokens, 3).unwrap().to_vec2::<f32>().unwrap();
    let (both, alone) = (logits(&[1, 2, 3, 4, 5, 6]), logits(&[4, 5, 6]));
    for (a, b) in both[3..].concat().iter().zip(alone.concat()) {
        assert!((a - b).abs() < 1e-5);
    }
}

#[test]
fn impossible_tokens_are_errors() {
    let model = model();
    assert!(model.logits(&[23], 1).is_err());
    assert!(model.logits(&[1, 2, 3], 2).is_err());
    assert!(model.logits(&[1; 8], 8).is_err());
    assert!(model.logits(&[], 0).is_err());
}
