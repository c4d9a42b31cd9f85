//! Mean cross-entropy of a softmax over logits.

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{ROWS_PER_JOB, shaped};
use crate::compute::{
    host::{Reading, f32s, u32s},
    simd::{exp_sum, kernel, max},
};

struct CrossEntropy;

/// Sum of a job's row losses: ln(sum(e^x)) - x\[target\].
#[inline(always)]
fn losses(logits: &[f32], targets: &[u32], width: usize) -> f64 {
    let mut row = vec![0.0; width];
    let mut total = 0.0;
    for (x, &target) in logits.chunks_exact(width).zip(targets) {
        row.copy_from_slice(x);
        let shift = max(x);
        let sum = exp_sum(&mut row, shift);
        total += f64::from(sum.ln()) + f64::from(shift) - f64::from(x[target as usize]);
    }
    total
}

kernel!(losses_kernel(logits: &[f32], targets: &[u32], width: usize) -> f64 = losses);

fn forward(logits: &[f32], targets: &[u32], width: usize) -> f32 {
    let parts: Vec<f64> = logits
        .par_chunks(width * ROWS_PER_JOB)
        .zip(targets.par_chunks(ROWS_PER_JOB))
        .map(|(logits, targets)| losses_kernel(logits, targets, width))
        .collect();
    (parts.iter().sum::<f64>() / targets.len() as f64) as f32
}

/// (softmax - one hot) * `scale`, in place of the logits.
#[inline(always)]
fn backward_rows(dx: &mut [f32], targets: &[u32], width: usize, scale: f32) {
    for (dx, &target) in dx.chunks_exact_mut(width).zip(targets) {
        let shift = max(dx);
        let factor = scale / exp_sum(dx, shift);
        dx.iter_mut().for_each(|p| *p *= factor);
        dx[target as usize] -= scale;
    }
}

kernel!(backward_kernel(dx: &mut [f32], targets: &[u32], width: usize, scale: f32) = backward_rows);

fn backward(logits: &[f32], targets: &[u32], width: usize, scale: f32) -> Vec<f32> {
    let mut dx = logits.to_vec();
    dx.par_chunks_mut(width * ROWS_PER_JOB)
        .zip(targets.par_chunks(ROWS_PER_JOB))
        .for_each(|(dx, targets)| backward_kernel(dx, targets, width, scale));
    dx
}

impl CustomOp2 for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross-entropy"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        logits_layout: &Layout,
        targets: &CpuStorage,
        targets_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = logits_layout.shape().dims2()?;
        let targets = u32s(targets, targets_layout)?;
        if rows == 0 || targets.len() != rows {
            bail!("cross-entropy: {rows} rows of logits and {} targets", targets.len());
        }
        if let Some(target) = targets.iter().find(|&&target| target as usize >= width) {
            bail!("cross-entropy: token {target} is outside of a vocabulary of {width}");
        }
        let loss = forward(f32s(logits, logits_layout)?, targets, width);
        Ok((CpuStorage::F32(vec![loss]), Shape::from(())))
    }

    fn bwd(
        &self,
        logits: &Tensor,
        targets: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (rows, width) = logits.dims2()?;
        let scale = grad.to_scalar::<f32>()? / rows as f32;
        let (xs, ts) = (Reading::of(logits), Reading::of(targets));
        let dx = backward(xs.f32s()?, ts.u32s()?, width, scale);
        Ok((Some(shaped(dx, logits)?), None))
    }
}

/// Mean over the rows of -ln(softmax(`logits`)\[target\]), in nats: logits (rows, vocabulary),
/// targets (rows) as u32; the result is a scalar.
///
/// # Errors
/// If the shapes do not fit or a target is outside of the vocabulary.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    logits.apply_op2(targets, CrossEntropy)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::compute::check;

    fn targets(rows: u32, width: u32) -> Tensor {
        let list: Vec<u32> = (0..rows).map(|row| row * 7 % width).collect();
        Tensor::new(list, &Device::Cpu).unwrap()
    }

    #[test]
    fn gradients_match() {
        let small = targets(4, 9);
        let inputs = [check::random(&[4, 9], 1)];
        check::against_differences(&inputs, |x| cross_entropy(&x[0], &small), 1e-3);
        let large = targets(150, 37);
        let inputs = [check::random(&[150, 37], 2)];
        check::against_plain(
            &inputs,
            |x| cross_entropy(&x[0], &large),
            |x| candle_nn::loss::cross_entropy(&x[0], &large),
            1e-6,
        );
    }

    #[test]
    fn a_target_outside_of_the_vocabulary_is_an_error() {
        let logits = check::random(&[2, 3], 1);
        let error = cross_entropy(&logits, &Tensor::new(&[0u32, 3], &Device::Cpu).unwrap());
        assert!(error.unwrap_err().to_string().contains("vocabulary of 3"));
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let logits = Tensor::new(&[[1e4f32, -1e4]], &Device::Cpu).unwrap();
        let loss = cross_entropy(&logits, &Tensor::new(&[1u32], &Device::Cpu).unwrap()).unwrap();
        assert_eq!(loss.to_scalar::<f32>().unwrap(), 2e4);
    }
}
