//! Local training of one simulated node: segments, pseudo-gradients, error feedback (DESIGN
//! sections 4 and 5), and the books that prove that nothing is lost.

use crate::{
    base::{NodeId, Round},
    codec::{Body, JobResult, divisor, feedback, own_contribution, quantise, size_code},
    config::manifest::{ErrorFeedback, Overlap},
    outer::{State, pseudo_gradient},
    proto::node::{Frozen, SegmentStart},
    sim::problem::Problem,
    wire::Header,
};

/// One vector a fragment.
pub(super) type Vectors = Vec<Vec<f32>>;

/// A frozen pseudo-gradient.
#[derive(Clone, Debug)]
pub(super) struct FrozenDelta {
    /// What the machine is told of it.
    pub(super) frozen: Frozen,
    /// delta = S - L + e.
    pub(super) delta: Vectors,
}

/// What survives a crash of the local part: written once a round, atomically.
#[derive(Clone, Debug)]
pub(super) struct Local {
    /// The error buffer; zero while a delta is frozen, which holds it.
    pub(super) error: Vectors,
    /// The frozen pseudo-gradient.
    pub(super) frozen: Option<FrozenDelta>,
    /// The last round whose exchange is in these books.
    pub(super) settled: Round,
    /// Sum of all S - L that were frozen.
    pub(super) produced: Vec<f64>,
    /// Sum of all own contributions that were committed.
    pub(super) applied: Vec<f64>,
    /// Sum of what a rule dropped.
    pub(super) dropped: Vec<f64>,
}

/// The running segment; lost in a crash.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// What was asked for.
    pub(super) start: SegmentStart,
    /// Steps done.
    pub(super) steps: u32,
    /// Sequences done.
    pub(super) sequences: u64,
    from: Vectors,
    parameters: Vectors,
}

/// One node's training.
#[derive(Clone, Debug)]
pub(super) struct Trainer {
    /// The running segment.
    pub(super) running: Option<Running>,
    /// A freeze that was asked for and happens at the next step's end.
    pub(super) freeze: Option<(Round, Option<SegmentStart>)>,
    /// Error buffer, frozen delta and books.
    pub(super) local: Local,
    overlap: Overlap,
    mode: ErrorFeedback,
}

fn zeros_like(state: &State) -> Vectors {
    state.fragments.iter().map(|fragment| vec![0.0; fragment.anchor.len()]).collect()
}

fn anchor(state: &State) -> Vectors {
    state.fragments.iter().map(|fragment| fragment.anchor.clone()).collect()
}

fn add(sum: &mut [f64], values: impl Iterator<Item = f64>) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn norm(vectors: &Vectors) -> f64 {
    vectors.iter().flatten().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

impl Local {
    /// Nothing trained yet.
    pub(super) fn new(state: &State) -> Self {
        let error = zeros_like(state);
        let zeros = vec![0.0; error.iter().map(Vec::len).sum()];
        Self {
            error,
            frozen: None,
            settled: 0,
            produced: zeros.clone(),
            applied: zeros.clone(),
            dropped: zeros,
        }
    }

    /// Takes a frozen delta back whole, because its exchange went on without it.
    fn take_back(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            for (error, delta) in self.error.iter_mut().zip(frozen.delta) {
                error.iter_mut().zip(delta).for_each(|(error, delta)| *error += delta);
            }
        }
    }

    /// Everything that is still to be contributed.
    pub(super) fn pending(&self) -> Vec<f64> {
        let mut sum: Vec<f64> = self.error.iter().flatten().map(|&x| f64::from(x)).collect();
        if let Some(frozen) = &self.frozen {
            add(&mut sum, frozen.delta.iter().flatten().map(|&x| f64::from(x)));
        }
        sum
    }
}

impl Trainer {
    /// Training of a node that holds `local` from before.
    pub(super) fn new(local: Local, overlap: Overlap, mode: ErrorFeedback) -> Self {
        Self { running: None, freeze: None, local, overlap, mode }
    }

    /// Starts a segment from the newest anchor.
    pub(super) fn start(&mut self, start: SegmentStart, state: &State) {
        let anchor = anchor(state);
        self.begin(start, anchor.clone(), anchor);
    }

    fn begin(&mut self, start: SegmentStart, from: Vectors, parameters: Vectors) {
        self.running = Some(Running { start, steps: 0, sequences: 0, from, parameters });
    }

