//! The state as leaves below one root: what a snapshot consists of.
//!
//! ```text
//! root = H(scalars, window, fragment digests)
//!          fragment = H(tensor digests)
//!            tensor = H(leaf digests)
//!              leaf = blake3 of at most 1 MiB of: anchor, then momentum, as little-endian f32
//! ```
//!
//! An index holds all leaf digests and the scalars. Its root can be computed without the leaves,
//! so an index that matches a committed root is genuine, and so is every leaf that matches the
//! index: a joiner may take each from another donor (DESIGN section 5, joining).

use std::ops::Range;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    base::{Digest, Round, limits},
    config::Layout,
    outer::{FragmentState, State},
    wire::codec,
};

const ROOT_DOMAIN: &str = "dilocox/state/1";
const FRAGMENT_DOMAIN: &str = "dilocox/state/fragment/1";
const TENSOR_DOMAIN: &str = "dilocox/state/tensor/1";

/// Most bytes of a leaf.
pub const LEAF_BYTES: usize = limits::BLOB_CHUNK_BYTES;
/// Bytes of one value.
const VALUE_BYTES: usize = 4;
/// Most bytes of an encoded index. At 32 bytes a leaf this is 8 TiB of state: a model of 10^12
/// parameters.
pub const MAX_INDEX_BYTES: usize = 256 << 20;

/// Where a leaf's values lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafSpan {
    /// Index of the fragment.
    pub(crate) fragment: usize,
    /// The tensor's elements within the fragment's vectors.
    tensor: Range<usize>,
    /// The leaf's values within the tensor's anchor followed by its momentum.
    values: Range<usize>,
}

impl LeafSpan {
    /// Bytes of the leaf.
    pub(crate) fn bytes(&self) -> usize {
        self.values.len() * VALUE_BYTES
    }

    /// The leaf's ranges within the fragment's anchor and momentum; either may be empty.
    fn ranges(&self) -> (Range<usize>, Range<usize>) {
        let elements = self.tensor.len();
        let within = |at: usize| self.tensor.start + at.min(elements);
        let beyond = |at: usize| self.tensor.start + at.saturating_sub(elements);
        let Range { start, end } = self.values;
        (within(start)..within(end), beyond(start)..beyond(end))
    }

    /// The leaf's bytes.
    pub(crate) fn read(&self, fragment: &FragmentState) -> Vec<u8> {
        let (anchor, momentum) = self.ranges();
        let mut bytes = Vec::with_capacity(self.bytes());
        for values in [&fragment.anchor[anchor], &fragment.momentum[momentum]] {
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        bytes
    }

    /// Puts the leaf's bytes, as many as [`bytes`](Self::bytes), in their place.
    pub(crate) fn write(&self, bytes: &[u8], fragment: &mut FragmentState) {
        let (anchor, momentum) = self.ranges();
        let (first, second) = bytes.split_at(anchor.len() * VALUE_BYTES);
        set(&mut fragment.anchor[anchor], first);
        set(&mut fragment.momentum[momentum], second);
    }
}

fn set(values: &mut [f32], bytes: &[u8]) {
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<VALUE_BYTES>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// Leaves of a tensor of so many elements.
fn leaves_of(elements: usize) -> usize {
    (2 * elements * VALUE_BYTES).div_ceil(LEAF_BYTES)
}

/// All leaves of a layout, in order.
pub(crate) fn spans(layout: &Layout) -> Vec<LeafSpan> {
    let of_tensor = |(fragment, tensor): (usize, Range<usize>)| {
        (0..leaves_of(tensor.len())).map(move |leaf| span(fragment, &tensor, leaf))
    };
    tensors(layout).flat_map(of_tensor).collect()
}

/// Leaf `index` of a layout, without listing them all.
pub(crate) fn span_at(layout: &Layout, index: usize) -> Option<LeafSpan> {
    let mut before = 0;
    for (fragment, tensor) in tensors(layout) {
        let leaves = leaves_of(tensor.len());
        if index < before + leaves {
            return Some(span(fragment, &tensor, index - before));
        }
        before += leaves;
    }
    None
}

fn span(fragment: usize, tensor: &Range<usize>, leaf: usize) -> LeafSpan {
    const LEAF_VALUES: usize = LEAF_BYTES / VALUE_BYTES;
    let end = ((leaf + 1) * LEAF_VALUES).min(2 * tensor.len());
    LeafSpan { fragment, tensor: tensor.clone(), values: leaf * LEAF_VALUES..end }
}

/// Every tensor of a layout: its fragment, and its elements within the fragment's vector.
fn tensors(layout: &Layout) -> impl Iterator<Item = (usize, Range<usize>)> {
    layout.fragments.iter().enumerate().flat_map(|(fragment, spec)| {
        spec.tensors.iter().scan(0, move |start, tensor| {
            let elements = *start..*start + tensor.elements();
            *start = elements.end;
            Some((fragment, elements))
        })
    })
}

/// Leaf digests by fragment and tensor.
type Leaves = Vec<Vec<Vec<Digest>>>;

/// Scalars and leaf digests of a state: enough to compute its root and to check each of its leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotIndex {
    /// The last round that was folded.
    pub round: Round,
    /// Data lease cursor.
    pub cursor: u64,
    /// Rank of the low-rank part.
    pub rank: u32,
    /// H.
    pub local_steps: u32,
    leaves: Leaves,
}

/// An index that does not belong to this model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIndex {
    /// Not as many bytes as an index of this model has.
    #[error("{found} bytes where an index of this model has {expected}")]
    Length {
        /// Bytes given.
        found: usize,
        /// Bytes of an index of this model.
        expected: usize,
    },
    /// The bytes do not spell an index.
    #[error("the index is malformed: {0}")]
    Malformed(String),
    /// Fragments, tensors or leaves are not as many as the model's.
    #[error("the index describes another model")]
    Shape,
}

