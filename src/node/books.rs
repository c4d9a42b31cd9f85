//! The thread that owns the folded state: it folds, hashes, writes snapshots and checks bodies.
//!
//! Work comes in order and is done in order, so that the state after round k is that of header k.
//! Everything here is heavy (the whole model, or its bytes on the disk) and nothing waits for it
//! but the round after next.

use std::{
    sync::{Arc, mpsc as sync_mpsc},
    thread::JoinHandle,
    time::Instant,
};

use tokio::sync::mpsc;

use super::{
    store::Store,
    training::vectors::{Fragments, Shared},
};
use crate::{
    base::{Digest, NodeId, Round},
    codec::{self, Bits, Body, BucketSpec},
    config::Manifest,
    outer::{Exchange, SnapshotIndex, State},
    wire::Header,
};

/// Work that waits: a sync asks for one fold at a time, a node has one in flight.
const QUEUE: usize = 64;

/// What the thread is asked for.
pub(crate) enum Work {
    /// Fold a committed round whose body is stored. `delta`: the own frozen pseudo-gradient of this
    /// or an earlier round, to find out what is left of it.
    Fold { header: Box<Header>, delta: Option<(Round, Shared)> },
    /// Replace the state by a snapshot whose leaves are stored.
    Install { round: Round },
    /// Check a body against its header; it is stored already.
    Check { header: Box<Header> },
    /// Go back to genesis.
    Reset,
    /// End.
    Stop,
}

/// What came of it.
pub(crate) enum Done {
    /// A round is folded.
    Folded {
        header: Box<Header>,
        anchor: Shared,
        /// What the exchange did not carry of the own pseudo-gradient, if one was handed over.
        residual: Option<Fragments>,
        /// Whether this node's part is in it.
        contributed: bool,
    },
    /// The root after a round.
    Root { round: Round, root: Digest },
    /// A snapshot is the state now.
    Installed { round: Round, root: Digest, anchor: Shared },
    /// A body was checked.
    Checked { header: Box<Header>, valid: Result<(), String> },
    /// A snapshot is on the disk.
    Snapshot { round: Round, bytes: u64, seconds: f64 },
    /// A snapshot could not be written; the run goes on without it.
    SnapshotFailed { round: Round, error: String },
    /// A fold or an installation failed.
    Failed { round: Round, error: String },
}

/// The handle of the thread.
pub(crate) struct Books {
    work: sync_mpsc::SyncSender<Work>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread works with.
pub(crate) struct Setting {
    pub(crate) me: NodeId,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) specs: Arc<[BucketSpec]>,
    pub(crate) store: Store,
}

impl Books {
    /// Starts the thread with a state.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(
        setting: Setting,
        state: State,
    ) -> std::io::Result<(Self, mpsc::Receiver<Done>)> {
        let (work, inbox) = sync_mpsc::sync_channel(QUEUE);
        let (done, outbox) = mpsc::channel(QUEUE);
        let due = Due::new(&state);
        let mut keeper = Keeper { setting, state, due, done };
        let thread = std::thread::Builder::new().name("fold".to_owned()).spawn(move || {
            while let Ok(work) = inbox.recv() {
                if matches!(work, Work::Stop) || keeper.handle(work).is_none() {
                    return;
                }
            }
        })?;
        Ok((Self { work, thread: Some(thread) }, outbox))
    }

    /// Hands work over; false when the thread has ended or is hopelessly behind.
    pub(crate) fn ask(&self, work: Work) -> bool {
        self.work.try_send(work).is_ok()
    }

    /// Waits for the work that is under way.
    pub(crate) fn stop(mut self) {
        let _ = self.work.try_send(Work::Stop);
        if let Some(thread) = self.thread.take() {
            drop(self.work);
            let _ = thread.join();
        }
    }
}

struct Keeper {
    setting: Setting,
    state: State,
    due: Due,
    done: mpsc::Sender<Done>,
}

