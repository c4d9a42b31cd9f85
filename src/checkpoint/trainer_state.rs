//! The trainer's local state as bytes.
//!
//! ```text
//! magic "DLXTRAIN" | version u32 | fragments u32 | step u64 | elements u64 of each fragment
//!   | first and second moments of each fragment, f32 | blake3 of everything before
//! ```
//! Little-endian. The reader knows the model, so it knows the one length that the bytes can have
//! and checks it, and the checksum, before it allocates anything.

use crate::{base::Digest, config::Layout, optim::Moments};

const MAGIC: &[u8; 8] = b"DLXTRAIN";
const VERSION: u32 = 1;
const DIGEST_BYTES: usize = 32;

/// Bytes that are no state of this trainer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Not this file.
    #[error("these bytes are no trainer state; start with fresh moments")]
    Magic,
    /// Of another release.
    #[error(
        "the trainer state has version {found}, this release reads {VERSION}; start with fresh \
         moments or use the release that wrote it"
    )]
    Version {
        /// In the bytes.
        found: u32,
    },
    /// Of another model, or cut.
    #[error(
        "the trainer state has {found} bytes, this model's has {expected}: it is cut or belongs to \
         another model; start with fresh moments"
    )]
    Length {
        /// For this model.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// Of another model with the same number of parameters.
    #[error("the trainer state belongs to another model; start with fresh moments")]
    OtherModel,
    /// Damaged.
    #[error("the trainer state is damaged (its checksum differs); start with fresh moments")]
    Checksum,
}

/// AdamW's moments and step count.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerState {
    /// Steps since the moments were zero.
    pub step: u64,
    /// Moments of each fragment.
    pub moments: Vec<Moments>,
}

impl TrainerState {
    /// No step yet.
    pub fn fresh(layout: &Layout) -> Self {
        let moments = layout.fragments.iter().map(|spec| Moments::zeros(spec.elements()));
        Self { step: 0, moments: moments.collect() }
    }

    /// The bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let sizes: Vec<usize> = self.moments.iter().map(|m| m.first.len()).collect();
        let mut bytes = Vec::with_capacity(encoded_len(&sizes));
        bytes.extend(header(&sizes, self.step));
        for moments in &self.moments {
            for values in [&moments.first, &moments.second] {
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
        let Digest(digest) = Digest::of(&bytes);
        bytes.extend(digest);
        bytes
    }

    /// Reads the state of a model of this layout.
    ///
    /// # Errors
    /// If the bytes are damaged, or another model's, or another release's.
    pub fn from_bytes(layout: &Layout, bytes: &[u8]) -> Result<Self, StateError> {
        let Some((magic, rest)) = bytes.split_first_chunk::<8>() else {
            return Err(StateError::Magic);
        };
        if magic != MAGIC {
            return Err(StateError::Magic);
        }
        let found = rest.first_chunk().copied().map_or(0, u32::from_le_bytes);
        if found != VERSION {
            return Err(StateError::Version { found });
        }
        let sizes: Vec<usize> = layout.fragments.iter().map(|spec| spec.elements()).collect();
        let expected = encoded_len(&sizes);
        if bytes.len() != expected {
            return Err(StateError::Length { expected, found: bytes.len() });
        }
        let (body, digest) = bytes.split_at(expected - DIGEST_BYTES);
        if Digest::of(body).as_bytes() != digest {
            return Err(StateError::Checksum);
        }
        decode_body(&sizes, body)
    }
}

fn header_len(fragments: usize) -> usize {
    8 + 4 + 4 + 8 + 8 * fragments
}

fn encoded_len(sizes: &[usize]) -> usize {
    header_len(sizes.len()) + sizes.iter().map(|size| 8 * size).sum::<usize>() + DIGEST_BYTES
}

fn header(sizes: &[usize], step: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((sizes.len() as u32).to_le_bytes());
    bytes.extend(step.to_le_bytes());
    bytes.extend(sizes.iter().flat_map(|&size| (size as u64).to_le_bytes()));
    bytes
}

/// `body` has the length that `sizes` ask for.
fn decode_body(sizes: &[usize], body: &[u8]) -> Result<TrainerState, StateError> {
    let (head, mut rest) = body.split_at(header_len(sizes.len()));
    let step = head[16..].first_chunk().copied().map_or(0, u64::from_le_bytes);
    if head != header(sizes, step) {
        return Err(StateError::OtherModel);
    }
    let mut floats = |count: usize| -> Vec<f32> {
        let (bytes, left) = rest.split_at(4 * count);
        rest = left;
        bytes.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)).collect()
    };
    let moments =
        sizes.iter().map(|&size| Moments { first: floats(size), second: floats(size) }).collect();
    Ok(TrainerState { step, moments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EMBEDDED_RUN, Manifest};

    fn layout() -> Layout {
        let mut model = Manifest::from_toml(EMBEDDED_RUN).unwrap().model;
        (model.hidden_size, model.intermediate_size, model.layers) = (8, 8, 2);
        Layout::of(&model)
    }

    fn state() -> TrainerState {
        let mut state = TrainerState::fresh(&layout());
        state.step = 12;
        state.moments[1].first[3] = 0.5;
        state.moments[3].second[0] = -1.5;
        state
    }

    #[test]
    fn it_survives_a_restart() {
        let bytes = state().to_bytes();
        assert_eq!(TrainerState::from_bytes(&layout(), &bytes).unwrap(), state());
        assert_eq!(&bytes[..12], b"DLXTRAIN\x01\0\0\0");
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = state().to_bytes();
        for cut in (0..bytes.len()).step_by(97) {
            assert!(TrainerState::from_bytes(&layout(), &bytes[..cut]).is_err(), "{cut}");
        }
        for at in (0..bytes.len()).step_by(97) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(TrainerState::from_bytes(&layout(), &bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn another_model_is_refused() {
        let mut other = layout();
        other.fragments.swap(0, 1);
        let bytes = state().to_bytes();
        assert_eq!(TrainerState::from_bytes(&other, &bytes), Err(StateError::OtherModel));
        other.fragments.pop();
        let refused = TrainerState::from_bytes(&other, &bytes);
        assert!(matches!(refused, Err(StateError::Length { .. })));
    }
}
