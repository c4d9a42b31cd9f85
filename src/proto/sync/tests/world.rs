//! A joiner and its donors on virtual time. The joiner's disk checks everything that sync asks it
//! to do; donors behave or misbehave.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::network::{self, Network, RUN, fold, index_bytes, initial, leaves, root};
use crate::{
    base::{Bounded, Digest, NodeId, Round, Time, limits::BLOB_CHUNK_BYTES},
    proto::sync::{
        Effect, FetchFailure, Have, Outcome, PartialSnapshot, RequestId, Sync, SyncConfig,
        SyncLimits,
    },
    wire::{
        Certificate, Head, Header,
        blob::BlobIndex,
        fetch::{Reply, Request, SnapshotOffer},
    },
};

pub(super) fn node(i: u8) -> NodeId {
    NodeId([i; 32])
}

/// How a donor lies. What it does not lie about, it does honestly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    None,
    /// Flips a bit in every leaf or chunk.
    Bytes,
    /// Sends the index of something else.
    Index,
    /// Offers a snapshot of a state that never was.
    Snapshot,
    /// Certificates with too few signatures.
    NoQuorum,
    /// A chain signed by its own keys.
    Forged,
    /// Says that it is a thousand rounds ahead.
    Ahead,
    /// Sends bytes that cannot be decoded.
    Malformed,
    /// Replies of another kind.
    OtherKind,
    /// Never has anything.
    Empty,
    /// Never answers.
    Silent,
    /// Always busy.
    Busy,
}

pub(super) struct Donor {
    pub(super) head: Round,
    /// The oldest body it holds.
    pub(super) oldest: Round,
    pub(super) snapshots: Vec<Round>,
    pub(super) lie: Lie,
    /// It dies instead of giving this reply.
    pub(super) dies_at: Option<usize>,
    pub(super) latency: Duration,
    pub(super) per_mib: Duration,
    replies: usize,
}

impl Donor {
    pub(super) fn honest(head: Round, oldest: Round, snapshots: &[Round]) -> Self {
        Self {
            head,
            oldest,
            snapshots: snapshots.to_vec(),
            lie: Lie::None,
            dies_at: None,
            latency: Duration::from_millis(50),
            per_mib: Duration::from_millis(100),
            replies: 0,
        }
    }

    pub(super) fn liar(lie: Lie, head: Round, oldest: Round, snapshots: &[Round]) -> Self {
        Self { lie, ..Self::honest(head, oldest, snapshots) }
    }

    pub(super) fn dying(mut self, at: usize) -> Self {
        self.dies_at = Some(at);
        self
    }

    pub(super) fn slow(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }
}

enum Event {
    Reply(RequestId, Result<Reply, FetchFailure>),
    Dies(NodeId),
    Worked(Round, Outcome),
}

/// What the joiner has on disk.
#[derive(Default)]
pub(super) struct JoinerDisk {
    pub(super) headers: Vec<Header>,
    pub(super) bodies: BTreeMap<Round, Vec<u8>>,
    pub(super) index: BTreeMap<Round, Vec<u8>>,
    pub(super) leaves: BTreeMap<Round, BTreeMap<u32, Vec<u8>>>,
    pub(super) state: Vec<u8>,
    pub(super) state_round: Round,
}

pub(super) struct World {
    pub(super) network: Network,
    pub(super) donors: BTreeMap<NodeId, Donor>,
    pub(super) sync: Sync,
    pub(super) now: Time,
    pub(super) disk: JoinerDisk,
    /// Everything that happened, in words.
    pub(super) log: Vec<String>,
    pub(super) requests: Vec<(NodeId, Request)>,
    pub(super) blamed: BTreeSet<NodeId>,
    pub(super) diverged: BTreeSet<NodeId>,
    pub(super) stuck: Vec<String>,
    pub(super) mismatches: Vec<Round>,
    pub(super) caught_up: Option<Round>,
    /// The next folds give a wrong state.
    pub(super) bad_folds: usize,
    /// The next installations fail.
    pub(super) bad_installs: usize,
    in_flight: BTreeMap<RequestId, NodeId>,
    events: BTreeMap<(Time, u64), Event>,
    sequence: u64,
}

pub(super) fn config(genesis: &Header) -> SyncConfig {
    let limits = SyncLimits {
        recheck: Duration::from_secs(20),
        max_snapshot_bytes: 100_000,
        ..SyncLimits::for_elements(10_000)
    };
    SyncConfig {
        run: RUN,
        genesis: genesis.clone(),
        seed: Digest([9; 32]),
        state_bytes: (network::LEAF * network::LEAVES) as u64,
        index: network::reader(),
        limits,
    }
}

