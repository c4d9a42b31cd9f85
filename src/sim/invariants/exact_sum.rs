//! A committed delta is exactly the integer sum of what its members committed to.

use std::collections::BTreeMap;

use super::{Fact, Invariant};
use crate::base::Digest;

/// Results seen, and whether their sums are right, by the digest of the body.
#[derive(Default)]
pub(super) struct ExactSum(BTreeMap<Digest, ()>);

impl Invariant for ExactSum {
    fn name(&self) -> &'static str {
        "a committed delta is the exact sum of its members' contributions"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Exchanged { outcome } => {
                verify(outcome)?;
                self.0.insert(outcome.ring.body, ());
                Ok(())
            }
            Fact::Folded { header, .. } if header.round > 0 => {
                let unfinished = header.member_sets.iter().all(|set| set.divisor == 0);
                if unfinished || self.0.contains_key(&header.body) {
                    return Ok(());
                }
                Err(format!("round {} holds results that nobody made", header.round))
            }
            _ => Ok(()),
        }
    }
}

fn verify(outcome: &crate::sim::exchange::Outcome) -> Result<(), String> {
    for (job, (result, parts)) in outcome.body.jobs.iter().zip(&outcome.contributions).enumerate() {
        let Some(result) = result else { continue };
        let sums = result
            .unpacked(outcome.bits, outcome.members)
            .map_err(|error| format!("job {job}: {error}"))?;
        for (at, &sum) in sums.iter().enumerate() {
            let wanted: i64 = result.members.iter().map(|m| i64::from(parts[m][at])).sum();
            if i64::from(sum) != wanted {
                return Err(format!("job {job}, element {at}: {sum} instead of {wanted}"));
            }
        }
    }
    Ok(())
}