impl Keeper {
    /// `None` when nobody listens any more.
    fn handle(&mut self, work: Work) -> Option<()> {
        match work {
            Work::Fold { header, delta } => self.fold(header, delta),
            Work::Install { round } => self.install(round),
            Work::Check { header } => {
                let valid = self.checked_body(&header).map(|_| ());
                self.say(Done::Checked { header, valid })
            }
            Work::Reset => {
                self.state = State::genesis(&self.setting.manifest);
                self.due = Due::new(&self.state);
                let (root, anchor) = (self.state.root(), anchor(&self.state));
                self.say(Done::Installed { round: 0, root, anchor })
            }
            Work::Stop => None,
        }
    }

    fn say(&self, done: Done) -> Option<()> {
        self.done.blocking_send(done).ok()
    }

    fn fold(&mut self, header: Box<Header>, delta: Option<(Round, Shared)>) -> Option<()> {
        let round = header.round;
        match self.folded(&header, delta) {
            Ok((residual, contributed)) => {
                let anchor = anchor(&self.state);
                self.say(Done::Folded { header: header.clone(), anchor, residual, contributed })?;
            }
            Err(error) => return self.say(Done::Failed { round, error }),
        }
        let index = SnapshotIndex::of(&self.state);
        self.say(Done::Root { round, root: index.root() })?;
        let every = self.setting.manifest.snapshot.every;
        if self.due.after(round, header.body_bytes, every) {
            self.snapshot(round, &index)?;
        }
        Some(())
    }

    fn folded(
        &mut self,
        header: &Header,
        delta: Option<(Round, Shared)>,
    ) -> Result<(Option<Fragments>, bool), String> {
        let body = self.checked_body(header)?;
        let bits = Bits::try_from(header.bits).map_err(|error| error.to_string())?;
        let omegas = omegas(header);
        let residual = match &delta {
            Some((round, delta)) if *round == header.round => {
                Some(self.setting.residual(header, &body, delta)?)
            }
            // Frozen for an earlier round that went on without it: all of it comes back.
            Some((_, delta)) => Some((delta.to_vec(), false)),
            None => None,
        };
        if header.jobs == 0 {
            self.state.round = header.round;
            self.state.cursor = header.cursor_after();
        } else {
            let exchange = Exchange {
                round: header.round,
                bits,
                omegas: &omegas,
                buckets: &self.setting.specs,
                body: &body,
                outer: self.setting.manifest.outer,
                cursor: header.cursor_after(),
            };
            self.state.fold(&exchange).map_err(|error| error.to_string())?;
        }
        Ok(residual.map_or((None, false), |(residual, own)| (Some(residual), own)))
    }

    /// The stored body of a header, checked against everything that the header says of it.
    fn checked_body(&self, header: &Header) -> Result<Body, String> {
        let bytes = self.setting.store.body(header).map_err(|error| error.to_string())?;
        check_body(&self.setting.specs, header, &bytes)
    }

    fn install(&mut self, round: Round) -> Option<()> {
        match self.installed(round) {
            Ok(root) => {
                let anchor = anchor(&self.state);
                self.say(Done::Installed { round, root, anchor })
            }
            Err(error) => self.say(Done::Failed { round, error }),
        }
    }

    fn installed(&mut self, round: Round) -> Result<Digest, String> {
        let layout = Arc::new(self.setting.manifest.layout());
        self.state = self.setting.store.load_snapshot(layout, round)?;
        self.due = Due::new(&self.state);
        Ok(self.state.root())
    }

    fn snapshot(&mut self, round: Round, index: &SnapshotIndex) -> Option<()> {
        let started = Instant::now();
        match self.setting.store.write_snapshot(round, index, &self.state) {
            Ok(bytes) => {
                let seconds = started.elapsed().as_secs_f64();
                self.say(Done::Snapshot { round, bytes, seconds })
            }
            Err(error) => self.say(Done::SnapshotFailed { round, error: error.to_string() }),
        }
    }
}

/// When a snapshot is due: a function of headers, so that every node writes the same bytes at the
/// same round (DESIGN section 5, joining).
#[derive(Clone, Copy, Debug)]
struct Due {
    state_bytes: u64,
    last: Round,
    deltas: u64,
}

impl Due {
    /// From a state that is genesis or a snapshot.
    fn new(state: &State) -> Self {
        let elements: usize =
            state.fragments.iter().map(|f| f.anchor.len() + f.momentum.len()).sum();
        Self { state_bytes: 4 * elements as u64, last: state.round, deltas: 0 }
    }

