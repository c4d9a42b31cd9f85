//! What a ring is told before it starts, and whether that can be.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{Attempt, NodeId, Round, RunId, limits},
    codec::{Bits, BucketSpec, OMEGA_ONE},
    wire::Member,
};

/// One exchange, as the plan and the node's own settings describe it.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// The run.
    pub run: RunId,
    /// The round.
    pub round: Round,
    /// The attempt.
    pub attempt: Attempt,
    /// The members, in ring order.
    pub members: Vec<Member>,
    /// This node: one of them.
    pub me: NodeId,
    /// Payload bits of a contribution.
    pub bits: Bits,
    /// All buckets of the model.
    pub specs: Arc<[BucketSpec]>,
    /// The buckets to exchange, ascending: all of them at first, the unfinished ones in a salvage.
    /// The same at every member.
    pub buckets: Vec<u32>,
    /// Time without a frame after which the predecessor counts as dead.
    pub stall: Duration,
    /// Buckets in flight, at least 1. Members' windows may differ by a factor of two.
    pub window: usize,
}

/// A ring that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRing {
    /// Too few or too many members.
    #[error("a ring of {0} members; 1 to {max} are possible", max = limits::MAX_MEMBERS)]
    Members(usize),
    /// A member occurs twice.
    #[error("{0:?} is twice in the ring")]
    Twice(NodeId),
    /// A member's share is out of range.
    #[error("{node:?} has an omega of {omega}; 1 to 256 are possible")]
    Omega {
        /// The member.
        node: NodeId,
        /// Its share.
        omega: u16,
    },
    /// This node is not among the members, or the identity is another node's.
    #[error("{0:?} is not in the ring, or its key is another one's")]
    NotMember(NodeId),
    /// The buckets are not ascending numbers of the model's.
    #[error("the buckets to exchange are not ascending numbers below {0}")]
    Buckets(usize),
    /// The window is zero.
    #[error("a window of 0 buckets moves nothing; set it to at least 1")]
    Window,
    /// The pseudo-gradient does not have the elements that the buckets cover.
    #[error("fragment {fragment} has {found} elements where its buckets cover {expected}")]
    Shape {
        /// The fragment.
        fragment: usize,
        /// Elements given.
        found: usize,
        /// Elements needed.
        expected: usize,
    },
    /// The pseudo-gradient holds a NaN or an infinity: it must not be contributed.
    #[error("element {element} of fragment {fragment} is NaN or infinite: drop this contribution")]
    NotFinite {
        /// The fragment.
        fragment: usize,
        /// The first such element.
        element: usize,
    },
}

impl RingConfig {
    /// Checks everything but the pseudo-gradient.
    pub(super) fn validate(&self) -> Result<(), InvalidRing> {
        let count = self.members.len();
        if !(1..=limits::MAX_MEMBERS).contains(&count) {
            return Err(InvalidRing::Members(count));
        }
        for (position, &Member { node, omega, .. }) in self.members.iter().enumerate() {
            if self.members[..position].iter().any(|other| other.node == node) {
                return Err(InvalidRing::Twice(node));
            }
            if !(1..=OMEGA_ONE).contains(&omega) {
                return Err(InvalidRing::Omega { node, omega });
            }
        }
        let last = self.buckets.last().map_or(0, |&last| last as usize + 1);
        if last > self.specs.len() || !self.buckets.is_sorted_by(|a, b| a < b) {
            return Err(InvalidRing::Buckets(self.specs.len()));
        }
        if self.window == 0 { Err(InvalidRing::Window) } else { Ok(()) }
    }

    /// Checks that `delta` covers the buckets to exchange and is finite there.
    pub(super) fn validate_delta(&self, delta: &[Vec<f32>]) -> Result<(), InvalidRing> {
        for &bucket in &self.buckets {
            let spec = &self.specs[bucket as usize];
            let fragment = spec.fragment;
            let values = delta.get(fragment).map_or(&[][..], Vec::as_slice);
            for part in &spec.tensors {
                let (found, expected) = (values.len(), part.range().end);
                let part = values.get(part.range()).ok_or(InvalidRing::Shape {
                    fragment,
                    found,
                    expected,
                })?;
                if let Some(index) = first_not_finite(part) {
                    let element = expected - part.len() + index;
                    return Err(InvalidRing::NotFinite { fragment, element });
                }
            }
        }
        Ok(())
    }
}

/// The first NaN or infinity: one pass that vectorises, and a second only where there is one.
fn first_not_finite(values: &[f32]) -> Option<usize> {
    let largest = values.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    if largest < f32::INFINITY.to_bits() {
        return None;
    }
    values.iter().position(|x| !x.is_finite())
}
