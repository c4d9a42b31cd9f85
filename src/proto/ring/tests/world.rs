//! A ring of members in memory, links that keep their order, and a slow readable reference.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    base::{Bitmap, Digest, NodeId, RunId, Stream, Time},
    codec::{
        BLOCK, Bits, BucketSpec, JobResult,
        bucket::buckets_of,
        reference::{self, layout_of, noise},
    },
    identity::Identity,
    proto::ring::{Failure, FinishedBucket, Ring, RingConfig, RingEvent, RingFault, RingOutcome},
    wire::{Frame, Member},
};

pub(super) const RUN: RunId = RunId([9; 32]);
pub(super) const ROUND: u64 = 3;
pub(super) const STALL: Duration = Duration::from_secs(4);
/// Frames that a link holds.
const LINK: usize = 3;

/// What an exchange is about.
#[derive(Clone)]
pub(super) struct Setup {
    /// Who stands where: numbers of nodes in ring order.
    pub(super) order: Vec<usize>,
    pub(super) bits: Bits,
    pub(super) specs: Arc<[BucketSpec]>,
    pub(super) buckets: Vec<u32>,
    pub(super) window: usize,
    pub(super) frame_bytes: usize,
    /// References that were computed, by bucket; shared by clones of other orders only.
    pub(super) cache: Arc<Mutex<BTreeMap<u32, JobResult>>>,
}

impl Setup {
    /// Uneven buckets: of 1 to 8 blocks, one of three tensors, some with padding.
    pub(super) fn new(members: usize) -> Self {
        let layout = layout_of(&[&[100, 64, 70], &[64 * 21 + 5], &[1], &[640, 333]]);
        let specs: Arc<[BucketSpec]> = buckets_of(&layout, 8).into();
        Self {
            order: (0..members).collect(),
            bits: Bits::B4,
            buckets: (0..specs.len() as u32).collect(),
            cache: Arc::default(),
            specs,
            window: 2,
            frame_bytes: 120,
        }
    }

    pub(super) fn identity(node: usize) -> Identity {
        Identity::from_bytes(&[node as u8 + 1; 32])
    }

    pub(super) fn omega(node: usize) -> u16 {
        256 - 31 * node as u16 % 255
    }

    pub(super) fn members(&self) -> Vec<Member> {
        let member = |&node: &usize| {
            let omega = Self::omega(node);
            Member { node: Self::identity(node).node_id(), weight: 10, omega, lease: 0 }
        };
        self.order.iter().map(member).collect()
    }

    /// The pseudo-gradient of a node.
    pub(super) fn delta(&self, node: usize) -> Vec<Vec<f32>> {
        let fragments =
            self.specs.iter().map(|spec| spec.fragment).max().map_or(0, |last| last + 1);
        let len = |fragment| {
            let of = self.specs.iter().filter(move |spec| spec.fragment == fragment);
            of.flat_map(|spec| &spec.tensors).map(|part| part.range().end).max().unwrap_or(0)
        };
        (0..fragments).map(|f| noise(&format!("node {node} fragment {f}"), len(f))).collect()
    }

    pub(super) fn config(&self, position: usize) -> RingConfig {
        let members = self.members();
        RingConfig {
            run: RUN,
            round: ROUND,
            attempt: 1,
            me: members[position].node,
            members,
            bits: self.bits,
            specs: self.specs.clone(),
            buckets: self.buckets.clone(),
            stall: STALL,
            window: self.window,
        }
    }

    pub(super) fn ring(&self, position: usize) -> Ring {
        let node = self.order[position];
        let (config, delta) = (self.config(position), Arc::new(self.delta(node)));
        let identity = Self::identity(node);
        Ring::with_frame_bytes(config, identity, delta, Time::ZERO, self.frame_bytes).unwrap()
    }

    /// Codes and sums of a bucket, computed element by element.
    pub(super) fn reference(&self, bucket: u32) -> JobResult {
        let mut cache = self.cache.lock().unwrap();
        cache.entry(bucket).or_insert_with(|| self.compute_reference(bucket)).clone()
    }

    fn compute_reference(&self, bucket: u32) -> JobResult {
        let spec = &self.specs[bucket as usize];
        let deltas: Vec<Vec<f32>> =
            self.order.iter().map(|&node| spec.gather(&self.delta(node)[spec.fragment])).collect();
        let omegas: Vec<u16> = self.order.iter().map(|&node| Self::omega(node)).collect();
        let own: Vec<Vec<u8>> =
            deltas.iter().zip(&omegas).map(|(values, &omega)| own_codes(values, omega)).collect();
        let codes = capped(spec, &own);
        let sum = |element: usize| -> i32 {
            let code = codes[element / BLOCK];
            let each = deltas.iter().zip(&omegas);
            each.map(|(x, &omega)| reference::quantise(x[element], omega, code, self.bits)).sum()
        };
        let sums: Vec<i32> = (0..spec.padded()).map(sum).collect();
        let count = self.order.len();
        JobResult::new(Bitmap::full(count), codes, &sums, self.bits, count)
    }
}

fn own_codes(values: &[f32], omega: u16) -> Vec<u8> {
    let scaled = |x: &f32| (x * (f32::from(omega) / 256.0)).abs();
    let code = |block: &[f32]| reference::code_for(block.iter().map(scaled).fold(0.0, f32::max));
    values.chunks(BLOCK).map(code).collect()
}

