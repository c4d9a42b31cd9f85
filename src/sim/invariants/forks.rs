//! No two headers are committed for one round on one branch, as long as the quorums of their voters
//! must overlap. (Voters that have expired do not vote: islands without a common quorum are
//! possible by design, and merge later.)

use std::collections::{BTreeMap, BTreeSet};

use super::{Fact, Invariant};
use crate::base::{Digest, NodeId};

/// Headers by parent, each with its voters.
#[derive(Default)]
pub(super) struct Forks(BTreeMap<Digest, BTreeMap<Digest, BTreeSet<NodeId>>>);

impl Invariant for Forks {
    fn name(&self) -> &'static str {
        "no two headers are committed for one round on one branch"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Committed { node, certificate, parent } = fact else { return Ok(()) };
        let header = &certificate.header;
        let voters: BTreeSet<NodeId> = header.electorate(parent).into_iter().collect();
        let siblings = self.0.entry(header.parent).or_default();
        let digest = header.digest();
        for (other, theirs) in siblings.iter().filter(|(other, _)| **other != digest) {
            let quorums = voters.len() / 2 + 1 + theirs.len() / 2 + 1;
            if quorums > voters.union(theirs).count() {
                return Err(format!(
                    "{} commits {digest} for round {} beside {other}, whose quorum overlaps",
                    node.short(),
                    header.round
                ));
            }
        }
        siblings.insert(digest, voters);
        Ok(())
    }
}
