//! The modes of the float unit: the fold needs subnormals kept and rounding to nearest.
//!
//! A library in the same process can switch them per thread (x86: MXCSR). They are found out by
//! computing, without reading the register: it needs no unsafe code and holds on every machine.

use std::hint::black_box;

/// The float unit would give other bits than those of other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this thread's float unit flushes subnormals or does not round to nearest; something in this \
     process changed its mode, and the fold would differ from everybody's"
)]
pub struct WrongFloatMode;

/// Checks the modes of this thread.
///
/// # Errors
/// If subnormal results or operands become zero, or rounding is not to nearest, ties to even.
pub fn check_thread() -> Result<(), WrongFloatMode> {
    let halved = black_box(f32::MIN_POSITIVE) / black_box(2.0);
    let raised = black_box(f32::from_bits(1)) * black_box(8_388_608.0);
    let tie = black_box(1.0f32) + black_box(f32::EPSILON / 2.0);
    let above = black_box(1.0f32) + black_box(f32::EPSILON * 0.75);
    let below = black_box(-1.0f32) - black_box(f32::EPSILON * 0.75);
    let found = [halved, raised, tie, above, below].map(f32::to_bits);
    let wanted = [
        1 << 22,
        f32::MIN_POSITIVE.to_bits(),
        1.0f32.to_bits(),
        1.0f32.to_bits() + 1,
        (-1.0f32).to_bits() + 1,
    ];
    if found == wanted { Ok(()) } else { Err(WrongFloatMode) }
}

/// Checks this thread and every thread of the pool that will compute.
///
/// # Errors
/// If one of them does not compute as all machines do.
pub fn check_all() -> Result<(), WrongFloatMode> {
    check_thread()?;
    rayon::broadcast(|_| check_thread()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_passes() {
        assert_eq!(check_thread(), Ok(()));
        assert_eq!(check_all(), Ok(()));
    }
}
