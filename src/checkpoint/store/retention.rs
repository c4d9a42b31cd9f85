//! Which snapshots and bodies are kept: a pure rule over rounds.
//!
//! DESIGN, joining: "the two newest snapshots, or two that are 64 rounds apart if those reach
//! further back, and every delta since the older". A pair 64 rounds apart only comes about if the
//! snapshot that will be its older half is kept while it ages, so a third one may wait between
//! them: at no time more than three, and the older of the pair is 64 to 128 rounds back once the
//! run is that old.

use std::collections::BTreeSet;

use crate::base::Round;

/// How far back the older snapshot reaches, at least.
const REACH: Round = 64;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Rounds of snapshots.
    pub snapshots: BTreeSet<Round>,
    /// Bodies of later rounds than this are kept; all are while there is no snapshot.
    pub bodies_after: Round,
}

/// Applies the rule to the snapshots on disk.
pub fn retain(rounds: &BTreeSet<Round>) -> Retained {
    let (Some(&oldest), Some(&newest)) = (rounds.first(), rounds.last()) else {
        return Retained { snapshots: BTreeSet::new(), bodies_after: 0 };
    };
    let far_enough = newest.checked_sub(REACH).and_then(|to| rounds.range(..=to).next_back());
    let older = far_enough.copied().unwrap_or(oldest);
    let waiting = rounds.range(older + REACH..).next().copied();
    let snapshots = [Some(older), waiting, Some(newest)].into_iter().flatten().collect();
    Retained { snapshots, bodies_after: older }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_as_a_table() {
        let cases: &[(&[Round], &[Round], Round)] = &[
            (&[], &[], 0),
            (&[16], &[16], 16),
            (&[16, 32], &[16, 32], 16),
            (&[16, 32, 48], &[16, 48], 16),
            (&[16, 48, 64], &[16, 64], 16),
            (&[16, 64, 80], &[16, 80], 16),
            (&[16, 80, 96], &[16, 80, 96], 16),
            (&[16, 80, 128], &[16, 80, 128], 16),
            (&[16, 80, 128, 144], &[80, 144], 80),
            (&[10, 500], &[10, 500], 10),
            (&[10, 500, 510], &[10, 500, 510], 10),
        ];
        for (have, kept, after) in cases {
            let have: BTreeSet<Round> = have.iter().copied().collect();
            let rule = retain(&have);
            assert_eq!(rule.snapshots, kept.iter().copied().collect(), "{have:?}");
            assert_eq!(rule.bodies_after, *after, "{have:?}");
        }
    }

    #[test]
    fn over_a_long_run_it_reaches_back_64_rounds_with_three_snapshots() {
        for every in [1, 3, 7, 16, 32] {
            let mut kept = BTreeSet::new();
            for round in (every..1000).step_by(every as usize) {
                kept.insert(round);
                let rule = retain(&kept);
                kept = rule.snapshots;
                assert!(kept.len() <= 3, "{kept:?}");
                assert!(kept.contains(&round));
                if round >= 64 + every {
                    assert!(round - rule.bodies_after >= 64, "every {every}, {kept:?}");
                }
                assert!(round - rule.bodies_after <= 64 + 64 + 2 * every, "{kept:?}");
                assert_eq!(kept.first(), Some(&rule.bodies_after));
            }
        }
    }
}
