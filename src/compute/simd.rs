//! Vector units found at run time, and the few inner loops that everything else is made of.
//!
//! Loops are written so that the compiler vectorises them: fixed lanes, no early exits. Which
//! instructions it may use is decided by [`kernel!`], so one build runs everywhere and uses AVX2
//! and fused multiply-adds where the processor has them. All helpers are `inline(always)`, because
//! a function that is called out of line would be compiled for the oldest processor.

/// Defines `$name`, which is the `inline(always)` function `$body` compiled twice: for every
/// processor, and for those with AVX2 and fused multiply-adds; the better one is called.
///
/// A function taking a closure would not do: nothing forces the closure to be inlined, and out of
/// line it is compiled without those instructions (a `mul_add` is then a call of libm).
macro_rules! kernel {
    ($name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? = $body:path) => {
        fn $name($($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2($($arg: $type),*) $(-> $out)? {
                    $body($($arg),*)
                }
                if $crate::compute::simd::has_avx2() {
                    // SAFETY: the processor has just been found to have both features.
                    #[allow(unsafe_code)]
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}

pub(crate) use kernel;

/// Whether the processor has AVX2 and fused multiply-adds.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Lanes of the loops that sum: enough independent chains to hide an addition's latency.
pub(crate) const LANES: usize = 16;

/// e^x, to about 1e-7 relative; 0 below -87 and clamped above 88. Cody-Waite reduction and a
/// polynomial of degree 6 (Cephes' `expf`), without a branch.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.0, 88.0);
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest whole number.
    const ROUND: f32 = 12_582_912.0;
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = clamped - whole * LN2_HIGH - whole * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * rest + 1.398_199_9e-3;
    p = p * rest + 8.333_452e-3;
    p = p * rest + 4.166_579_6e-2;
    p = p * rest + 1.666_666_5e-1;
    p = p * rest + 5e-1;
    let fraction = p * rest * rest + rest + 1.0;
    // The whole number sits in the low bits of `shifted`; moved up it is an exponent.
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.0 { 0.0 } else { fraction * power }
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Sum over `map(a[i], b[i])`, in [`LANES`] chains.
#[inline(always)]
pub(crate) fn sum2(a: &[f32], b: &[f32], map: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_body, a_tail) = a.as_chunks::<LANES>();
    let (b_body, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_body.iter().zip(b_body) {
        for lane in 0..LANES {
            lanes[lane] += map(a[lane], b[lane]);
        }
    }
    let tail: f32 = a_tail.iter().zip(b_tail).map(|(&a, &b)| map(a, b)).sum();
    lanes.iter().sum::<f32>() + tail
}

/// Scalar product.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum2(a, b, |a, b| a * b)
}

/// The largest element; -inf of nothing.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (body, tail) = values.as_chunks::<LANES>();
    for chunk in body {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(tail).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Replaces each element by e^(x - `shift`) and returns their sum.
#[inline(always)]
pub(crate) fn exp_sum(values: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (body, tail) = values.as_chunks_mut::<LANES>();
    for chunk in body {
        for lane in 0..LANES {
            chunk[lane] = exp(chunk[lane] - shift);
            lanes[lane] += chunk[lane];
        }
    }
    let mut sum: f32 = lanes.iter().sum();
    for value in tail {
        *value = exp(*value - shift);
        sum += *value;
    }
    sum
}

/// Rows that are combined in one pass over memory: eight factors fit the registers, and eight
/// multiply-adds hide one load and one store.
pub(crate) const DEPTH: usize = 8;

/// c += sum over j of factors\[j\] * rows\[j\]; rows are as long as c.
#[inline(always)]
fn add_scaled(c: &mut [f32], factors: [f32; DEPTH], rows: [&[f32]; DEPTH]) {
    let n = c.len();
    let rows = rows.map(|row| &row[..n]);
    for i in 0..n {
        let mut sum = c[i];
        for j in 0..DEPTH {
            sum = factors[j].mul_add(rows[j][i], sum);
        }
        c[i] = sum;
    }
}

/// Rows j..j + [`DEPTH`] of a matrix whose rows are `stride` apart.
#[inline(always)]
fn rows_from(matrix: &[f32], first: usize, stride: usize, length: usize) -> [&[f32]; DEPTH] {
    [0, 1, 2, 3, 4, 5, 6, 7].map(|j| &matrix[(first + j) * stride..][..length])
}

/// c = a * b: a row of n elements from a row of k, for b (k x n, rows `b_stride` apart). k is a
/// multiple of [`DEPTH`]; n best a multiple of 32.
#[inline(always)]
pub(crate) fn row_product(c: &mut [f32], a: &[f32], b: &[f32], b_stride: usize) {
    c.fill(0.0);
    let (factors, _) = a.as_chunks::<DEPTH>();
    for (group, factors) in factors.iter().enumerate() {
        add_scaled(c, *factors, rows_from(b, group * DEPTH, b_stride, c.len()));
    }
}

/// c (k x n) += a^T * b for [`DEPTH`] rows of a (k long, `a_stride` apart) and of b (n long, one
/// after another).
#[inline(always)]
pub(crate) fn add_outer(
    c: &mut [f32],
    a: &[f32],
    b: &[f32],
    (n, k): (usize, usize),
    a_stride: usize,
) {
    let rows = rows_from(b, 0, n, n);
    for (depth, c) in c.chunks_exact_mut(n).take(k).enumerate() {
        add_scaled(c, [0, 1, 2, 3, 4, 5, 6, 7].map(|row| a[row * a_stride + depth]), rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_its_range() {
        for step in -8700..8800 {
            let x = step as f32 / 100.0;
            let (ours, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(((ours - exact) / exact).abs() < 3e-7, "{x}: {ours} {exact}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_take_in_the_tail() {
        let a: Vec<f32> = (0..37).map(|i| i as f32).collect();
        assert_eq!(dot(&a, &a), (0..37).map(|i| i * i).sum::<i32>() as f32);
        assert_eq!(max(&a), 36.0);
        assert_eq!(max(&[]), f32::NEG_INFINITY);
        assert_eq!(exp_sum(&mut [0.0; 19], 0.0), 19.0);
    }

    #[test]
    fn products_are_products() {
        let (n, k) = (32, 16);
        let a: Vec<f32> = (0..DEPTH * k).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i % 11) as f32 - 5.0).collect();
        let mut c = vec![0.0; DEPTH * n];
        for (c, a) in c.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
            row_product(c, a, &b, n);
        }
        for (i, j) in (0..DEPTH).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let exact: f32 = (0..k).map(|d| a[i * k + d] * b[d * n + j]).sum();
            assert_eq!(c[i * n + j], exact);
        }
        let mut back = vec![1.0; k * n];
        add_outer(&mut back, &a, &c, (n, k), k);
        for (d, j) in (0..k).flat_map(|d| (0..n).map(move |j| (d, j))) {
            let exact: f32 = 1.0 + (0..DEPTH).map(|i| a[i * k + d] * c[i * n + j]).sum::<f32>();
            assert_eq!(back[d * n + j], exact);
        }
    }
}
