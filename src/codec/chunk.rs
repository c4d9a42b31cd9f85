//! Chunks of a job, one for each member of the ring, and what is signed of them.

use std::ops::Range;

use crate::base::{Bitmap, Digest};

/// Domain of a chunk's digest.
const CHUNK_DOMAIN: &str = "dilocox/chunk/1";
/// Domain of a job's digest.
const JOB_DOMAIN: &str = "dilocox/job/1";

/// The units of chunk `chunk` when `units` units (blocks of sums, or
/// [`units`](crate::codec::units) of scales) are cut for `members` members:
/// `chunk * units / members` up to the next one's start. Some are empty when there are few units.
///
/// # Panics
/// If there is no such chunk.
pub fn chunk_range(units: usize, members: usize, chunk: usize) -> Range<usize> {
    assert!(chunk < members, "chunk {chunk} of {members}");
    chunk * units / members..(chunk + 1) * units / members
}

/// The digest that a chunk's owner signs: over the agreed codes of its blocks and the packed sums.
pub fn chunk_digest(codes: &[u8], sums: &[u8]) -> Digest {
    Digest::of_parts(CHUNK_DOMAIN, [codes, sums])
}

/// The digest of a finished job, from its member set and its chunks in order.
pub fn job_digest(job: u32, members: Bitmap, chunks: &[Digest]) -> Digest {
    let head = [job.to_le_bytes().as_slice(), &members.0.to_le_bytes()].concat();
    let parts = std::iter::once(head.as_slice());
    Digest::of_parts(JOB_DOMAIN, parts.chain(chunks.iter().map(|chunk| chunk.0.as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_units_in_order() {
        for (units, members) in [(0, 3), (2, 5), (7, 7), (1000, 64), (64, 1)] {
            let mut next = 0;
            for chunk in 0..members {
                let range = chunk_range(units, members, chunk);
                assert_eq!(range.start, next);
                assert!(range.len() <= units.div_ceil(members));
                next = range.end;
            }
            assert_eq!(next, units);
        }
    }

    #[test]
    fn a_job_s_digest_names_job_members_and_order() {
        let chunks = [Digest::of(b"a"), Digest::of(b"b")];
        let digest = job_digest(1, Bitmap::full(2), &chunks);
        assert_eq!(digest, job_digest(1, Bitmap::full(2), &chunks));
        let others = [
            job_digest(2, Bitmap::full(2), &chunks),
            job_digest(1, Bitmap(1), &chunks),
            job_digest(1, Bitmap::full(2), &[chunks[1], chunks[0]]),
            job_digest(1, Bitmap::full(2), &chunks[..1]),
        ];
        assert!(others.iter().all(|other| *other != digest));
        assert_ne!(chunk_digest(b"ab", b"c"), chunk_digest(b"a", b"bc"));
    }
}
