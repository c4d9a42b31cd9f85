//! Segments on the parameters: where they start, what is frozen, and what a fold moves
//! (DESIGN section 5, the table of overlaps).

use super::vectors::{self, Fragments};
use crate::{config::manifest::Overlap, outer::pseudo_gradient};

/// Start and error buffer of a replica; the local parameters belong to the trainer.
#[derive(Debug)]
pub(crate) struct Parameters {
    overlap: Overlap,
    /// S: where the running segment started.
    start: Fragments,
    /// e: what earlier exchanges did not carry.
    error: Fragments,
}

/// What freezing gives.
#[derive(Debug)]
pub(crate) struct FrozenDelta {
    /// delta = S - L + e.
    pub(crate) delta: Fragments,
    /// |e|^2 / |delta|^2.
    pub(crate) feedback_ratio: f64,
    /// The local parameters to go on from, if they are not the present ones.
    pub(crate) next: Option<Fragments>,
}

impl Parameters {
    /// A segment that starts at `anchor` with an empty error buffer.
    pub(crate) fn new(overlap: Overlap, anchor: &[Vec<f32>]) -> Self {
        Self { overlap, start: anchor.to_vec(), error: vectors::zeros(anchor) }
    }

    /// Starts a segment at the newest anchor; the local parameters become it too.
    pub(crate) fn start_at(&mut self, anchor: &[Vec<f32>]) {
        self.start = anchor.to_vec();
    }

    /// What an exchange did not carry is fed back. Something may already be there: a contribution
    /// that was dropped before.
    pub(crate) fn feed_back(&mut self, residual: &[Vec<f32>]) {
        vectors::add(&mut self.error, residual);
    }

    /// Forgets the error buffer.
    pub(crate) fn drop_error(&mut self) {
        self.error = vectors::zeros(&self.start);
    }

    /// Freezes: `local` is L, `anchor` the newest anchor. `None` if the pseudo-gradient is not
    /// finite; nothing is kept of it then.
    pub(crate) fn freeze(&mut self, local: Fragments, anchor: &[Vec<f32>]) -> Option<FrozenDelta> {
        let delta: Fragments = self
            .start
            .iter()
            .zip(&local)
            .zip(&self.error)
            .map(|((start, local), error)| pseudo_gradient(start, local, error))
            .collect();
        if !vectors::is_finite(&delta) {
            self.start_at(anchor);
            if !vectors::is_finite(&self.error) {
                self.drop_error();
            }
            return None;
        }
        let (size, error) = (vectors::squares(&delta), vectors::squares(&self.error));
        let feedback_ratio = if size > 0.0 { error / size } else { 0.0 };
        self.drop_error();
        let next = match self.overlap {
            Overlap::OnArrival | Overlap::None => None,
            Overlap::Delayed => Some(anchor.to_vec()),
            Overlap::Continued => {
                let moved = vectors::difference(&self.start, &local);
                Some(vectors::difference(anchor, &moved))
            }
        };
        self.start = next.clone().unwrap_or(local);
        Some(FrozenDelta { delta, feedback_ratio, next })
    }

    /// A round was folded and `anchor` is the newest: by how much the local parameters move, if
    /// they do. With `on_arrival` the average takes the place of the node's own part, so that the
    /// running segment starts exactly at the anchor from now on.
    pub(crate) fn folded(&mut self, anchor: &[Vec<f32>]) -> Option<Fragments> {
        if self.overlap != Overlap::OnArrival {
            return None;
        }
        let shift = vectors::difference(anchor, &self.start);
        self.start_at(anchor);
        Some(shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f32) -> Fragments {
        vec![vec![value]]
    }

    /// Anchor 10, the segment goes down to 7, so g = 3.
    fn frozen(overlap: Overlap) -> (Parameters, FrozenDelta) {
        let mut parameters = Parameters::new(overlap, &one(10.0));
        parameters.feed_back(&one(0.5));
        let frozen = parameters.freeze(one(7.0), &one(10.0)).unwrap();
        (parameters, frozen)
    }

    #[test]
    fn delta_is_start_minus_local_plus_error() {
        for overlap in [Overlap::None, Overlap::Delayed, Overlap::Continued, Overlap::OnArrival] {
            let (parameters, frozen) = frozen(overlap);
            assert_eq!(frozen.delta, one(3.5));
            assert!((frozen.feedback_ratio - 0.25 / 12.25).abs() < 1e-6);
            assert_eq!(parameters.error, one(0.0));
        }
    }

    #[test]
    fn on_arrival_goes_on_and_is_moved_by_the_average() {
        let (mut parameters, frozen) = frozen(Overlap::OnArrival);
        assert_eq!(frozen.next, None);
        // The average of all was 2, not 3: the anchor is 8 and the local part moves up by one.
        assert_eq!(parameters.folded(&one(8.0)), Some(one(1.0)));
        assert_eq!(parameters.start, one(8.0));
    }

    #[test]
    fn delayed_starts_again_from_the_anchor() {
        let (mut parameters, frozen) = frozen(Overlap::Delayed);
        assert_eq!(frozen.next, Some(one(10.0)));
        assert_eq!(parameters.folded(&one(8.0)), None);
        let frozen = parameters.freeze(one(9.0), &one(8.0)).unwrap();
        assert_eq!((frozen.delta, frozen.next), (one(1.0), Some(one(8.0))));
    }

    #[test]
    fn continued_moves_by_what_the_anchor_moved() {
        let (mut parameters, frozen) = frozen(Overlap::Continued);
        assert_eq!(frozen.next, Some(one(7.0)));
        assert_eq!(parameters.folded(&one(8.0)), None);
        // S_2 = 7, L_2 = 5: g = 2; the anchor went from 10 to 8: S_3 = 8 - 2.
        let frozen = parameters.freeze(one(5.0), &one(8.0)).unwrap();
        assert_eq!((frozen.delta, frozen.next), (one(2.0), Some(one(6.0))));
    }

    #[test]
    fn a_pseudo_gradient_that_is_not_finite_is_dropped() {
        let mut parameters = Parameters::new(Overlap::OnArrival, &one(10.0));
        parameters.feed_back(&one(0.5));
        assert!(parameters.freeze(one(f32::NAN), &one(10.0)).is_none());
        assert_eq!((parameters.start, parameters.error), (one(10.0), one(0.5)));
    }
}
