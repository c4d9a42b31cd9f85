//! Causal attention with grouped queries (arXiv 1706.03762, 2305.13245), whole: scores, softmax
//! and mixing in one operation that never stores a matrix of scores.
//!
//! The unit of parallel work is one key-value head of one sequence with the query heads that share
//! it. It walks over blocks of query rows; row i needs keys 0..=i only, so a block needs about half
//! of the work on average. The backward pass computes the block's probabilities again and has, with
//! S = scale * Q K^T, P = softmax(S), O = P V:
//!
//! ```text
//! dV = P^T dO          dP = dO V^T          dS = P * (dP - rowsum(P * dP))
//! dQ = scale * dS K    dK = scale * dS^T Q
//! ```

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::shaped;
use crate::compute::{
    host::{Reading, f32s},
    simd::{DEPTH, add_outer, exp_sum, kernel, max, row_product, sum2},
};

/// Query rows of a block: as many as one pass of [`add_outer`] takes.
const BLOCK: usize = DEPTH;
/// Rows and columns of a head's buffers are padded with zeros to multiples of this: whole blocks,
/// and whole iterations of the inner loops.
const PAD: usize = 32;

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Tokens of a sequence.
    pub length: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl AttentionShape {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Rows of a head's buffers.
    fn rows(&self) -> usize {
        self.length.next_multiple_of(PAD)
    }

    /// Columns of a head's buffers.
    fn columns(&self) -> usize {
        self.head_dim.next_multiple_of(PAD)
    }

    fn scale(&self) -> f32 {
        (self.head_dim as f32).sqrt().recip()
    }

    /// Head `head` of sequence `batch` in x (batch * length, heads * head_dim), padded with zeros.
    fn gather(&self, x: &[f32], (batch, head, heads): (usize, usize, usize)) -> Vec<f32> {
        let (width, columns) = (heads * self.head_dim, self.columns());
        let mut values = vec![0.0; self.rows() * columns];
        let rows = x[batch * self.length * width..].chunks_exact(width);
        for (to, from) in values.chunks_exact_mut(columns).zip(rows).take(self.length) {
            to[..self.head_dim].copy_from_slice(&from[head * self.head_dim..][..self.head_dim]);
        }
        values
    }

    /// The inverse of [`gather`](Self::gather), for all heads of all sequences.
    fn scatter(&self, heads: usize, values: &[Vec<f32>]) -> Vec<f32> {
        let (width, columns) = (heads * self.head_dim, self.columns());
        let mut x = vec![0.0; values.len() / heads * self.length * width];
        let sequences = x.par_chunks_mut(self.length * width).zip(values.par_chunks(heads));
        sequences.for_each(|(x, values)| {
            for (head, values) in values.iter().enumerate() {
                for (to, from) in x.chunks_exact_mut(width).zip(values.chunks_exact(columns)) {
                    to[head * self.head_dim..][..self.head_dim]
                        .copy_from_slice(&from[..self.head_dim]);
                }
            }
        });
        x
    }

    /// (rows, columns) to (columns, rows).
    fn transpose(&self, x: &[f32]) -> Vec<f32> {
        let (rows, columns) = (self.rows(), self.columns());
        let mut turned = vec![0.0; columns * rows];
        for (d, to) in turned.chunks_exact_mut(rows).enumerate() {
            for (to, from) in to.iter_mut().zip(x.chunks_exact(columns)) {
                *to = from[d];
            }
        }
        turned
    }

    /// Keys that a block of query rows looks at, padded.
    fn reach(&self, first_row: usize) -> usize {
        (first_row + BLOCK).next_multiple_of(PAD)
    }

    /// A block's rows of p * v, for p (rows `self.rows()` apart) over the keys in reach.
    #[inline(always)]
    fn times(&self, out: &mut [f32], p: &[f32], v: &[f32], first_row: usize) {
        let (columns, reach) = (self.columns(), self.reach(first_row));
        for (out, p) in out.chunks_exact_mut(columns).zip(p.chunks_exact(self.rows())) {
            row_product(out, &p[..reach], v, columns);
        }
    }

    /// Probabilities of the query rows from `first_row` on over the keys in reach, into `p`
    /// (rows `self.rows()` apart); zero beyond the diagonal.
    #[inline(always)]
    fn probabilities(&self, p: &mut [f32], q: &[f32], keys: &[f32], first_row: usize) {
        let (stride, columns, reach) = (self.rows(), self.columns(), self.reach(first_row));
        let q = &q[first_row * columns..];
        let scale = self.scale();
        for (row, (p, q)) in p.chunks_exact_mut(stride).zip(q.chunks_exact(columns)).enumerate() {
            row_product(&mut p[..reach], q, keys, stride);
            let (seen, hidden) = p[..reach].split_at_mut(first_row + row + 1);
            seen.iter_mut().for_each(|s| *s *= scale);
            let factor = exp_sum(seen, max(seen)).recip();
            seen.iter_mut().for_each(|p| *p *= factor);
            hidden.fill(0.0);
        }
    }
}

/// One key-value head of one sequence.
struct Job<'a> {
    shape: AttentionShape,
    batch: usize,
    kv_head: usize,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
}

