//! The simulated world: virtual time, peers, links, and the loop that runs them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    base::{Attempt, Bounded, Digest, Round, RunId, Time},
    config::{FoundedManifest, Founding, Manifest},
    identity::Identity,
    proto::{
        deadlines::Deadlines,
        node::{Node, NodeConfig},
    },
    sim::{
        disk::Disk,
        event::{Event, Queue},
        exchange::{Exchange, Outcome},
        invariants::{self, Fact, Invariant},
        network::{Network, millis},
        peer::{Peer, Process},
        problem::Problem,
        report::Counters,
        scenario::Scenario,
        trace::Trace,
        trainer::{Local, Trainer},
    },
    wire::Header,
};

/// Events after which a world is stopped, whatever its clock says: a livelock.
const MAX_EVENTS: u64 = 5_000_000;

/// A world.
pub struct World {
    pub(super) scenario: Scenario,
    pub(super) seed: Digest,
    pub(super) run: RunId,
    pub(super) manifest: Manifest,
    pub(super) genesis: Header,
    pub(super) problem: Problem,
    pub(super) now: Time,
    pub(super) queue: Queue,
    pub(super) peers: Vec<Peer>,
    pub(super) network: Network,
    pub(super) exchanges: BTreeMap<Digest, Exchange>,
    /// The plan whose ring a peer's process has prepared, by round and attempt.
    pub(super) prepared: BTreeMap<(usize, u64, (Round, Attempt)), Digest>,
    pub(super) deadlines: Deadlines,
    /// What skipped rings make, by the digest of their plan.
    pub(super) skipped: BTreeMap<Digest, Arc<Outcome>>,
    pub(super) pending_faults: Vec<usize>,
    /// Faults that will still end: crashed peers that restart, a partition that heals.
    pub(super) last_fault: Time,
    pub(super) best_round: Round,
    pub(super) counters: Counters,
    /// What happened.
    pub trace: Trace,
    invariants: Vec<Box<dyn Invariant>>,
    /// The first invariant that broke.
    pub broken: Option<String>,
}

impl World {
    /// The world of a validated scenario.
    ///
    /// # Errors
    /// If the scenario is impossible.
    pub fn new(scenario: Scenario) -> Result<Self, super::SimError> {
        scenario.validate()?;
        let seed = Digest::of_parts("dilocox/sim/1", [&scenario.seed.to_le_bytes()[..]]);
        let manifest = scenario.manifest()?;
        let founder = identity(seed, 0);
        let founding = Founding {
            manifest: manifest.clone(),
            founder: founder.node_id(),
            created: 0,
            nonce: [0; 16],
            data: Bounded::new(),
        };
        let founded = FoundedManifest::found(founding, &founder);
        let run = founded.run_id();
        let problem = Problem::new(seed, &manifest);
        let network = Network::new(seed, scenario.network.clone());
        let mode = manifest.compression.error_feedback;
        let mut world = Self {
            seed,
            run,
            genesis: Header::genesis(&founded),
            problem,
            now: Time::ZERO,
            queue: Queue::default(),
            peers: Vec::new(),
            network,
            exchanges: BTreeMap::new(),
            prepared: BTreeMap::new(),
            deadlines: Deadlines::default(),
            skipped: BTreeMap::new(),
            pending_faults: Vec::new(),
            last_fault: Time::ZERO,
            best_round: 0,
            counters: Counters::default(),
            trace: Trace::default(),
            invariants: invariants::all(run, mode),
            broken: None,
            manifest,
            scenario,
        };
        world.plant_faults();
        for _ in 0..world.scenario.peers.count {
            world.add_peer();
        }
        for peer in 0..world.peers.len() {
            world.start(peer);
        }
        Ok(world)
    }

    /// Adds a peer with an empty disk, which does not run yet.
    pub(super) fn add_peer(&mut self) -> usize {
        let index = self.peers.len();
        let identity = identity(self.seed, index);
        let [least, most] = self.scenario.peers.step_ms;
        let mut stream = crate::base::Stream::new(&self.seed, &format!("speed {index}"));
        let local = Local::new(&self.problem.genesis(&self.manifest));
        let mut disk = Disk::new(local);
        disk.has_state = index == 0;
        self.peers.push(Peer {
            id: identity.node_id(),
            identity,
            step_ms: least + (most - least) * stream.unit_f64(),
            disk,
            process: None,
            left: false,
            effects: 0,
        });
        index
    }

    /// Starts a peer's process with what its disk holds.
    pub(super) fn start(&mut self, peer: usize) {
        let compression = &self.manifest.compression;
        let (overlap, mode) = (self.manifest.rounds.overlap, compression.error_feedback);
        let this = &mut self.peers[peer];
        this.disk.boot += 1;
        let config = NodeConfig {
            run: self.run,
            boot: this.disk.boot,
            manifest: self.manifest.clone(),
            deadlines: self.deadlines,
            trains: true,
            addresses: Vec::new(),
        };
        let mut node = Node::new(config, this.identity.clone(), self.genesis.clone(), self.now);
        node.remember(this.disk.memory());
        this.process = Some(Process {
            node,
            trainer: Trainer::new(this.disk.local.clone(), overlap, mode),
            state: self.problem.genesis(&self.manifest),
            chain: vec![self.genesis.clone()],
            seen: std::collections::BTreeSet::new(),
            wake_at: None,
            life: 0,
            stepping: false,
            syncing: false,
            discard: false,
            finished: false,
            roots: BTreeMap::new(),
        });
        self.resume(peer);
        self.pump(peer);
    }

