//! What must hold in every simulated world, one invariant a file, checked after every event.

mod exact_sum;
mod forks;
mod kept;
mod plans;
mod promises;
mod queues;
mod quorum;
mod roots;
mod timers;

use crate::{
    base::{Digest, NodeId, RunId},
    config::manifest::ErrorFeedback,
    proto::node::Promise,
    sim::{exchange::Outcome, peer::Peer, trainer::Trainer},
    wire::{Certificate, Header, Message, Plan},
};

/// Something that a node did, as the world saw it.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) enum Fact<'a> {
    /// It sent a message while it stood on header `parent`.
    Sent { node: NodeId, parent: Digest, message: &'a Message },
    /// It wrote a promise down.
    Persisted { node: NodeId, parent: Digest, promise: &'a Promise },
    /// It made the ring of a plan ready.
    Prepared { node: NodeId, plan: &'a Plan },
    /// It took a certificate into its ledger.
    Committed { node: NodeId, certificate: &'a Certificate, parent: &'a Header },
    /// The members of a plan have made its results.
    Exchanged { outcome: &'a Outcome },
    /// It has folded a round, with this root.
    Folded { node: NodeId, header: &'a Header, root: Digest },
}

/// One property.
pub(in crate::sim) trait Invariant {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Takes a fact in.
    ///
    /// # Errors
    /// What is broken, as a sentence.
    fn see(&mut self, _fact: &Fact<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Looks at the peers after an event.
    ///
    /// # Errors
    /// What is broken, as a sentence.
    fn check(&mut self, _peer: &Peer) -> Result<(), String> {
        Ok(())
    }

    /// Looks at a node's training after a freeze or fold.
    ///
    /// # Errors
    /// What is broken, as a sentence.
    fn books(&mut self, _node: NodeId, _trainer: &Trainer) -> Result<(), String> {
        Ok(())
    }
}

/// All of them.
pub(in crate::sim) fn all(run: RunId, mode: ErrorFeedback) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(roots::Roots::default()),
        Box::new(exact_sum::ExactSum::default()),
        Box::new(quorum::Quorum { run }),
        Box::new(forks::Forks::default()),
        Box::new(plans::Plans::default()),
        Box::new(promises::Promises::default()),
        Box::new(queues::Queues),
        Box::new(timers::Timers),
        Box::new(kept::Kept { mode }),
    ]
}
