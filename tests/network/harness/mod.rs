//! Processes, what they say, networks of them, a tiny run.

mod journal;
mod network;
mod process;
mod recipe;

use std::time::Duration;

pub(crate) use journal::{Entry, Journal, Mark};
pub(crate) use network::{Id, Network, alone};
pub(crate) use process::{Ended, Process, run, signal};
pub(crate) use recipe::Recipe;

/// `dilocox-node`.
pub(crate) const NODE: &str = env!("CARGO_BIN_EXE_dilocox-node");
/// `dilocox-bootstrap`.
pub(crate) const BOOTSTRAP: &str = env!("CARGO_BIN_EXE_dilocox-bootstrap");

/// How long a single thing may take: rounds last about a second, and the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A seeded stream of numbers (splitmix64).
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
