//! The arithmetic once more, slow and readable, for tests to compare with; and test data.

use proptest::prelude::*;

use crate::{
    base::{Digest, Stream},
    codec::{BLOCK, Bits, bound, step},
    config::{FragmentSpec, Init, Layout, TensorSpec},
};

/// Looks through the whole table.
pub(crate) fn code_for(absmax: f32) -> u8 {
    if absmax == 0.0 {
        return 0;
    }
    (1..=255).find(|&code| absmax <= bound(code)).unwrap_or(255)
}

/// q = clamp(rint(x * omega/256 / s), -L, L).
pub(crate) fn quantise(x: f32, omega: u16, code: u8, bits: Bits) -> i32 {
    if code == 0 {
        return 0;
    }
    let level = bits.level() as f32;
    let scaled = x * (f32::from(omega) / 256.0);
    (scaled / step(code, bits)).round_ties_even().clamp(-level, level) as i32
}

/// Writes each value's bits one by one, lowest first.
pub(crate) fn pack(values: &[u32], width: usize) -> Vec<u8> {
    let mut bytes = vec![0; (values.len() * width).div_ceil(8)];
    for (index, value) in values.iter().enumerate() {
        for bit in (0..width).filter(|bit| value >> bit & 1 == 1) {
            let position = index * width + bit;
            bytes[position / 8] |= 1 << (position % 8);
        }
    }
    bytes
}

/// Reads `count` values back, bit by bit.
pub(crate) fn unpack(bytes: &[u8], width: usize, count: usize) -> Vec<u32> {
    let bit = |position: usize| u32::from(bytes[position / 8] >> (position % 8) & 1);
    let value = |index: usize| (0..width).fold(0, |v, b| v | bit(index * width + b) << b);
    (0..count).map(value).collect()
}

/// The outer step of one element, operation by operation (DESIGN section 4).
pub(crate) fn outer_step(theta: f32, v: f32, delta: f32, eta: f32, mu: f32) -> (f32, f32) {
    let decayed = mu * v;
    let velocity = decayed + delta;
    let ahead = mu * velocity;
    let nesterov = delta + ahead;
    let moved = eta * nesterov;
    (theta - moved, velocity)
}

/// `count` values with magnitudes over many powers of two, some of them zero, without padding.
pub(crate) fn noise(label: &str, count: usize) -> Vec<f32> {
    let mut stream = Stream::new(&Digest::of(b"codec tests"), label);
    let mut value = |index: usize| {
        let size = 2f32.powi((index / BLOCK % 17) as i32 - 12);
        if stream.below(10) == 0 { 0.0 } else { stream.bell_f32() * size }
    };
    (0..count).map(&mut value).collect()
}

/// A layout of vectors with these lengths.
pub(crate) fn layout_of(fragments: &[&[usize]]) -> Layout {
    let tensor = |name: String, elements| TensorSpec {
        name,
        shape: vec![elements],
        init: Init::Normal(0.02),
        decay: true,
    };
    let fragment = |(index, lengths): (usize, &&[usize])| FragmentSpec {
        name: format!("fragment.{index}"),
        tensors: lengths
            .iter()
            .enumerate()
            .map(|(number, &elements)| tensor(format!("t.{index}.{number}"), elements))
            .collect(),
    };
    Layout { fragments: fragments.iter().enumerate().map(fragment).collect() }
}

/// Layouts of one to three fragments with one to four short tensors each.
pub(crate) fn small_layouts() -> impl Strategy<Value = Layout> {
    prop::collection::vec(prop::collection::vec(1usize..300, 1..5), 1..4).prop_map(|fragments| {
        let slices: Vec<&[usize]> = fragments.iter().map(Vec::as_slice).collect();
        layout_of(&slices)
    })
}
