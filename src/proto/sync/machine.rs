//! The machine: inputs, effects, timers, and what is asked next.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    base::{Digest, NodeId, Round, Time},
    proto::sync::{
        Effect, Fault, FetchFailure, Have, Outcome, RequestId, SyncConfig,
        blob::Part,
        bodies::Bodies,
        chain::Chain,
        donors::{Donor, Donors},
        snapshot::SnapshotJob,
    },
    wire::{Certificate, Head, fetch::Reply},
};

/// Rechecks without a useful reply after which a sync is stuck.
const VAIN_RECHECKS: u32 = 3;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Chain { from: Round },
    Offers,
    SnapshotIndex { round: Round, part: Part },
    Leaf { round: Round, leaf: u32 },
    Body { round: Round, part: Part },
}

impl Item {
    /// Whether the reply is about 1 MiB.
    pub(super) fn bulk(self) -> bool {
        matches!(
            self,
            Self::Leaf { .. }
                | Self::SnapshotIndex { part: Part::Chunk(_), .. }
                | Self::Body { part: Part::Chunk(_), .. }
        )
    }

    fn of_snapshot(self) -> bool {
        matches!(self, Self::SnapshotIndex { .. } | Self::Leaf { .. })
    }
}

/// A request without an answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) node: NodeId,
    pub(super) item: Item,
    pub(super) sent: Time,
    pub(super) deadline: Time,
}

/// How it gets there.
#[derive(Debug)]
pub(super) enum Way {
    Undecided,
    Replay,
    Snapshot(Box<SnapshotJob>),
}

/// What the driver is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Fold(Round),
    Install(Round),
}

/// The folded state, as far as sync knows it.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) round: Round,
    pub(super) root: Option<Digest>,
    /// False once its root has differed from the chain's.
    pub(super) sound: bool,
}

/// How far a sync is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The round of the folded state.
    pub state_round: Round,
    /// The newest header known.
    pub head_round: Round,
    /// The highest round that a donor claims.
    pub claimed_round: Round,
    /// The snapshot that is being fetched: round, leaves stored, leaves in all (0: not known yet).
    pub snapshot: Option<(Round, usize, usize)>,
    /// Bytes still to fetch; an estimate until a snapshot's index is there.
    pub bytes_left: u64,
}

/// The way from what a node has to the network's head. The driver must carry out the effects of
/// [`poll_effect`](Self::poll_effect) in order after each input, and call
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Sync {
    pub(super) config: SyncConfig,
    pub(super) donors: Donors,
    pub(super) chain: Chain,
    pub(super) bodies: Bodies,
    pub(super) state: Standing,
    pub(super) way: Way,
    pub(super) parked: Option<Box<SnapshotJob>>,
    pub(super) work: Option<Work>,
    /// A failed fold or installation: nothing is folded until the next recheck.
    pub(super) paused: Option<String>,
    /// Whether the way should be chosen anew.
    pub(super) dirty: bool,
    pub(super) stuck: Option<String>,
    pub(super) requests: BTreeMap<RequestId, InFlight>,
    pub(super) next_id: RequestId,
    effects: VecDeque<Effect>,
    caught_up: Option<Round>,
    started: Option<Time>,
    /// When a donor appeared or sent something useful.
    pub(super) useful_at: Time,
    now: Time,
    recheck_at: Time,
}

impl Sync {
    /// A sync that starts from what a node has.
    pub fn new(config: SyncConfig, have: Have) -> Self {
        let from = have.state_round;
        let headers: Vec<_> = have.headers.into_iter().skip_while(|h| h.round < from).collect();
        let chain = Chain::new(config.run, config.genesis.clone(), &headers);
        let mut bodies = Bodies::new(have.bodies);
        bodies.forget_to(from);
        let mut sync = Self {
            donors: Donors::new(config.seed, config.limits),
            chain,
            bodies,
            state: Standing { round: from, root: have.state_root, sound: true },
            way: Way::Undecided,
            parked: None,
            work: None,
            paused: None,
            dirty: true,
            stuck: None,
            requests: BTreeMap::new(),
            next_id: 0,
            effects: VecDeque::new(),
            caught_up: None,
            started: None,
            useful_at: Time::ZERO,
            now: Time::ZERO,
            recheck_at: Time::ZERO,
            config,
        };
        if let Some(partial) = have.partial {
            sync.resume(partial);
        }
        sync.check_root();
        sync
    }

