//! A node accepts at most one plan of one attempt at one round, across all its starts.

use std::collections::BTreeMap;

use super::{Fact, Invariant};
use crate::{
    base::{Attempt, Digest, NodeId},
    wire::Message,
};

#[derive(Default)]
pub(super) struct Plans(BTreeMap<(NodeId, Digest, Attempt), Digest>);

impl Invariant for Plans {
    fn name(&self) -> &'static str {
        "one accepted plan for each attempt and node"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let (node, parent, attempt, plan) = match fact {
            Fact::Prepared { node, plan } => (*node, plan.parent, plan.attempt, plan.digest()),
            Fact::Sent { node, parent, message: Message::Accept { attempt, plan, .. } } => {
                (*node, *parent, *attempt, *plan)
            }
            _ => return Ok(()),
        };
        let known = *self.0.entry((node, parent, attempt)).or_insert(plan);
        if known == plan {
            return Ok(());
        }
        Err(format!("{} takes a second plan in attempt {attempt}", node.short()))
    }
}
