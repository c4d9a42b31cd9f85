//! A node never signs for a lower attempt than it has promised, nor two headers in one attempt, and
//! says nothing of a vote or promise that is not on its disk.

use std::collections::BTreeMap;

use super::{Fact, Invariant};
use crate::{
    base::{Attempt, Digest, NodeId},
    proto::node::Promise,
    wire::Message,
};

#[derive(Default)]
pub(super) struct Promises {
    promised: BTreeMap<(NodeId, Digest), Attempt>,
    signed: BTreeMap<(NodeId, Digest, Attempt), Digest>,
}

impl Invariant for Promises {
    fn name(&self) -> &'static str {
        "nobody signs for a lower attempt than promised"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Persisted { node, parent, promise } => self.persisted(*node, *parent, promise),
            Fact::Sent { node, parent, message } => self.sent(*node, *parent, message),
            _ => Ok(()),
        }
    }
}

impl Promises {
    fn persisted(&mut self, node: NodeId, parent: Digest, promise: &Promise) -> Result<(), String> {
        match promise {
            Promise::Attempt { attempt, .. } => {
                let promised = self.promised.entry((node, parent)).or_insert(*attempt);
                if *promised > *attempt {
                    return Err(format!("{} promises {attempt} after {promised}", node.short()));
                }
                *promised = *attempt;
            }
            Promise::Vote { attempt, header } => {
                let digest = header.digest();
                let known = *self.signed.entry((node, parent, *attempt)).or_insert(digest);
                if known != digest {
                    return Err(format!(
                        "{} signs two headers in round {}, attempt {attempt}",
                        node.short(),
                        header.round
                    ));
                }
                if let Some(promised) = self.promised.get(&(node, parent))
                    && promised > attempt
                {
                    return Err(format!(
                        "{} signs for attempt {attempt} of round {} after promising {promised}",
                        node.short(),
                        header.round
                    ));
                }
            }
        }
        Ok(())
    }

    fn sent(&self, node: NodeId, parent: Digest, message: &Message) -> Result<(), String> {
        match message {
            Message::Accept { attempt, .. }
                if self.promised.get(&(node, parent)) != Some(attempt) =>
            {
                Err(format!("{} accepts before it has written it down", node.short()))
            }
            Message::Voted { attempt, header, .. }
                if self.signed.get(&(node, parent, *attempt)) != Some(header) =>
            {
                Err(format!("{} votes before it has written it down", node.short()))
            }
            _ => Ok(()),
        }
    }
}