    /// A peer tells where it stands: it is a donor from now on.
    pub fn handle_donor(&mut self, now: Time, node: NodeId, head: Head) {
        if self.donors.announce(node, head) {
            self.paused = None;
            self.stuck = None;
            self.useful_at = now;
            self.bodies.refresh_lost(&self.donors);
            self.dirty = true;
        }
        self.advance(now);
    }

    /// A peer is gone.
    pub fn handle_donor_gone(&mut self, now: Time, node: NodeId) {
        self.cancel_where(|request| request.node == node);
        self.donors.remove(node);
        self.bodies.refresh_lost(&self.donors);
        self.dirty = true;
        self.advance(now);
    }

    /// A request is answered or has failed. Ids that are not in flight are ignored.
    pub fn handle_reply(&mut self, now: Time, id: RequestId, result: Result<Reply, FetchFailure>) {
        if let Some(request) = self.requests.remove(&id) {
            self.donors.ended(request.node);
            match result {
                Ok(reply) => self.take_reply(now, request, reply),
                Err(failure) => self.take_failure(now, request, failure),
            }
        }
        self.advance(now);
    }

    /// A committed certificate came by gossip; it is used if it is the next one.
    pub fn handle_certificate(&mut self, now: Time, certificate: &Certificate) {
        if certificate.header.round == self.chain.tip().round + 1
            && self.chain.extend(certificate).is_ok()
        {
            self.extended(certificate.clone());
        }
        self.advance(now);
    }

    /// A fold or an installation that was asked for has ended.
    pub fn handle_replayed(&mut self, now: Time, round: Round, outcome: Outcome) {
        let Some(work) =
            self.work.filter(|&work| work == Work::Fold(round) || work == Work::Install(round))
        else {
            return;
        };
        self.work = None;
        match outcome {
            Outcome::Done(root) => self.stand(work, round, Some(root)),
            Outcome::DoneWithoutRoot => self.stand(work, round, None),
            Outcome::Failed(reason) => self.work_failed(work, reason),
        }
        self.advance(now);
    }