impl SnapshotIndex {
    /// The index of a state; hashes all of it.
    pub fn of(state: &State) -> Self {
        let layout = state.layout();
        let digests: Vec<Digest> = spans(layout)
            .par_iter()
            .map(|span| Digest::of(&span.read(&state.fragments[span.fragment])))
            .collect();
        let mut digests = digests.into_iter();
        let mut tensor = |elements| digests.by_ref().take(leaves_of(elements)).collect();
        let leaves = layout
            .fragments
            .iter()
            .map(|f| f.tensors.iter().map(|t| tensor(t.elements())).collect())
            .collect();
        let State { round, cursor, rank, local_steps, .. } = *state;
        Self { round, cursor, rank, local_steps, leaves }
    }

    /// The state root.
    pub fn root(&self) -> Digest {
        let fragments: Vec<Digest> = self.leaves.iter().map(|f| fragment_digest(f)).collect();
        let scalars = codec::encode(&(self.round, self.rank, self.local_steps, self.cursor));
        // The controller's window: empty until rank and H adapt (DESIGN section 6).
        let head = [scalars.as_slice(), &[]];
        Digest::of_parts(ROOT_DOMAIN, head.into_iter().chain(slices(&fragments)))
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.digests().count()
    }

    /// The leaves' digests, in order.
    pub fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.leaves.iter().flatten().flatten()
    }

    /// The canonical bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes an index from a stranger. That it is genuine is seen from its root.
    ///
    /// # Errors
    /// If the bytes are no index of a model of this layout.
    pub fn from_bytes(bytes: &[u8], layout: &Layout) -> Result<Self, InvalidIndex> {
        let expected = encoded_len(layout);
        if bytes.len() != expected {
            return Err(InvalidIndex::Length { found: bytes.len(), expected });
        }
        let index: Self = codec::decode::<_, MAX_INDEX_BYTES>(bytes)
            .map_err(|error| InvalidIndex::Malformed(error.to_string()))?;
        index.check(layout)?;
        Ok(index)
    }

    /// Checks that the index has the layout's fragments, tensors and leaves.
    ///
    /// # Errors
    /// If it has not.
    pub fn check(&self, layout: &Layout) -> Result<(), InvalidIndex> {
        let found = self.leaves.iter().map(|f| f.iter().map(Vec::len).collect::<Vec<_>>());
        let tensors = layout.fragments.iter().map(|f| &f.tensors);
        let wanted = tensors.map(|t| t.iter().map(|t| leaves_of(t.elements())).collect::<Vec<_>>());
        if found.eq(wanted) { Ok(()) } else { Err(InvalidIndex::Shape) }
    }
}

fn fragment_digest(tensors: &[Vec<Digest>]) -> Digest {
    let tensor = |leaves: &Vec<Digest>| Digest::of_parts(TENSOR_DOMAIN, slices(leaves));
    let tensors: Vec<Digest> = tensors.iter().map(tensor).collect();
    Digest::of_parts(FRAGMENT_DOMAIN, slices(&tensors))
}

fn slices(digests: &[Digest]) -> impl Iterator<Item = &[u8]> {
    digests.iter().map(|digest| digest.0.as_slice())
}