impl World {
    pub(super) fn new(network: Network) -> Self {
        let disk = JoinerDisk {
            headers: vec![network.genesis.clone()],
            state: initial(),
            ..JoinerDisk::default()
        };
        Self::resumed(network, disk)
    }

    /// A joiner that starts from what an earlier one has left on disk.
    pub(super) fn resumed(network: Network, disk: JoinerDisk) -> Self {
        let partial = disk.index.iter().next_back().map(|(&round, index)| PartialSnapshot {
            round,
            index: index.clone(),
            leaves: disk
                .leaves
                .get(&round)
                .map_or(BTreeSet::new(), |l| l.keys().copied().collect()),
        });
        let have = Have {
            headers: disk.headers.clone(),
            state_round: disk.state_round,
            state_root: Some(root(disk.state_round, &disk.state)),
            partial,
            bodies: disk.bodies.keys().copied().collect(),
        };
        let sync = Sync::new(config(&network.genesis), have);
        Self {
            network,
            donors: BTreeMap::new(),
            sync,
            now: Time::ZERO,
            disk,
            log: Vec::new(),
            requests: Vec::new(),
            blamed: BTreeSet::new(),
            diverged: BTreeSet::new(),
            stuck: Vec::new(),
            mismatches: Vec::new(),
            caught_up: None,
            bad_folds: 0,
            bad_installs: 0,
            in_flight: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
        }
    }

    pub(super) fn add(&mut self, i: u8, donor: Donor) {
        self.donors.insert(node(i), donor);
        self.announce(i);
    }

    pub(super) fn announce(&mut self, i: u8) {
        let Some(donor) = self.donors.get(&node(i)) else { return };
        let header = self.network.header(donor.head);
        let mut head = Head { round: header.round, digest: header.digest(), weight: header.weight };
        if matches!(donor.lie, Lie::Ahead | Lie::Forged) {
            head = Head { round: head.round + 1000, digest: Digest([3; 32]), weight: u64::MAX };
        }
        self.sync.handle_donor(self.now, node(i), head);
        self.carry_out();
    }

    pub(super) fn remove(&mut self, i: u8) {
        self.dies(node(i));
        self.carry_out();
    }

    fn dies(&mut self, donor: NodeId) {
        self.donors.remove(&donor);
        self.sync.handle_donor_gone(self.now, donor);
    }

