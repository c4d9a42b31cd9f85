//! Equal headers imply equal roots.

use std::collections::BTreeMap;

use super::{Fact, Invariant};
use crate::base::Digest;

#[derive(Default)]
pub(super) struct Roots(BTreeMap<Digest, Digest>);

impl Invariant for Roots {
    fn name(&self) -> &'static str {
        "equal headers imply equal roots"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Folded { node, header, root } = fact else { return Ok(()) };
        let known = *self.0.entry(header.digest()).or_insert(*root);
        if known == *root {
            return Ok(());
        }
        Err(format!("{} has root {root} after round {}, not {known}", node.short(), header.round))
    }
}
