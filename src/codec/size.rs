//! Log codes: sizes and ratios as one byte, in eighths of a power of two.
//!
//! Ready carries |delta| and |e|^2/|delta|^2 in this form, headers the medians of them (DESIGN
//! sections 5 and 6). Code c > 0 stands for 2^((c-128)/8): 1.7e-5 to 6.0e4; 0 for zero. The nearest
//! code in the logarithm is found by comparing with constants, so it is the same on every machine.

/// 2^((2k+1)/16): the borders between one eighth and the next.
const BORDERS: [f64; 8] = [
    1.044_273_782_427_413_8,
    1.138_788_634_756_691_6,
    1.241_857_812_073_484,
    1.354_255_546_936_892_7,
    1.476_826_145_939_499_3,
    1.610_490_331_949_254_3,
    1.756_252_160_373_299_5,
    1.915_206_561_397_147_4,
];

/// 2^(k/8).
const EIGHTHS: [f64; 8] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

/// The nearest code of a size or ratio; 0 for what is not above zero (and for NaN), 1 and 255 at
/// the ends.
pub fn size_code(size: f64) -> u8 {
    if size.is_nan() || size <= 0.0 {
        return 0;
    }
    let bits = size.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let eighth = BORDERS.iter().filter(|&&border| border <= mantissa).count() as i64;
    (128 + 8 * exponent + eighth).clamp(1, 255) as u8
}

/// The size that a code stands for.
pub fn size_of(code: u8) -> f64 {
    if code == 0 {
        return 0.0;
    }
    let eighths = i32::from(code) - 128;
    let power = (1023 + eighths.div_euclid(8)) as u64;
    EIGHTHS[eighths.rem_euclid(8) as usize] * f64::from_bits(power << 52)
}

/// The median of codes, the lower one of two; 0 of none.
pub fn median(codes: &[u8]) -> u8 {
    let mut sorted = codes.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_the_code_of_its_size() {
        assert!((0..=255).all(|code| size_code(size_of(code)) == code));
        assert_eq!(size_of(128), 1.0);
        assert_eq!(size_of(136), 2.0);
        assert_eq!(size_of(120), 0.5);
    }

    #[test]
    fn the_nearest_code_is_chosen() {
        for code in 2..=254u8 {
            let size = size_of(code);
            assert_eq!(size_code(size * 1.04), code);
            assert_eq!(size_code(size / 1.04), code);
            assert_eq!(size_code(size * 1.05), code + 1);
        }
    }

    #[test]
    fn sizes_outside_the_table_go_to_its_ends() {
        let sizes = [0.0, -1.0, f64::NAN, 1e-300, f64::MIN_POSITIVE / 4.0, 1e300, f64::INFINITY];
        assert_eq!(sizes.map(size_code), [0, 0, 0, 1, 1, 255, 255]);
    }

    #[test]
    fn the_lower_median() {
        assert_eq!(median(&[]), 0);
        assert_eq!(median(&[9]), 9);
        assert_eq!(median(&[9, 1]), 1);
        assert_eq!(median(&[9, 1, 5, 7]), 5);
    }
}
