//! The fold: one committed exchange moves the state on by one round.
//!
//! Bucket by bucket: Delta is the mean of the job's exact sums, and the outer step applies it. A
//! job that is unfinished leaves its elements as they are. Fragments are independent, so they run
//! in parallel, and a stage that holds one fragment folds it alone ([`fold_fragment`]).

use rayon::prelude::*;

use crate::{
    base::Round,
    codec::{Bits, Body, BucketSpec, CodecError, InvalidBody, JobResult, TensorPart},
    config::manifest::OuterConfig,
    outer::{
        FragmentState, State,
        float::{self, WrongFloatMode},
        step::nesterov,
    },
};

/// Everything of a committed round that the fold reads.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The round; one after the state's.
    pub round: Round,
    /// Payload bits of the plan.
    pub bits: Bits,
    /// Omegas of the plan's members, in ring order; as many as the plan has members.
    pub omegas: &'a [u16],
    /// All buckets of the model, one a job.
    pub buckets: &'a [BucketSpec],
    /// The jobs' results.
    pub body: &'a Body,
    /// Outer rate and momentum.
    pub outer: OuterConfig,
    /// The header's lease cursor.
    pub cursor: u64,
}

/// A round cannot be folded; the state is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// Another round is due.
    #[error("round {given} cannot be folded into the state after round {state}")]
    OutOfOrder {
        /// The exchange's round.
        given: Round,
        /// The state's round.
        state: Round,
    },
    /// The body does not fit model and plan.
    #[error(transparent)]
    Body(#[from] InvalidBody),
    /// The buckets are not those of the state's layout.
    #[error("the buckets are not those of this model")]
    Buckets,
    /// A plan without members, with more than an exchange has, or with an impossible omega.
    #[error("the plan's omegas are impossible")]
    Omegas,
    /// This machine would compute other bits.
    #[error(transparent)]
    Float(#[from] WrongFloatMode),
}

impl State {
    /// Applies one exchange. Everything is checked before anything changes.
    ///
    /// # Errors
    /// If it is not the next round's, does not fit model and plan, or the float unit's modes are
    /// not those of everybody.
    pub fn fold(&mut self, exchange: &Exchange<'_>) -> Result<(), FoldError> {
        self.check(exchange)?;
        let jobs: Vec<_> = exchange.buckets.iter().zip(&exchange.body.jobs).collect();
        let by_fragment: Vec<_> = jobs.chunk_by(|a, b| a.0.fragment == b.0.fragment).collect();
        let fragments = self.fragments.par_iter_mut().zip(by_fragment);
        fragments.for_each(|(fragment, jobs)| {
            let jobs = jobs.iter().map(|(spec, job)| (*spec, job.as_ref()));
            fold_fragment(fragment, jobs, exchange).expect("the body was validated");
        });
        self.round = exchange.round;
        self.cursor = exchange.cursor;
        Ok(())
    }

    fn check(&self, exchange: &Exchange<'_>) -> Result<(), FoldError> {
        if Some(exchange.round) != self.round.checked_add(1) {
            return Err(FoldError::OutOfOrder { given: exchange.round, state: self.round });
        }
        let omegas = exchange.omegas;
        let members_fit = (1..=crate::base::limits::MAX_MEMBERS).contains(&omegas.len());
        if !members_fit || omegas.iter().any(|omega| !(1..=256).contains(omega)) {
            return Err(FoldError::Omegas);
        }
        if !self.holds(exchange.buckets) {
            return Err(FoldError::Buckets);
        }
        exchange.body.validate(exchange.buckets, exchange.bits, omegas.len())?;
        Ok(float::check_all()?)
    }

    /// Whether the buckets cover every fragment, in order and completely.
    fn holds(&self, buckets: &[BucketSpec]) -> bool {
        let mut next = (0, 0);
        for spec in buckets {
            let blocks: usize = spec.tensors.iter().map(TensorPart::blocks).sum();
            if spec.tensors.is_empty() || blocks != spec.blocks {
                return false;
            }
            for part in &spec.tensors {
                if next.0 < self.fragments.len() && next.1 == self.fragments[next.0].anchor.len() {
                    next = (next.0 + 1, 0);
                }
                if next != (spec.fragment, part.offset) {
                    return false;
                }
                next.1 += part.elements;
            }
        }
        let last = self.fragments.last().map_or(0, |fragment| fragment.anchor.len());
        next == (self.fragments.len().saturating_sub(1), last)
    }
}

/// Applies a fragment's jobs, each with its bucket; `None` is unfinished and moves nothing.
///
/// The caller has validated the body and checked the float unit ([`float::check_all`]).
///
/// # Errors
/// If a result's sums do not have its codes' length; the jobs before it are applied then.
///
/// # Panics
/// If a bucket reaches beyond the fragment.
pub fn fold_fragment<'a>(
    fragment: &mut FragmentState,
    jobs: impl IntoIterator<Item = (&'a BucketSpec, Option<&'a JobResult>)>,
    exchange: &Exchange<'_>,
) -> Result<(), CodecError> {
    for (spec, job) in jobs {
        let Some(job) = job else { continue };
        if let Some(mean) = job.mean(exchange.bits, exchange.omegas)? {
            apply(fragment, spec, &mean, &exchange.outer);
        }
    }
    Ok(())
}

