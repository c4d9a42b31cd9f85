//! A few machines around a table: what one says the others hear at once, and whatever is asked
//! of the driver is answered at once, unless it is held back.

use std::{collections::BTreeSet, time::Duration};

use super::super::*;
use crate::{
    base::Bitmap,
    config::{EMBEDDED_RUN, FoundedManifest, Founding},
    wire::{MemberSet, Plan},
};

/// Steps of a segment.
pub(super) const H: u32 = 10;

/// Machines, their clocks and what was held back.
pub(super) struct Table {
    pub(super) now: Time,
    pub(super) nodes: Vec<Node>,
    /// Names of effects that are not answered.
    pub(super) held: BTreeSet<&'static str>,
    /// Every effect but presence, by node.
    pub(super) seen: Vec<Vec<Effect>>,
    /// Nodes that hear and do nothing.
    pub(super) deaf: BTreeSet<usize>,
    genesis: Header,
    config: NodeConfig,
}

pub(super) fn identity(index: usize) -> Identity {
    Identity::from_bytes(&[index as u8 + 1; 32])
}

fn root(round: Round) -> Digest {
    Digest::of(&round.to_le_bytes())
}

pub(super) fn result(plan: &Plan) -> RingResult {
    let members = Bitmap::full(plan.members.len());
    let divisor = plan.members.iter().map(|member| u32::from(member.omega)).sum();
    RingResult {
        member_sets: vec![MemberSet { members, divisor }],
        jobs: 1,
        jobs_root: Digest::of(&plan.round.to_le_bytes()),
        body_bytes: 10,
        body: Digest::of(b"body"),
    }
}

/// The name of an effect, with round and attempt where that matters.
pub(super) fn name(effect: &Effect) -> String {
    match effect {
        Effect::Send { envelope, .. } => format!("send {}", envelope.message.name()),
        Effect::Gossip(envelope) => format!("gossip {}", envelope.message.name()),
        Effect::Persist(Promise::Attempt { attempt, .. }) => format!("promise {attempt}"),
        Effect::Persist(Promise::Vote { attempt, .. }) => format!("vote {attempt}"),
        Effect::PrepareRing(plan) => format!("prepare {}.{}", plan.round, plan.attempt),
        Effect::RunRing { round, attempt } => format!("run {round}.{attempt}"),
        Effect::SkipRing { plan, .. } => format!("skip {}.{}", plan.round, plan.attempt),
        Effect::AbortRing { round, attempt } => format!("abort {round}.{attempt}"),
        Effect::FetchBody(header) => format!("fetch {}", header.round),
        Effect::Commit(certificate) => format!("commit {}", certificate.header.round),
        Effect::Fold(header) => format!("fold {}", header.round),
        Effect::StartSegment(start) => format!("start {}", start.round),
        Effect::Freeze { round, next } => {
            format!("freeze {round} then {:?}", next.map(|next| next.round))
        }
        Effect::Sync { .. } => "sync".to_owned(),
        Effect::Notify(_) => "notify".to_owned(),
        Effect::Finished => "finished".to_owned(),
        Effect::Left => "left".to_owned(),
    }
}

impl Table {
    /// `count` machines that know each other and stand on genesis; node 0 is the founder.
    pub(super) fn new(count: usize) -> Self {
        let mut manifest = Manifest::from_toml(EMBEDDED_RUN).unwrap();
        manifest.run.rounds = 4;
        let founding = Founding {
            manifest: manifest.clone(),
            founder: identity(0).node_id(),
            created: 0,
            nonce: [0; 16],
            data: Bounded::new(),
        };
        let founded = FoundedManifest::found(founding, &identity(0));
        let config = NodeConfig {
            run: founded.run_id(),
            boot: 1,
            manifest,
            deadlines: Deadlines::default(),
            trains: true,
            addresses: Vec::new(),
        };
        let mut table = Self {
            now: Time::ZERO,
            nodes: Vec::new(),
            held: BTreeSet::new(),
            seen: vec![Vec::new(); count],
            deaf: BTreeSet::new(),
            genesis: Header::genesis(&founded),
            config,
        };
        for index in 0..count {
            let node = table.fresh(index, 1);
            table.nodes.push(node);
        }
        let genesis = [table.genesis.clone()];
        for index in 0..count {
            table.nodes[index].adopt(Time::ZERO, &genesis, root(0));
        }
        table.wait(Duration::from_millis(1));
        table
    }

    /// A process of node `index` that has just started.
    pub(super) fn fresh(&self, index: usize, boot: u64) -> Node {
        let config = NodeConfig { boot, ..self.config.clone() };
        Node::new(config, identity(index), self.genesis.clone(), self.now)
    }

