//! Local training as the driver sees it: a thread that takes commands between two steps.
//!
//! ```text
//!   driver ── Command (bounded) ──► thread: trainer, S, e, positions ── Report (bounded) ──► driver
//! ```
//!
//! Parameters cross the boundary as shared, immutable vectors; nobody but the thread touches the
//! model. Not here: when something happens, which [`crate::proto::node`] decides.

mod positions;
mod segment;
pub(crate) mod vectors;
mod worker;

use std::{
    sync::{Arc, mpsc as sync_mpsc},
    thread::JoinHandle,
};

use tokio::sync::mpsc;
use vectors::{Fragments, Shared};

use crate::{
    base::{NodeId, Round},
    data::Dataset,
    proto::node::{Frozen, SegmentStart},
    train::{StepReport, TrainError, Trainer, TrainerConfig},
};

/// Commands that wait for the thread: it takes one after every step.
const COMMANDS: usize = 64;
/// Reports that wait for the driver; the thread pauses when it is that far behind.
const REPORTS: usize = 256;

/// What the thread is told.
pub(crate) enum Command {
    /// State from before a restart, or of a joiner.
    Resume(Box<Resume>),
    /// Start a segment at the newest anchor.
    Start { start: SegmentStart, anchor: Shared },
    /// Freeze the running segment and start the next.
    Freeze { round: Round, next: Option<SegmentStart>, anchor: Shared },
    /// A round is folded.
    Folded { anchor: Shared, residual: Option<Fragments> },
    /// The state was replaced by another.
    Restart { anchor: Shared, keep_error: bool },
    /// Measure an anchor on held-out text.
    Validate { round: Round, anchor: Shared },
    /// End.
    Stop,
}

/// What a replica goes on from.
pub(crate) struct Resume {
    /// The newest anchor.
    pub(crate) anchor: Shared,
    /// The error buffer.
    pub(crate) error: Option<Fragments>,
    /// The optimizer's moments.
    pub(crate) moments: Option<Vec<u8>>,
    /// What is left of the last lease.
    pub(crate) lease: (u64, u64),
    /// Whether the run had begun when this node came.
    pub(crate) joined_late: bool,
}

/// What the thread says.
pub(crate) enum Report {
    /// A step is done.
    Step {
        round: Round,
        steps: u32,
        sequences: u64,
        local_steps: u32,
        learning_rate: f64,
        step: StepReport,
    },
    /// A segment is frozen; `None`: its pseudo-gradient was not finite.
    Frozen(Option<Box<FreezeReport>>),
    /// An anchor was measured.
    Validated { round: Round, loss: f64, seconds: f64 },
    /// A step was not finite; training went back to the anchor.
    Unusable(String),
    /// Training cannot go on.
    Failed(TrainError),
}

/// A frozen segment.
pub(crate) struct FreezeReport {
    pub(crate) frozen: Frozen,
    pub(crate) delta: Shared,
    pub(crate) moments: Vec<u8>,
    pub(crate) lease: (u64, u64),
    pub(crate) skipped: u64,
    pub(crate) unleased: u64,
    pub(crate) totals: SegmentTotals,
}

/// Sums over a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentTotals {
    pub(crate) steps: u32,
    pub(crate) sequences: u64,
    pub(crate) tokens: u64,
    pub(crate) loss_sum: f64,
    pub(crate) train_seconds: f64,
    pub(crate) stall_seconds: f64,
}

impl SegmentTotals {
    fn add(&mut self, step: &StepReport) {
        self.steps += 1;
        self.sequences += step.sequences;
        self.tokens += step.tokens;
        self.loss_sum += step.loss;
        self.train_seconds += step.seconds;
    }
}

/// Training cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The trainer cannot be made.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The system gives no thread.
    #[error("the training thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// The handle of the training thread.
pub(crate) struct Training {
    commands: sync_mpsc::SyncSender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Training {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the trainer cannot be made or the thread not started.
    pub(crate) fn start(
        config: TrainerConfig,
        dataset: Arc<Dataset>,
        (me, boot): (NodeId, u64),
    ) -> Result<(Self, mpsc::Receiver<Report>), StartError> {
        let seed = config.manifest.run.seed;
        let positions = positions::Positions::new(seed, dataset.sequences(), me, boot);
        let trainer = Trainer::new(config, dataset)?;
        let (commands, inbox) = sync_mpsc::sync_channel(COMMANDS);
        let (reports, outbox) = mpsc::channel(REPORTS);
        let worker = worker::Worker::new(trainer, positions, reports);
        let thread = std::thread::Builder::new()
            .name("training".to_owned())
            .spawn(move || worker.run(&inbox))?;
        Ok((Self { commands, thread: Some(thread) }, outbox))
    }

    /// Hands a command over; false when the thread has ended or is hopelessly behind.
    pub(crate) fn tell(&self, command: Command) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Asks the thread to end and waits for it: at most the step it is in.
    pub(crate) fn stop(mut self) {
        let _ = self.commands.try_send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            drop(self.commands);
            let _ = thread.join();
        }
    }
}
