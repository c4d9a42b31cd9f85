//! The abstract ring's life in the world: links, start, end, failures; and the fetching of bodies.

use std::sync::Arc;

use crate::{
    base::{Attempt, Digest, Round},
    sim::{
        event::Event,
        exchange::{self, Exchange, Outcome},
        invariants::Fact,
        network::millis,
        world::World,
    },
    wire::{Header, Plan},
};

/// Milliseconds after which a peer that cannot be reached is given up.
const DIAL_MS: f64 = 2500.0;

impl World {
    /// Opens the stream to the successor.
    pub(super) fn prepare_ring(&mut self, peer: usize, plan: Arc<Plan>) {
        let boot = self.peers[peer].disk.boot;
        let (round, attempt) = (plan.round, plan.attempt);
        let next = successor(&plan, self.peers[peer].id).and_then(|node| self.index_of(node));
        let digest = plan.digest();
        self.prepared.insert((peer, boot, (round, attempt)), digest);
        self.exchanges.entry(digest).or_insert_with(|| Exchange::new(plan));
        let (after, open) = match next {
            None => (millis(1.0), true),
            Some(next) if self.reach(peer, next) => (self.network.latency(peer, next) * 2, true),
            Some(next) if self.network.connected(peer, next) => {
                (self.network.latency(peer, next) * 2, false)
            }
            Some(_) => (millis(DIAL_MS), false),
        };
        let event = Event::Linked { peer, boot, round, attempt, open };
        self.queue.push(self.now + after, event);
    }

    pub(super) fn linked(
        &mut self,
        peer: usize,
        boot: u64,
        (round, attempt): (Round, Attempt),
        open: bool,
    ) {
        let now = self.now;
        let Some(process) = self.peers[peer].alive(boot) else { return };
        if open {
            process.node.handle_ring_ready(now, round, attempt);
        } else {
            let reason = "the successor cannot be dialled".to_owned();
            process.node.handle_ring_failed(now, (round, attempt), None, reason);
        }
        self.pump(peer);
    }

    /// The plan of this attempt whose ring a peer has prepared.
    fn plan_of(&self, peer: usize, key: (Round, Attempt)) -> Option<Digest> {
        let boot = self.peers[peer].disk.boot;
        let plan = self.prepared.get(&(peer, boot, key)).copied()?;
        self.exchanges.contains_key(&plan).then_some(plan)
    }

    /// A member lets frames move.
    pub(super) fn run_ring(&mut self, peer: usize, key: (Round, Attempt)) {
        let boot = self.peers[peer].disk.boot;
        let Some(plan) = self.plan_of(peer, key) else { return };
        let Some(process) = self.peers[peer].process.as_ref() else { return };
        let Some(frozen) = &process.trainer.local.frozen else {
            return self.broke("a ring has something to send", &format!("peer {peer} has not"));
        };
        if frozen.frozen.round != key.0 {
            return self.broke("a ring sends this round's delta", &format!("peer {peer} does not"));
        }
        let delta = frozen.delta.clone();
        let exchange = self.exchanges.get_mut(&plan).expect("found above");
        exchange.running.insert(peer, delta);
        let members: Vec<usize> = self.members(plan);
        let all = members.iter().all(|member| self.exchanges[&plan].running.contains_key(member));
        if all {
            return self.ring_turns(plan, &members);
        }
        let stalled = self.now + self.deadlines.stall;
        let blame = members
            .iter()
            .copied()
            .find(|member| !self.exchanges[&plan].running.contains_key(member));
        self.queue.push(stalled, Event::RingLost { peer, boot, plan, blame });
    }

    fn members(&self, plan: Digest) -> Vec<usize> {
        let plan = &self.exchanges[&plan].plan;
        plan.members.iter().filter_map(|member| self.index_of(member.node)).collect()
    }

    /// All members run: the result is made, and each has it a moment after the last frame.
    fn ring_turns(&mut self, plan: Digest, members: &[usize]) {
        let exchange = &self.exchanges[&plan];
        let deltas: Vec<_> = members.iter().map(|member| &exchange.running[member]).collect();
        let outcome = Arc::new(exchange::exchange(&exchange.plan, &deltas, &self.problem));
        self.see(&Fact::Exchanged { outcome: &outcome });
        let bytes = exchange::bytes_each(&outcome, members.len());
        let mut done = self.now;
        for (i, &from) in members.iter().enumerate() {
            let to = members[(i + 1) % members.len()];
            if from != to {
                done = done.max(self.network.transfer(self.now, from, to, bytes));
                let hop = self.network.latency(from, to) * 2;
                done += hop;
            }
            self.counters.bulk_bytes += bytes;
        }
        self.counters.rings += 1;
        self.counters.ring_time += done.since(self.now);
        for &peer in members {
            let boot = self.peers[peer].disk.boot;
            let late = millis(30.0 * self.network.chance());
            self.queue.push(done + late, Event::RingDone { peer, boot, plan });
        }
        let exchange = self.exchanges.get_mut(&plan).expect("indexed above");
        exchange.result = Some(outcome);
    }

    pub(super) fn ring_done(&mut self, peer: usize, boot: u64, plan: Digest) {
        let now = self.now;
        let Some(exchange) = self.exchanges.get_mut(&plan) else { return };
        let Some(outcome) = exchange.result.clone() else { return };
        if self.peers[peer].disk.boot != boot || !exchange.over.insert(peer) {
            return;
        }
        let key = (exchange.plan.round, exchange.plan.attempt);
        self.store(peer, &outcome);
        let Some(process) = self.peers[peer].alive(boot) else { return };
        process.node.handle_ring_finished(now, key, &outcome.ring);
        self.note(peer, "has the results");
        self.pump(peer);
    }

