//! Genesis: the state before the first round, from the run's seed alone.
//!
//! Every tensor has a stream of its own, named by the tensor, and every element a fixed place in it;
//! so any part can be made alone, on any number of threads.

use std::sync::Arc;

use rayon::prelude::*;

use crate::{
    base::{Digest, Stream},
    config::{FragmentSpec, Init, Manifest, TensorSpec},
    outer::{FragmentState, State},
};

/// Domain of the seed of all streams.
const DOMAIN: &str = "dilocox/genesis/1";
/// Elements that one thread makes at a time; eight of them are one block of the stream.
const PIECE: usize = 1 << 14;
/// Bytes of a stream behind one element.
const BYTES_PER_VALUE: u64 = 8;

impl State {
    /// A_0: random anchor, zero momentum, cursor 0; rank and H as in the manifest.
    pub fn genesis(manifest: &Manifest) -> Self {
        let layout = Arc::new(manifest.layout());
        let seed = Digest::of_parts(DOMAIN, [&manifest.run.seed.to_le_bytes()[..]]);
        let mut state = Self::zeros(layout.clone());
        state.rank = manifest.compression.rank;
        state.local_steps = manifest.rounds.local_steps;
        let fragments = state.fragments.par_iter_mut().zip(&layout.fragments);
        fragments.for_each(|(fragment, spec)| fill(fragment, spec, &seed));
        state
    }
}

fn fill(fragment: &mut FragmentState, spec: &FragmentSpec, seed: &Digest) {
    let mut rest = fragment.anchor.as_mut_slice();
    for tensor in &spec.tensors {
        let (values, after) = rest.split_at_mut(tensor.elements());
        fill_tensor(values, tensor, seed);
        rest = after;
    }
}

fn fill_tensor(values: &mut [f32], tensor: &TensorSpec, seed: &Digest) {
    match tensor.init {
        Init::Constant(value) => values.fill(value),
        Init::Normal(std) => {
            let pieces = values.par_chunks_mut(PIECE).enumerate();
            pieces.for_each(|(piece, values)| {
                let position = (piece * PIECE) as u64 * BYTES_PER_VALUE;
                let mut stream = Stream::at(seed, &tensor.name, position);
                values.iter_mut().for_each(|value| *value = stream.bell_f32() * std);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EMBEDDED_RUN;

    fn embedded() -> Manifest {
        Manifest::from_toml(EMBEDDED_RUN).unwrap()
    }

    #[test]
    fn golden_root_of_the_embedded_run() {
        let golden = "f1860dcfc36a6a9256d6342e6031698cb9a3fdc6d1e1a31070126ab83fc2e698";
        assert_eq!(State::genesis(&embedded()).root().to_string(), golden);
    }

    #[test]
    fn genesis_depends_on_the_seed_alone() {
        let mut other = embedded();
        other.run.name = "another".to_owned();
        assert_eq!(State::genesis(&other).root(), State::genesis(&embedded()).root());
        other.run.seed += 1;
        assert_ne!(State::genesis(&other).root(), State::genesis(&embedded()).root());
    }

    #[test]
    fn tensors_are_filled_as_the_layout_says() {
        let state = State::genesis(&embedded());
        let block = &state.fragments[1];
        assert!(block.anchor[..128].iter().all(|&x| x == 1.0));
        let queries = &block.anchor[128..128 + 128 * 128];
        let square = queries.iter().map(|x| x * x).sum::<f32>() / queries.len() as f32;
        assert!((square.sqrt() - 0.02).abs() < 0.001);
        assert!(block.momentum.iter().all(|&v| v == 0.0));
        assert_ne!(state.fragments[1].anchor[128..256], state.fragments[2].anchor[128..256]);
    }

    #[test]
    fn pieces_join_without_a_seam() {
        let seed = Digest::of(b"seam");
        let name = "x".to_owned();
        let tensor =
            TensorSpec { name, shape: vec![PIECE + 100], init: Init::Normal(1.0), decay: true };
        let mut values = vec![0.0; PIECE + 100];
        fill_tensor(&mut values, &tensor, &seed);
        let mut stream = Stream::new(&seed, "x");
        assert!(values.iter().all(|&value| value == stream.bell_f32()));
    }
}
