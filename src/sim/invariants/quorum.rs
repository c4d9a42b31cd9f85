//! No header is taken without the signatures of more than half of its voters.

use super::{Fact, Invariant};
use crate::base::RunId;

pub(super) struct Quorum {
    pub(super) run: RunId,
}

impl Invariant for Quorum {
    fn name(&self) -> &'static str {
        "no header is folded without its quorum"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Committed { node, certificate, parent } = fact else { return Ok(()) };
        certificate.verify(self.run, parent).map_err(|error| format!("{}: {error}", node.short()))
    }
}
