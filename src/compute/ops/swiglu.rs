//! SwiGLU: silu(gate) * up (arXiv 2002.05202).

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{ELEMENTS_PER_JOB, shaped};
use crate::compute::{
    host::{Reading, f32s},
    simd::{kernel, sigmoid},
};

struct SwiGlu;

#[inline(always)]
fn forward_run(y: &mut [f32], gate: &[f32], up: &[f32]) {
    for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
        *y = gate * sigmoid(gate) * up;
    }
}

kernel!(forward_kernel(y: &mut [f32], gate: &[f32], up: &[f32]) = forward_run);

fn forward(gate: &[f32], up: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; gate.len()];
    let inputs = gate.par_chunks(ELEMENTS_PER_JOB).zip(up.par_chunks(ELEMENTS_PER_JOB));
    y.par_chunks_mut(ELEMENTS_PER_JOB)
        .zip(inputs)
        .for_each(|(y, (gate, up))| forward_kernel(y, gate, up));
    y
}

/// With s = sigmoid(g): d silu / dg = s + g * s * (1 - s).
#[inline(always)]
fn backward_run(d_gate: &mut [f32], d_up: &mut [f32], gate: &[f32], up: &[f32], dy: &[f32]) {
    let inputs = gate.iter().zip(up).zip(dy);
    for ((d_gate, d_up), ((&g, &up), &dy)) in d_gate.iter_mut().zip(d_up).zip(inputs) {
        let s = sigmoid(g);
        let silu = g * s;
        *d_gate = dy * up * (s + silu * (1.0 - s));
        *d_up = dy * silu;
    }
}

kernel!(backward_kernel(
    d_gate: &mut [f32],
    d_up: &mut [f32],
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
) = backward_run);

fn backward(gate: &[f32], up: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let (mut d_gate, mut d_up) = (vec![0.0; gate.len()], vec![0.0; gate.len()]);
    let inputs = gate.par_chunks(ELEMENTS_PER_JOB).zip(up.par_chunks(ELEMENTS_PER_JOB));
    d_gate
        .par_chunks_mut(ELEMENTS_PER_JOB)
        .zip(d_up.par_chunks_mut(ELEMENTS_PER_JOB))
        .zip(inputs.zip(dy.par_chunks(ELEMENTS_PER_JOB)))
        .for_each(|((d_gate, d_up), ((gate, up), dy))| backward_kernel(d_gate, d_up, gate, up, dy));
    (d_gate, d_up)
}

impl CustomOp2 for SwiGlu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        if gate_layout.shape() != up_layout.shape() {
            bail!("swiglu: {:?} and {:?} differ", gate_layout.shape(), up_layout.shape());
        }
        let y = forward(f32s(gate, gate_layout)?, f32s(up, up_layout)?);
        Ok((CpuStorage::F32(y), gate_layout.shape().clone()))
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (gates, ups, dys) = (Reading::of(gate), Reading::of(up), Reading::of(&grad));
        let (d_gate, d_up) = backward(gates.f32s()?, ups.f32s()?, dys.f32s()?);
        Ok((Some(shaped(d_gate, gate)?), Some(shaped(d_up, up)?)))
    }
}

/// silu(`gate`) * `up`, element by element; both in one shape.
///
/// # Errors
/// If the shapes differ.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.apply_op2(up, SwiGlu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::check;

    #[test]
    fn gradients_match() {
        let inputs = [check::random(&[5, 7], 1), check::random(&[5, 7], 2)];
        check::against_differences(&inputs, |x| swiglu(&x[0], &x[1]), 2e-3);
        let inputs = [check::random(&[64, 300], 3), check::random(&[64, 300], 4)];
        check::against_plain(
            &inputs,
            |x| swiglu(&x[0], &x[1]),
            |x| candle_nn::ops::silu(&x[0])? * &x[1],
            1e-6,
        );
    }
}