/// The largest code of each block; from three members on at most the second largest of the
/// members' own maxima over the tensor, plus 8.
fn capped(spec: &BucketSpec, own: &[Vec<u8>]) -> Vec<u8> {
    let mut codes: Vec<u8> =
        (0..spec.blocks).map(|block| own.iter().map(|codes| codes[block]).max().unwrap()).collect();
    for (_, blocks) in spec.part_blocks().filter(|_| own.len() > 2) {
        let mut tops: Vec<u8> =
            own.iter().map(|codes| *codes[blocks.clone()].iter().max().unwrap()).collect();
        tops.sort_unstable_by(|a, b| b.cmp(a));
        let cap = tops[1].saturating_add(8);
        codes[blocks].iter_mut().for_each(|code| *code = cap.min(*code));
    }
    codes
}

/// Members and links of one exchange.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) rings: Vec<Ring>,
    /// Link i leads from position i to the next one.
    pub(super) links: Vec<VecDeque<Frame>>,
    pub(super) events: Vec<Vec<RingEvent>>,
    pub(super) faults: Vec<(usize, RingFault)>,
    pub(super) now: Time,
    /// Frames that left a link.
    pub(super) seen: usize,
    /// Hash of all frames, in the order of delivery.
    pub(super) frames: blake3::Hasher,
    /// The most memory that any member used.
    pub(super) memory: usize,
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let count = setup.order.len();
        Self {
            rings: (0..count).map(|position| setup.ring(position)).collect(),
            setup,
            links: vec![VecDeque::new(); count],
            events: vec![Vec::new(); count],
            faults: Vec::new(),
            now: Time::ZERO,
            seen: 0,
            frames: blake3::Hasher::new(),
            memory: 0,
        }
    }

    pub(super) fn node(&self, position: usize) -> NodeId {
        Setup::identity(self.setup.order[position]).node_id()
    }

    fn after(&self, position: usize) -> usize {
        (position + 1) % self.rings.len()
    }

    /// Lets seeded chance choose who sends and which link delivers, until nothing moves.
    pub(super) fn run(&mut self, seed: u64) {
        self.run_with(seed, |_, _| true);
    }

    /// As [`run`](Self::run); `tamper` sees every frame with its number before it is delivered and
    /// says whether it is.
    pub(super) fn run_with(
        &mut self,
        seed: u64,
        mut tamper: impl FnMut(usize, &mut Frame) -> bool,
    ) {
        let mut stream = Stream::new(&Digest::of(&seed.to_le_bytes()), "schedule");
        let count = self.rings.len();
        let mut quiet = vec![false; count];
        loop {
            self.collect();
            let mut moves: Vec<usize> =
                (0..count).filter(|&i| !quiet[i] && self.links[i].len() < LINK).collect();
            let waiting = (0..count).filter(|&i| !self.links[i].is_empty());
            moves.extend(waiting.map(|i| count + i));
            let Some(&chosen) = moves.get(stream.below(moves.len() as u64) as usize) else { break };
            if let Some(link) = chosen.checked_sub(count) {
                let mut frame = self.links[link].pop_front().unwrap();
                let passes = tamper(self.seen, &mut frame);
                self.seen += 1;
                if passes {
                    self.deliver(link, &frame);
                }
                quiet[self.after(link)] = false;
            } else {
                match self.rings[chosen].poll_frame() {
                    Some(frame) => self.links[chosen].push_back(frame),
                    None => quiet[chosen] = true,
                }
            }
        }
    }

    pub(super) fn deliver(&mut self, link: usize, frame: &Frame) {
        self.frames.update(&frame.to_bytes());
        let (to, from) = (self.after(link), self.node(link));
        if let Err(fault) = self.rings[to].handle_frame(self.now, from, frame) {
            self.faults.push((to, fault));
        }
        self.memory = self.memory.max(self.rings[to].memory());
    }

    /// Takes all events.
    pub(super) fn collect(&mut self) {
        for (ring, events) in self.rings.iter_mut().zip(&mut self.events) {
            events.extend(std::iter::from_fn(|| ring.poll_event()));
        }
    }

    /// Lets the stall deadline pass at everybody.
    pub(super) fn stall(&mut self) {
        self.now += STALL;
        for ring in &mut self.rings {
            ring.handle_timeout(self.now);
        }
        self.collect();
    }

    pub(super) fn outcome(&self, position: usize) -> Option<&RingOutcome> {
        self.events[position].iter().find_map(|event| match event {
            RingEvent::Finished(outcome) => Some(outcome),
            _ => None,
        })
    }

    pub(super) fn failure(&self, position: usize) -> Option<(Option<NodeId>, &Failure)> {
        self.events[position].iter().find_map(|event| match event {
            RingEvent::Failed { peer, reason } => Some((*peer, reason)),
            _ => None,
        })
    }

    pub(super) fn finished(&self, position: usize) -> Vec<&FinishedBucket> {
        let mut finished = Vec::new();
        for event in &self.events[position] {
            if let RingEvent::JobFinished(bucket) = event {
                finished.push(bucket.as_ref());
            }
        }
        finished
    }

    /// Every bucket that any member reported finished is the reference's.
    pub(super) fn assert_what_stands_is_right(&self) {
        let all = (0..self.rings.len()).flat_map(|position| self.finished(position));
        for bucket in all {
            assert_eq!(bucket.result, self.setup.reference(bucket.bucket));
        }
    }

    /// Everybody has everything, and it is the reference's.
    pub(super) fn assert_complete(&self) {
        assert_eq!(self.faults, []);
        for (position, ring) in self.rings.iter().enumerate() {
            let outcome = self.outcome(position).expect("finished");
            let numbers: Vec<u32> = outcome.buckets.iter().map(|b| b.bucket).collect();
            assert_eq!(numbers, self.setup.buckets);
            assert!(ring.is_drained() && ring.poll_timeout().is_none() && ring.memory() == 0);
        }
        self.assert_what_stands_is_right();
    }
}
