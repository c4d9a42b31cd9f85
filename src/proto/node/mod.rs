//! The node machine: roster, segments, agreement and commit of one run (DESIGN section 5).
//!
//! ```text
//!   steps done ──► Freeze ──► Ready ──► plan ──► Accept ──► Start ──► ring ──► vote
//!       ▲                                                                        │
//!       └── next segment runs meanwhile      Fold ◄── Commit ◄── certificate ◄───┘
//! ```
//!
//! It performs no I/O. The caller hands in what happens (`handle_*`), carries out the
//! [`Effect`]s in order ([`Node::poll_effect`]), and calls [`Node::handle_timeout`] at
//! [`Node::poll_timeout`]. After every `handle_*` both must be polled again.
//!
//! Ring frames and parameters never pass through here: the ring machine
//! ([`crate::proto::ring`]) reports its end, the fold its root.
//!
//! | file | subject |
//! |---|---|
//! | `presence` | who is alive, what this node says of itself |
//! | `segment` | when local training is frozen |
//! | `coordinate` | collecting Ready and proposing a plan |
//! | `agree` | accepting a plan, running its ring, giving up an attempt |
//! | `commit` | voting, certificates, folding |

mod agree;
mod ballot;
mod commit;
mod coordinate;
mod effect;
mod presence;
mod segment;
#[cfg(test)]
mod tests;
mod timer;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use ballot::Frozen;
use ballot::{Ballot, Stage};
pub use commit::RingResult;
pub use effect::{Effect, Notice, Promise, SegmentStart};
use segment::Segment;
pub use timer::Timer;
use timer::Timers;

use crate::{
    base::{Bounded, Digest, NodeId, Round, RunId, Time, limits::MAX_ATTEMPTS},
    config::{
        Manifest,
        manifest::{Overlap, WhileWaiting},
    },
    identity::Identity,
    proto::{deadlines::Deadlines, order, roster::Roster},
    wire::{Certificate, Envelope, Head, Header, Message, Status, electorate},
};

/// Messages of the next round that are kept until this one is folded.
const MAX_STASH: usize = 512;

/// What a node machine needs to know.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The run.
    pub run: RunId,
    /// Start counter of this process, stored before use.
    pub boot: u64,
    /// The agreed manifest.
    pub manifest: Manifest,
    /// Waits.
    pub deadlines: Deadlines,
    /// Whether this node trains; an archive only follows.
    pub trains: bool,
    /// Where this node can be dialled.
    pub addresses: Vec<String>,
}

/// What a node remembers of the open round, across a restart and when it adopts its own head again.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The highest attempt promised, with its round.
    pub promised: Option<(Round, u8)>,
    /// The header signed last, with its attempt.
    pub signed: Option<(u8, Header)>,
    /// The frozen pseudo-gradient.
    pub frozen: Option<Frozen>,
}

/// Whether a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Syncing,
    Active,
    Finished,
    Left,
}

/// The machine.
pub struct Node {
    config: NodeConfig,
    identity: Identity,
    me: NodeId,
    sequence: u64,
    mode: Mode,
    leaving: bool,
    roster: Roster,
    /// Members of the head that have not been heard since this node started, and when they expire.
    presumed: BTreeMap<NodeId, Time>,
    head: Header,
    head_digest: Digest,
    head_root: Option<Digest>,
    /// Certificate of the head, for those who missed it.
    head_certificate: Option<Box<Certificate>>,
    /// A committed header whose body is being fetched or that is being folded.
    folding: Option<Box<Header>>,
    /// Its certificate.
    folding_certificate: Option<Box<Certificate>>,
    leases: BTreeMap<Round, (u64, u32)>,
    ballot: Ballot,
    segment: Segment,
    frozen: Option<Frozen>,
    memory: Memory,
    /// First round that this node can be ready for after it has joined.
    first_round: Round,
    stash: VecDeque<Envelope>,
    local: VecDeque<Message>,
    effects: VecDeque<Effect>,
    timers: Timers,
}

impl Node {
    /// A node that holds no state yet: it says that it is alive and waits for [`Node::adopt`].
    pub fn new(config: NodeConfig, identity: Identity, genesis: Header, now: Time) -> Self {
        let me = identity.node_id();
        let head_digest = genesis.digest();
        let mut node = Self {
            config,
            identity,
            me,
            sequence: 0,
            mode: Mode::Syncing,
            leaving: false,
            roster: Roster::default(),
            presumed: BTreeMap::new(),
            head: genesis,
            head_digest,
            head_root: None,
            head_certificate: None,
            folding: None,
            folding_certificate: None,
            leases: BTreeMap::new(),
            ballot: Ballot::default(),
            segment: Segment::default(),
            frozen: None,
            memory: Memory::default(),
            first_round: 0,
            stash: VecDeque::new(),
            local: VecDeque::new(),
            effects: VecDeque::new(),
            timers: Timers::default(),
        };
        node.timers.set(Timer::Presence, now);
        node
    }

