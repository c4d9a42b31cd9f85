//! What goes wrong: crashes, restarts, joins, leaves, partitions, churn.

use std::time::Duration;

use crate::{
    base::{Round, Time},
    sim::{
        event::Event,
        network::millis,
        scenario::{Fault, FaultKind},
        world::World,
    },
};

/// Grace of a leave.
const GRACE: Duration = Duration::from_secs(10);

impl World {
    /// Puts the faults with a time into the queue; the others wait for their trigger.
    pub(super) fn plant_faults(&mut self) {
        for (index, fault) in self.scenario.fault.clone().iter().enumerate() {
            match fault.at_s {
                Some(at) => {
                    let at = seconds(at);
                    self.last_fault = self.last_fault.max(at);
                    self.queue.push(at, Event::Fault { index });
                }
                None => self.pending_faults.push(index),
            }
        }
        if let Some(churn) = &self.scenario.churn {
            self.queue.push(seconds(churn.every_s), Event::Churn);
        }
    }

    /// The furthest head may have moved: starts what waits for a round.
    pub(super) fn reached(&mut self, round: Round) {
        if round <= self.best_round {
            return;
        }
        self.best_round = round;
        self.exchanges.retain(|_, exchange| exchange.plan.round + 2 > round);
        self.prepared.retain(|(_, _, (prepared, _)), _| *prepared + 2 > round);
        let faults = std::mem::take(&mut self.pending_faults);
        for index in faults {
            if self.scenario.fault[index].at_round.is_some_and(|at| at <= round) {
                self.queue.push(self.moment(), Event::Fault { index });
                self.last_fault = self.last_fault.max(self.moment());
            } else {
                self.pending_faults.push(index);
            }
        }
    }

    /// Whether a crash after so many effects is due for a peer.
    pub(super) fn dies_now(&mut self, peer: usize) -> bool {
        let effects = self.peers[peer].effects;
        let due = |fault: &Fault| {
            fault.peers.contains(&peer) && fault.after_effects.is_some_and(|n| effects >= n)
        };
        let Some(at) = self.pending_faults.iter().position(|&i| due(&self.scenario.fault[i]))
        else {
            return false;
        };
        let fault = self.scenario.fault[self.pending_faults.remove(at)].clone();
        self.plan_restart(peer, fault.restart_after_s);
        true
    }

    fn plan_restart(&mut self, peer: usize, after_s: Option<f64>) {
        self.last_fault = self.last_fault.max(self.now);
        if let Some(after) = after_s {
            let at = self.now + Duration::from_secs_f64(after);
            self.last_fault = self.last_fault.max(at);
            self.queue.push(at, Event::Restart { peer });
        }
    }

    /// A fault of the scenario happens.
    pub(super) fn fault(&mut self, index: usize) {
        let fault = self.scenario.fault[index].clone();
        match fault.kind {
            FaultKind::Crash => {
                for &peer in &fault.peers {
                    self.plan_restart(peer, fault.restart_after_s);
                    self.crash(peer);
                }
            }
            FaultKind::Leave => {
                let now = self.now;
                for &peer in &fault.peers {
                    if let Some(process) = self.peers[peer].process.as_mut() {
                        process.node.leave(now, GRACE);
                    }
                    self.pump(peer);
                }
            }
            FaultKind::Join => {
                for _ in &fault.peers {
                    let peer = self.add_peer();
                    self.start(peer);
                }
            }
            FaultKind::Partition => self.partition(&fault.peers),
            FaultKind::Heal => self.network.heal(),
        }
    }

    fn partition(&mut self, island: &[usize]) {
        self.network.cut(island);
        let links: Vec<(usize, usize)> = (0..self.peers.len())
            .flat_map(|a| (0..self.peers.len()).map(move |b| (a, b)))
            .filter(|&(a, b)| !self.network.connected(a, b))
            .collect();
        for (peer, gone) in links {
            let boot = self.peers[peer].disk.boot;
            let at = self.now + Duration::from_secs(5);
            self.queue.push(at, Event::LinkLost { peer, boot, gone });
        }
    }

    /// A peer's process dies at once.
    pub(super) fn crash(&mut self, peer: usize) {
        if self.peers[peer].process.is_none() {
            return;
        }
        self.note(peer, "crashes");
        self.counters.crashes += 1;
        self.stop(peer);
    }

    /// A peer's process is gone: its rings break, and the others find their links lost; at once if
    /// its machine still answers, else (one death in two) not before they miss it.
    pub(super) fn stop(&mut self, peer: usize) {
        self.peers[peer].process = None;
        self.break_rings_of(peer);
        let silent = self.network.chance() < 0.5 && !self.peers[peer].left;
        for other in (0..self.peers.len()).filter(|&other| other != peer) {
            if !self.is_up(other) || silent {
                continue;
            }
            let boot = self.peers[other].disk.boot;
            let at = self.now + self.network.latency(peer, other);
            self.queue.push(at, Event::LinkLost { peer: other, boot, gone: peer });
        }
    }

    pub(super) fn link_lost(&mut self, peer: usize, boot: u64, gone: usize) {
        if self.reach(peer, gone) {
            return;
        }
        let (now, gone) = (self.now, self.peers[gone].id);
        let Some(process) = self.peers[peer].alive(boot) else { return };
        process.node.handle_link_lost(now, gone);
        self.pump(peer);
    }

    pub(super) fn restart(&mut self, peer: usize) {
        if self.peers[peer].process.is_none() && !self.peers[peer].left {
            self.note(peer, "starts again");
            self.start(peer);
        }
    }

    /// A random peer crashes and comes back later.
    pub(super) fn churn(&mut self) {
        let Some(churn) = self.scenario.churn.clone() else { return };
        if self.now.as_secs_f64() > churn.until_s {
            return;
        }
        let up: Vec<usize> = (0..self.peers.len()).filter(|&peer| self.is_up(peer)).collect();
        if up.len() > churn.keep {
            let victim = up[(self.network.chance() * up.len() as f64) as usize];
            self.plan_restart(victim, Some(churn.down_s));
            self.crash(victim);
        }
        let wait = churn.every_s * (0.5 + self.network.chance());
        self.queue.push(self.now + millis(wait * 1e3), Event::Churn);
    }
}

fn seconds(value: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(value)
}
