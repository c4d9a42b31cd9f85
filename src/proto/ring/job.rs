//! One job at one member: which frames have come and gone, and the bytes in between.
//!
//! ```text
//!            reduce in          + own           reduce out
//! frame ---> checked, hashed ---------> slot ---> hashed ---> frame       (or, at the owner,
//!            gather in                                                     the finished sums)
//! frame ---> checked -----------------> slot ------------> frame
//! ```
//!
//! A slot is a frame's place in the bytes of the whole job at full width. A finished frame comes
//! only after the partial result in its slot has been sent, so one buffer holds both, and when all
//! are finished it is the result.

use std::sync::Arc;

use crate::{
    base::Digest,
    codec::{chunk_digest, merge_units, pack_sums, unpack_sums, unpack_sums_add},
    proto::ring::{FinishedBucket, RingFault, context::Context},
    wire::{Frame, FrameHeader, HopProof, JobId, JobKind, Pass},
};

use super::check::Due;

/// The bytes of a job's results.
#[derive(Debug)]
enum Store {
    /// Being put together.
    Open(Vec<u8>),
    /// Handed out, and read from there.
    Kept(Arc<FinishedBucket>),
}

/// Progress of one chunk.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) reduced_in: usize,
    pub(super) reduced_out: usize,
    pub(super) gathered_in: usize,
    gathered_out: usize,
    hash_in: Option<Box<blake3::Hasher>>,
    hash_out: Option<Box<blake3::Hasher>>,
    /// The owner's signature, once it is here and holds.
    proof: Option<HopProof>,
}

/// One job of a bucket.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    /// This member's contribution, packed for one; dropped when nobody needs it any more.
    own: Vec<u8>,
    /// The agreed codes, of a Sums job.
    codes: Vec<u8>,
    store: Store,
    pub(super) chunks: Vec<Chunk>,
    /// Frames still to come.
    left_in: usize,
    /// Frames still to be sent.
    left_out: usize,
    /// Digest of `own`, of a Sums job.
    commitment: Option<Digest>,
    /// Whether the first frame has been sent.
    pub(super) is_opened: bool,
    pub(super) predecessor_commitment: Option<Digest>,
}

impl Job {
    /// A job that has not heard anything yet. `codes` are empty for scales.
    pub(super) fn new(cx: &Context, id: JobId, own: Vec<u8>, codes: Vec<u8>) -> Self {
        let (shape, place) = (cx.shape(id), cx.place);
        let frames = |is_sent: &dyn Fn(usize) -> bool| -> usize {
            (0..place.members).filter(|&c| is_sent(c)).map(|c| shape.frames(c)).sum()
        };
        let left_in =
            frames(&|c| place.reduce_hop_in(c) != 0) + frames(&|c| place.gather_hop_in(c) != 0);
        let left_out =
            frames(&|c| place.reduce_hop_out(c) != 0) + frames(&|c| place.gather_hop_out(c) != 0);
        let is_alone = place.members == 1;
        let store = if is_alone { own.clone() } else { vec![0; shape.total_bytes()] };
        let chunks = (0..place.members).map(|_| Chunk::default()).collect();
        let commitment = (id.kind == JobKind::Sums).then(|| Digest::of(&own));
        let mut job = Self {
            id,
            own,
            codes,
            store: Store::Open(store),
            chunks,
            left_in,
            left_out,
            commitment,
            is_opened: false,
            predecessor_commitment: None,
        };
        if is_alone {
            job.sign(cx);
        }
        job
    }

    /// Whether all chunks are finished here.
    pub(super) fn is_complete(&self) -> bool {
        self.left_in == 0
    }

    /// Whether everything has been sent too.
    pub(super) fn is_drained(&self) -> bool {
        self.left_in == 0 && self.left_out == 0
    }

    /// Whether a frame of the chunk that this member starts is still to be sent.
    pub(super) fn has_starts(&self, cx: &Context) -> bool {
        let chunk = cx.place.starts();
        self.chunks[chunk].reduced_out < cx.shape(self.id).frames(chunk)
    }