    fn at(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + delay, self.sequence), event);
    }

    /// Runs until it has caught up with `round`, or for `limit`; true in the first case.
    pub(super) fn run_to(&mut self, round: Round, limit: Duration) -> bool {
        let end = self.now + limit;
        for step in 0.. {
            assert!(step < 200_000, "no end: {:?}", self.log.last());
            if self.caught_up == Some(round) && self.sync.is_caught_up() {
                assert_eq!(self.disk.state, self.network.states[round as usize]);
                assert_eq!(self.disk.state_round, round);
                return true;
            }
            if !self.step(end) {
                return false;
            }
        }
        false
    }

    /// The next event or timeout; false if there is none before `end`.
    pub(super) fn step(&mut self, end: Time) -> bool {
        let event = self.events.keys().next().copied();
        let timeout = self.sync.poll_timeout();
        assert!(
            timeout.is_some() || self.sync.is_caught_up(),
            "it waits without a timer: {:?}",
            self.sync
        );
        let first = event.map(|(at, _)| at).into_iter().chain(timeout).min();
        let Some(at) = first.filter(|&at| at <= end) else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(at);
        match event.filter(|&(of, _)| of == at) {
            Some(key) => self.happen(key),
            None => self.sync.handle_timeout(self.now),
        }
        self.carry_out();
        true
    }

    fn happen(&mut self, key: (Time, u64)) {
        match self.events.remove(&key) {
            Some(Event::Reply(id, result)) => {
                self.in_flight.remove(&id);
                self.sync.handle_reply(self.now, id, result);
            }
            Some(Event::Dies(donor)) => self.dies(donor),
            Some(Event::Worked(round, outcome)) => {
                self.sync.handle_replayed(self.now, round, outcome);
            }
            None => {}
        }
    }

    pub(super) fn carry_out(&mut self) {
        let mut effects = VecDeque::new();
        while let Some(effect) = self.sync.poll_effect() {
            effects.push_back(effect);
        }
        assert!(effects.len() < 1000, "{} effects at once", effects.len());
        for effect in effects {
            self.effect(effect);
        }
        let mut load: BTreeMap<NodeId, usize> = BTreeMap::new();
        self.in_flight.values().for_each(|&node| *load.entry(node).or_default() += 1);
        assert!(load.values().all(|&requests| requests <= 4), "{load:?}");
    }

    fn effect(&mut self, effect: Effect) {
        let text: String = format!("{effect:?}").chars().take(90).collect();
        self.log.push(format!("{} {text}", self.now));
        match effect {
            Effect::Fetch { id, node, request, .. } => self.fetch(id, node, request),
            Effect::Cancel { id } => drop(self.in_flight.remove(&id)),
            Effect::StoreCertificate(certificate) => self.store_certificate(*certificate),
            Effect::StoreIndex { round, bytes } => {
                assert_eq!(bytes, index_bytes(round, &self.network.states[round as usize]));
                self.disk.index.insert(round, bytes);
            }
            Effect::StoreLeaf { round, leaf, bytes } => {
                let wanted = &leaves(&self.network.states[round as usize])[leaf as usize];
                assert_eq!(&bytes, wanted);
                let old = self.disk.leaves.entry(round).or_default().insert(leaf, bytes);
                assert_eq!(old, None, "leaf {leaf} is stored twice");
            }
            Effect::StoreBody { round, bytes } => {
                assert_eq!(bytes, self.network.bodies[round as usize - 1]);
                assert_eq!(self.disk.bodies.insert(round, bytes), None, "body {round} twice");
            }
            Effect::DropPartial { round } => {
                self.disk.index.remove(&round);
                self.disk.leaves.remove(&round);
            }
            Effect::InstallSnapshot { round } => self.install(round),
            Effect::Fold { round } => self.fold(round),
            Effect::CaughtUp { round } => {
                assert_eq!(round, self.disk.state_round);
                self.caught_up = Some(round);
            }
            Effect::Stuck { reason } => self.stuck.push(reason),
            Effect::RootMismatch { round, .. } => self.mismatches.push(round),
            Effect::Blame { node, .. } => drop(self.blamed.insert(node)),
            Effect::Diverged { node, .. } => drop(self.diverged.insert(node)),
        }
    }

    fn store_certificate(&mut self, certificate: Certificate) {
        let header = certificate.header;
        assert_eq!(&header, self.network.header(header.round));
        assert_eq!(header.round, self.disk.headers.last().unwrap().round + 1);
        self.disk.headers.push(header);
    }

    fn install(&mut self, round: Round) {
        let delay = Duration::from_millis(5);
        if self.bad_installs > 0 {
            self.bad_installs -= 1;
            return self.at(delay, Event::Worked(round, Outcome::Failed("a bad disk".to_owned())));
        }
        let stored = &self.disk.leaves[&round];
        assert_eq!(stored.len(), network::LEAVES);
        self.disk.state = stored.values().flatten().copied().collect();
        self.disk.state_round = round;
        self.disk.index.clear();
        self.disk.leaves.clear();
        self.at(delay, Event::Worked(round, Outcome::Done(root(round, &self.disk.state))));
    }

    fn fold(&mut self, round: Round) {
        assert_eq!(round, self.disk.state_round + 1, "folds come in order");
        assert!(self.disk.headers.last().unwrap().round >= round);
        self.disk.state = fold(&self.disk.state, &self.disk.bodies[&round]);
        if self.bad_folds > 0 {
            self.bad_folds -= 1;
            self.disk.state[0] ^= 1;
        }
        self.disk.state_round = round;
        let outcome = Outcome::Done(root(round, &self.disk.state));
        self.at(Duration::from_millis(2), Event::Worked(round, outcome));
    }

    fn fetch(&mut self, id: RequestId, to: NodeId, request: Request) {
        self.requests.push((to, request.clone()));
        self.in_flight.insert(id, to);
        let Some(donor) = self.donors.get_mut(&to) else {
            let gone = Event::Reply(id, Err(FetchFailure::Gone));
            return self.at(Duration::from_millis(1), gone);
        };
        if donor.lie == Lie::Silent {
            return;
        }
        if donor.dies_at == Some(donor.replies) {
            let latency = donor.latency;
            return self.at(latency, Event::Dies(to));
        }
        donor.replies += 1;
        let donor = &self.donors[&to];
        let result = answer(&self.network, donor, &request);
        let bytes = match &result {
            Ok(Reply::Bytes(bytes)) => bytes.len(),
            _ => 0,
        };
        let share = bytes as f64 / BLOB_CHUNK_BYTES as f64;
        let delay = donor.latency + donor.per_mib.mul_f64(share);
        self.at(delay, Event::Reply(id, result));
    }

    /// Requests that `wanted` holds for.
    pub(super) fn asked(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.requests.iter().filter(|(_, request)| wanted(request)).count()
    }

    pub(super) fn leaf_requests(&self) -> usize {
        self.asked(|request| matches!(request, Request::SnapshotLeaf { .. }))
    }
}

