//! Who coordinates, and in which order the ring runs: pure functions that everybody can compute.

use std::collections::BTreeSet;

use crate::base::{Attempt, Digest, NodeId, Stream};

/// How many of the order receive Ready, Accept and signatures, so that nobody depends on one link.
pub const CANDIDATES: usize = 3;

/// The candidates for coordinating (header, attempt): the first [`CANDIDATES`] of `live` in the
/// order of blake3(parent, attempt, node). Nobody is elected.
pub fn candidates(
    parent: Digest,
    attempt: Attempt,
    live: impl IntoIterator<Item = NodeId>,
) -> Vec<NodeId> {
    let mut ranked: Vec<(Digest, NodeId)> = live
        .into_iter()
        .map(|node| {
            let parts: [&[u8]; 3] = [&parent.0, &[attempt], &node.0];
            (Digest::of_parts("dilocox/order/1", parts), node)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, node)| node).take(CANDIDATES).collect()
}

/// A ring through `members` that uses no refused link (from, to), as a function of (members, links
/// refused, attempt): seeded shuffles are tried, then the best of them is repaired by leaving
/// members out. Who is left out is not in the result.
pub fn ring(
    parent: Digest,
    attempt: Attempt,
    members: &BTreeSet<NodeId>,
    refused: &BTreeSet<(NodeId, NodeId)>,
) -> Vec<NodeId> {
    let mut stream = Stream::new(&parent, &format!("ring order {attempt}"));
    let mut order: Vec<NodeId> = members.iter().copied().collect();
    let mut best = order.clone();
    let mut least = usize::MAX;
    for _ in 0..64 {
        stream.shuffle(&mut order);
        let broken = broken_links(&order, refused).count();
        if broken < least {
            least = broken;
            best.clone_from(&order);
        }
        if least == 0 {
            break;
        }
    }
    loop {
        let Some(at) = broken_links(&best, refused).next() else { return best };
        best.remove((at + 1) % best.len());
    }
}

fn broken_links<'a>(
    order: &'a [NodeId],
    refused: &'a BTreeSet<(NodeId, NodeId)>,
) -> impl Iterator<Item = usize> + 'a {
    (0..order.len()).filter(move |&i| {
        let next = order[(i + 1) % order.len()];
        order.len() > 1 && refused.contains(&(order[i], next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u8) -> BTreeSet<NodeId> {
        (0..count).map(|i| NodeId([i; 32])).collect()
    }

    #[test]
    fn candidates_change_with_the_attempt_and_not_with_the_order_of_the_roster() {
        let parent = Digest([1; 32]);
        let forward = candidates(parent, 0, nodes(10));
        let mut reversed: Vec<NodeId> = nodes(10).into_iter().collect();
        reversed.reverse();
        assert_eq!(forward, candidates(parent, 0, reversed));
        assert_eq!(forward.len(), CANDIDATES);
        let all: BTreeSet<_> = (0..8).map(|a| candidates(parent, a, nodes(10))[0]).collect();
        assert!(all.len() > 2, "attempts should spread over the nodes");
    }

    #[test]
    fn a_ring_avoids_refused_links() {
        let members = nodes(6);
        let list: Vec<NodeId> = members.iter().copied().collect();
        let refused: BTreeSet<_> =
            [(list[0], list[1]), (list[2], list[3]), (list[3], list[2])].into();
        let order = ring(Digest([1; 32]), 2, &members, &refused);
        assert_eq!(order.len(), 6);
        assert_eq!(broken_links(&order, &refused).count(), 0);
    }

    #[test]
    fn a_member_without_links_is_left_out() {
        let members = nodes(4);
        let list: Vec<NodeId> = members.iter().copied().collect();
        let refused: BTreeSet<_> = list.iter().map(|&from| (from, list[3])).collect();
        let order = ring(Digest([1; 32]), 0, &members, &refused);
        assert_eq!(order.len(), 3);
        assert!(!order.contains(&list[3]));
    }

    #[test]
    fn one_member_is_a_ring() {
        assert_eq!(ring(Digest([1; 32]), 0, &nodes(1), &BTreeSet::new()).len(), 1);
    }
}