    fn store(&mut self, peer: usize, outcome: &Outcome) {
        let disk = &mut self.peers[peer].disk;
        disk.bodies.insert(outcome.ring.body, Arc::clone(&outcome.body));
    }

    pub(super) fn ring_skipped(
        &mut self,
        peer: usize,
        boot: u64,
        key: (Round, Attempt),
        plan: Digest,
    ) {
        let now = self.now;
        let Some(outcome) = self.skipped.get(&plan).cloned() else { return };
        if self.peers[peer].alive(boot).is_none() {
            return;
        }
        self.store(peer, &outcome);
        let Some(process) = self.peers[peer].alive(boot) else { return };
        process.node.handle_ring_finished(now, key, &outcome.ring);
        self.pump(peer);
    }

    pub(super) fn ring_lost(&mut self, peer: usize, boot: u64, plan: Digest, blame: Option<usize>) {
        let now = self.now;
        let blame_id = blame.map(|blame| self.peers[blame].id);
        let Some(exchange) = self.exchanges.get_mut(&plan) else { return };
        if self.peers[peer].disk.boot != boot || exchange.over.contains(&peer) {
            return;
        }
        // The stall watch of a ring that turns after all.
        let whole = exchange.result.is_some() && blame.is_none_or(|b| !exchange.over.contains(&b));
        if whole {
            return;
        }
        exchange.over.insert(peer);
        let key = (exchange.plan.round, exchange.plan.attempt);
        let Some(process) = self.peers[peer].alive(boot) else { return };
        let reason = "the ring broke".to_owned();
        process.node.handle_ring_failed(now, key, blame_id, reason);
        self.pump(peer);
        self.break_ring(plan, peer);
    }

    /// The machine gives a ring up.
    pub(super) fn abort_ring(&mut self, peer: usize, key: (Round, Attempt)) {
        let Some(plan) = self.plan_of(peer, key) else { return };
        let Some(exchange) = self.exchanges.get_mut(&plan) else { return };
        if exchange.over.insert(peer) {
            self.break_ring(plan, peer);
        }
    }

    /// A member's ring is over before its end: those that still run lose theirs.
    fn break_ring(&mut self, plan: Digest, gone: usize) {
        let exchange = &self.exchanges[&plan];
        let others: Vec<usize> = exchange
            .running
            .keys()
            .copied()
            .filter(|other| *other != gone && !exchange.over.contains(other))
            .collect();
        for other in others {
            let boot = self.peers[other].disk.boot;
            let after = if self.network.connected(gone, other) {
                self.network.latency(gone, other)
            } else {
                self.deadlines.stall
            };
            let blame = Some(gone);
            self.queue.push(self.now + after, Event::RingLost { peer: other, boot, plan, blame });
        }
    }

    /// A peer has died: so have its rings.
    pub(super) fn break_rings_of(&mut self, peer: usize) {
        let mine: Vec<Digest> = self
            .exchanges
            .iter()
            .filter(|(_, e)| e.running.contains_key(&peer) && !e.over.contains(&peer))
            .map(|(digest, _)| *digest)
            .collect();
        for plan in mine {
            if let Some(exchange) = self.exchanges.get_mut(&plan) {
                exchange.over.insert(peer);
            }
            self.break_ring(plan, peer);
        }
    }

    /// Fetches a body from anybody who can be reached and has it; tries again if nobody does.
    pub(super) fn fetch_body(&mut self, peer: usize, boot: u64, header: Box<Header>) {
        if self.peers[peer].alive(boot).is_none() || self.is_folded(peer, &header) {
            return;
        }
        if self.peers[peer].disk.bodies.contains_key(&header.body) {
            let at = self.moment();
            let event = Event::BodyHere { peer, boot, header, from: peer };
            return self.queue.push(at, event);
        }
        let donor = (0..self.peers.len()).find(|&donor| {
            let has = self.peers[donor].disk.bodies.contains_key(&header.body);
            donor != peer && has && self.reach(peer, donor)
        });
        match donor {
            Some(from) => {
                let asked = self.now + self.network.latency(peer, from);
                let at = self.network.transfer(asked, from, peer, header.body_bytes);
                self.counters.bulk_bytes += header.body_bytes;
                self.queue.push(at, Event::BodyHere { peer, boot, header, from });
            }
            None => {
                self.queue.push(self.now + millis(1000.0), Event::FetchBody { peer, boot, header });
            }
        }
    }

    pub(super) fn body_here(&mut self, peer: usize, boot: u64, header: Box<Header>, from: usize) {
        let now = self.now;
        if self.peers[peer].alive(boot).is_none() {
            return;
        }
        if from != peer && !self.reach(peer, from) {
            return self.queue.push(self.moment(), Event::FetchBody { peer, boot, header });
        }
        if let Some(body) = self.peers[from].disk.bodies.get(&header.body).cloned() {
            self.peers[peer].disk.bodies.insert(header.body, body);
        }
        let Some(process) = self.peers[peer].alive(boot) else { return };
        process.node.handle_body_stored(now, header.digest());
        self.pump(peer);
    }
}

fn successor(plan: &Plan, node: crate::base::NodeId) -> Option<crate::base::NodeId> {
    let position = plan.position(node)?;
    let next = plan.members[(position + 1) % plan.members.len()].node;
    (next != node).then_some(next)
}