    /// Restarts a node with what it must remember, on the head that it had.
    pub(super) fn restart(&mut self, index: usize, memory: Memory) {
        let head = self.nodes[index].head().clone();
        let mut node = self.fresh(index, 2);
        node.remember(memory);
        node.adopt(self.now, std::slice::from_ref(&head), root(head.round));
        self.nodes[index] = node;
        self.settle();
    }

    pub(super) fn id(&self, index: usize) -> NodeId {
        self.nodes[index].me()
    }

    /// Lets time pass, timers included.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some((at, index)) = self.next_timer().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.nodes[index].handle_timeout(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn next_timer(&self) -> Option<(Time, usize)> {
        let timers = self.nodes.iter().enumerate().filter(|(i, _)| !self.deaf.contains(i));
        timers.filter_map(|(index, node)| Some((node.poll_timeout()?, index))).min()
    }

    /// Training reports steps to node `index`.
    pub(super) fn train(&mut self, index: usize, steps: u32) {
        let now = self.now;
        self.nodes[index].handle_progress(now, steps, u64::from(steps) * 4);
        self.settle();
    }

    /// Everybody trains a whole segment.
    pub(super) fn train_all(&mut self) {
        for index in 0..self.nodes.len() {
            self.train(index, H);
        }
    }

    /// Carries out and answers everything that can be.
    pub(super) fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for index in 0..self.nodes.len() {
                while let Some(effect) = self.nodes[index].poll_effect() {
                    quiet = false;
                    if self.deaf.contains(&index) {
                        continue;
                    }
                    self.carry_out(index, &effect);
                    let presence = matches!(&effect, Effect::Gossip(e) if matches!(e.message, Message::Presence(_)));
                    if !presence {
                        self.seen[index].push(effect);
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn hears(&mut self, index: usize, envelope: &Envelope) {
        let now = self.now;
        if !self.deaf.contains(&index) {
            self.nodes[index].handle_envelope(now, envelope.clone());
        }
    }

    fn carry_out(&mut self, index: usize, effect: &Effect) {
        let name = name(effect);
        if self.held.iter().any(|held| name.starts_with(held)) {
            return;
        }
        match effect {
            Effect::Send { to, envelope } => {
                if let Some(to) = self.nodes.iter().position(|node| node.me() == *to) {
                    self.hears(to, envelope);
                }
            }
            Effect::Gossip(envelope) => {
                for to in (0..self.nodes.len()).filter(|&to| to != index) {
                    self.hears(to, envelope);
                }
            }
            other => self.answer(index, other),
        }
    }

    /// What the driver answers.
    pub(super) fn answer(&mut self, index: usize, effect: &Effect) {
        let now = self.now;
        let node = &mut self.nodes[index];
        match effect {
            Effect::PrepareRing(plan) => node.handle_ring_ready(now, plan.round, plan.attempt),
            Effect::RunRing { round, attempt } => {
                let Some(accepted) = &node.ballot.accepted else { return };
                let result = result(&accepted.plan);
                node.handle_ring_finished(now, (*round, *attempt), &result);
            }
            Effect::SkipRing { plan, .. } => {
                let result = RingResult { member_sets: vec![], jobs: 0, ..result(plan) };
                node.handle_ring_finished(now, (plan.round, plan.attempt), &result);
            }
            Effect::FetchBody(header) => node.handle_body_stored(now, header.digest()),
            Effect::Fold(header) => {
                node.handle_folded(now, header.round);
                node.handle_root(now, header.round, root(header.round));
            }
            Effect::Freeze { round, .. } => {
                let frozen = Frozen { round: *round, weight: 40, size: 1, feedback: 1 };
                node.handle_frozen(now, Some(frozen));
            }
            _ => {}
        }
    }

    /// Names of what a node asked for since this was called last, without notices.
    pub(super) fn take(&mut self, index: usize) -> Vec<String> {
        let seen = std::mem::take(&mut self.seen[index]);
        seen.iter().map(name).filter(|name| name != "notify").collect()
    }

    /// Everybody's rounds.
    pub(super) fn rounds(&self) -> Vec<Round> {
        self.nodes.iter().map(|node| node.head().round).collect()
    }

    /// A message of node `from`, sealed as its own, heard by `to` alone.
    pub(super) fn say(&mut self, from: usize, to: usize, message: Message) {
        let envelope = self.nodes[from].seal(message);
        self.hears(to, &envelope);
        self.settle();
    }
}