    /// What the node remembers from before a restart; to be called before [`Node::adopt`].
    pub fn remember(&mut self, memory: Memory) {
        self.frozen = memory.frozen;
        self.memory = memory;
    }

    /// The caller has folded everything up to `chain`'s last header (its predecessor comes first,
    /// if there is one), with this state root: take part from here.
    pub fn adopt(&mut self, now: Time, chain: &[Header], root: Digest) {
        let Some(head) = chain.last() else { return };
        for header in chain {
            self.take_lease(header);
        }
        self.set_head(head.clone(), None, Some(root));
        self.timers.clear(Timer::Behind);
        self.timers.set(Timer::Presence, now);
        if head.round > self.last_round() {
            return self.finish();
        }
        self.mode = Mode::Active;
        let lifetime = self.config.deadlines.lifetime(self.roster.len() + 1, Duration::ZERO) * 2;
        self.presumed = head.members.iter().map(|member| (member.node, now + lifetime)).collect();
        self.presumed.retain(|node, _| *node != self.me && !self.roster.contains(*node));
        if let Some(at) = self.presumed.values().min() {
            self.timers.set(Timer::Expiry, *at);
        }
        let others = self.roster.training().count() > 0;
        self.first_round = self.open() + Round::from(others && self.config.trains);
        self.opened(now);
        self.settle(now);
    }

    /// Takes in a verified envelope of this run.
    pub fn handle_envelope(&mut self, now: Time, envelope: Envelope) {
        if envelope.author != self.me && self.mode != Mode::Left {
            self.roster.heard(envelope.author);
            self.route(now, envelope);
            self.settle(now);
        }
    }