/// Gradients of one job: of every query head in the group, of the keys, of the values.
struct Gradients {
    dq: Vec<Vec<f32>>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Job<'_> {
    fn query_heads(&self) -> impl Iterator<Item = usize> {
        let group = self.shape.group();
        (0..group).map(move |member| member + self.kv_head * group)
    }

    fn kv(&self, x: &[f32]) -> Vec<f32> {
        self.shape.gather(x, (self.batch, self.kv_head, self.shape.kv_heads))
    }

    fn query(&self, x: &[f32], head: usize) -> Vec<f32> {
        self.shape.gather(x, (self.batch, head, self.shape.heads))
    }

    fn first_rows(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.shape.length).step_by(BLOCK)
    }

    /// Outputs of the group's heads.
    #[inline(always)]
    fn forward(&self) -> Vec<Vec<f32>> {
        let shape = self.shape;
        let (rows, columns) = (shape.rows(), shape.columns());
        let (keys, v) = (shape.transpose(&self.kv(self.k)), self.kv(self.v));
        let mut p = vec![0.0; BLOCK * rows];
        let mut outputs = Vec::with_capacity(shape.group());
        for head in self.query_heads() {
            let q = self.query(self.q, head);
            let mut out = vec![0.0; rows * columns];
            for first in self.first_rows() {
                shape.probabilities(&mut p, &q, &keys, first);
                shape.times(&mut out[first * columns..], &p, &v, first);
            }
            outputs.push(out);
        }
        outputs
    }

    #[inline(always)]
    fn backward(&self, d_out: &[f32]) -> Gradients {
        let shape = self.shape;
        let (rows, columns) = (shape.rows(), shape.columns());
        let (k, v) = (self.kv(self.k), self.kv(self.v));
        let (keys, values) = (shape.transpose(&k), shape.transpose(&v));
        let (mut dk, mut dv) = (vec![0.0; rows * columns], vec![0.0; rows * columns]);
        let mut dq = Vec::with_capacity(shape.group());
        let (mut p, mut dp) = (vec![0.0; BLOCK * rows], vec![0.0; BLOCK * rows]);
        for head in self.query_heads() {
            let (q, d_out) = (self.query(self.q, head), self.query(d_out, head));
            let mut dq_head = vec![0.0; rows * columns];
            for first in self.first_rows() {
                let (at, reach) = (first * columns, shape.reach(first));
                let (q_block, d_block) = (&q[at..], &d_out[at..]);
                shape.probabilities(&mut p, &q, &keys, first);
                add_outer(&mut dv, &p, d_block, (columns, reach), rows);
                for (dp, d_out) in dp.chunks_exact_mut(rows).zip(d_block.chunks_exact(columns)) {
                    row_product(&mut dp[..reach], d_out, &values, rows);
                }
                score_gradients(&mut dp, &p, (rows, reach), shape.scale());
                shape.times(&mut dq_head[at..], &dp, &k, first);
                add_outer(&mut dk, &dp, q_block, (columns, reach), rows);
            }
            dq.push(dq_head);
        }
        Gradients { dq, dk, dv }
    }
}

/// dP to scale * dS, row by row, over the `reach` first of rows `stride` apart.
#[inline(always)]
fn score_gradients(dp: &mut [f32], p: &[f32], (stride, reach): (usize, usize), scale: f32) {
    for (dp, p) in dp.chunks_exact_mut(stride).zip(p.chunks_exact(stride)) {
        let (dp, p) = (&mut dp[..reach], &p[..reach]);
        let mean = sum2(dp, p, |dp, p| dp * p);
        dp.iter_mut().zip(p).for_each(|(dp, &p)| *dp = scale * p * (*dp - mean));
    }
}

