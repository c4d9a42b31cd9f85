//! AdamW (arXiv 1711.05101), over flat slices, in one pass.

use rayon::prelude::*;

use crate::{compute::simd::kernel, config::manifest::InnerConfig};

/// Elements that one job takes.
const ELEMENTS_PER_JOB: usize = 16 * 1024;

/// The optimizer's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
}

/// First and second moments of a run of parameters, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// m: mean of the gradient.
    pub first: Vec<f32>,
    /// v: mean of its square.
    pub second: Vec<f32>,
}

impl Moments {
    /// Zero moments of `elements` parameters.
    pub fn zeros(elements: usize) -> Self {
        Self { first: vec![0.0; elements], second: vec![0.0; elements] }
    }
}

/// What one step needs besides parameters, gradients and moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// t, from 1: corrects the moments' start at zero.
    pub number: u64,
    /// Learning rate.
    pub rate: f64,
    /// Factor on the gradient (clipping and averaging).
    pub gradient_scale: f32,
    /// Whether weight decay applies.
    pub decay: bool,
}

impl AdamW {
    /// The constants of a manifest.
    pub fn of(inner: &InnerConfig) -> Self {
        Self {
            beta1: inner.beta1 as f32,
            beta2: inner.beta2 as f32,
            epsilon: inner.epsilon as f32,
            weight_decay: inner.weight_decay as f32,
        }
    }

    /// One step, with the gradient g scaled as `step` says:
    ///
    /// ```text
    /// m = beta1 * m + (1 - beta1) * g
    /// v = beta2 * v + (1 - beta2) * g^2
    /// theta = theta - rate * weight_decay * theta
    ///               - rate * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
    /// ```
    ///
    /// # Panics
    /// If the slices' lengths differ.
    pub fn update(
        &self,
        theta: &mut [f32],
        gradient: &[f32],
        (m, v): (&mut [f32], &mut [f32]),
        step: &Step,
    ) {
        let n = theta.len();
        assert!(gradient.len() == n && m.len() == n && v.len() == n, "one length");
        theta
            .par_chunks_mut(ELEMENTS_PER_JOB)
            .zip(gradient.par_chunks(ELEMENTS_PER_JOB))
            .zip(m.par_chunks_mut(ELEMENTS_PER_JOB).zip(v.par_chunks_mut(ELEMENTS_PER_JOB)))
            .for_each(|((theta, gradient), (m, v))| {
                update_run(self, theta, gradient, (m, v), step);
            });
    }

    #[inline(always)]
    fn run(
        &self,
        theta: &mut [f32],
        gradient: &[f32],
        (m, v): (&mut [f32], &mut [f32]),
        step: &Step,
    ) {
        let corrected = |beta: f32| 1.0 - f64::from(beta).powf(step.number as f64);
        let rate = (step.rate / corrected(self.beta1)) as f32;
        let root_correction = corrected(self.beta2).sqrt().recip() as f32;
        let decay = if step.decay { self.weight_decay } else { 0.0 };
        let keep = (1.0 - step.rate * f64::from(decay)) as f32;
        let (beta1, beta2) = (self.beta1, self.beta2);
        for ((theta, &g), (m, v)) in theta.iter_mut().zip(gradient).zip(m.iter_mut().zip(v)) {
            let g = g * step.gradient_scale;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *theta = keep * *theta - rate * *m / (v.sqrt() * root_correction + self.epsilon);
        }
    }
}

kernel!(update_run(
    adamw: &AdamW,
    theta: &mut [f32],
    gradient: &[f32],
    moments: (&mut [f32], &mut [f32]),
    step: &Step,
) = AdamW::run);

#[cfg(test)]
mod tests {
    use super::*;

    const ADAMW: AdamW = AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };

    /// The formula in f64, one element.
    fn reference(theta: f64, gradients: &[f64], rate: f64, decay: f64) -> f64 {
        let (mut theta, mut m, mut v) = (theta, 0.0, 0.0);
        for (t, &g) in (1..).zip(gradients) {
            m = 0.9 * m + 0.1 * g;
            v = 0.95 * v + 0.05 * g * g;
            let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.95f64.powi(t)));
            theta = theta - rate * decay * theta - rate * m_hat / (v_hat.sqrt() + 1e-8);
        }
        theta
    }

    #[test]
    fn it_follows_the_formula() {
        let gradients = [0.5, -0.25, 1.0, 0.125, -2.0];
        for (decay, share) in [(true, 0.1), (false, 0.0)] {
            let mut theta = vec![0.3f32; 40_000];
            let mut moments = Moments::zeros(theta.len());
            for (number, &g) in (1..).zip(&gradients) {
                let step = Step { number, rate: 1e-2, gradient_scale: 0.5, decay };
                let gradient = vec![2.0 * g as f32; theta.len()];
                let Moments { first, second } = &mut moments;
                ADAMW.update(&mut theta, &gradient, (first, second), &step);
            }
            let exact = reference(0.3, &gradients, 1e-2, share);
            assert!(theta.iter().all(|&x| (f64::from(x) - exact).abs() < 1e-6), "{exact}");
        }
    }

    #[test]
    fn a_zero_gradient_only_decays() {
        let mut theta = [1.0f32];
        let step = Step { number: 1, rate: 0.5, gradient_scale: 1.0, decay: true };
        ADAMW.update(&mut theta, &[0.0], (&mut [0.0], &mut [0.0]), &step);
        assert_eq!(theta, [0.95]);
    }
}
