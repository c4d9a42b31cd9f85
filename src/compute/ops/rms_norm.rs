//! Root mean square normalisation (arXiv 1910.07467).

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::{ROWS_PER_JOB, shaped};
use crate::compute::{
    host::{Reading, f32s},
    simd::{dot, kernel, sum2},
};

struct RmsNorm {
    epsilon: f32,
}

impl RmsNorm {
    /// 1 / sqrt(mean(x^2) + epsilon).
    #[inline(always)]
    fn scale(&self, row: &[f32]) -> f32 {
        (dot(row, row) / row.len() as f32 + self.epsilon).sqrt().recip()
    }

    #[inline(always)]
    fn forward_rows(&self, y: &mut [f32], x: &[f32], weight: &[f32]) {
        let width = weight.len();
        for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
            let scale = self.scale(x);
            for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
                *y = x * scale * w;
            }
        }
    }

    fn forward(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        let job = weight.len() * ROWS_PER_JOB;
        y.par_chunks_mut(job)
            .zip(x.par_chunks(job))
            .for_each(|(y, x)| forward_kernel(self, y, x, weight));
        y
    }

    /// One job's rows: dx into place, and the job's part of dw.
    ///
    /// With r the scale and g = dy * w: dx = r * (g - x * r^2 * mean(g * x)), dw = sum(dy * x * r).
    #[inline(always)]
    fn backward_rows(&self, dx: &mut [f32], x: &[f32], weight: &[f32], dy: &[f32]) -> Vec<f32> {
        let width = weight.len();
        let mut dw = vec![0.0; width];
        let mut g = vec![0.0; width];
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
        for (dx, (x, dy)) in dx.chunks_exact_mut(width).zip(rows) {
            let scale = self.scale(x);
            let (x, dy, dx) = (&x[..width], &dy[..width], &mut dx[..width]);
            for i in 0..width {
                g[i] = dy[i] * weight[i];
                dw[i] += dy[i] * x[i] * scale;
            }
            let along = scale * scale * sum2(&g, x, |g, x| g * x) / width as f32;
            for i in 0..width {
                dx[i] = scale * (g[i] - x[i] * along);
            }
        }
        dw
    }

    fn backward(&self, x: &[f32], weight: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let job = weight.len() * ROWS_PER_JOB;
        let mut dx = vec![0.0; x.len()];
        let parts: Vec<Vec<f32>> = dx
            .par_chunks_mut(job)
            .zip(x.par_chunks(job).zip(dy.par_chunks(job)))
            .map(|(dx, (x, dy))| backward_kernel(self, dx, x, weight, dy))
            .collect();
        let mut dw = vec![0.0; weight.len()];
        for part in parts {
            dw.iter_mut().zip(part).for_each(|(dw, part)| *dw += part);
        }
        (dx, dw)
    }
}

kernel!(forward_kernel(
    norm: &RmsNorm,
    y: &mut [f32],
    x: &[f32],
    weight: &[f32],
) = RmsNorm::forward_rows);
kernel!(backward_kernel(
    norm: &RmsNorm,
    dx: &mut [f32],
    x: &[f32],
    weight: &[f32],
    dy: &[f32],
) -> Vec<f32> = RmsNorm::backward_rows);

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let width = weight_layout.shape().elem_count();
        if width == 0 || x_layout.dims().last() != Some(&width) {
            bail!("rms-norm: a weight of {width} does not fit rows of {:?}", x_layout.dims());
        }
        let y = self.forward(f32s(x, x_layout)?, f32s(weight, weight_layout)?);
        Ok((CpuStorage::F32(y), x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (xs, ws, dys) = (Reading::of(x), Reading::of(weight), Reading::of(&grad));
        let (dx, dw) = self.backward(xs.f32s()?, ws.f32s()?, dys.f32s()?);
        Ok((Some(shaped(dx, x)?), Some(shaped(dw, weight)?)))
    }
}

/// Each row of x (rows, width) over its root mean square, times `weight` (width).
///
/// # Errors
/// If the shapes do not fit.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    x.apply_op2(weight, RmsNorm { epsilon: epsilon as f32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::check;

    fn plain(x: &[Tensor], epsilon: f64) -> Result<Tensor> {
        let mean = x[0].sqr()?.mean_keepdim(1)?;
        x[0].broadcast_div(&(mean + epsilon)?.sqrt()?)?.broadcast_mul(&x[1])
    }

    #[test]
    fn gradients_match() {
        let inputs = [check::random(&[3, 21], 1), check::random(&[21], 2)];
        check::against_differences(&inputs, |x| rms_norm(&x[0], &x[1], 1e-5), 2e-3);
        let inputs = [check::random(&[150, 40], 3), check::random(&[40], 4)];
        let ours = |x: &[Tensor]| rms_norm(&x[0], &x[1], 1e-5);
        check::against_plain(&inputs, ours, |x| plain(x, 1e-5), 1e-5);
    }
}