    /// Counts a round; whether a snapshot is due after it.
    fn after(&mut self, round: Round, body_bytes: u64, every: u64) -> bool {
        self.deltas = self.deltas.saturating_add(body_bytes);
        let due = self.deltas > self.state_bytes || round >= self.last + every;
        if due {
            (self.last, self.deltas) = (round, 0);
        }
        due
    }
}

/// The anchor of a state, to be shared.
pub(crate) fn anchor(state: &State) -> Shared {
    Arc::new(state.fragments.iter().map(|fragment| fragment.anchor.clone()).collect())
}

fn omegas(header: &Header) -> Vec<u16> {
    header.members.iter().map(|member| member.omega).collect()
}

/// Decodes a body and checks it against its header.
///
/// # Errors
/// What does not fit, as a sentence.
pub(crate) fn check_body(
    specs: &[BucketSpec],
    header: &Header,
    bytes: &[u8],
) -> Result<Body, String> {
    let bits = Bits::try_from(header.bits).map_err(|error| error.to_string())?;
    let members = header.members.len();
    let specs = if header.jobs == 0 { &[] } else { specs };
    let index = crate::wire::blob::BlobIndex::of(bytes).map_err(|error| error.to_string())?;
    if index.digest() != header.body || index.bytes != header.body_bytes {
        return Err(format!("the body of round {} is not the one in its header", header.round));
    }
    let body = Body::from_bytes(bytes, specs, bits, members).map_err(|error| error.to_string())?;
    let leaves = body.leaves(bits, members);
    if leaves.len() != header.jobs as usize
        || codec::merkle::merkle_root(&leaves) != header.jobs_root
    {
        return Err(format!("the jobs of round {} are not those in its header", header.round));
    }
    Ok(body)
}

impl Setting {
    /// What an exchange did not carry of the own pseudo-gradient, and whether it carried anything.
    fn residual(
        &self,
        header: &Header,
        body: &Body,
        delta: &[Vec<f32>],
    ) -> Result<(Fragments, bool), String> {
        let bits = Bits::try_from(header.bits).map_err(|error| error.to_string())?;
        let omegas = omegas(header);
        let mode = self.manifest.compression.error_feedback;
        let position = header.position(self.me);
        let mut residual = delta.to_vec();
        let mut contributed = false;
        for (spec, job) in self.specs.iter().zip(&body.jobs) {
            let Some((job, position)) = job.as_ref().zip(position) else { continue };
            if !job.members.contains(position) {
                continue;
            }
            contributed = true;
            let values = spec.gather(&delta[spec.fragment]);
            let mean = job.mean(bits, &omegas).map_err(|error| error.to_string())?;
            let omega = omegas[position];
            let left =
                codec::feedback(mode, &values, true, omega, &job.codes, bits, mean.as_deref())
                    .map_err(|error| error.to_string())?;
            spec.scatter(&left, &mut residual[spec.fragment]);
        }
        Ok((residual, contributed))
    }

    /// The same for a round that is folded already: after a restart from a snapshot that is as new.
    ///
    /// # Errors
    /// If header or body are not stored any more, or do not fit.
    pub(crate) fn residual_of_folded(
        &self,
        round: Round,
        delta: &[Vec<f32>],
    ) -> Result<Fragments, String> {
        let header = self.store.header(round).ok_or("its header is not stored")?;
        if header.position(self.me).is_none() {
            return Ok(delta.to_vec());
        }
        let bytes = self.store.body(&header).map_err(|error| error.to_string())?;
        let body = check_body(&self.specs, &header, &bytes)?;
        self.residual(&header, &body, delta).map(|(residual, _)| residual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_due_by_rounds_or_by_bytes() {
        let mut due = Due { state_bytes: 100, last: 0, deltas: 0 };
        let rounds: Vec<Round> = (1..=12).filter(|&round| due.after(round, 10, 4)).collect();
        assert_eq!(rounds, [4, 8, 12]);
        let mut due = Due { state_bytes: 100, last: 0, deltas: 0 };
        let rounds: Vec<Round> = (1..=12).filter(|&round| due.after(round, 40, 16)).collect();
        assert_eq!(rounds, [3, 6, 9, 12]);
    }
}