    /// Whether a step may be done now.
    pub(super) fn may_step(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.steps < running.start.max_steps)
    }

    /// One inner step.
    pub(super) fn step(&mut self, problem: &Problem, batch: usize, salt: u64) {
        let Some(running) = self.running.as_mut() else { return };
        let position = match running.start.lease {
            Some((first, length)) if running.sequences < u64::from(length) => {
                first + running.sequences
            }
            _ => salt.wrapping_mul(0x9e37_79b9).wrapping_add(running.sequences),
        };
        problem.step(&mut running.parameters, position, batch);
        running.steps += 1;
        running.sequences += batch as u64;
    }

    /// Between two steps: freezes the running segment and starts the next one. `None` if nothing
    /// was asked for.
    pub(super) fn freeze(&mut self, state: &State) -> Option<Frozen> {
        let (round, next) = self.freeze.take()?;
        let running = self.running.take()?;
        // What a round that was committed meanwhile has left behind goes along.
        self.local.take_back();
        let gradient: Vectors = running
            .from
            .iter()
            .zip(&running.parameters)
            .map(|(from, to)| from.iter().zip(to).map(|(a, b)| a - b).collect())
            .collect();
        let delta: Vectors = (0..gradient.len())
            .map(|i| {
                pseudo_gradient(&running.from[i], &running.parameters[i], &self.local.error[i])
            })
            .collect();
        let size = norm(&delta);
        let ratio = (norm(&self.local.error) / size).powi(2);
        add(&mut self.local.produced, gradient.iter().flatten().map(|&x| f64::from(x)));
        self.local.error.iter_mut().for_each(|error| error.fill(0.0));
        let weight = u32::try_from(running.sequences).unwrap_or(u32::MAX);
        let (size, feedback) = (size_code(size), size_code(ratio));
        let frozen = Frozen { round, weight, size, feedback };
        self.local.frozen = Some(FrozenDelta { frozen, delta });
        if let Some(next) = next {
            self.begin_next(next, running, &gradient, state);
        }
        if state.round >= round {
            self.local.take_back();
        }
        Some(frozen)
    }

    fn begin_next(
        &mut self,
        next: SegmentStart,
        before: Running,
        gradient: &Vectors,
        state: &State,
    ) {
        let anchor = anchor(state);
        if matches!(self.overlap, Overlap::None | Overlap::Delayed) {
            return self.begin(next, anchor.clone(), anchor);
        }
        // `continued`, and what `on_arrival` does until the average is here: A - g.
        let mut from = anchor;
        for (from, gradient) in from.iter_mut().zip(gradient) {
            from.iter_mut().zip(gradient).for_each(|(a, g)| *a -= g);
        }
        drop(before);
        self.begin(next, from.clone(), from);
    }

    /// A round was folded into `state`: keeps what the exchange did not carry, and moves the
    /// running segment (`on_arrival`).
    pub(super) fn folded(
        &mut self,
        me: NodeId,
        header: &Header,
        body: &Body,
        problem: &Problem,
        state: &State,
    ) {
        if header.round > self.local.settled {
            self.keep_books(me, header, body, problem);
            self.local.settled = header.round;
        }
        if self.overlap != Overlap::OnArrival {
            return;
        }
        let Some(running) = self.running.as_mut() else { return };
        for (i, fragment) in state.fragments.iter().enumerate() {
            let pairs = running.from[i].iter_mut().zip(&mut running.parameters[i]);
            for ((from, to), anchor) in pairs.zip(&fragment.anchor) {
                *to += anchor - *from;
                *from = *anchor;
            }
        }
    }

    fn keep_books(&mut self, me: NodeId, header: &Header, body: &Body, problem: &Problem) {
        let Some(frozen) = &self.local.frozen else { return };
        if frozen.frozen.round > header.round {
            return;
        }
        let member = header.position(me).filter(|_| frozen.frozen.round == header.round);
        let (Some(position), false) = (member, body.jobs.is_empty()) else {
            return self.local.take_back();
        };
        let frozen = self.local.frozen.take().expect("seen above");
        let mut offsets = vec![0; frozen.delta.len()];
        for i in 1..offsets.len() {
            offsets[i] = offsets[i - 1] + frozen.delta[i - 1].len();
        }
        let omegas: Vec<u16> = header.members.iter().map(|member| member.omega).collect();
        for (spec, job) in problem.buckets.iter().zip(&body.jobs) {
            let delta = spec.gather(&frozen.delta[spec.fragment]);
            let (left, own) =
                settle_job(self.mode, &delta, job.as_ref(), position, &omegas, problem);
            for (part, range) in spec.part_values() {
                let error = &mut self.local.error[spec.fragment][part.range()];
                error.iter_mut().zip(&left[range.clone()]).for_each(|(e, left)| *e += left);
                let at = offsets[spec.fragment] + part.offset;
                let applied = &mut self.local.applied[at..at + part.elements];
                add(applied, own[range].iter().map(|&x| f64::from(x)));
            }
        }
    }

    /// The state was replaced by that of another branch: what was committed on the old one only is
    /// dropped by rule, and training starts again from the new anchor.
    pub(super) fn switch_branch(&mut self, state: &State) {
        self.local.take_back();
        if let Some(running) = self.running.as_mut() {
            running.from = anchor(state);
            running.parameters = anchor(state);
        }
    }
}

/// A job's new error buffer, and what the node itself has contributed to it.
fn settle_job(
    mode: ErrorFeedback,
    delta: &[f32],
    job: Option<&JobResult>,
    position: usize,
    omegas: &[u16],
    problem: &Problem,
) -> (Vec<f32>, Vec<f32>) {
    let bits = problem.bits;
    let nothing = (delta.to_vec(), vec![0.0; delta.len()]);
    let Some(job) = job.filter(|job| job.members.contains(position)) else { return nothing };
    if divisor(job.members, omegas) == 0 {
        return nothing;
    }
    let mean = job.mean(bits, omegas).expect("a validated body");
    let omega = omegas[position];
    let left = feedback(mode, delta, true, omega, &job.codes, bits, mean.as_deref())
        .expect("finite values");
    let quantised = quantise(delta, omega, &job.codes, bits).expect("finite values");
    (left, own_contribution(&quantised, omega, &job.codes, bits))
}