fn answer(network: &Network, donor: &Donor, request: &Request) -> Result<Reply, FetchFailure> {
    match donor.lie {
        Lie::Malformed => return Err(FetchFailure::Malformed("noise".to_owned())),
        Lie::OtherKind => return Ok(Reply::Runs(Bounded::new())),
        Lie::Empty => return Ok(Reply::NotFound),
        Lie::Busy => return Ok(Reply::Busy),
        _ => {}
    }
    Ok(match request {
        Request::Chain { from, .. } => chain(network, donor, *from),
        Request::Snapshots(_) => {
            let offers: Vec<SnapshotOffer> = donor
                .snapshots
                .iter()
                .map(|&round| SnapshotOffer { round, index: offered(network, donor, round) })
                .collect();
            Reply::Snapshots(offers.try_into().unwrap())
        }
        Request::SnapshotLeaf { round, leaf, .. } if donor.snapshots.contains(round) => {
            let leaves = leaves(&network.states[*round as usize]);
            leaves.get(*leaf as usize).map_or(Reply::NotFound, |leaf| bytes(donor, leaf))
        }
        Request::BlobIndex(digest) => match blob(network, donor, *digest) {
            Some(_) if donor.lie == Lie::Index => Reply::BlobIndex(BlobIndex::of(b"else").unwrap()),
            Some(blob) => Reply::BlobIndex(BlobIndex::of(&blob).unwrap()),
            None => Reply::NotFound,
        },
        Request::BlobChunk { blob: digest, chunk } => {
            let blob = blob(network, donor, *digest).unwrap_or_default();
            let part = blob.chunks(BLOB_CHUNK_BYTES).nth(*chunk as usize);
            part.map_or(Reply::NotFound, |part| bytes(donor, part))
        }
        _ => Reply::NotFound,
    })
}

fn bytes(donor: &Donor, bytes: &[u8]) -> Reply {
    let mut bytes = bytes.to_vec();
    if donor.lie == Lie::Bytes {
        bytes[0] ^= 1;
    }
    Reply::Bytes(bytes.try_into().unwrap())
}

fn chain(network: &Network, donor: &Donor, from: Round) -> Reply {
    let known = &network.chain[..donor.head as usize];
    let mut page: Vec<Certificate> =
        known.iter().skip(from as usize - 1).take(64).cloned().collect();
    for certificate in &mut page {
        if donor.lie == Lie::NoQuorum {
            let votes: Vec<_> = certificate.votes.iter().take(1).copied().collect();
            certificate.votes = votes.try_into().unwrap();
        }
        if donor.lie == Lie::Forged {
            *certificate = network::certify(certificate.header.clone(), &network::voters(100));
        }
    }
    Reply::Chain(page.try_into().unwrap())
}

fn fake_index(round: Round) -> Vec<u8> {
    index_bytes(round, &vec![1; network::LEAF * network::LEAVES])
}

fn offered(network: &Network, donor: &Donor, round: Round) -> Digest {
    if donor.lie == Lie::Snapshot {
        return BlobIndex::of(&fake_index(round)).unwrap().digest();
    }
    network.offer(round).index
}

/// The blob, if the donor has it.
fn blob(network: &Network, donor: &Donor, digest: Digest) -> Option<Vec<u8>> {
    for &round in &donor.snapshots {
        if offered(network, donor, round) == digest {
            let honest = index_bytes(round, &network.states[round as usize]);
            return Some(if donor.lie == Lie::Snapshot { fake_index(round) } else { honest });
        }
    }
    let held = donor.oldest.max(1)..=donor.head;
    let round = held.into_iter().find(|&round| network.header(round).body == digest)?;
    Some(network.bodies[round as usize - 1].clone())
}