/// Bytes of an encoded index: the scalars, a count for every list, and 32 bytes a leaf.
fn encoded_len(layout: &Layout) -> usize {
    let tensor = |elements| 8 + 32 * leaves_of(elements);
    let fragment = |f: &crate::config::FragmentSpec| {
        8 + f.tensors.iter().map(|t| tensor(t.elements())).sum::<usize>()
    };
    8 + 8 + 4 + 4 + 8 + layout.fragments.iter().map(fragment).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::reference::{layout_of, noise, small_layouts};

    const LEAF_VALUES: usize = LEAF_BYTES / VALUE_BYTES;

    pub(crate) fn filled(layout: Layout) -> State {
        let mut state = State::zeros(Arc::new(layout));
        state.round = 7;
        for (index, fragment) in state.fragments.iter_mut().enumerate() {
            fragment.anchor = noise(&format!("a{index}"), fragment.anchor.len());
            fragment.momentum = noise(&format!("m{index}"), fragment.momentum.len());
        }
        state
    }

    #[test]
    fn golden_root() {
        let golden = "5d98d1ea2ccfd3e8f3951b987d2f08ab96e75becd72ccf15835ace5e760ea4c9";
        assert_eq!(filled(layout_of(&[&[100, 64], &[3]])).root().to_string(), golden);
    }

    #[test]
    fn a_leaf_may_hold_the_end_of_the_anchor_and_the_start_of_the_momentum() {
        let elements = LEAF_VALUES + 10;
        let state = filled(layout_of(&[&[5, elements]]));
        let spans = spans(state.layout());
        assert_eq!(spans.len(), 1 + 3);
        assert_eq!(spans.iter().map(LeafSpan::bytes).sum::<usize>(), 8 * (5 + elements));
        let (anchor, momentum) = spans[2].ranges();
        assert_eq!((anchor.len(), momentum.len()), (10, LEAF_VALUES - 10));
        let leaf = state.leaf(2);
        let value = |at: usize| f32::from_le_bytes(leaf[4 * at..4 * at + 4].try_into().unwrap());
        assert_eq!(value(0), state.fragments[0].anchor[5 + LEAF_VALUES]);
        assert_eq!(value(10), state.fragments[0].momentum[5]);
        assert_eq!(state.leaf(3).len(), 4 * 20);
    }

    #[test]
    fn every_part_of_the_state_changes_the_root() {
        let state = filled(layout_of(&[&[100, 64], &[3]]));
        let changed = |change: fn(&mut State)| {
            let mut other = state.clone();
            change(&mut other);
            other.root()
        };
        let roots = [
            state.root(),
            changed(|s| s.round += 1),
            changed(|s| s.cursor += 1),
            changed(|s| s.rank += 1),
            changed(|s| s.local_steps += 1),
            changed(|s| s.fragments[0].anchor[99] += 1.0),
            changed(|s| s.fragments[1].momentum[2] = -0.5),
        ];
        let distinct: std::collections::BTreeSet<_> = roots.iter().collect();
        assert_eq!(distinct.len(), roots.len());
    }

    #[test]
    fn the_sign_of_zero_is_part_of_the_state() {
        let mut state = filled(layout_of(&[&[4]]));
        state.fragments[0].anchor[0] = 0.0;
        let root = state.root();
        state.fragments[0].anchor[0] = -0.0;
        assert_ne!(state.root(), root);
    }

    #[test]
    fn an_index_round_trips_at_its_known_length() {
        let state = filled(layout_of(&[&[100, 64], &[3]]));
        let index = SnapshotIndex::of(&state);
        let bytes = index.to_bytes();
        assert_eq!(SnapshotIndex::from_bytes(&bytes, state.layout()), Ok(index.clone()));
        assert_eq!(index.leaf_count(), 3);
        assert_eq!(index.root(), state.root());
    }

    #[test]
    fn a_hostile_index_is_refused_before_anything_is_allocated_for_it() {
        let state = filled(layout_of(&[&[100, 64], &[3]]));
        let bytes = SnapshotIndex::of(&state).to_bytes();
        let parse = |bytes: &[u8]| SnapshotIndex::from_bytes(bytes, state.layout());
        assert!(matches!(parse(&bytes[1..]), Err(InvalidIndex::Length { .. })));
        for at in [24, 32, 40] {
            let mut hostile = bytes.clone();
            hostile[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            assert!(matches!(parse(&hostile), Err(InvalidIndex::Malformed(_))), "at {at}");
        }
        let other = layout_of(&[&[100], &[64, 3]]);
        assert_eq!(SnapshotIndex::of(&state).check(&other), Err(InvalidIndex::Shape));
    }

    proptest! {
        #[test]
        fn flipped_bits_are_refused_or_change_the_root(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let state = filled(layout_of(&[&[100, 64], &[3]]));
            let mut bytes = SnapshotIndex::of(&state).to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(index) = SnapshotIndex::from_bytes(&bytes, state.layout()) {
                prop_assert_ne!(index.root(), state.root());
            }
        }

        #[test]
        fn leaves_cover_the_state_once(layout in small_layouts()) {
            let elements = layout.elements();
            let state = filled(layout);
            let leaves = (0..SnapshotIndex::of(&state).leaf_count()).map(|i| state.leaf(i).len());
            prop_assert_eq!(leaves.sum::<usize>(), elements * 8);
            let all = spans(state.layout());
            prop_assert!(all.iter().enumerate().all(|(i, s)| span_at(state.layout(), i).as_ref() == Some(s)));
            prop_assert_eq!(span_at(state.layout(), all.len()), None);
        }
    }
}
