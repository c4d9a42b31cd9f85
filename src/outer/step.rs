//! The outer step of DESIGN section 4, one element after the other.

/// v' = fl(fl(mu*v) + Delta); theta' = fl(theta - fl(eta * fl(Delta + fl(mu*v')))).
///
/// `delta` is the averaged pseudo-gradient of the same elements as `anchor` and `momentum`. Rust
/// never contracts a product and a sum into a fused operation, so each one is rounded by itself.
///
/// # Panics
/// If the three are not of one length.
pub fn nesterov(anchor: &mut [f32], momentum: &mut [f32], delta: &[f32], eta: f32, mu: f32) {
    assert_eq!(anchor.len(), delta.len(), "anchor and delta of two tensors");
    assert_eq!(momentum.len(), delta.len(), "momentum and delta of two tensors");
    for ((theta, v), delta) in anchor.iter_mut().zip(momentum).zip(delta) {
        *v = mu * *v + delta;
        *theta -= eta * (delta + mu * *v);
    }
}

/// delta = (S - L) + e: what a segment that ran from `start` to `local` puts into its exchange,
/// with the `error` fed back from the last one (DESIGN section 5).
///
/// # Panics
/// If the three are not of one length.
pub fn pseudo_gradient(start: &[f32], local: &[f32], error: &[f32]) -> Vec<f32> {
    assert_eq!(start.len(), local.len(), "start and end of two segments");
    assert_eq!(start.len(), error.len(), "an error buffer of another fragment");
    start
        .iter()
        .zip(local)
        .zip(error)
        .map(|((start, local), error)| start - local + error)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::reference::{noise, outer_step};

    #[test]
    fn two_steps_by_hand() {
        let (mut theta, mut v) = ([1.0], [0.0]);
        nesterov(&mut theta, &mut v, &[0.5], 0.5, 0.5);
        assert_eq!((theta, v), ([1.0 - 0.5 * 0.75], [0.5]));
        nesterov(&mut theta, &mut v, &[0.0], 0.5, 0.5);
        assert_eq!((theta, v), ([0.625 - 0.5 * 0.125], [0.25]));
    }

    #[test]
    fn products_are_rounded_before_they_are_added() {
        // A fused multiply-add would keep the last bits of (1 + 2^-12)^2.
        let x = 1.0 + 2f32.powi(-12);
        let (mut theta, mut v) = ([0.0], [x]);
        nesterov(&mut theta, &mut v, &[-1.0], 1.0, x);
        assert_eq!(v, [2f32.powi(-11)]);
        assert_ne!(x.mul_add(x, -1.0), v[0]);
    }

    #[test]
    fn a_pseudo_gradient_is_what_training_moved_and_what_was_left() {
        assert_eq!(pseudo_gradient(&[3.0, 1.0], &[1.0, 2.0], &[0.5, 0.0]), [2.5, -1.0]);
    }

    proptest! {
        #[test]
        fn the_step_is_the_reference(label in 0u32..1000, eta in 0.01f32..2.0, mu in 0f32..0.99) {
            let data = |part: &str| noise(&format!("{label} {part}"), 500);
            let (mut theta, mut v, delta) = (data("theta"), data("v"), data("delta"));
            let before = (theta.clone(), v.clone());
            nesterov(&mut theta, &mut v, &delta, eta, mu);
            for i in 0..500 {
                let slow = outer_step(before.0[i], before.1[i], delta[i], eta, mu);
                prop_assert_eq!((theta[i].to_bits(), v[i].to_bits()), (slow.0.to_bits(), slow.1.to_bits()));
            }
        }
    }
}
