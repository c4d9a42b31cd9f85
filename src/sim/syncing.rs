//! Abstract sync: a peer takes the chain and the bodies of whoever is furthest, and folds them.

use std::time::Duration;

use crate::{
    sim::{event::Event, network::millis, world::World},
    wire::Header,
};

/// Milliseconds between two looks for a donor.
const RETRY_MS: f64 = 500.0;
/// Looks after which a peer with a state of its own goes on with it.
const PATIENCE: u32 = 10;

impl World {
    /// A process has started: it goes on from its disk, or looks for others.
    pub(super) fn resume(&mut self, peer: usize) {
        if !self.peers[peer].disk.has_state {
            return self.begin_sync(peer, false);
        }
        let keep = self.peers[peer].disk.complete();
        self.peers[peer].disk.ledger.truncate(keep);
        let headers: Vec<Header> =
            self.peers[peer].disk.ledger.iter().map(|c| c.header.clone()).collect();
        for header in &headers {
            self.fold(peer, header);
        }
        self.adopt(peer);
    }

    /// Hands the machine what the process has folded.
    fn adopt(&mut self, peer: usize) {
        let now = self.now;
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        process.syncing = false;
        process.discard = false;
        let from = process.chain.len().saturating_sub(2);
        let root = process.state.root();
        process.node.adopt(now, &process.chain[from..], root);
    }

    pub(super) fn begin_sync(&mut self, peer: usize, discard: bool) {
        let boot = self.peers[peer].disk.boot;
        let Some(process) = self.peers[peer].process.as_mut() else { return };
        process.discard |= discard;
        if !process.syncing {
            process.syncing = true;
            let at = self.now + millis(RETRY_MS);
            self.queue.push(at, Event::SyncTry { peer, boot, tries: 0 });
        }
    }

    pub(super) fn sync_try(&mut self, peer: usize, boot: u64, tries: u32) {
        let has_state = self.peers[peer].disk.has_state;
        let Some(process) = self.peers[peer].alive(boot) else { return };
        if !process.syncing {
            return;
        }
        let own = (process.node.head().weight, process.node.head().round);
        let donor = (0..self.peers.len())
            .filter(|&donor| donor != peer && self.reach(peer, donor))
            .filter(|&donor| self.peers[donor].disk.has_state)
            .filter_map(|donor| {
                let process = self.peers[donor].process.as_ref()?;
                let head = process.node.head();
                Some(((head.weight, head.round), donor))
            })
            .max();
        let better = donor.filter(|(head, _)| !has_state || *head > own);
        if let Some((_, from)) = better {
            let head = self.peers[from].process.as_ref().map_or(0, |p| p.state.round);
            let missing = head.saturating_sub(own.1).max(1);
            let asked = self.now + self.network.latency(peer, from) * 2;
            let at = self.network.transfer(asked, from, peer, missing * 400);
            self.counters.bulk_bytes += missing * 400;
            return self.queue.push(at, Event::SyncDone { peer, boot, from });
        }
        if has_state && tries >= PATIENCE {
            self.note(peer, "goes on with its own state");
            self.adopt(peer);
            return self.pump(peer);
        }
        let at = self.now + millis(RETRY_MS);
        self.queue.push(at, Event::SyncTry { peer, boot, tries: tries + 1 });
    }

    pub(super) fn sync_done(&mut self, peer: usize, boot: u64, from: usize) {
        if self.peers[peer].alive(boot).is_none() {
            return;
        }
        if !self.reach(peer, from) {
            let at = self.now + Duration::from_millis(100);
            return self.queue.push(at, Event::SyncTry { peer, boot, tries: 0 });
        }
        self.take_chain(peer, from);
        self.peers[peer].disk.has_state = true;
        self.adopt(peer);
        self.note(peer, "has synced");
        self.pump(peer);
        self.next_step(peer);
        let round = self.peers[peer].process.as_ref().map_or(0, |p| p.state.round);
        self.reached(round);
    }

    /// Takes the donor's folded chain: what is common stays, the rest is replaced.
    fn take_chain(&mut self, peer: usize, from: usize) {
        let folded = self.peers[from].process.as_ref().map_or(0, |p| p.state.round) as usize;
        let theirs: Vec<_> = self.peers[from].disk.ledger.iter().take(folded).cloned().collect();
        let bodies = self.peers[from].disk.bodies.clone();
        let this = &mut self.peers[peer];
        let Some(process) = this.process.as_mut() else { return };
        let common = process
            .chain
            .iter()
            .skip(1)
            .zip(&theirs)
            .take_while(|(own, theirs)| **own == theirs.header)
            .count();
        let branched = common + 1 < process.chain.len();
        for certificate in &theirs {
            if let Some(body) = bodies.get(&certificate.header.body) {
                this.disk.bodies.insert(certificate.header.body, body.clone());
            }
        }
        this.disk.ledger.clone_from(&theirs);
        if branched || process.discard {
            process.state = self.problem.genesis(&self.manifest);
            process.chain.truncate(1);
            process.trainer.switch_branch(&process.state);
            process.trainer.local.settled = process.trainer.local.settled.max(folded as u64);
        }
        let done = process.state.round as usize;
        for certificate in theirs.iter().skip(done) {
            self.fold(peer, &certificate.header);
        }
    }
}
