//! What the next frame of a chunk has to be, compared with what came.

use std::ops::Range;

use super::job::Job;
use crate::{
    proto::ring::{RingFault, context::Context},
    wire::{FrameHeader, JobKind, Pass},
};

/// A frame whose head and length are the due ones.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) pass: Pass,
    pub(super) chunk: usize,
    /// Units within the job.
    pub(super) units: Range<usize>,
    /// Contributions in the payload.
    pub(super) contributions: usize,
    /// Whether it is the chunk's last one.
    pub(super) is_last: bool,
}

impl Due {
    /// Checks a frame against the job's state. Nothing is changed.
    pub(super) fn of(
        job: &Job,
        cx: &Context,
        header: &FrameHeader,
        payload: usize,
    ) -> Result<Self, RingFault> {
        let FrameHeader { pass, chunk: number, .. } = *header;
        let chunk = usize::from(number);
        let hop = hop(cx, header)?;
        let shape = cx.shape(job.id);
        let index = index(job, header, shape.frames(chunk))?;
        let units = shape.frame(chunk, index);
        let first = units.start - shape.chunk(chunk).start;
        let (expected, found) =
            ((first as u32, units.len() as u32), (header.first_unit, header.units));
        if found != expected {
            return Err(RingFault::Units { expected, found });
        }
        let contributions = if pass == Pass::Reduce { hop } else { cx.place.members };
        let expected = shape.bytes(units.clone(), contributions).len();
        if payload != expected {
            return Err(RingFault::Length { expected, found: payload });
        }
        let is_last = index + 1 == shape.frames(chunk);
        attachments(job, header, is_last)?;
        Ok(Self { pass, chunk, units, contributions, is_last })
    }
}

/// The frame's hop, which follows from the chunk and the members' positions.
fn hop(cx: &Context, header: &FrameHeader) -> Result<usize, RingFault> {
    let chunk = usize::from(header.chunk);
    if chunk >= cx.place.members {
        return Err(RingFault::Chunk { chunk: header.chunk });
    }
    let hop = match header.pass {
        Pass::Reduce => cx.place.reduce_hop_in(chunk),
        Pass::Gather => cx.place.gather_hop_in(chunk),
    };
    let expected = hop as u8;
    match (hop, header.hop) {
        (0, _) => Err(RingFault::Chunk { chunk: header.chunk }),
        (_, found) if found != expected => Err(RingFault::Hop { expected, found }),
        _ => Ok(hop),
    }
}

/// The number of the frame within its chunk and pass.
fn index(job: &Job, header: &FrameHeader, frames: usize) -> Result<usize, RingFault> {
    let chunk = header.chunk;
    let state = &job.chunks[usize::from(chunk)];
    let index = match header.pass {
        Pass::Reduce => state.reduced_in,
        Pass::Gather => state.gathered_in,
    };
    if index >= frames {
        return Err(RingFault::Repeated { chunk });
    }
    if header.pass == Pass::Gather && state.reduced_out <= index {
        return Err(RingFault::Unfinished { chunk });
    }
    Ok(index)
}

/// Commitment and proof are exactly where they belong.
fn attachments(job: &Job, header: &FrameHeader, is_last: bool) -> Result<(), RingFault> {
    let is_first = job.id.kind == JobKind::Sums && job.predecessor_commitment.is_none();
    let starts = header.pass == Pass::Reduce && header.hop == 1;
    if header.commitment.is_some() != is_first || (is_first && !starts) {
        return Err(RingFault::Commitment);
    }
    if header.proof.is_some() == is_last { Ok(()) } else { Err(RingFault::Proof) }
}
