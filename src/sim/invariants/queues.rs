//! Nothing that a machine keeps grows without bound.

use super::Invariant;
use crate::sim::peer::Peer;

/// Things that a machine of a small run keeps at most.
const MOST: usize = 4000;

pub(super) struct Queues;

impl Invariant for Queues {
    fn name(&self) -> &'static str {
        "queues are bounded"
    }

    fn check(&mut self, peer: &Peer) -> Result<(), String> {
        let Some(process) = &peer.process else { return Ok(()) };
        let kept = process.node.kept();
        if kept <= MOST {
            return Ok(());
        }
        Err(format!("{} keeps {kept} things", peer.id.short()))
    }
}