    /// The results' bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.store {
            Store::Open(bytes) => bytes,
            Store::Kept(finished) => &finished.result.sums,
        }
    }

    /// Bytes held, those of a result that was handed out aside.
    pub(super) fn memory(&self) -> usize {
        let store = match &self.store {
            Store::Open(bytes) => bytes.len(),
            Store::Kept(_) => 0,
        };
        self.own.len() + self.codes.len() + store
    }

    /// The owners' proofs, by chunk; of a complete job, all of them.
    pub(super) fn proofs(&self) -> impl Iterator<Item = &HopProof> {
        self.chunks.iter().filter_map(|chunk| chunk.proof.as_ref())
    }

    /// The commitment to this member's contribution to a Sums job.
    pub(super) fn commitment(&self) -> Digest {
        self.commitment.unwrap_or(Digest([0; 32]))
    }

    /// Takes codes and sums of a complete job out, to be handed back by [`keep`](Self::keep).
    pub(super) fn take_result(&mut self) -> (Vec<u8>, Vec<u8>) {
        let Store::Open(bytes) = &mut self.store else { return Default::default() };
        (std::mem::take(&mut self.codes), std::mem::take(bytes))
    }

    /// Goes on reading from the result that was handed out.
    pub(super) fn keep(&mut self, finished: Arc<FinishedBucket>) {
        self.store = Store::Kept(finished);
    }

    /// Takes a frame in. Gives the pass in which its chunk now has a frame to send, if any.
    pub(super) fn absorb(
        &mut self,
        cx: &Context,
        frame: &Frame,
    ) -> Result<Option<Pass>, RingFault> {
        let due = Due::of(self, cx, &frame.header, frame.payload.len())?;
        if let Some(commitment) = frame.header.commitment {
            self.predecessor_commitment = Some(commitment);
        }
        let onward = match due.pass {
            Pass::Reduce => self.absorb_reduce(cx, &due, frame)?,
            Pass::Gather => self.absorb_gather(cx, &due, frame)?,
        };
        self.left_in -= 1;
        if self.left_in == 0 {
            self.own = Vec::new();
        }
        Ok(onward)
    }

    fn absorb_reduce(
        &mut self,
        cx: &Context,
        due: &Due,
        frame: &Frame,
    ) -> Result<Option<Pass>, RingFault> {
        let chunk = &mut self.chunks[due.chunk];
        let hasher = chunk.hash_in.get_or_insert_default();
        hasher.update(&frame.payload);
        if let Some(proof) = &frame.header.proof {
            let digest = Digest(*hasher.finalize().as_bytes());
            chunk.hash_in = None;
            let FrameHeader { job, chunk, hop, .. } = frame.header;
            if digest != proof.digest {
                return Err(RingFault::Digest { chunk });
            }
            cx.seal.verify_hop(cx.predecessor(), job, chunk, hop, proof)?;
        }
        self.add(cx, due, &frame.payload)?;
        self.chunks[due.chunk].reduced_in += 1;
        if due.chunk != cx.place.me {
            return Ok(Some(Pass::Reduce));
        }
        if due.is_last {
            self.sign(cx);
        }
        Ok(Some(Pass::Gather))
    }

    /// Adds this member's part to a partial result and keeps the sum in its slot.
    fn add(&mut self, cx: &Context, due: &Due, payload: &[u8]) -> Result<(), RingFault> {
        let (shape, bits) = (cx.shape(self.id), cx.config.bits);
        let own = &self.own[shape.bytes(due.units.clone(), 1)];
        let sum = match self.id.kind {
            JobKind::Scales => {
                let mut sum = own.to_vec();
                merge_units(&mut sum, payload, due.units.start, shape.spec)?;
                sum
            }
            JobKind::Sums => {
                let mut sums = unpack_sums(own, bits, 1, due.units.len())?;
                unpack_sums_add(payload, bits, due.contributions, &mut sums)?;
                let mut packed = Vec::new();
                pack_sums(&sums, bits, due.contributions + 1, &mut packed);
                packed
            }
        };
        let slot = shape.slot(due.units.clone(), due.contributions + 1);
        self.slot_mut(slot, &sum);
        Ok(())
    }

    fn absorb_gather(
        &mut self,
        cx: &Context,
        due: &Due,
        frame: &Frame,
    ) -> Result<Option<Pass>, RingFault> {
        if self.id.kind == JobKind::Sums {
            // Only to see that every sum is one that N members can have.
            unpack_sums(&frame.payload, cx.config.bits, due.contributions, due.units.len())?;
        }
        let slot = cx.shape(self.id).slot(due.units.clone(), due.contributions);
        self.slot_mut(slot, &frame.payload);
        if let Some(proof) = frame.header.proof {
            let FrameHeader { job, chunk, .. } = frame.header;
            if self.digest(cx, due.chunk) != proof.digest {
                return Err(RingFault::Digest { chunk });
            }
            let owner = cx.node(due.chunk);
            cx.seal.verify_chunk(owner, job, chunk, proof.digest, &proof.signature)?;
            self.chunks[due.chunk].proof = Some(proof);
        }
        self.chunks[due.chunk].gathered_in += 1;
        Ok((cx.place.gather_hop_out(due.chunk) != 0).then_some(Pass::Gather))
    }

    fn slot_mut(&mut self, slot: std::ops::Range<usize>, bytes: &[u8]) {
        if let Store::Open(store) = &mut self.store {
            store[slot].copy_from_slice(bytes);
        }
    }

    /// Signs this member's own chunk, which is finished.
    fn sign(&mut self, cx: &Context) {
        let me = cx.place.me;
        let digest = self.digest(cx, me);
        let proof = cx.seal.sign_chunk(&cx.identity, self.id, me as u8, digest);
        self.chunks[me].proof = Some(proof);
    }

    /// The digest that a chunk's owner signs.
    fn digest(&self, cx: &Context, chunk: usize) -> Digest {
        let shape = cx.shape(self.id);
        let units = shape.chunk(chunk);
        let bytes = &self.bytes()[shape.bytes(units.clone(), cx.place.members)];
        match self.id.kind {
            JobKind::Scales => Digest::of(bytes),
            JobKind::Sums => chunk_digest(&self.codes[units], bytes),
        }
    }

    /// Makes the next frame of a chunk that has one to send.
    pub(super) fn emit(&mut self, cx: &Context, chunk: usize, pass: Pass) -> Frame {
        let (shape, place) = (cx.shape(self.id), cx.place);
        let state = &self.chunks[chunk];
        let (index, hop, contributions) = match pass {
            Pass::Reduce => {
                let hop = place.reduce_hop_out(chunk);
                (state.reduced_out, hop, hop)
            }
            Pass::Gather => (state.gathered_out, place.gather_hop_out(chunk), place.members),
        };
        let units = shape.frame(chunk, index);
        let payload = match (pass, hop) {
            (Pass::Reduce, 1) => self.own[shape.bytes(units.clone(), 1)].to_vec(),
            _ => self.bytes()[shape.slot(units.clone(), contributions)].to_vec(),
        };
        let is_last = index + 1 == shape.frames(chunk);
        let header = FrameHeader {
            round: cx.config.round,
            attempt: cx.config.attempt,
            job: self.id,
            pass,
            chunk: chunk as u8,
            hop: hop as u8,
            first_unit: (units.start - shape.chunk(chunk).start) as u32,
            units: units.len() as u32,
            commitment: self.commitment.filter(|_| !self.is_opened),
            proof: self.sent(cx, chunk, pass, hop, &payload, is_last),
        };
        self.is_opened = true;
        self.left_out -= 1;
        Frame { header, payload }
    }

    /// Counts a frame as sent; gives the proof that a last one carries.
    fn sent(
        &mut self,
        cx: &Context,
        chunk: usize,
        pass: Pass,
        hop: usize,
        payload: &[u8],
        is_last: bool,
    ) -> Option<HopProof> {
        let (id, state) = (self.id, &mut self.chunks[chunk]);
        if pass == Pass::Gather {
            state.gathered_out += 1;
            return state.proof.filter(|_| is_last);
        }
        state.reduced_out += 1;
        let hasher = state.hash_out.get_or_insert_default();
        hasher.update(payload);
        if !is_last {
            return None;
        }
        let digest = Digest(*hasher.finalize().as_bytes());
        state.hash_out = None;
        Some(cx.seal.sign_hop(&cx.identity, id, chunk as u8, hop as u8, digest))
    }
}
