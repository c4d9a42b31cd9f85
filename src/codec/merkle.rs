//! A Merkle tree over a round's jobs: a header of one digest, and short proofs for single jobs.
//!
//! Leaves are (job, member set, job digest); a level's last node without a partner goes up as it is;
//! the root binds the number of leaves. Leaves, nodes and roots have domains of their own, so that
//! none can be passed off as another.

use crate::{
    base::{Bitmap, Digest, limits},
    codec::CodecError,
};

const LEAF_DOMAIN: &str = "dilocox/merkle/leaf/1";
const NODE_DOMAIN: &str = "dilocox/merkle/node/1";
const ROOT_DOMAIN: &str = "dilocox/merkle/root/1";

/// Digests of the longest proof: one a level.
pub const MAX_PROOF: usize = limits::MAX_BUCKETS.ilog2() as usize;

/// One job as the header binds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLeaf {
    /// The job's number: its place among all leaves.
    pub job: u32,
    /// Members in the result; empty for an unfinished job.
    pub members: Bitmap,
    /// [`job_digest`](crate::codec::job_digest); of no chunks for an unfinished job.
    pub digest: Digest,
}

impl JobLeaf {
    fn hash(&self) -> Digest {
        let (job, members) = (self.job.to_le_bytes(), self.members.0.to_le_bytes());
        Digest::of_parts(LEAF_DOMAIN, [&job[..], &members[..], &self.digest.0[..]])
    }
}

fn node(left: &Digest, right: &Digest) -> Digest {
    Digest::of_parts(NODE_DOMAIN, [&left.0[..], &right.0[..]])
}

fn root(count: usize, top: Option<&Digest>) -> Digest {
    let count = (count as u64).to_le_bytes();
    let top = top.map_or(&[][..], |top| &top.0[..]);
    Digest::of_parts(ROOT_DOMAIN, [&count[..], top])
}

fn next_level(level: &[Digest]) -> Vec<Digest> {
    let merged = level.chunks(2).map(|pair| match pair {
        [left, right] => node(left, right),
        _ => pair[0],
    });
    merged.collect()
}

/// The root over all jobs of a round.
pub fn merkle_root(leaves: &[JobLeaf]) -> Digest {
    let mut level: Vec<Digest> = leaves.iter().map(JobLeaf::hash).collect();
    while level.len() > 1 {
        level = next_level(&level);
    }
    root(leaves.len(), level.first())
}

/// The siblings from leaf `index` up to the root.
///
/// # Panics
/// If there is no such leaf.
pub fn merkle_proof(leaves: &[JobLeaf], index: usize) -> Vec<Digest> {
    assert!(index < leaves.len(), "leaf {index} of {}", leaves.len());
    let mut level: Vec<Digest> = leaves.iter().map(JobLeaf::hash).collect();
    let (mut place, mut proof) = (index, Vec::new());
    while level.len() > 1 {
        proof.extend(level.get(place ^ 1));
        level = next_level(&level);
        place /= 2;
    }
    proof
}

/// Whether `leaf` is leaf `leaf.job` of the `count` leaves below `expected`.
///
/// # Errors
/// If the proof's length is not that of such a tree.
pub fn merkle_holds(
    expected: &Digest,
    count: usize,
    leaf: &JobLeaf,
    proof: &[Digest],
) -> Result<bool, CodecError> {
    let (mut place, mut level_len) = (leaf.job as usize, count);
    if place >= count || proof.len() > MAX_PROOF {
        return Err(CodecError::WrongLength { found: proof.len(), expected: MAX_PROOF });
    }
    let (mut top, mut siblings) = (leaf.hash(), proof.iter());
    while level_len > 1 {
        if place ^ 1 < level_len {
            let Some(sibling) = siblings.next() else {
                return Ok(false);
            };
            top = if place.is_multiple_of(2) { node(&top, sibling) } else { node(sibling, &top) };
        }
        place /= 2;
        level_len = level_len.div_ceil(2);
    }
    Ok(siblings.next().is_none() && root(count, Some(&top)) == *expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: u32) -> Vec<JobLeaf> {
        let leaf = |job: u32| JobLeaf {
            job,
            members: Bitmap::full(3),
            digest: Digest::of(&job.to_le_bytes()),
        };
        (0..count).map(leaf).collect()
    }

    #[test]
    fn every_leaf_of_every_small_tree_can_be_proven() {
        for count in 1..20 {
            let leaves = leaves(count);
            let root = merkle_root(&leaves);
            for (index, leaf) in leaves.iter().enumerate() {
                let proof = merkle_proof(&leaves, index);
                assert_eq!(merkle_holds(&root, leaves.len(), leaf, &proof), Ok(true));
            }
        }
    }

    #[test]
    fn nothing_else_can() {
        let leaves = leaves(11);
        let root = merkle_root(&leaves);
        let proof = merkle_proof(&leaves, 4);
        let holds =
            |count, leaf: JobLeaf, proof: &[Digest]| merkle_holds(&root, count, &leaf, proof);
        assert_eq!(holds(11, JobLeaf { job: 5, ..leaves[4] }, &proof), Ok(false));
        assert_eq!(holds(11, JobLeaf { members: Bitmap(1), ..leaves[4] }, &proof), Ok(false));
        assert_eq!(holds(11, leaves[4], &proof[1..]), Ok(false));
        assert_eq!(holds(12, leaves[4], &proof), Ok(false));
        assert_eq!(holds(11, leaves[4], &[proof.clone(), proof.clone()].concat()), Ok(false));
        assert!(holds(11, JobLeaf { job: 11, ..leaves[4] }, &proof).is_err());
        assert!(holds(11, leaves[4], &vec![root; MAX_PROOF + 1]).is_err());
    }

    #[test]
    fn the_root_binds_the_number_of_leaves() {
        let roots: Vec<Digest> = (0..9).map(|count| merkle_root(&leaves(count))).collect();
        assert!((1..9).all(|i| !roots[..i].contains(&roots[i])));
    }
}
