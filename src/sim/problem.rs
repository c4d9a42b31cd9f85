//! What the simulated nodes train: sparse least squares on a few hundred parameters.
//!
//! Sample p has a handful of features, chosen by its position, and the target that a hidden vector
//! gives; so every node can make any sample, and the loss has a known minimum of zero.

use std::sync::Arc;

use crate::{
    base::{Digest, Stream},
    codec::{Bits, BucketSpec, bucket::buckets_of},
    config::{FragmentSpec, Init, Layout, Manifest, TensorSpec},
    outer::State,
};

/// Features of a sample.
const FEATURES: usize = 12;
/// Inner learning rate.
const RATE: f32 = 0.05;
/// Blocks of a bucket: the small model is cut into several jobs.
const BUCKET_BLOCKS: usize = 2;

/// The problem of one run.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    /// Shapes.
    pub(super) layout: Arc<Layout>,
    /// Jobs.
    pub(super) buckets: Arc<Vec<BucketSpec>>,
    /// Payload bits.
    pub(super) bits: Bits,
    hidden: Vec<f32>,
    seed: Digest,
}

impl Problem {
    /// The problem of a seed.
    ///
    /// # Panics
    /// If the manifest's bits are not supported: a validated one's are.
    pub(super) fn new(seed: Digest, manifest: &Manifest) -> Self {
        let layout = layout();
        let bits = Bits::try_from(manifest.compression.bits).expect("validated");
        let buckets = buckets_of(&layout, BUCKET_BLOCKS);
        let mut stream = Stream::new(&seed, "hidden");
        let hidden = (0..layout.elements()).map(|_| stream.bell_f32()).collect();
        Self { layout: Arc::new(layout), buckets: Arc::new(buckets), bits, hidden, seed }
    }

    /// The state before the first round.
    pub(super) fn genesis(&self, manifest: &Manifest) -> State {
        let mut state = State::zeros(Arc::clone(&self.layout));
        state.rank = manifest.compression.rank;
        state.local_steps = manifest.rounds.local_steps;
        let mut stream = Stream::new(&self.seed, "genesis");
        for fragment in &mut state.fragments {
            fragment.anchor.iter_mut().for_each(|value| *value = stream.bell_f32() * 0.1);
        }
        state
    }

    /// One step of stochastic gradient descent on `batch` samples from `position` on.
    pub(super) fn step(&self, parameters: &mut [Vec<f32>], position: u64, batch: usize) {
        for sample in position..position + batch as u64 {
            let features = self.features(sample);
            let value = |&(at, x): &(usize, f32)| x * get(parameters, at);
            let predicted: f32 = features.iter().map(value).sum();
            let target: f32 = features.iter().map(|&(at, x)| x * self.hidden[at]).sum();
            let slope = (predicted - target) * RATE / batch as f32;
            for (at, x) in features {
                *get_mut(parameters, at) -= slope * x;
            }
        }
    }

    /// Mean squared distance to the minimum.
    pub(super) fn loss(&self, parameters: &[Vec<f32>]) -> f64 {
        let flat = parameters.iter().flatten();
        let squares = flat.zip(&self.hidden).map(|(a, b)| f64::from(a - b).powi(2));
        squares.sum::<f64>() / self.hidden.len() as f64
    }

    fn features(&self, sample: u64) -> [(usize, f32); FEATURES] {
        let mut stream = Stream::at(&self.seed, "samples", sample % (1 << 40) * 64 * 4);
        std::array::from_fn(|_| {
            let at = stream.below(self.hidden.len() as u64) as usize;
            (at, stream.bell_f32())
        })
    }
}

fn get(parameters: &[Vec<f32>], mut at: usize) -> f32 {
    for fragment in parameters {
        if at < fragment.len() {
            return fragment[at];
        }
        at -= fragment.len();
    }
    0.0
}

fn get_mut(parameters: &mut [Vec<f32>], mut at: usize) -> &mut f32 {
    let mut index = 0;
    while at >= parameters[index].len() {
        at -= parameters[index].len();
        index += 1;
    }
    &mut parameters[index][at]
}

fn layout() -> Layout {
    let tensor = |name: &str, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        shape: shape.to_vec(),
        init: Init::Normal(0.1),
        decay: false,
    };
    let fragment = |name: &str, tensors| FragmentSpec { name: name.to_owned(), tensors };
    Layout {
        fragments: vec![
            fragment("first", vec![tensor("a", &[20, 5]), tensor("b", &[10])]),
            fragment("second", vec![tensor("c", &[170])]),
        ],
    }
}
