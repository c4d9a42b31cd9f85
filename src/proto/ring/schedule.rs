//! Who sends which chunk when, and how a job is cut into frames. Pure functions of numbers.

use std::ops::Range;

use crate::{
    codec::{Bits, BucketSpec, chunk_range, packed_len, unit_range_bytes, units},
    wire::JobKind,
};

/// A member's position in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Members.
    pub(super) members: usize,
    /// This member's position.
    pub(super) me: usize,
}

impl Place {
    /// The position before this one.
    pub(super) fn predecessor(self) -> usize {
        self.step(self.me, self.members - 1)
    }

    /// The position after this one.
    pub(super) fn successor(self) -> usize {
        self.step(self.me, 1)
    }

    /// The chunk that this member starts: the one before its own, which ends its way there.
    pub(super) fn starts(self) -> usize {
        self.predecessor()
    }

    /// Contributions in what this member sends of `chunk` in the reduce pass; 0 for its own, which
    /// is complete here.
    pub(super) fn reduce_hop_out(self, chunk: usize) -> usize {
        self.steps(chunk, self.me)
    }

    /// Contributions in what this member receives of `chunk`; 0 for the one that it starts.
    pub(super) fn reduce_hop_in(self, chunk: usize) -> usize {
        self.steps(chunk, self.predecessor())
    }

    /// Hops from the owner of a finished chunk as it arrives here; 0 for the member's own.
    pub(super) fn gather_hop_in(self, chunk: usize) -> usize {
        self.steps(chunk, self.me)
    }

    /// Hops from the owner of a finished chunk as it leaves here; 0 for the successor's own, which
    /// is not sent.
    pub(super) fn gather_hop_out(self, chunk: usize) -> usize {
        self.steps(chunk, self.successor())
    }

    fn step(self, from: usize, by: usize) -> usize {
        (from + by) % self.members
    }

    /// Steps along the ring from `from` to `to`.
    fn steps(self, from: usize, to: usize) -> usize {
        (to + self.members - from) % self.members
    }
}

/// How one job's units lie in chunks, frames and bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    /// The bucket.
    pub(super) spec: &'a BucketSpec,
    /// Scales or sums.
    pub(super) kind: JobKind,
    /// Payload bits.
    pub(super) bits: Bits,
    /// Members of the ring.
    pub(super) members: usize,
    /// Most payload bytes of a frame.
    pub(super) frame_bytes: usize,
}

impl Shape<'_> {
    /// Units of the job: blocks of sums; codes and pairs of maxima of scales.
    pub(super) fn units(&self) -> usize {
        match self.kind {
            JobKind::Scales => units(self.spec),
            JobKind::Sums => self.spec.blocks,
        }
    }

    /// The units of a chunk.
    pub(super) fn chunk(&self, chunk: usize) -> Range<usize> {
        chunk_range(self.units(), self.members, chunk)
    }

    /// Units of a full frame: what fits at the job's greatest width.
    fn frame_units(&self) -> usize {
        let widest = match self.kind {
            JobKind::Scales => 2,
            JobKind::Sums => packed_len(1, self.bits, self.members),
        };
        (self.frame_bytes / widest).max(1)
    }

    /// Frames of a chunk; at least one.
    pub(super) fn frames(&self, chunk: usize) -> usize {
        self.chunk(chunk).len().div_ceil(self.frame_units()).max(1)
    }

    /// The units of frame `index` of a chunk.
    pub(super) fn frame(&self, chunk: usize, index: usize) -> Range<usize> {
        let all = self.chunk(chunk);
        let start = all.start + index * self.frame_units();
        start..(start + self.frame_units()).min(all.end)
    }

    /// Where units lie in the bytes of the whole job, packed for `contributions`.
    pub(super) fn bytes(&self, units: Range<usize>, contributions: usize) -> Range<usize> {
        match self.kind {
            JobKind::Scales => unit_range_bytes(self.spec, units),
            JobKind::Sums => {
                let block = packed_len(1, self.bits, contributions);
                units.start * block..units.end * block
            }
        }
    }

    /// Where a frame's units are kept: at the start of the place that they need at full width.
    pub(super) fn slot(&self, units: Range<usize>, contributions: usize) -> Range<usize> {
        let len = self.bytes(units.clone(), contributions).len();
        let start = self.bytes(units, self.members).start;
        start..start + len
    }

    /// Bytes of the whole job at full width.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes(0..self.units(), self.members).end
    }
}
