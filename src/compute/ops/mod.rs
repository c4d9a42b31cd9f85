//! Fused operations with backward passes, one a file.
//!
//! Each has a function that applies it to tensors and is documented there with shapes. All are
//! f32 on the CPU, row-major and contiguous; parallel over rows or heads in the caller's rayon
//! pool; sums that cross rows are taken in a fixed order, so results do not depend on the number
//! of threads.

mod attention;
mod cross_entropy;
mod linear;
mod rms_norm;
mod rotary;
mod swiglu;

pub use attention::{AttentionShape, attention};
pub use cross_entropy::cross_entropy;
pub use linear::linear;
pub use rms_norm::rms_norm;
pub use rotary::{RotaryTable, rotary};
pub use swiglu::swiglu;

use candle_core::{Device, Result, Tensor};

/// Rows that one job of a row-wise operation takes: enough work to outweigh handing it over.
const ROWS_PER_JOB: usize = 64;
/// Elements that one job of an elementwise operation takes.
const ELEMENTS_PER_JOB: usize = 16 * 1024;

/// A new tensor in the shape of `like`.
fn shaped(values: Vec<f32>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(values, like.shape(), &Device::Cpu)
}