kernel!(forward(job: &Job<'_>) -> Vec<Vec<f32>> = Job::forward);
kernel!(backward(job: &Job<'_>, d_out: &[f32]) -> Gradients = Job::backward);

struct Attention(AttentionShape);

impl Attention {
    fn jobs<'a>(
        &self,
        q: &'a [f32],
        k: &'a [f32],
        v: &'a [f32],
    ) -> impl IndexedParallelIterator<Item = Job<'a>> + use<'a> {
        let shape = self.0;
        let sequences = q.len() / (shape.length * shape.heads * shape.head_dim);
        (0..sequences * shape.kv_heads).into_par_iter().map(move |index| {
            let (batch, kv_head) = (index / shape.kv_heads, index % shape.kv_heads);
            Job { shape, batch, kv_head, q, k, v }
        })
    }

    fn check(&self, q: &Layout, k: &Layout, v: &Layout) -> Result<()> {
        let AttentionShape { length, heads, kv_heads, head_dim } = self.0;
        let (rows, width) = q.shape().dims2()?;
        let kv = [rows, kv_heads * head_dim];
        let whole = length > 0 && head_dim > 0 && kv_heads > 0;
        if !whole || !rows.is_multiple_of(length) || width != heads * head_dim {
            bail!("attention: queries {:?} do not fit {:?}", q.dims(), self.0);
        }
        if !heads.is_multiple_of(kv_heads) || k.dims() != kv || v.dims() != kv {
            bail!("attention: keys {:?} or values {:?} do not fit {kv:?}", k.dims(), v.dims());
        }
        Ok(())
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "causal-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.check(q_layout, k_layout, v_layout)?;
        let (q, k, v) = (f32s(q, q_layout)?, f32s(k, k_layout)?, f32s(v, v_layout)?);
        let heads: Vec<Vec<Vec<f32>>> = self.jobs(q, k, v).map(|job| forward(&job)).collect();
        let heads: Vec<Vec<f32>> = heads.into_iter().flatten().collect();
        let out = self.0.scatter(self.0.heads, &heads);
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        _: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let grad = grad.contiguous()?;
        let (qs, ks, vs) = (Reading::of(q), Reading::of(k), Reading::of(v));
        let d_outs = Reading::of(&grad);
        let d_out = d_outs.f32s()?;
        let jobs: Vec<Gradients> = self
            .jobs(qs.f32s()?, ks.f32s()?, vs.f32s()?)
            .map(|job| backward(&job, d_out))
            .collect();
        let (mut dq, mut dk, mut dv) = (Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            dq.extend(job.dq);
            dk.push(job.dk);
            dv.push(job.dv);
        }
        let AttentionShape { heads, kv_heads, .. } = self.0;
        let dq = shaped(self.0.scatter(heads, &dq), q)?;
        let dk = shaped(self.0.scatter(kv_heads, &dk), k)?;
        let dv = shaped(self.0.scatter(kv_heads, &dv), v)?;
        Ok((Some(dq), Some(dk), Some(dv)))
    }
}

/// Causal attention of q (batch * length, heads * head_dim) over k and v (batch * length,
/// kv_heads * head_dim), in the shape of q. Scores are scaled by 1 / sqrt(head_dim).
///
/// # Errors
/// If the shapes do not fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, shape: AttentionShape) -> Result<Tensor> {
    q.apply_op3(k, v, Attention(shape))
}

#[cfg(test)]
mod tests {
    use candle_core::{D, Device};

    use super::*;
    use crate::compute::check;

    fn heads_first(x: &Tensor, shape: AttentionShape, heads: usize) -> Result<Tensor> {
        x.reshape(((), shape.length, heads, shape.head_dim))?.transpose(1, 2)?.contiguous()
    }

    fn repeated(x: &Tensor, shape: AttentionShape) -> Result<Tensor> {
        let x = heads_first(x, shape, shape.kv_heads)?;
        let (batch, kv_heads, length, dim) = x.dims4()?;
        let full = (batch, kv_heads, shape.group(), length, dim);
        x.unsqueeze(2)?.broadcast_as(full)?.contiguous()?.reshape((batch, (), length, dim))
    }

    fn plain(x: &[Tensor], shape: AttentionShape) -> Result<Tensor> {
        let q = heads_first(&x[0], shape, shape.heads)?;
        let (k, v) = (repeated(&x[1], shape)?, repeated(&x[2], shape)?);
        let scores = (q.matmul(&k.t()?)? * f64::from(shape.scale()))?;
        let n = shape.length;
        let mask: Vec<f32> =
            (0..n * n).map(|at| if at % n > at / n { f32::NEG_INFINITY } else { 0.0 }).collect();
        let mask = Tensor::from_vec(mask, (n, n), &Device::Cpu)?;
        let p = candle_nn::ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
        p.matmul(&v)?.transpose(1, 2)?.contiguous()?.reshape(x[0].shape())
    }

    fn inputs(shape: AttentionShape, batch: usize) -> [Tensor; 3] {
        let rows = batch * shape.length;
        let kv = shape.kv_heads * shape.head_dim;
        let q = check::random(&[rows, shape.heads * shape.head_dim], 1);
        [q, check::random(&[rows, kv], 2), check::random(&[rows, kv], 3)]
    }

    #[test]
    fn gradients_match_finite_differences() {
        let shape = AttentionShape { length: 5, heads: 2, kv_heads: 1, head_dim: 4 };
        let ours = |x: &[Tensor]| attention(&x[0], &x[1], &x[2], shape);
        check::against_differences(&inputs(shape, 2), ours, 2e-3);
    }

    #[test]
    fn gradients_match_plain_operations() {
        for (length, heads, kv_heads, head_dim) in
            [(1, 1, 1, 2), (7, 4, 2, 6), (16, 2, 2, 16), (37, 6, 2, 20), (64, 4, 4, 32)]
        {
            let shape = AttentionShape { length, heads, kv_heads, head_dim };
            let ours = |x: &[Tensor]| attention(&x[0], &x[1], &x[2], shape);
            check::against_plain(&inputs(shape, 3), ours, |x| plain(x, shape), 1e-5);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let shape = AttentionShape { length: 4, heads: 2, kv_heads: 1, head_dim: 4 };
        let [q, k, v] = inputs(shape, 1);
        assert!(attention(&k, &k, &v, shape).is_err());
        assert!(attention(&q, &q, &v, shape).is_err());
        assert!(attention(&q, &k, &v, AttentionShape { length: 3, ..shape }).is_err());
    }
}
