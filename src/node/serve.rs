//! Answering peers: runs, manifests, certificates, snapshots, bodies, data files.
//!
//! Each reply is made in a blocking task of its own, a bounded number at a time; who comes beyond
//! that is told to try another peer first.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::{
    base::{Bounded, NodeId, RunId},
    checkpoint::store,
    config::FoundedManifest,
    net::{Net, ResponseChannel},
    wire::{
        Head, Header, VERSION,
        fetch::{Reply, Request, RunSummary},
    },
};

/// Replies that are being made: each holds a megabyte at most.
const REPLIES: usize = 32;

/// What is served of one run.
struct Entry {
    summary: RunSummary,
    store: store::Server,
}

#[derive(Default)]
struct Shelf {
    runs: Mutex<BTreeMap<RunId, Entry>>,
}

impl Shelf {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, Entry>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers requests; cheap to clone.
#[derive(Clone)]
pub(crate) struct Server {
    shelf: Arc<Shelf>,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Server {
    /// A server of no run yet.
    pub(crate) fn new() -> Self {
        Self {
            shelf: Arc::default(),
            places: Arc::new(Semaphore::new(REPLIES)),
            tasks: TaskTracker::new(),
        }
    }

    /// Serves a run from now on; what is told of its standing goes through the handle.
    pub(crate) fn add(&self, founded: &FoundedManifest, store: store::Server) -> Served {
        let run = founded.run_id();
        let manifest = &founded.founding.manifest;
        let genesis = Header::genesis(founded);
        let name: Vec<u8> = manifest.run.name.bytes().collect();
        let summary = RunSummary {
            run,
            name: Bounded::try_from(name).unwrap_or_default(),
            parameters: manifest.layout().elements() as u64,
            head: Head { round: 0, digest: genesis.digest(), weight: 0 },
            rounds: manifest.run.rounds,
            members: 1,
            loss: None,
        };
        self.shelf.runs().insert(run, Entry { summary, store });
        Served { shelf: Arc::clone(&self.shelf), run }
    }

    /// Answers one request in a task of its own.
    pub(crate) fn serve(&self, net: &Net, from: NodeId, bytes: Vec<u8>, channel: ResponseChannel) {
        let (net, server) = (net.clone(), self.clone());
        let place = Arc::clone(&self.places).try_acquire_owned();
        self.tasks.spawn(async move {
            let reply = match place {
                Err(_) => Reply::Busy.to_bytes(),
                Ok(place) => {
                    let made = tokio::task::spawn_blocking(move || server.reply(from, &bytes));
                    let reply = made.await.unwrap_or_else(|_| Reply::Busy.to_bytes());
                    drop(place);
                    reply
                }
            };
            if let Err(error) = net.respond(channel, reply).await {
                tracing::debug!("a reply did not reach {}: {error}", from.short());
            }
        });
    }

    fn reply(&self, from: NodeId, bytes: &[u8]) -> Vec<u8> {
        match Request::from_bytes(bytes) {
            Ok(Ok(request)) => self.answer(&request),
            Ok(Err(theirs)) => {
                tracing::debug!("{} speaks wire version {theirs}", from.short());
                Reply::Version(VERSION).to_bytes()
            }
            Err(error) => {
                tracing::debug!("{} sent a malformed request: {error}", from.short());
                Reply::NotFound.to_bytes()
            }
        }
    }

    fn answer(&self, request: &Request) -> Vec<u8> {
        let run = match request {
            Request::Runs => return self.summaries().to_bytes(),
            Request::Manifest(run) | Request::Snapshots(run) => Some(*run),
            Request::Chain { run, .. } | Request::SnapshotLeaf { run, .. } => Some(*run),
            Request::BlobIndex(_) | Request::BlobChunk { .. } => None,
        };
        let stores: Vec<store::Server> = {
            let runs = self.shelf.runs();
            let chosen = runs.iter().filter(|(id, _)| run.is_none_or(|run| run == **id));
            chosen.map(|(_, entry)| entry.store.clone()).collect()
        };
        for store in stores {
            let reply = store.reply(request);
            if reply != Reply::NotFound {
                return reply.to_bytes();
            }
        }
        Reply::NotFound.to_bytes()
    }

    fn summaries(&self) -> Reply {
        let runs: Vec<RunSummary> =
            self.shelf.runs().values().map(|entry| entry.summary.clone()).collect();
        Reply::Runs(Bounded::try_from(runs).unwrap_or_default())
    }
}

/// The standing of one served run.
#[derive(Clone)]
pub(crate) struct Served {
    shelf: Arc<Shelf>,
    run: RunId,
}

impl Served {
    fn change(&self, change: impl FnOnce(&mut RunSummary)) {
        if let Some(entry) = self.shelf.runs().get_mut(&self.run) {
            change(&mut entry.summary);
        }
    }

    /// A newer header is committed.
    pub(crate) fn set_head(&self, header: &Header) {
        let digest = header.digest();
        self.change(|summary| {
            if summary.head.round < header.round {
                summary.head = Head { round: header.round, digest, weight: header.weight };
                summary.members = u16::try_from(header.members.len()).unwrap_or(u16::MAX);
            }
        });
    }

    /// Somebody says that the run stands further: what a bootstrap peer without an archive knows.
    pub(crate) fn heard(&self, head: Head, members: usize) {
        self.change(|summary| {
            if summary.head.round < head.round {
                summary.head = head;
            }
            summary.members = u16::try_from(members).unwrap_or(u16::MAX);
        });
    }

    /// The validation loss that was measured last.
    pub(crate) fn set_loss(&self, loss: f32) {
        self.change(|summary| summary.loss = Some(loss));
    }
}
