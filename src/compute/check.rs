//! Gradient checks for tests: against finite differences and against plain candle operations.

use candle_core::{Device, Result, Tensor, Var};

use crate::base::{Digest, Stream};

/// Bell-shaped values of variance 1.
pub(crate) fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut stream = Stream::new(&Digest::of(&seed.to_le_bytes()), "check");
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| stream.bell_f32()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// sum(f(x) * weights) for fixed seeded weights, as a scalar tensor.
fn weighed(function: Function, inputs: &[Tensor]) -> Tensor {
    let y = function(inputs).unwrap();
    let weights = random(y.dims(), 77);
    (y * weights).unwrap().sum_all().unwrap()
}

fn gradients(function: Function, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let vars: Vec<Var> = inputs.iter().map(|x| Var::from_tensor(x).unwrap()).collect();
    let tensors: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    let store = weighed(function, &tensors).backward().unwrap();
    let gradient = |tensor: &Tensor| {
        let gradient = store.get(tensor).expect("every input has a gradient");
        gradient.flatten_all().unwrap().to_vec1().unwrap()
    };
    tensors.iter().map(gradient).collect()
}

/// The largest difference, relative to the largest magnitude of `b`.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / scale
}

/// Checks every element of every input's gradient against a central difference, relative to the
/// gradient's largest magnitude.
pub(crate) fn against_differences(
    inputs: &[Tensor],
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
    tolerance: f32,
) {
    const STEP: f32 = 1e-2;
    let value = |inputs: &[Tensor]| -> f64 {
        // Weighed in f64, since a difference of two f32 sums has few digits left.
        let y = function(inputs).unwrap();
        let weights: Vec<f32> = random(y.dims(), 77).flatten_all().unwrap().to_vec1().unwrap();
        let y: Vec<f32> = y.flatten_all().unwrap().to_vec1().unwrap();
        y.iter().zip(weights).map(|(&y, w)| f64::from(y) * f64::from(w)).sum()
    };
    let ours = gradients(&function, inputs);
    for (which, input) in inputs.iter().enumerate() {
        let values: Vec<f32> = input.flatten_all().unwrap().to_vec1().unwrap();
        let moved = |at: usize, by: f32| -> f64 {
            let mut values = values.clone();
            values[at] += by;
            let mut inputs = inputs.to_vec();
            inputs[which] = Tensor::from_vec(values, input.shape(), &Device::Cpu).unwrap();
            value(&inputs)
        };
        let differences: Vec<f32> = (0..values.len())
            .map(|at| ((moved(at, STEP) - moved(at, -STEP)) / (2.0 * f64::from(STEP))) as f32)
            .collect();
        let distance = distance(&ours[which], &differences);
        assert!(distance < tolerance, "gradient of input {which} is off by {distance}");
    }
}

/// Checks value and gradients of `ours` against `plain` operations.
pub(crate) fn against_plain(
    inputs: &[Tensor],
    ours: impl Fn(&[Tensor]) -> Result<Tensor>,
    plain: impl Fn(&[Tensor]) -> Result<Tensor>,
    tolerance: f32,
) {
    let flat = |y: Tensor| -> Vec<f32> { y.flatten_all().unwrap().to_vec1().unwrap() };
    let value = distance(&flat(ours(inputs).unwrap()), &flat(plain(inputs).unwrap()));
    assert!(value < tolerance, "the value is off by {value}");
    let (a, b) = (gradients(&ours, inputs), gradients(&plain, inputs));
    for (which, (a, b)) in a.iter().zip(&b).enumerate() {
        let distance = distance(a, b);
        assert!(distance < tolerance, "gradient of input {which} is off by {distance}");
    }
}