    /// Runs until the world is still, its time is over or something broke.
    pub fn run(&mut self) {
        let limit = Time::ZERO + Duration::from_secs_f64(self.scenario.limit_s);
        while let Some((at, event)) = self.queue.pop() {
            if at > limit || self.broken.is_some() || self.is_over() {
                break;
            }
            self.now = at;
            self.counters.events += 1;
            if self.counters.events > MAX_EVENTS {
                self.broke("the world is still", "it goes on without end");
            }
            self.happen(event);
        }
    }

    /// Whether every peer has left or finished, and no fault is to come.
    fn is_over(&self) -> bool {
        let done = |peer: &Peer| peer.left || peer.process.as_ref().is_none_or(|p| p.finished);
        self.pending_faults.is_empty() && self.now >= self.last_fault && self.peers.iter().all(done)
    }

    fn happen(&mut self, event: Event) {
        self.trace.event(self.now, &event);
        match event {
            Event::Wake { peer, boot } => self.wake(peer, boot),
            Event::Step { peer, boot, life } => self.step(peer, boot, life),
            Event::Deliver { from, to, envelope, gossip } => {
                self.deliver(from, to, envelope, gossip);
            }
            Event::Linked { peer, boot, round, attempt, open } => {
                self.linked(peer, boot, (round, attempt), open);
            }
            Event::RingDone { peer, boot, plan } => self.ring_done(peer, boot, plan),
            Event::RingLost { peer, boot, plan, blame } => {
                self.ring_lost(peer, boot, plan, blame);
            }
            Event::Skipped { peer, boot, round, attempt, plan } => {
                self.ring_skipped(peer, boot, (round, attempt), plan);
            }
            Event::FetchBody { peer, boot, header } => self.fetch_body(peer, boot, header),
            Event::BodyHere { peer, boot, header, from } => {
                self.body_here(peer, boot, header, from);
            }
            Event::Folded { peer, boot, header } => self.folded(peer, boot, &header),
            Event::Rooted { peer, boot, round } => self.rooted(peer, boot, round),
            Event::SyncTry { peer, boot, tries } => self.sync_try(peer, boot, tries),
            Event::SyncDone { peer, boot, from } => self.sync_done(peer, boot, from),
            Event::LinkLost { peer, boot, gone } => self.link_lost(peer, boot, gone),
            Event::Fault { index } => self.fault(index),
            Event::Restart { peer } => self.restart(peer),
            Event::Churn => self.churn(),
        }
    }

    fn wake(&mut self, peer: usize, boot: u64) {
        let now = self.now;
        let Some(process) = self.peers[peer].alive(boot) else { return };
        if process.wake_at != Some(now) {
            return;
        }
        process.wake_at = None;
        process.node.handle_timeout(now);
        self.pump(peer);
    }

    /// Sets the peer's next wake-up, after its effects are carried out.
    pub(super) fn rearm(&mut self, peer: usize) {
        let boot = self.peers[peer].disk.boot;
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        let Some(due) = process.node.poll_timeout() else { return };
        let due = due.max(self.now);
        if process.wake_at.is_none_or(|at| at > due) {
            process.wake_at = Some(due);
            self.queue.push(due, Event::Wake { peer, boot });
        }
    }

    /// Shows a fact to all invariants.
    pub(super) fn see(&mut self, fact: &Fact<'_>) {
        let mut broken = None;
        for invariant in &mut self.invariants {
            if let Err(why) = invariant.see(fact) {
                broken = Some((invariant.name(), why));
            }
        }
        if let Some((name, why)) = broken {
            self.broke(name, &why);
        }
    }

    /// Shows a peer to all invariants.
    pub(super) fn check(&mut self, peer: usize) {
        let mut broken = None;
        for invariant in &mut self.invariants {
            if let Err(why) = invariant.check(&self.peers[peer]) {
                broken = Some((invariant.name(), why));
            }
        }
        if let Some((name, why)) = broken {
            self.broke(name, &why);
        }
    }

    /// Shows a peer's training to all invariants.
    pub(super) fn check_books(&mut self, peer: usize) {
        let this = &self.peers[peer];
        let Some(process) = &this.process else { return };
        let mut broken = None;
        for invariant in &mut self.invariants {
            if let Err(why) = invariant.books(this.id, &process.trainer) {
                broken = Some((invariant.name(), why));
            }
        }
        if let Some((name, why)) = broken {
            self.broke(name, &why);
        }
    }

    pub(super) fn broke(&mut self, name: &str, why: &str) {
        if self.broken.is_none() {
            self.broken = Some(format!("at {}: {name}: {why}", self.now));
        }
    }

    /// The number of a node.
    pub(super) fn index_of(&self, node: crate::base::NodeId) -> Option<usize> {
        self.peers.iter().position(|peer| peer.id == node)
    }

    /// Whether a peer runs.
    pub(super) fn is_up(&self, peer: usize) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.process.is_some())
    }

    /// Whether bytes pass between two running peers.
    pub(super) fn reach(&self, a: usize, b: usize) -> bool {
        self.is_up(a) && self.is_up(b) && self.network.connected(a, b)
    }

    /// A short while: what a local action takes.
    pub(super) fn moment(&self) -> Time {
        self.now + millis(1.0)
    }
}

/// The key of peer `index` in the world of `seed`.
fn identity(seed: Digest, index: usize) -> Identity {
    let secret = Digest::of_parts("dilocox/sim/key/1", [&seed.0[..], &index.to_le_bytes()]);
    Identity::from_bytes(&secret.0)
}