    /// Runs everything that is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Presence => self.send_presence(now),
                Timer::Expiry => self.expire(now),
                Timer::Repeat => self.repeat(now),
                Timer::Coordinate => self.coordinate(now),
                Timer::Attempt => self.attempt_overdue(now),
                Timer::Behind => self.check_behind(now),
                Timer::Leave => self.say_goodbye(),
            }
        }
        self.settle(now);
    }

    /// The next thing to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Node::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The newest header that is folded.
    pub fn head(&self) -> &Header {
        &self.head
    }

    /// State root after the head, once it is computed.
    pub fn head_root(&self) -> Option<Digest> {
        self.head_root
    }

    /// Who is believed alive.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// How many things of others the machine keeps: bounded, whatever they send.
    pub fn kept(&self) -> usize {
        self.stash.len() + self.local.len() + self.effects.len() + self.ballot.kept()
    }

    /// What the node waits for, in one sentence: for people who ask why nothing happens.
    pub fn waiting_for(&self) -> String {
        if self.mode == Mode::Syncing {
            return format!("state: {} peers are known", self.roster.len());
        }
        let open = self.open();
        if let Some(header) = &self.folding {
            let stored = self.ballot.stored.contains(&header.digest());
            return format!("the {} of round {open}", if stored { "fold" } else { "body" });
        }
        let Some(accepted) = &self.ballot.accepted else {
            return match self.frozen {
                Some(_) => format!(
                    "a plan for round {open} (attempt {}): {} of {} voters are ready here",
                    self.ballot.attempt,
                    self.ready_voters(self.ballot.attempt),
                    self.voters().len(),
                ),
                None => {
                    format!("segment {} ({} steps done)", self.segment.round, self.segment.steps)
                }
            };
        };
        let attempt = accepted.plan.attempt;
        match accepted.stage {
            Stage::Linking => format!("a link to its successor in round {open}, attempt {attempt}"),
            Stage::Accepted => format!("the start of round {open}, attempt {attempt}"),
            Stage::Running => format!("the ring of round {open}, attempt {attempt}"),
            Stage::Done | Stage::Promised => {
                format!("signatures of round {open}, attempt {attempt}")
            }
        }
    }

    /// The round whose exchange comes next.
    fn open(&self) -> Round {
        self.head.round + 1
    }

    /// The last round that has jobs; the one after it only binds the final root.
    fn last_round(&self) -> Round {
        self.config.manifest.run.rounds
    }

    fn h(&self) -> u32 {
        self.config.manifest.rounds.local_steps
    }

    fn overlap(&self) -> Overlap {
        self.config.manifest.rounds.overlap
    }

    fn max_steps(&self) -> u32 {
        match (self.overlap(), self.config.manifest.rounds.while_waiting) {
            (Overlap::None, _) | (_, WhileWaiting::Wait) => self.h(),
            (_, WhileWaiting::Continue) => 2 * self.h(),
        }
    }

    fn route(&mut self, now: Time, envelope: Envelope) {
        let stamp = (envelope.boot, envelope.sequence);
        let author = envelope.author;
        match &envelope.message {
            Message::Presence(presence) => {
                return self.on_presence(now, author, stamp, presence.clone());
            }
            Message::Goodbye => return self.on_goodbye(now, author, stamp),
            _ => {}
        }
        let Some(round) = round_of(&envelope.message) else { return };
        if self.mode == Mode::Finished {
            return self.help_the_late(author, round, &envelope.message);
        }
        if self.mode != Mode::Active {
            return;
        }
        let open = self.open();
        if round == open && self.folding.is_none() {
            self.dispatch(now, author, envelope.message);
        } else if round == open || round == open + 1 {
            if self.stash.len() == MAX_STASH {
                self.stash.pop_front();
            }
            self.stash.push_back(envelope);
        } else if round > open {
            self.timers.set_earliest(Timer::Behind, now + self.config.deadlines.repeat);
        } else {
            self.help_the_late(author, round, &envelope.message);
        }
    }

    fn dispatch(&mut self, now: Time, author: NodeId, message: Message) {
        match message {
            Message::Presence(_) | Message::Goodbye => {}
            Message::Ready(ready) => self.on_ready(now, author, ready),
            Message::Closing { attempt, parent, .. } => self.on_closing(now, attempt, parent),
            Message::Propose(plan) => self.on_propose(now, author, plan),
            Message::Accept { plan, signed, .. } => {
                self.on_accept(now, author, plan, signed.map(|signed| *signed));
            }
            Message::Refused { attempt, plan, reason, .. } => {
                self.on_refused(now, author, attempt, plan, reason);
            }
            Message::Start { plan, .. } => self.on_start(now, author, plan),
            Message::Voted { attempt, header, signature, .. } => {
                self.on_voted(now, author, attempt, header, signature);
            }
            Message::HeaderProposed(signed) => self.on_header_proposed(now, author, *signed),
            Message::Committed(certificate) => self.on_committed(certificate),
        }
    }

    /// Handles what the node has said to itself, until nothing is left.
    fn settle(&mut self, now: Time) {
        while let Some(message) = self.local.pop_front() {
            if self.mode == Mode::Active
                && self.folding.is_none()
                && round_of(&message) == Some(self.open())
            {
                self.dispatch(now, self.me, message);
            }
        }
    }

    /// Somebody is still in a round that is committed here: hand over its certificate.
    fn help_the_late(&mut self, author: NodeId, round: Round, message: &Message) {
        let asks =
            matches!(message, Message::Ready(_) | Message::Propose(_) | Message::Accept { .. });
        if let (true, true, Some(certificate)) =
            (asks, round == self.head.round, self.head_certificate.clone())
        {
            self.send(author, Message::Committed(certificate));
        }
        if let Message::Committed(other) = message
            && round == self.head.round
            && other.header.digest() != self.head_digest
        {
            let header = other.header.digest();
            self.effects.push_back(Effect::Notify(Notice::Fork { round, header }));
        }
    }

    fn set_head(
        &mut self,
        head: Header,
        certificate: Option<Box<Certificate>>,
        root: Option<Digest>,
    ) {
        self.take_lease(&head);
        self.head_digest = head.digest();
        self.head = head;
        self.head_root = root;
        self.head_certificate = certificate;
        self.folding = None;
        self.folding_certificate = None;
        self.ballot = Ballot::default();
        self.timers.clear(Timer::Attempt);
        self.timers.clear(Timer::Coordinate);
    }

    fn take_lease(&mut self, header: &Header) {
        if let Some((first, length)) = header.lease(self.me) {
            if header.round == 0 {
                let half = length / 2;
                self.leases.insert(1, (first, half));
                self.leases.insert(2, (first + u64::from(half), half));
            } else {
                self.leases.insert(header.round + 2, (first, length));
            }
        }
        self.leases = self.leases.split_off(&header.round);
    }

    /// A new round is open: restore what was promised in it, and go on.
    fn opened(&mut self, now: Time) {
        let open = self.open();
        if let Some((round, attempt)) = self.memory.promised
            && round == open
        {
            // Which plan it was is forgotten, so this attempt is over for this node.
            self.ballot.promised = Some(attempt);
            self.ballot.attempt = (attempt + 1).min(MAX_ATTEMPTS - 1);
        }
        if let Some((attempt, header)) = self.memory.signed.clone()
            && header.round == open
            && header.parent == self.head_digest
        {
            self.ballot.remember(&header);
            self.ballot.stored.insert(header.digest());
            self.ballot.signed = Some(crate::wire::SignedHeader { attempt, header });
        }
        if self.frozen.is_some_and(|frozen| frozen.round < open) {
            self.frozen = None;
        }
        self.open_segment(now);
        let stash: Vec<Envelope> = self.stash.drain(..).collect();
        for envelope in stash {
            self.route(now, envelope);
        }
        self.announce(now, true);
        self.coordinate(now);
    }

    /// The frozen pseudo-gradient of the open round.
    fn contribution(&self) -> Option<Frozen> {
        self.frozen.filter(|frozen| frozen.round == self.open())
    }

    /// The run's last header is folded.
    fn finish(&mut self) {
        self.mode = Mode::Finished;
        self.timers.clear(Timer::Repeat);
        self.effects.push_back(Effect::Finished);
    }

    fn candidates(&self, attempt: u8) -> Vec<NodeId> {
        let own = self.config.trains.then_some(self.me);
        let live = self.roster.training().map(|(node, _)| node).chain(own);
        order::candidates(self.head_digest, attempt, live)
    }

    /// Whether a member of the head may still vote.
    fn may_vote(&self, node: NodeId) -> bool {
        node == self.me || self.roster.contains(node) || self.presumed.contains_key(&node)
    }

    /// The voters of the open round as positions among the head's members.
    fn voter_bits(&self) -> crate::base::Bitmap {
        let members = self.head.members.iter().enumerate();
        members.filter(|(_, member)| self.may_vote(member.node)).map(|(i, _)| i).collect()
    }

    /// The voters of the open round; empty when none of them is alive.
    fn voters(&self) -> Vec<NodeId> {
        electorate(self.voter_bits(), &self.head.members, &[])
    }

    fn seal(&mut self, message: Message) -> Box<Envelope> {
        self.sequence += 1;
        let (run, boot) = (self.config.run, self.config.boot);
        Box::new(Envelope::seal(&self.identity, run, boot, self.sequence, message))
    }

    fn send(&mut self, to: NodeId, message: Message) {
        if to == self.me {
            self.local.push_back(message);
        } else {
            let envelope = self.seal(message);
            self.effects.push_back(Effect::Send { to, envelope });
        }
    }

    /// Sends to each of `to` once.
    fn send_all(&mut self, mut to: Vec<NodeId>, message: &Message) {
        to.sort_unstable();
        to.dedup();
        for node in to {
            self.send(node, message.clone());
        }
    }

    fn gossip(&mut self, message: Message) {
        let envelope = self.seal(message.clone());
        self.effects.push_back(Effect::Gossip(envelope));
        self.local.push_back(message);
    }

    fn notify(&mut self, notice: Notice) {
        self.effects.push_back(Effect::Notify(notice));
    }

    fn own_head(&self) -> Head {
        Head { round: self.head.round, digest: self.head_digest, weight: self.head.weight }
    }

    fn status(&self) -> Status {
        match self.mode {
            Mode::Syncing => Status::Syncing,
            Mode::Finished => Status::Finished,
            Mode::Active | Mode::Left if self.config.trains => Status::Training,
            Mode::Active | Mode::Left => Status::Archive,
        }
    }
}

/// The round that a message is about.
fn round_of(message: &Message) -> Option<Round> {
    match message {
        Message::Presence(_) | Message::Goodbye => None,
        Message::Ready(ready) => Some(ready.round),
        Message::Propose(plan) => Some(plan.round),
        Message::Closing { round, .. }
        | Message::Accept { round, .. }
        | Message::Refused { round, .. }
        | Message::Start { round, .. }
        | Message::Voted { round, .. } => Some(*round),
        Message::HeaderProposed(signed) => Some(signed.header.round),
        Message::Committed(certificate) => Some(certificate.header.round),
    }
}

/// Text for a message, cut to its bound.
fn bounded_text<const N: usize>(text: &str) -> Bounded<u8, N> {
    let bytes: Vec<u8> = text.bytes().take(N).collect();
    Bounded::try_from(bytes).unwrap_or_default()
}
