//! Devices and the fused operations that candle lacks or whose gradients it silently drops.
//!
//! candle's own `layer_norm`, `rms_norm`, `softmax_last_dim` and `rope` return no gradient and no
//! error, so the model uses none of them: every operation in [`ops`] has a forward and a backward
//! pass of ours, tested against finite differences and against plain candle operations.
//!
//! ```text
//! device   which device a node trains on
//! threads  how candle's and rayon's pools are kept from fighting
//! host     slices of tensors on the CPU
//! simd     vector units found at run time; exp, dot products, small matrix tiles
//! ops      linear, rms_norm, rotary, attention, swiglu, cross_entropy
//! ```

mod device;
pub(crate) mod host;
pub mod ops;
pub(crate) mod simd;
pub mod threads;

pub use device::{DeviceChoice, DeviceError};

#[cfg(test)]
pub(crate) mod check;
