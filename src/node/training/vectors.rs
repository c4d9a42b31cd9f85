//! Arithmetic on parameters: one flat vector a fragment, in layout order.

use std::sync::Arc;

/// One flat vector a fragment.
pub(crate) type Fragments = Vec<Vec<f32>>;
/// Parameters that several owners read.
pub(crate) type Shared = Arc<Fragments>;

/// a - b, element by element.
pub(crate) fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> Fragments {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a - b).collect()).collect()
}

/// Zeros of the same shape.
pub(crate) fn zeros(like: &[Vec<f32>]) -> Fragments {
    like.iter().map(|fragment| vec![0.0; fragment.len()]).collect()
}

/// a += b.
pub(crate) fn add(a: &mut [Vec<f32>], b: &[Vec<f32>]) {
    for (a, b) in a.iter_mut().zip(b) {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    }
}

/// The sum of squares, in f64.
pub(crate) fn squares(a: &[Vec<f32>]) -> f64 {
    a.iter().flatten().map(|&x| f64::from(x) * f64::from(x)).sum()
}

/// Whether no element is NaN or infinite.
pub(crate) fn is_finite(a: &[Vec<f32>]) -> bool {
    a.iter().flatten().all(|x| x.is_finite())
}
