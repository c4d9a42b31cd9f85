//! The machine: frames in, frames and events out.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{
    base::{NodeId, Time, limits},
    identity::Identity,
    proto::ring::{
        Failure, FinishedBucket, InvalidRing, RingConfig, RingEvent, RingFault, RingOutcome,
        Traffic, bucket::Bucket, context::Context, job::Job, verify::job_id,
    },
    wire::{Frame, JobId, JobKind, JobPhase, Pass, codec},
};

/// How far buckets of a neighbour may be ahead of this member's, in windows.
const SLACK: usize = 2;

/// A chunk that has a frame to send.
#[derive(Clone, Copy, Debug)]
struct Outbound {
    job: JobId,
    chunk: usize,
    pass: Pass,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Results are missing.
    Running,
    /// All results are here.
    Finished,
    Failed,
}

/// The exchange of one plan at one member. See the [module](super) for the driver's duties.
#[derive(Debug)]
pub struct Ring {
    cx: Context,
    delta: Arc<Vec<Vec<f32>>>,
    phase: Phase,
    /// Buckets in flight: not finished, or with frames left to send.
    buckets: BTreeMap<u32, Bucket>,
    finished: BTreeMap<u32, Arc<FinishedBucket>>,
    /// Place of the oldest unfinished bucket in the list of buckets.
    first: usize,
    /// Finished frames to send, in the order in which they came.
    gathers: VecDeque<Outbound>,
    /// Partial results to send, in the order in which they came.
    reduces: VecDeque<Outbound>,
    events: VecDeque<RingEvent>,
    deadline: Time,
    traffic: Traffic,
}

impl Ring {
    /// An exchange of `delta`: per fragment the flat pseudo-gradient with error feedback.
    ///
    /// # Errors
    /// If the exchange cannot be: see [`InvalidRing`].
    pub fn new(
        config: RingConfig,
        identity: Identity,
        delta: Arc<Vec<Vec<f32>>>,
        now: Time,
    ) -> Result<Self, InvalidRing> {
        Self::with_frame_bytes(config, identity, delta, now, limits::MAX_FRAME_BYTES)
    }

    /// A ring with smaller frames, so that tests have many of them.
    pub(super) fn with_frame_bytes(
        config: RingConfig,
        identity: Identity,
        delta: Arc<Vec<Vec<f32>>>,
        now: Time,
        frame_bytes: usize,
    ) -> Result<Self, InvalidRing> {
        let cx = Context::new(config, identity, frame_bytes)?;
        cx.config.validate_delta(&delta)?;
        let deadline = now + cx.config.stall;
        let mut ring = Self {
            cx,
            delta,
            phase: Phase::Running,
            buckets: BTreeMap::new(),
            finished: BTreeMap::new(),
            first: 0,
            gathers: VecDeque::new(),
            reduces: VecDeque::new(),
            events: VecDeque::new(),
            deadline,
            traffic: Traffic::default(),
        };
        ring.finish_if_complete();
        Ok(ring)
    }

    /// Takes a frame that came on the stream of `from`.
    ///
    /// # Errors
    /// Why it is refused. A fault of the predecessor's ends the exchange, and
    /// [`RingEvent::Failed`] says so too; other frames change nothing.
    pub fn handle_frame(
        &mut self,
        now: Time,
        from: NodeId,
        frame: &Frame,
    ) -> Result<(), RingFault> {
        self.admit(from, frame)?;
        self.deadline = now + self.cx.config.stall;
        self.traffic.frames_received += 1;
        self.traffic.bytes_received += wire_bytes(frame);
        self.traffic.payload_received += frame.payload.len() as u64;
        let taken = self.absorb(frame);
        if let Err(fault) = &taken {
            self.fail(Some(from), Failure::Fault(fault.clone()));
        }
        taken
    }

