//! The training thread: steps as long as its segment has any left, and does what it is told
//! between two of them.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvError, TryRecvError},
    },
    time::Instant,
};

use tokio::sync::mpsc;

use super::{
    Command, FreezeReport, Report, Resume, SegmentTotals,
    positions::Positions,
    segment::Parameters,
    vectors::{self, Shared},
};
use crate::{
    base::Round,
    codec::size_code,
    config::manifest::Overlap,
    optim::schedule::{joiner_warmup, learning_rate},
    proto::node::{Frozen, SegmentStart},
    train::{TrainError, Trainer},
};

/// Steps in a row that may fail before the thread gives up: numbers that are not finite come back.
const MAX_FAILURES: u32 = 3;

/// The running segment.
struct Running {
    start: SegmentStart,
    totals: SegmentTotals,
}

/// The thread's state.
pub(super) struct Worker {
    trainer: Trainer,
    parameters: Option<Parameters>,
    positions: Positions,
    running: Option<Running>,
    anchor: Option<Shared>,
    /// Joined in the middle of the run, with moments of zero.
    warming: bool,
    failures: u32,
    skipped: u64,
    reports: mpsc::Sender<Report>,
}

impl Worker {
    pub(super) fn new(
        trainer: Trainer,
        positions: Positions,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        Self {
            trainer,
            parameters: None,
            positions,
            running: None,
            anchor: None,
            warming: false,
            failures: 0,
            skipped: 0,
            reports,
        }
    }

