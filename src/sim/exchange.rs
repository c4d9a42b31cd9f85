//! The abstract ring: what the members of a plan make together, with real codec and exact sums,
//! but bytes and hops only as time.
//!
//! It ends at every member a moment after all of them run it. When a member dies, is cut off or
//! gives up, the others' rings fail: at once where the link breaks, after the stall time where
//! nothing is heard.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    base::Bitmap,
    codec::{Bits, Body, JobResult, agreed_codes, divisor, merkle::merkle_root, propose, quantise},
    proto::node::RingResult,
    sim::{problem::Problem, trainer::Vectors},
    wire::{MemberSet, Plan, blob::BlobIndex},
};

/// One exchange.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Its plan.
    pub(super) plan: Arc<Plan>,
    /// Members that let frames move, with what they put in.
    pub(super) running: BTreeMap<usize, Vectors>,
    /// Members whose ring is over, well or badly.
    pub(super) over: BTreeSet<usize>,
    /// What the members made, once all of them run.
    pub(super) result: Option<Arc<Outcome>>,
}

/// What an exchange makes, the same at every member.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// The results.
    pub(super) body: Arc<Body>,
    /// What the machine is told.
    pub(super) ring: RingResult,
    /// Payload bits.
    pub(super) bits: Bits,
    /// Members of the plan.
    pub(super) members: usize,
    /// What each member put into each job, by position: for the invariants.
    pub(super) contributions: Vec<Vec<Vec<i32>>>,
}

impl Exchange {
    /// An exchange that nobody runs yet.
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, running: BTreeMap::new(), over: BTreeSet::new(), result: None }
    }
}

/// Carries a whole exchange out, the members' vectors in ring order.
pub(super) fn exchange(plan: &Plan, deltas: &[&Vectors], problem: &Problem) -> Outcome {
    let omegas: Vec<u16> = plan.members.iter().map(|member| member.omega).collect();
    let everybody = Bitmap::full(omegas.len());
    let mut jobs = Vec::new();
    let mut contributions = Vec::new();
    for spec in problem.buckets.iter() {
        let values: Vec<Vec<f32>> =
            deltas.iter().map(|delta| spec.gather(&delta[spec.fragment])).collect();
        let proposals: Vec<_> = values
            .iter()
            .zip(&omegas)
            .map(|(values, &omega)| propose(values, omega, spec).expect("finite values"))
            .collect();
        let merged = proposals.into_iter().reduce(|mut merged, other| {
            merged.merge(&other);
            merged
        });
        let codes = agreed_codes(&merged.expect("a member"), omegas.len(), spec);
        let parts: Vec<Vec<i32>> = values
            .iter()
            .zip(&omegas)
            .map(|(values, &omega)| {
                quantise(values, omega, &codes, problem.bits).expect("finite values")
            })
            .collect();
        let mut sums = vec![0i32; spec.padded()];
        for part in &parts {
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        jobs.push(Some(JobResult::new(everybody, codes, &sums, problem.bits, omegas.len())));
        contributions.push(parts);
    }
    let body = Body { jobs };
    let sets = vec![MemberSet { members: everybody, divisor: divisor(everybody, &omegas) }];
    let ring = ring_result(&body, sets, plan, problem);
    Outcome { body: Arc::new(body), ring, bits: problem.bits, members: omegas.len(), contributions }
}

/// What a plan whose ring is skipped makes: unfinished jobs, or none at all.
pub(super) fn skipped(plan: &Plan, jobs: bool, problem: &Problem) -> Outcome {
    let body = Body::empty(if jobs { problem.buckets.len() } else { 0 });
    let sets = if jobs { vec![MemberSet { members: Bitmap::EMPTY, divisor: 0 }] } else { vec![] };
    let ring = ring_result(&body, sets, plan, problem);
    let members = plan.members.len();
    Outcome { body: Arc::new(body), ring, bits: problem.bits, members, contributions: Vec::new() }
}

fn ring_result(
    body: &Body,
    member_sets: Vec<MemberSet>,
    plan: &Plan,
    problem: &Problem,
) -> RingResult {
    let bytes = body.to_bytes();
    let index = BlobIndex::of(&bytes).expect("a small body");
    RingResult {
        member_sets,
        jobs: body.jobs.len() as u32,
        jobs_root: merkle_root(&body.leaves(problem.bits, plan.members.len())),
        body_bytes: index.bytes,
        body: index.digest(),
    }
}

/// Bytes that each member sends: 2(N-1)/N of the body.
pub(super) fn bytes_each(outcome: &Outcome, members: usize) -> u64 {
    let n = members.max(1) as u64;
    2 * (n - 1) * outcome.ring.body_bytes / n
}