    /// Checks the stall deadline.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|deadline| now >= deadline) {
            let stall = self.cx.config.stall;
            self.fail(Some(self.cx.predecessor()), Failure::Stalled(stall));
        }
    }

    /// The stream from or to `peer` broke.
    pub fn handle_link_lost(&mut self, _now: Time, peer: NodeId) {
        let is_neighbour = peer == self.cx.predecessor() || peer == self.cx.successor();
        if self.cx.place.members == 1 || !is_neighbour {
            return;
        }
        match self.phase {
            Phase::Running => self.fail(Some(peer), Failure::LinkLost),
            // Nothing is missing here; what was left to forward cannot be.
            Phase::Finished if peer == self.cx.successor() => self.drop_outbound(),
            Phase::Finished | Phase::Failed => {}
        }
    }

    /// The next frame for the successor, if there is one now. To be called when the link has room.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        if self.cx.place.members == 1 || self.phase == Phase::Failed {
            return None;
        }
        let next = self.gathers.pop_front().or_else(|| self.reduces.pop_front());
        let next = match next {
            Some(outbound) => self.opening(outbound),
            None => self.next_start()?,
        };
        let frame = self.emit(next)?;
        self.traffic.frames_sent += 1;
        self.traffic.bytes_sent += wire_bytes(&frame);
        self.traffic.payload_sent += frame.payload.len() as u64;
        self.drop_if_drained(next.job.bucket);
        Some(frame)
    }

    /// The next event. A ring of one does its work here, one bucket a call.
    pub fn poll_event(&mut self) -> Option<RingEvent> {
        if self.events.is_empty() && self.cx.place.members == 1 && self.phase == Phase::Running {
            self.finish_alone();
        }
        self.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); `None` once nothing is missing.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waits = self.phase == Phase::Running && self.cx.place.members > 1;
        waits.then_some(self.deadline)
    }

    /// Frames received: what a member that is asked to give up reports.
    pub fn progress(&self) -> u32 {
        self.traffic.frames_received
    }

    /// Frames and bytes so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Whether all results are here and nothing is left to send: the streams may be closed.
    pub fn is_drained(&self) -> bool {
        self.phase == Phase::Finished && self.buckets.is_empty()
    }

    /// The buckets that stand so far, also after a failure.
    pub fn finished(&self) -> impl Iterator<Item = &Arc<FinishedBucket>> {
        self.finished.values()
    }

    /// Bytes held for buckets in flight, pseudo-gradient and finished results aside.
    pub fn memory(&self) -> usize {
        self.buckets.values().map(Bucket::memory).sum()
    }

    /// Whether a frame is this exchange's and its predecessor's.
    fn admit(&self, from: NodeId, frame: &Frame) -> Result<(), RingFault> {
        let Context { config, place, .. } = &self.cx;
        let (round, attempt) = (frame.header.round, frame.header.attempt);
        if self.phase != Phase::Running {
            return Err(RingFault::Over);
        }
        if from != self.cx.predecessor() || place.members == 1 {
            return Err(RingFault::NotPredecessor(from));
        }
        if (round, attempt) != (config.round, config.attempt) {
            return Err(RingFault::OtherExchange { round, attempt });
        }
        Ok(())
    }

    fn absorb(&mut self, frame: &Frame) -> Result<(), RingFault> {
        let id = frame.header.job;
        self.check_window(id)?;
        let bucket = open(&mut self.buckets, &self.cx, id.bucket, &self.delta);
        let job = match id.kind {
            JobKind::Scales => &mut bucket.scales,
            JobKind::Sums if !bucket.scales.is_complete() => {
                return Err(RingFault::Early(id.bucket));
            }
            JobKind::Sums => bucket.open_sums(&self.cx, &self.delta),
        };
        let onward = job.absorb(&self.cx, frame)?;
        let outbound = |pass| Outbound { job: id, chunk: usize::from(frame.header.chunk), pass };
        match onward {
            Some(pass @ Pass::Reduce) => self.reduces.push_back(outbound(pass)),
            Some(pass @ Pass::Gather) => self.gathers.push_back(outbound(pass)),
            None => {}
        }
        self.finish_bucket(id.bucket);
        Ok(())
    }

    /// Whether a job is exchanged here and may be heard of already.
    fn check_window(&self, id: JobId) -> Result<(), RingFault> {
        let buckets = &self.cx.config.buckets;
        let place = buckets.binary_search(&id.bucket).ok();
        let place = place.filter(|_| id.phase == JobPhase::Plain);
        let place = place.ok_or(RingFault::UnknownJob(id))?;
        let allowed = SLACK.saturating_mul(self.cx.config.window);
        if place >= self.first.saturating_add(allowed) {
            return Err(RingFault::Ahead { bucket: id.bucket, allowed });
        }
        if self.finished.contains_key(&id.bucket) {
            return Err(RingFault::Done(id.bucket));
        }
        Ok(())
    }

    /// The frame to send instead, if the job of `next` has sent nothing yet: its first frame
    /// starts a chunk, so that the commitment goes out ahead of what this member has read.
    fn opening(&mut self, next: Outbound) -> Outbound {
        let starts = self.cx.place.starts();
        let is_opened = self.job_mut(next.job).is_none_or(|job| job.is_opened);
        if is_opened {
            return next;
        }
        match next.pass {
            Pass::Reduce => self.reduces.push_front(next),
            Pass::Gather => self.gathers.push_front(next),
        }
        Outbound { job: next.job, chunk: starts, pass: Pass::Reduce }
    }

    /// The next frame of this member's own chunks, oldest bucket first; encodes it if need be.
    fn next_start(&mut self) -> Option<Outbound> {
        let end = self.first.saturating_add(self.cx.config.window);
        let end = end.min(self.cx.config.buckets.len());
        for &number in &self.cx.config.buckets[self.first.min(end)..end] {
            if self.finished.contains_key(&number) {
                continue;
            }
            let bucket = open(&mut self.buckets, &self.cx, number, &self.delta);
            if bucket.scales.has_starts(&self.cx) {
                return Some(self.start(job_id(number, JobKind::Scales)));
            }
            if !bucket.scales.is_complete() {
                continue;
            }
            if bucket.open_sums(&self.cx, &self.delta).has_starts(&self.cx) {
                return Some(self.start(job_id(number, JobKind::Sums)));
            }
        }
        None
    }

    fn start(&self, job: JobId) -> Outbound {
        Outbound { job, chunk: self.cx.place.starts(), pass: Pass::Reduce }
    }

    fn emit(&mut self, next: Outbound) -> Option<Frame> {
        let bucket = self.buckets.get_mut(&next.job.bucket)?;
        Some(bucket.job_mut(next.job.kind)?.emit(&self.cx, next.chunk, next.pass))
    }

    fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.buckets.get_mut(&id.bucket)?.job_mut(id.kind)
    }

    /// Reports a bucket whose last finished frame has come.
    fn finish_bucket(&mut self, number: u32) {
        let bucket = self.buckets.get_mut(&number);
        let Some(finished) = bucket.and_then(|bucket| bucket.finish(&self.cx)) else {
            return;
        };
        self.finished.insert(number, finished.clone());
        self.events.push_back(RingEvent::JobFinished(finished));
        let buckets = &self.cx.config.buckets;
        while buckets.get(self.first).is_some_and(|bucket| self.finished.contains_key(bucket)) {
            self.first += 1;
        }
        self.drop_if_drained(number);
        self.finish_if_complete();
    }

    fn finish_if_complete(&mut self) {
        if self.first == self.cx.config.buckets.len() {
            self.phase = Phase::Finished;
            let buckets = self.finished.values().cloned().collect();
            let outcome = RingOutcome { buckets, traffic: self.traffic };
            self.events.push_back(RingEvent::Finished(outcome));
        }
    }

    /// The next bucket of a ring of one.
    fn finish_alone(&mut self) {
        let number = self.cx.config.buckets[self.first];
        let bucket = open(&mut self.buckets, &self.cx, number, &self.delta);
        bucket.open_sums(&self.cx, &self.delta);
        self.finish_bucket(number);
    }

    fn drop_if_drained(&mut self, number: u32) {
        if self.buckets.get(&number).is_some_and(Bucket::is_drained) {
            self.buckets.remove(&number);
        }
    }

    fn drop_outbound(&mut self) {
        self.buckets.clear();
        self.gathers.clear();
        self.reduces.clear();
    }

    fn fail(&mut self, peer: Option<NodeId>, reason: Failure) {
        self.phase = Phase::Failed;
        self.drop_outbound();
        self.events.push_back(RingEvent::Failed { peer, reason });
    }
}

/// The bucket in flight, which proposes its scales when it is first needed.
fn open<'a>(
    buckets: &'a mut BTreeMap<u32, Bucket>,
    cx: &Context,
    number: u32,
    delta: &[Vec<f32>],
) -> &'a mut Bucket {
    buckets.entry(number).or_insert_with(|| Bucket::open(cx, number, delta))
}

/// Bytes of a frame on the wire: length of the head, head, payload.
fn wire_bytes(frame: &Frame) -> u64 {
    (2 + codec::encode(&frame.header).len() + frame.payload.len()) as u64
}
