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
        let (mut size, mut wrong) = (1.0f64, 0.0f64);
        let books = local.produced.iter().zip(&local.applied).zip(&local.dropped);
        for (((produced, applied), dropped), pending) in books.zip(local.pending()) {
            size = size.max(produced.abs()).max(applied.abs());
            wrong = wrong.max((applied + dropped + pending - produced).abs());
        }
        if wrong <= 1e-5 * size {
            return Ok(());
        }
        Err(format!("{}: {wrong:e} is missing or too much", node.short()))
    }
}