fn apply(fragment: &mut FragmentState, spec: &BucketSpec, mean: &[f32], outer: &OuterConfig) {
    for (part, values) in spec.part_values() {
        let anchor = &mut fragment.anchor[part.range()];
        let momentum = &mut fragment.momentum[part.range()];
        nesterov(anchor, momentum, &mean[values], outer.learning_rate, outer.momentum);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        base::Bitmap,
        codec::{
            self, BLOCK,
            bucket::buckets_of,
            reference::{layout_of, noise, outer_step},
        },
        config::Layout,
    };

    const BITS: Bits = Bits::B4;
    const OMEGAS: [u16; 3] = [256, 100, 256];
    const OUTER: OuterConfig = OuterConfig { learning_rate: 0.7, momentum: 0.5 };

    fn layout() -> Arc<Layout> {
        Arc::new(layout_of(&[&[100, 64], &[700, 3], &[65]]))
    }

    fn start() -> State {
        let mut state = State::zeros(layout());
        for (index, fragment) in state.fragments.iter_mut().enumerate() {
            fragment.anchor = noise(&format!("anchor {index}"), fragment.anchor.len());
            fragment.momentum = noise(&format!("momentum {index}"), fragment.momentum.len());
        }
        state
    }

    /// What members 0 and 2 of three make of each bucket; job 1 is unfinished.
    fn body(specs: &[BucketSpec], round: Round) -> Body {
        let job = |(number, spec): (usize, &BucketSpec)| {
            let values = |m| noise(&format!("{round} {number} {m}"), spec.padded());
            let mut merged = codec::propose(&values(0), OMEGAS[0], spec).unwrap();
            merged.merge(&codec::propose(&values(2), OMEGAS[2], spec).unwrap());
            let codes = codec::agreed_codes(&merged, 2, spec);
            let mut sums = codec::quantise(&values(0), OMEGAS[0], &codes, BITS).unwrap();
            let other = codec::quantise(&values(2), OMEGAS[2], &codes, BITS).unwrap();
            sums.iter_mut().zip(other).for_each(|(sum, q)| *sum += q);
            let members: Bitmap = [0, 2].into_iter().collect();
            (number != 1).then(|| JobResult::new(members, codes, &sums, BITS, 3))
        };
        Body { jobs: specs.iter().enumerate().map(job).collect() }
    }

    fn exchange<'a>(buckets: &'a [BucketSpec], body: &'a Body, round: Round) -> Exchange<'a> {
        Exchange { round, bits: BITS, omegas: &OMEGAS, buckets, body, outer: OUTER, cursor: 40 }
    }

    #[test]
    fn golden_fold_of_three_rounds() {
        let (mut state, specs) = (start(), buckets_of(&layout(), 4));
        for round in 1..=3 {
            let body = body(&specs, round);
            state.fold(&exchange(&specs, &body, round)).unwrap();
        }
        let golden = "fc004167884fc4c65c35e3bb15673e5cf2381c227f52e3fcc23419d8edb61f9a";
        assert_eq!(state.root().to_string(), golden);
    }

    #[test]
    fn the_fold_is_the_reference_element_by_element() {
        let (before, specs) = (start(), buckets_of(&layout(), 4));
        let (mut state, body) = (before.clone(), body(&specs, 1));
        state.fold(&exchange(&specs, &body, 1)).unwrap();
        assert_eq!((state.round, state.cursor), (1, 40));
        for (spec, job) in specs.iter().zip(&body.jobs) {
            let (old, new) = (&before.fragments[spec.fragment], &state.fragments[spec.fragment]);
            for (part, values) in spec.part_values() {
                for (at, value) in part.range().zip(values) {
                    let wanted = match job {
                        None => (old.anchor[at], old.momentum[at]),
                        Some(job) => {
                            let sum = job.unpacked(BITS, 3).unwrap()[value] as f32;
                            let delta = sum * codec::step(job.codes[value / BLOCK], BITS) / 2.0;
                            outer_step(old.anchor[at], old.momentum[at], delta, 0.7, 0.5)
                        }
                    };
                    assert_eq!((new.anchor[at], new.momentum[at]), wanted);
                }
            }
        }
    }

    #[test]
    fn an_empty_round_moves_the_number_only() {
        let (mut state, specs) = (start(), buckets_of(&layout(), 4));
        let before = state.clone();
        let body = Body::empty(specs.len());
        state.fold(&exchange(&specs, &body, 1)).unwrap();
        assert_eq!(state.fragments, before.fragments);
        assert_eq!(state.round, 1);
        assert_ne!(state.root(), before.root());
    }

    #[test]
    fn how_the_model_is_cut_into_buckets_does_not_matter() {
        let (fine, coarse) = (buckets_of(&layout(), 1), buckets_of(&layout(), 1000));
        let quantised = |specs: &[BucketSpec]| {
            let job = |spec: &BucketSpec| {
                let flat = noise("same", 2000);
                let values = spec.gather(&flat);
                let codes = codec::propose(&values, 256, spec).unwrap().codes;
                let sums = codec::quantise(&values, 256, &codes, BITS).unwrap();
                Some(JobResult::new(Bitmap(1), codes, &sums, BITS, 3))
            };
            Body { jobs: specs.iter().map(job).collect() }
        };
        let fold = |specs: &[BucketSpec]| {
            let (mut state, body) = (start(), quantised(specs));
            state.fold(&exchange(specs, &body, 1)).unwrap();
            state
        };
        assert_eq!(fold(&fine), fold(&coarse));
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let (mut state, specs) = (start(), buckets_of(&layout(), 4));
        let before = state.clone();
        let good = body(&specs, 1);
        let mut bad = good.clone();
        bad.jobs[2].as_mut().unwrap().sums.fill(0xff);
        let other = buckets_of(&layout_of(&[&[100, 64], &[700, 3]]), 4);
        let mut padded = specs.clone();
        padded[0].blocks += 1;
        let refused = [
            state.fold(&exchange(&specs, &good, 2)),
            state.fold(&exchange(&specs, &bad, 1)),
            state.fold(&exchange(&specs[..2], &good, 1)),
            state.fold(&exchange(&other, &good, 1)),
            state.fold(&exchange(&padded, &good, 1)),
            state.fold(&Exchange { omegas: &[], ..exchange(&specs, &good, 1) }),
            state.fold(&Exchange { omegas: &[0, 1, 2], ..exchange(&specs, &good, 1) }),
        ];
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        assert_eq!(refused[0], Err(FoldError::OutOfOrder { given: 2, state: 0 }));
        assert_eq!(state, before);
    }

    #[test]
    fn rayon_threads_do_not_change_the_bits() {
        let specs = buckets_of(&layout(), 4);
        let body = body(&specs, 1);
        let fold = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut state = start();
            pool.install(|| state.fold(&exchange(&specs, &body, 1))).unwrap();
            state.root()
        };
        assert_eq!(fold(1), fold(3));
    }
}