    /// The root of the state after `round` has been computed.
    pub fn handle_root(&mut self, now: Time, round: Round, root: Digest) {
        if round == self.state.round {
            self.state.root = Some(root);
            self.check_root();
        } else if round < self.state.round {
            self.compare(round, root);
        }
        self.advance(now);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Time) {
        let expired: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, request)| request.deadline <= now)
            .map(|(&id, _)| id)
            .collect();
        for id in expired {
            let Some(request) = self.requests.remove(&id) else { continue };
            self.donors.ended(request.node);
            self.effects.push_back(Effect::Cancel { id });
            self.take_failure(now, request, FetchFailure::Timeout);
        }
        if self.recheck_at <= now {
            self.recheck(now);
        }
        self.advance(now);
    }

    /// The next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; None only when it has caught up.
    pub fn poll_timeout(&self) -> Option<Time> {
        let requests = self.requests.values().map(|request| request.deadline);
        let ready = self.donors.next_ready(self.now);
        let recheck = (!self.is_caught_up()).then_some(self.recheck_at);
        requests.chain(ready).chain(recheck).min()
    }

    /// Whether the state stands at the newest header of the usable donors.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up == Some(self.state.round) && self.state.round == self.chain.tip().round
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let (snapshot, leaves_left) = match &self.way {
            Way::Snapshot(job) => {
                let (stored, all) = job.leaves();
                (Some((job.round, stored, all)), job.left_bytes())
            }
            _ => (None, 0),
        };
        Progress {
            state_round: self.state.round,
            head_round: self.chain.tip().round,
            claimed_round: self.donors.iter().map(|(_, d)| d.head.round).max().unwrap_or(0),
            snapshot,
            bytes_left: leaves_left.saturating_add(self.bodies_left(self.base()).unwrap_or(0)),
        }
    }

    /// The round from which bodies are needed: the state's, or the snapshot's on its way.
    pub(super) fn base(&self) -> Round {
        match &self.way {
            Way::Snapshot(job) => job.round,
            _ => self.state.round,
        }
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Drops a liar.
    pub(super) fn blame(&mut self, node: NodeId, fault: Fault) {
        self.cancel_where(|request| request.node == node);
        self.donors.ban(node);
        self.bodies.refresh_lost(&self.donors);
        self.dirty = true;
        self.push(Effect::Blame { node, fault });
    }

    /// Cancels requests; what they were for is asked again.
    pub(super) fn cancel_where(&mut self, cancelled: impl Fn(&InFlight) -> bool) {
        let ids: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, request)| cancelled(request))
            .map(|(&id, _)| id)
            .collect();
        for id in ids {
            let Some(request) = self.requests.remove(&id) else { continue };
            self.donors.ended(request.node);
            self.requeue(request.item);
            self.push(Effect::Cancel { id });
        }
    }

    pub(super) fn cancel_snapshot(&mut self) {
        self.cancel_where(|request| request.item.of_snapshot());
    }

    /// A header has been appended to the chain.
    pub(super) fn extended(&mut self, certificate: Certificate) {
        self.push(Effect::StoreCertificate(Box::new(certificate)));
        self.stuck = None;
        self.dirty = true;
        self.check_root();
    }

    fn stand(&mut self, work: Work, round: Round, root: Option<Digest>) {
        if matches!(work, Work::Install(_)) {
            self.way = Way::Undecided;
            self.state.sound = true;
            self.dirty = true;
        }
        self.drop_parked_to(round);
        (self.state.round, self.state.root) = (round, root);
        self.stuck = None;
        self.chain.forget_below(round);
        self.bodies.forget_to(round);
        self.check_root();
    }

    fn work_failed(&mut self, work: Work, reason: String) {
        if let Work::Install(round) = work {
            self.way = Way::Undecided;
            self.dirty = true;
            self.push(Effect::DropPartial { round });
        }
        self.paused = Some(reason);
    }

    pub(super) fn check_root(&mut self) {
        if let (true, Some(root)) = (self.state.sound, self.state.root) {
            self.compare(self.state.round, root);
        }
    }

    fn compare(&mut self, round: Round, have: Digest) {
        let Some(want) = self.chain.link(round + 1).map(|link| link.root_before) else { return };
        if self.state.sound && want != have {
            self.state.sound = false;
            self.dirty = true;
            self.push(Effect::RootMismatch { round, have, want });
        }
    }

    fn recheck(&mut self, now: Time) {
        self.recheck_at = now + self.config.limits.recheck;
        for donor in self.donors.iter_mut() {
            donor.offers_due = true;
            donor.diverged = false;
        }
        if self.stuck.is_some() {
            self.bodies.forgive();
        }
        self.paused = None;
        self.dirty = true;
    }

    fn advance(&mut self, now: Time) {
        if self.started.is_none() {
            self.started = Some(now);
            self.recheck_at = now + self.config.limits.recheck;
        }
        self.now = now;
        self.fetch_chain(now);
        self.fetch_offers(now);
        self.choose(now);
        self.fetch_snapshot(now);
        self.fetch_bodies(now);
        self.work();
        self.conclude(now);
    }

    fn work(&mut self) {
        if self.work.is_some() || self.paused.is_some() {
            return;
        }
        match &self.way {
            Way::Snapshot(job) if job.complete() => {
                let round = job.round;
                self.work = Some(Work::Install(round));
                self.push(Effect::InstallSnapshot { round });
            }
            Way::Replay if self.state.sound => {
                let round = self.state.round + 1;
                if round <= self.chain.tip().round && self.bodies.has(round) {
                    self.work = Some(Work::Fold(round));
                    self.push(Effect::Fold { round });
                }
            }
            _ => {}
        }
    }

    fn conclude(&mut self, now: Time) {
        if self.work.is_some() {
            return;
        }
        if self.settled(now) {
            let round = self.state.round;
            self.drop_parked_to(Round::MAX);
            if self.caught_up != Some(round) {
                self.caught_up = Some(round);
                self.push(Effect::CaughtUp { round });
            }
            return;
        }
        let hopeful = !self.requests.is_empty() || self.donors.next_ready(now).is_some();
        if hopeful && self.requests_end_well() {
            return;
        }
        let patience = self.config.limits.recheck;
        if self.donors.is_empty() && self.started.is_some_and(|at| now.since(at) < patience) {
            return;
        }
        let reason = self.stuck_reason();
        if self.stuck.as_ref() != Some(&reason) {
            self.stuck = Some(reason.clone());
            self.push(Effect::Stuck { reason });
        }
    }

    /// Whether a useful reply has come lately; false only when peers are asked in vain.
    pub(super) fn requests_end_well(&self) -> bool {
        self.donors.is_empty()
            || self.now.since(self.useful_at) < VAIN_RECHECKS * self.config.limits.recheck
    }

    fn settled(&self, now: Time) -> bool {
        let on_our_branch = |donor: &Donor| !donor.diverged && !self.chain.contradicts(&donor.head);
        self.state.sound
            && self.state.round == self.chain.tip().round
            && self.chain_at_rest(now)
            && self.donors.iter().any(|(_, donor)| donor.ready(now) && on_our_branch(donor))
    }
}
