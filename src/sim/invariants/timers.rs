//! A machine that waits has a timer.

use super::Invariant;
use crate::sim::peer::Peer;

pub(super) struct Timers;

impl Invariant for Timers {
    fn name(&self) -> &'static str {
        "a machine that waits has a timer"
    }

    fn check(&mut self, peer: &Peer) -> Result<(), String> {
        let Some(process) = &peer.process else { return Ok(()) };
        if peer.left || process.finished || process.node.poll_timeout().is_some() {
            return Ok(());
        }
        let waits = process.node.waiting_for();
        Err(format!("{} waits for {waits} without a timer", peer.id.short()))
    }
}
