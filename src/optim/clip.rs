//! Clipping of the gradient by its global norm (arXiv 1211.5063).

use rayon::prelude::*;

/// Elements of one partial sum; fixed, so that the norm does not depend on the number of threads.
const RUN: usize = 16 * 1024;

/// The Euclidean norm over all slices together, summed in f64.
pub fn global_norm(gradients: &[Vec<f32>]) -> f64 {
    let squares = |run: &[f32]| run.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>();
    gradients
        .iter()
        .map(|slice| {
            let parts: Vec<f64> = slice.par_chunks(RUN).map(squares).collect();
            parts.iter().sum::<f64>()
        })
        .sum::<f64>()
        .sqrt()
}

/// The factor that brings a gradient of `norm` down to `clip_norm`, 1 when it is not above; a
/// `clip_norm` of 0 turns clipping off. The small term is PyTorch's.
pub fn clip_factor(norm: f64, clip_norm: f64) -> f32 {
    if clip_norm == 0.0 {
        return 1.0;
    }
    (clip_norm / (norm + 1e-6)).min(1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_spans_all_slices() {
        assert_eq!(global_norm(&[vec![3.0], vec![0.0, 4.0]]), 5.0);
        assert_eq!(global_norm(&[]), 0.0);
        assert!(global_norm(&[vec![f32::NAN]]).is_nan());
    }

    #[test]
    fn only_large_gradients_are_scaled() {
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert!((clip_factor(4.0, 1.0) - 0.25).abs() < 1e-6);
        assert_eq!(clip_factor(4.0, 0.0), 1.0);
    }
}
