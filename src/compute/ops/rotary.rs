//! Rotary positions (arXiv 2104.09864) in the ecosystem's half rotation: element i of a head turns
//! together with element i + `head_dim` / 2.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{ROWS_PER_JOB, shaped};
use crate::compute::{
    host::{Reading, f32s},
    simd::kernel,
};

/// Cosines and sines of every position and frequency.
#[derive(Debug)]
pub struct RotaryTable {
    length: usize,
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RotaryTable {
    /// The table of `length` positions for heads of `head_dim` elements: frequency i is
    /// `base`^(-2i / `head_dim`).
    pub fn new(length: usize, head_dim: usize, base: f64) -> Self {
        let half = head_dim / 2;
        let angle = |position: usize, i: usize| {
            // Like the ecosystem: the frequency is rounded to f32 before it is multiplied.
            let frequency = base.powf(-2.0 * i as f64 / head_dim as f64) as f32;
            position as f32 * frequency
        };
        let angles: Vec<f32> =
            (0..length).flat_map(|t| (0..half).map(move |i| angle(t, i))).collect();
        let cos = angles.iter().map(|angle| angle.cos()).collect();
        let sin = angles.iter().map(|angle| angle.sin()).collect();
        Self { length, half, cos, sin }
    }
}

#[derive(Clone)]
struct Rotary {
    table: Arc<RotaryTable>,
    /// Tokens of a sequence; row r has position r modulo this.
    length: usize,
}

impl Rotary {
    /// Turns every head by its position, forwards (`sign` 1) or back (-1: the gradient).
    fn turn(&self, x: &[f32], width: usize, sign: f32) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        let job = width * ROWS_PER_JOB;
        y.par_chunks_mut(job).zip(x.par_chunks(job)).enumerate().for_each(|(index, (y, x))| {
            turn_kernel(self, y, x, (index * ROWS_PER_JOB, width), sign);
        });
        y
    }

    /// One job's rows, the first of which is row `first_row` of all.
    #[inline(always)]
    fn turn_rows(&self, y: &mut [f32], x: &[f32], (first_row, width): (usize, usize), sign: f32) {
        let (table, half) = (&self.table, self.table.half);
        let rows = y.chunks_exact_mut(width).zip(x.chunks_exact(width));
        for (row, (y, x)) in rows.enumerate() {
            let position = (first_row + row) % self.length;
            let cos = &table.cos[position * half..][..half];
            let sin = &table.sin[position * half..][..half];
            for (y, x) in y.chunks_exact_mut(2 * half).zip(x.chunks_exact(2 * half)) {
                turn_head(y, x, cos, sin, sign);
            }
        }
    }
}

kernel!(turn_kernel(
    rotary: &Rotary,
    y: &mut [f32],
    x: &[f32],
    rows: (usize, usize),
    sign: f32,
) = Rotary::turn_rows);

#[inline(always)]
fn turn_head(y: &mut [f32], x: &[f32], cos: &[f32], sin: &[f32], sign: f32) {
    let half = cos.len();
    let (y_low, y_high) = y.split_at_mut(half);
    let (x_low, x_high) = x.split_at(half);
    for i in 0..half {
        let sin = sign * sin[i];
        y_low[i] = x_low[i] * cos[i] - x_high[i] * sin;
        y_high[i] = x_high[i] * cos[i] + x_low[i] * sin;
    }
}

impl CustomOp1 for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = layout.shape().dims2()?;
        let fits = width.is_multiple_of(2 * self.table.half) && rows.is_multiple_of(self.length);
        if !fits || self.length > self.table.length {
            bail!("rotary: ({rows}, {width}) does not fit sequences of {}", self.length);
        }
        let y = self.turn(f32s(x, layout)?, width, 1.0);
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let grad = grad.contiguous()?;
        let width = x.dim(1)?;
        let dx = self.turn(Reading::of(&grad).f32s()?, width, -1.0);
        shaped(dx, x).map(Some)
    }
}

/// Turns x (batch * `length`, heads * head_dim) by each row's position in its sequence.
///
/// # Errors
/// If the shapes do not fit or a sequence is longer than the table.
pub fn rotary(x: &Tensor, table: &Arc<RotaryTable>, length: usize) -> Result<Tensor> {
    x.apply_op1(Rotary { table: Arc::clone(table), length: length.max(1) })
}

#[cfg(test)]
mod tests {
    use candle_core::{D, Device};

    use super::*;
    use crate::compute::check;

    const LENGTH: usize = 5;
    const HEAD: usize = 6;

    fn plain(x: &Tensor, table: &RotaryTable) -> Result<Tensor> {
        let shape = (1, LENGTH, 1, HEAD / 2);
        let cos = Tensor::from_slice(&table.cos, shape, &Device::Cpu)?;
        let sin = Tensor::from_slice(&table.sin, shape, &Device::Cpu)?;
        let split = x.reshape(((), LENGTH, 2, HEAD))?;
        let low = split.narrow(D::Minus1, 0, HEAD / 2)?;
        let high = split.narrow(D::Minus1, HEAD / 2, HEAD / 2)?;
        let turned_low = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
        let turned_high = (high.broadcast_mul(&cos)? + low.broadcast_mul(&sin)?)?;
        Tensor::cat(&[turned_low, turned_high], D::Minus1)?.reshape(x.shape())
    }

    #[test]
    fn gradients_match() {
        let table = Arc::new(RotaryTable::new(LENGTH, HEAD, 10_000.0));
        let inputs = [check::random(&[3 * LENGTH, 2 * HEAD], 1)];
        let ours = |x: &[Tensor]| rotary(&x[0], &table, LENGTH);
        check::against_differences(&inputs, ours, 1e-3);
        check::against_plain(&inputs, ours, |x| plain(&x[0], &table), 1e-6);
    }

    #[test]
    fn position_zero_stays_and_lengths_are_checked() {
        let table = Arc::new(RotaryTable::new(4, 2, 10_000.0));
        let x = check::random(&[1, 4], 2);
        let y = rotary(&x, &table, 1).unwrap();
        assert_eq!(y.to_vec2::<f32>().unwrap(), x.to_vec2::<f32>().unwrap());
        assert!(rotary(&check::random(&[5, 4], 2), &table, 5).is_err());
        assert!(rotary(&check::random(&[5, 4], 2), &table, 4).is_err());
    }
}
