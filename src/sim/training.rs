//! Steps, freezes and folds of the simulated nodes.

use crate::{
    base::Round,
    codec::Body,
    outer::Exchange,
    proto::node::SegmentStart,
    sim::{event::Event, invariants::Fact, network::millis, world::World},
    wire::Header,
};

impl World {
    /// Plans the next inner step, if there is one to do and none under way.
    pub(super) fn next_step(&mut self, peer: usize) {
        let (boot, step) = (self.peers[peer].disk.boot, self.peers[peer].step_ms);
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        if process.stepping || !process.trainer.may_step() {
            return;
        }
        process.stepping = true;
        let life = process.life;
        self.queue.push(self.now + millis(step), Event::Step { peer, boot, life });
    }

    /// An inner step is done.
    pub(super) fn step(&mut self, peer: usize, boot: u64, life: u64) {
        let (now, batch) = (self.now, self.manifest.inner.batch);
        let salt = peer as u64 * 1000 + boot;
        let problem = self.problem.clone();
        let Some(process) = self.peers[peer].alive(boot) else { return };
        if process.life != life {
            return;
        }
        process.stepping = false;
        if process.trainer.may_step() {
            process.trainer.step(&problem, batch, salt);
        }
        self.counters.steps += 1;
        self.freeze(peer);
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        if let Some(running) = &process.trainer.running {
            let (steps, sequences) = (running.steps, running.sequences);
            if steps > 0 {
                process.node.handle_progress(now, steps, sequences);
            }
        }
        self.pump(peer);
        self.next_step(peer);
        self.count_pause(peer);
    }

    fn count_pause(&mut self, peer: usize) {
        let Some(process) = self.peers[peer].process.as_ref() else { return };
        if !process.stepping && !process.finished {
            self.counters.pauses += 1;
        }
    }

    /// The machine asks for a freeze: it happens between two steps.
    pub(super) fn ask_freeze(&mut self, peer: usize, round: Round, next: Option<SegmentStart>) {
        let boot = self.peers[peer].disk.boot;
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        process.trainer.freeze = Some((round, next));
        if !process.stepping {
            process.stepping = true;
            let life = process.life;
            self.queue.push(self.now + millis(1.0), Event::Step { peer, boot, life });
        }
    }

    fn freeze(&mut self, peer: usize) {
        let now = self.now;
        let this = &mut self.peers[peer];
        let Some(process) = this.process.as_mut() else { return };
        let Some(frozen) = process.trainer.freeze(&process.state) else { return };
        this.disk.local = process.trainer.local.clone();
        self.check_books(peer);
        self.note(peer, &format!("freezes {} with {} sequences", frozen.round, frozen.weight));
        if let Some(process) = self.peers[peer].process.as_mut() {
            process.node.handle_frozen(now, Some(frozen));
        }
        self.pump(peer);
    }

    /// A fold is done.
    pub(super) fn folded(&mut self, peer: usize, boot: u64, header: &Header) {
        if self.peers[peer].alive(boot).is_none() || self.is_folded(peer, header) {
            return;
        }
        if !self.fold(peer, header) {
            return;
        }
        let now = self.now;
        self.counters.fold(now, header);
        if let Some(process) = self.peers[peer].process.as_mut() {
            process.node.handle_folded(now, header.round);
        }
        let at = now + millis(self.scenario.peers.root_ms);
        self.queue.push(at, Event::Rooted { peer, boot, round: header.round });
        self.pump(peer);
        self.next_step(peer);
        self.reached(header.round);
    }

    /// Folds a committed round into a peer's state; false if its body is not there.
    pub(super) fn fold(&mut self, peer: usize, header: &Header) -> bool {
        let this = &mut self.peers[peer];
        let Some(body) = this.disk.bodies.get(&header.body).cloned() else { return false };
        let Some(process) = this.process.as_mut() else { return false };
        let omegas: Vec<u16> = header.members.iter().map(|member| member.omega).collect();
        let unfinished = Body::empty(self.problem.buckets.len());
        let body = if body.jobs.is_empty() { &unfinished } else { &*body };
        let exchange = Exchange {
            round: header.round,
            bits: self.problem.bits,
            omegas: &omegas,
            buckets: &self.problem.buckets,
            body,
            outer: self.manifest.outer,
            cursor: header.cursor_after(),
        };
        if let Err(error) = process.state.fold(&exchange) {
            let why = format!("peer {peer}, round {}: {error}", header.round);
            self.broke("a committed body can be folded", &why);
            return false;
        }
        process.trainer.folded(this.id, header, body, &self.problem, &process.state);
        process.chain.push(header.clone());
        this.disk.local = process.trainer.local.clone();
        let root = process.state.root();
        process.roots.insert(header.round, root);
        if process.roots.len() > 8 {
            process.roots.pop_first();
        }
        let node = this.id;
        self.see(&Fact::Folded { node, header, root });
        self.check_books(peer);
        true
    }

    /// A root is computed.
    pub(super) fn rooted(&mut self, peer: usize, boot: u64, round: Round) {
        let now = self.now;
        let Some(process) = self.peers[peer].alive(boot) else { return };
        if let Some(&root) = process.roots.get(&round) {
            process.node.handle_root(now, round, root);
        }
        self.pump(peer);
    }
}