    /// Runs until the handle is gone or says stop.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let turn = if self.has_steps_left() {
                match commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => self.step(),
                    Err(TryRecvError::Disconnected) => return,
                }
            } else {
                let waiting = Instant::now();
                let received = commands.recv();
                self.stalled(waiting);
                match received {
                    Ok(command) => self.obey(command),
                    Err(RecvError) => return,
                }
            };
            match turn {
                Ok(()) => {}
                Err(Failed::Stopped) => return,
                Err(Failed::Train(error)) => {
                    let _ = self.reports.blocking_send(Report::Failed(error));
                    return;
                }
            }
        }
    }

    fn has_steps_left(&self) -> bool {
        self.running.as_ref().is_some_and(|r| r.totals.steps < r.start.max_steps)
    }

    /// Waiting counts as stall while a segment runs, or between two of them.
    fn stalled(&mut self, since: Instant) {
        if let Some(running) = &mut self.running {
            running.totals.stall_seconds += since.elapsed().as_secs_f64();
        }
    }

    fn report(&self, report: Report) -> Result<(), Failed> {
        self.reports.blocking_send(report).map_err(|_| Failed::Stopped)
    }

    fn obey(&mut self, command: Command) -> Result<(), Failed> {
        match command {
            Command::Resume(resume) => self.resume(*resume),
            Command::Start { start, anchor } => self.start(start, anchor),
            Command::Freeze { round, next, anchor } => self.freeze(round, next, anchor),
            Command::Folded { anchor, residual } => self.folded(anchor, residual),
            Command::Restart { anchor, keep_error } => self.restart(anchor, keep_error),
            Command::Validate { round, anchor } => self.validate(round, &anchor),
            Command::Stop => Err(Failed::Stopped),
        }
    }

    fn resume(&mut self, resume: Resume) -> Result<(), Failed> {
        if let Some(moments) = &resume.moments
            && let Err(error) = self.trainer.restore_state(moments)
        {
            tracing::warn!("the optimizer's moments are not usable and start from zero: {error}");
        }
        self.positions.restore(resume.lease);
        let overlap = self.overlap();
        let mut parameters = Parameters::new(overlap, &resume.anchor);
        if let Some(error) = &resume.error {
            parameters.feed_back(error);
        }
        self.trainer.set_parameters(&resume.anchor)?;
        self.parameters = Some(parameters);
        self.warming = resume.joined_late && resume.moments.is_none();
        self.anchor = Some(resume.anchor);
        Ok(())
    }

    fn overlap(&self) -> Overlap {
        self.trainer.manifest().rounds.overlap
    }

    /// Starts a segment where the overlap says: at the newest anchor.
    fn start(&mut self, start: SegmentStart, anchor: Shared) -> Result<(), Failed> {
        self.trainer.set_parameters(&anchor)?;
        match &mut self.parameters {
            Some(parameters) => parameters.start_at(&anchor),
            None => self.parameters = Some(Parameters::new(self.overlap(), &anchor)),
        }
        self.anchor = Some(anchor);
        let waited = self.running.take().map_or(0.0, |old| old.totals.stall_seconds);
        self.begin(start, waited);
        Ok(())
    }

    fn begin(&mut self, start: SegmentStart, waited: f64) {
        if let Some((first, length)) = start.lease {
            self.skipped += self.positions.lease(first, length);
        }
        let totals = SegmentTotals { stall_seconds: waited, ..SegmentTotals::default() };
        self.running = Some(Running { start, totals });
    }

    fn step(&mut self) -> Result<(), Failed> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let manifest = self.trainer.manifest();
        let (inner, rounds) = (&manifest.inner, &manifest.rounds);
        let share = f64::from(running.totals.steps) / f64::from(rounds.local_steps);
        let total = manifest.run.rounds;
        let mut rate = learning_rate(inner, running.start.round, share, rounds.local_steps, total);
        if self.warming {
            rate *= joiner_warmup(self.trainer.steps(), rounds.local_steps);
        }
        let sequences = self.positions.next(inner.batch);
        let step = match self.trainer.step(&sequences, rate) {
            Ok(step) => step,
            Err(error @ TrainError::NotFinite { .. }) => return self.not_finite(error),
            Err(error) => return Err(error.into()),
        };
        self.failures = 0;
        running.totals.add(&step);
        let report = Report::Step {
            round: running.start.round,
            steps: running.totals.steps,
            sequences: running.totals.sequences,
            local_steps: running.start.steps,
            learning_rate: rate,
            step,
        };
        self.report(report)
    }

    /// Loss or gradient is not finite: nothing was changed. Go back to the anchor and try again.
    fn not_finite(&mut self, error: TrainError) -> Result<(), Failed> {
        self.failures += 1;
        if self.failures > MAX_FAILURES {
            return Err(error.into());
        }
        self.report(Report::Unusable(error.to_string()))?;
        self.trainer.reset_moments();
        self.warming = true;
        if let Some(anchor) = self.anchor.clone() {
            self.trainer.set_parameters(&anchor)?;
            if let Some(parameters) = &mut self.parameters {
                parameters.start_at(&anchor);
            }
        }
        Ok(())
    }

    fn freeze(
        &mut self,
        round: Round,
        next: Option<SegmentStart>,
        anchor: Shared,
    ) -> Result<(), Failed> {
        let Some(parameters) = &mut self.parameters else { return Ok(()) };
        let local = self.trainer.parameters()?;
        let totals = self.running.as_ref().map(|r| r.totals.clone()).unwrap_or_default();
        self.anchor = Some(Arc::clone(&anchor));
        let Some(frozen) = parameters.freeze(local, &anchor) else {
            self.trainer.set_parameters(&anchor)?;
            self.trainer.reset_moments();
            self.warming = true;
            if let Some(running) = &mut self.running {
                running.totals = SegmentTotals::default();
            }
            return self.report(Report::Frozen(None));
        };
        if let Some(local) = &frozen.next {
            self.trainer.set_parameters(local)?;
        }
        let weight = totals.sequences.min(self.trainer.manifest().max_weight());
        let delta = Arc::new(frozen.delta);
        let report = FreezeReport {
            frozen: Frozen {
                round,
                weight: u32::try_from(weight).unwrap_or(u32::MAX),
                size: size_code(vectors::squares(&delta).sqrt()),
                feedback: size_code(frozen.feedback_ratio),
            },
            delta,
            moments: self.trainer.state_bytes(),
            lease: self.positions.left(),
            skipped: std::mem::take(&mut self.skipped),
            unleased: self.positions.take_unleased(),
            totals,
        };
        match next {
            Some(start) => self.begin(start, 0.0),
            // What is waited for until the next segment starts is that segment's stall.
            None => self.pause(),
        }
        self.report(Report::Frozen(Some(Box::new(report))))
    }

    fn pause(&mut self) {
        if let Some(running) = &mut self.running {
            running.start.max_steps = 0;
            running.totals = SegmentTotals::default();
        }
    }

    fn folded(&mut self, anchor: Shared, residual: Option<Vec<Vec<f32>>>) -> Result<(), Failed> {
        if let Some(parameters) = &mut self.parameters {
            if let Some(residual) = &residual {
                parameters.feed_back(residual);
            }
            if let Some(shift) = parameters.folded(&anchor) {
                self.trainer.add(&shift)?;
            }
        }
        self.anchor = Some(anchor);
        Ok(())
    }

    /// The state was replaced: go on from its anchor.
    fn restart(&mut self, anchor: Shared, keep_error: bool) -> Result<(), Failed> {
        self.trainer.set_parameters(&anchor)?;
        match &mut self.parameters {
            Some(parameters) => {
                parameters.start_at(&anchor);
                if !keep_error {
                    parameters.drop_error();
                }
            }
            None => self.parameters = Some(Parameters::new(self.overlap(), &anchor)),
        }
        self.anchor = Some(anchor);
        Ok(())
    }

    fn validate(&mut self, round: Round, anchor: &Shared) -> Result<(), Failed> {
        let started = Instant::now();
        let loss = self.trainer.validate(Some(anchor))?;
        let seconds = started.elapsed().as_secs_f64();
        self.report(Report::Validated { round, loss, seconds })
    }
}

enum Failed {
    Stopped,
    Train(TrainError),
}

impl From<TrainError> for Failed {
    fn from(error: TrainError) -> Self {
        Self::Train(error)
    }
}
