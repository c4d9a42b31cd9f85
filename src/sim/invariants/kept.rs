//! No contribution is counted twice, none is lost: applied + error buffer + dropped by rule =
//! produced, to 1e-5 of its size.

use super::Invariant;
use crate::{base::NodeId, config::manifest::ErrorFeedback, sim::trainer::Trainer};

pub(super) struct Kept {
    pub(super) mode: ErrorFeedback,
}

impl Invariant for Kept {
    fn name(&self) -> &'static str {
        "no contribution is lost or counted twice"
    }

    fn books(&mut self, node: NodeId, trainer: &Trainer) -> Result<(), String> {
        if self.mode != ErrorFeedback::Local {
            return Ok(());
        }
        let local = &trainer.local;
        let pending = local.pending();
        let mut size = 0.0f64;
        let mut wrong = 0.0f64;
        for i in 0..pending.len() {
            let found = local.applied[i] + local.dropped[i] + pending[i];
            size = size.max(local.produced[i].abs()).max(local.applied[i].abs());
            wrong = wrong.max((found - local.produced[i]).abs());
        }
        if wrong <= 1e-5 * size.max(1.0) {
            return Ok(());
        }
        Err(format!("{}: {wrong:e} is missing or too much", node.short()))
    }
}
