//! The state that all nodes share after round k.

use std::sync::Arc;

use crate::{
    base::{Digest, Round},
    config::Layout,
    outer::snapshot::{self, SnapshotIndex},
};

/// Anchor and momentum of one fragment, each its flat vector of parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FragmentState {
    /// A_k: the global parameters.
    pub anchor: Vec<f32>,
    /// v_k: the outer momentum.
    pub momentum: Vec<f32>,
}

impl FragmentState {
    /// `elements` zeros of each.
    pub fn zeros(elements: usize) -> Self {
        Self { anchor: vec![0.0; elements], momentum: vec![0.0; elements] }
    }
}

/// A pure function of genesis and the exchanges 1..=round (DESIGN principle 1).
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The last round that was folded; 0 is genesis.
    pub round: Round,
    /// Data lease cursor: positions below it were given out.
    pub cursor: u64,
    /// Rank of the low-rank part; 0 when it is off.
    pub rank: u32,
    /// H: local steps of a segment.
    pub local_steps: u32,
    /// The fragments, in the layout's order.
    pub fragments: Vec<FragmentState>,
    layout: Arc<Layout>,
}

impl State {
    /// A state of zeros with the layout's shapes.
    pub(crate) fn zeros(layout: Arc<Layout>) -> Self {
        let zeros =
            |fragment: &crate::config::FragmentSpec| FragmentState::zeros(fragment.elements());
        let fragments = layout.fragments.iter().map(zeros).collect();
        Self { round: 0, cursor: 0, rank: 0, local_steps: 0, fragments, layout }
    }

    /// The shapes of the fragments.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The digest of everything (DESIGN section 4, state root).
    pub fn root(&self) -> Digest {
        SnapshotIndex::of(self).root()
    }

    /// The bytes of leaf `index` of the snapshot, at most
    /// [`LEAF_BYTES`](snapshot::LEAF_BYTES).
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn leaf(&self, index: usize) -> Vec<u8> {
        let span = snapshot::span_at(&self.layout, index).expect("the snapshot has no such leaf");
        span.read(&self.fragments[span.fragment])
    }
}
