//! y = x * W^T, the layer without a bias.

use candle_core::{
    CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, backend::BackendStorage, bail,
};

struct Linear;

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let ([rows, inputs], [outputs, columns]) = (x_layout.dims(), weight_layout.dims()) else {
            bail!("linear takes matrices")
        };
        if inputs != columns {
            bail!("linear: {inputs} inputs do not fit a weight of {columns} columns");
        }
        let product = (1, *rows, *outputs, *inputs);
        let y = x.matmul(weight, product, x_layout, &weight_layout.transpose(0, 1)?)?;
        Ok((y, Shape::from((*rows, *outputs))))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        // Plain products of candle: dx = dy * W and dW = dy^T * x, the latter already in W's own
        // layout, which the backward pass of a transposed matmul would not give.
        let (x, weight) = (x.detach(), weight.detach());
        Ok((Some(grad.matmul(&weight)?), Some(grad.t()?.matmul(&x)?)))
    }
}

/// x (rows, in) times the transpose of `weight` (out, in): (rows, out).
///
/// # Errors
/// If the shapes do not fit.
pub fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    x.apply_op2(weight, Linear)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::check;

    #[test]
    fn gradients_match() {
        let inputs = [check::random(&[5, 3], 1), check::random(&[4, 3], 2)];
        check::against_differences(&inputs, |x| linear(&x[0], &x[1]), 1e-3);
        check::against_plain(&inputs, |x| linear(&x[0], &x[1]), |x| x[0].matmul(&x[1].t()?), 1e-6);
    }
}
