//! Scales: a block's bound is one of 255 powers of 2^(1/8), named by a byte.
//!
//! Code 0 means that the whole block is zero; code c stands for b(c) = 2^((c-192)/8), from 6.5e-8
//! to 235 (DESIGN section 4). The table is put together from eight mantissas and exact exponents,
//! so it has the same bits everywhere: no library's power function is involved.

use crate::codec::Bits;

/// The 23 mantissa bits of the f32 nearest to 2^(k/8), k in 0..8.
const MANTISSAS: [u32; 8] =
    [0x00_0000, 0x0b_95c2, 0x18_37f0, 0x25_fed7, 0x35_04f3, 0x45_672a, 0x57_44fd, 0x6a_c0c7];

/// b(c) of every code; b(0) is 0.
static BOUNDS: [f32; 256] = bounds();

const fn bounds() -> [f32; 256] {
    let mut table = [0.0; 256];
    let mut code = 1;
    while code < 256 {
        // 2^(floor(c/8) - 24), biased by 127, and the fraction of the eighth.
        let exponent = (code / 8 + 127 - 24) as u32;
        table[code] = f32::from_bits(exponent << 23 | MANTISSAS[code % 8]);
        code += 1;
    }
    table
}

/// b(c): the largest magnitude that a block of this code holds without saturating.
pub fn bound(code: u8) -> f32 {
    BOUNDS[usize::from(code)]
}

/// The smallest code with `absmax <= b(code)`; 0 for 0, 255 for everything beyond the table.
///
/// `absmax` is a magnitude: finite and not negative.
pub fn code_for(absmax: f32) -> u8 {
    if absmax == 0.0 {
        return 0;
    }
    let bits = absmax.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    let mantissa = bits & 0x7f_ffff;
    let eighth = MANTISSAS.iter().filter(|&&bound| bound < mantissa).count() as i32;
    (8 * (exponent + 24) + eighth).clamp(1, 255) as u8
}

/// s = b(c) / L: the value of one quantisation step; 0 for code 0.
pub fn step(code: u8, bits: Bits) -> f32 {
    bound(code) / bits.level() as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{base::Digest, codec::reference};

    #[test]
    fn golden_table() {
        let bytes: Vec<u8> = BOUNDS.iter().flat_map(|b| b.to_bits().to_le_bytes()).collect();
        let golden = "a3f1afe965e9b2270cd6f9fed9ba00714e6ee5fb6c541dad7fb6067397f3a4e8";
        assert_eq!(Digest::of(&bytes).to_string(), golden);
    }

    #[test]
    fn golden_steps() {
        let all = Bits::ALL.into_iter().flat_map(|bits| (0..=255).map(move |c| step(c, bits)));
        let bytes: Vec<u8> = all.flat_map(|s| s.to_bits().to_le_bytes()).collect();
        let golden = "6c0274d86441036a9f22bb09e6c70ae07a91ba315bd59211bed4698ee01b06a7";
        assert_eq!(Digest::of(&bytes).to_string(), golden);
    }

    #[test]
    fn the_table_is_the_formula() {
        for code in 1..=255 {
            let exact = 2f64.powf((f64::from(code) - 192.0) / 8.0);
            let error = (f64::from(bound(code)) - exact).abs() / exact;
            assert!(error <= f64::from(f32::EPSILON) / 2.0, "code {code}: {error}");
        }
        assert_eq!(bound(192), 1.0);
        assert_eq!(bound(0), 0.0);
        assert!(bound(1) < 6.6e-8 && bound(255) > 234.0);
    }

    #[test]
    fn codes_at_the_edges() {
        assert_eq!(code_for(0.0), 0);
        assert_eq!(code_for(-0.0), 0);
        assert_eq!(code_for(f32::from_bits(1)), 1);
        assert_eq!(code_for(f32::MIN_POSITIVE), 1);
        assert_eq!(code_for(f32::MAX), 255);
        assert_eq!(code_for(f32::INFINITY), 255);
        for code in 1..=255 {
            assert_eq!(code_for(bound(code)), code);
            let above = f32::from_bits(bound(code).to_bits() + 1);
            assert_eq!(code_for(above), code.saturating_add(1));
        }
    }

    proptest! {
        #[test]
        fn code_for_is_the_smallest_that_holds(bits in 0u32..0x7f80_0000) {
            let absmax = f32::from_bits(bits);
            prop_assert_eq!(code_for(absmax), reference::code_for(absmax));
        }
    }
}
