//! Collecting Ready and proposing a plan: what the first three in the order do.
//!
//! Nobody is elected. The first candidate proposes as soon as everybody whom it expects is ready,
//! or when more than half of the voters are and the grace time is over; the second and third do
//! the same later, so that a silent one is replaced without a word.

use std::{collections::BTreeSet, time::Duration};

use super::{Node, Notice, Timer, ballot::EMPTY_FROM};
use crate::{
    base::{
        Attempt, Bounded, Digest, NodeId, Time,
        limits::{MAX_ATTEMPTS, MAX_MEMBERS},
    },
    proto::order,
    wire::{Guest, Member, Message, Plan, Ready, Status},
};

/// Readies kept for one attempt: more than a plan can take.
const MAX_READIES: usize = 4 * MAX_MEMBERS;

/// What a candidate should do now.
enum Verdict {
    Wait(Option<Time>),
    Close(String),
    Propose(String),
}

impl Node {
    pub(super) fn on_ready(&mut self, now: Time, author: NodeId, ready: Ready) {
        let known = author == self.me || self.roster.contains(author);
        if ready.parent != self.head_digest || ready.attempt >= MAX_ATTEMPTS || !known {
            return;
        }
        if let Some(blamed) = ready.blame
            && ready.attempt > 0
            && self.roster.contains(blamed)
        {
            self.ballot.blames.entry(blamed).or_default().insert(ready.attempt - 1);
        }
        let attempt = ready.attempt;
        self.follow(now, attempt);
        if attempt.abs_diff(self.ballot.attempt) > 2 {
            return;
        }
        let readies = self.ballot.readies.entry(attempt).or_default();
        if readies.len() < MAX_READIES || readies.contains_key(&author) {
            readies.insert(author, ready);
        }
        self.coordinate(now);
    }

    /// Voters of the open round that are ready for `attempt`, as far as this node knows.
    pub(super) fn ready_voters(&self, attempt: Attempt) -> usize {
        let Some(readies) = self.ballot.readies.get(&attempt) else { return 0 };
        let voters = self.voters();
        readies.keys().filter(|node| voters.contains(node)).count()
    }

    /// Does what a candidate has to do now, and sets the timer for what comes next.
    pub(super) fn coordinate(&mut self, now: Time) {
        let Some((attempt, place)) = self.duty() else { return };
        match self.verdict(now, attempt, place) {
            Verdict::Wait(Some(until)) => self.timers.set(Timer::Coordinate, until),
            Verdict::Wait(None) => {}
            Verdict::Close(reason) => {
                self.ballot.closing_sent = true;
                let round = self.open();
                self.notify(Notice::Closing { round, reason });
                let parent = self.head_digest;
                self.gossip(Message::Closing { round, attempt, parent });
                self.timers.set(Timer::Coordinate, now + self.config.deadlines.grace);
            }
            Verdict::Propose(reason) => self.propose(attempt, reason),
        }
    }

    /// The attempt that this node may coordinate, and its place among the candidates.
    fn duty(&self) -> Option<(Attempt, u32)> {
        let stays = !self.leaving || self.contribution().is_some();
        let idle = self.mode == super::Mode::Active && self.folding.is_none() && stays;
        let attempt = self.ballot.attempt;
        let taken = !self.ballot.is_free()
            || self.ballot.proposed.contains(&attempt)
            || self.ballot.others.get(&attempt).is_some_and(|author| self.is_live(*author))
            || self.ballot.accepted.as_ref().is_some_and(|a| a.plan.attempt >= attempt)
            || self.ballot.promised.is_some_and(|promised| promised >= attempt);
        if !idle || taken || self.head_root.is_none() {
            return None;
        }
        let place = self.candidates(attempt).iter().position(|&node| node == self.me)?;
        Some((attempt, place as u32))
    }

    fn verdict(&mut self, now: Time, attempt: Attempt, place: u32) -> Verdict {
        let ready = self.ready(attempt);
        let voters = self.voters();
        let count = ready.iter().filter(|node| voters.contains(node)).count();
        let quorum = if voters.is_empty() { !ready.is_empty() } else { count * 2 > voters.len() };
        if !quorum {
            self.ballot.quorum_since.remove(&attempt);
            return Verdict::Wait(None);
        }
        let since = *self.ballot.quorum_since.entry(attempt).or_insert(now);
        let patience = self.config.deadlines.takeover * place + back_off(attempt);
        let missing: Vec<String> =
            self.expected(attempt).difference(&ready).map(NodeId::short).collect();
        let graces = if attempt == 0 { 2 } else { 1 };
        let due = if missing.is_empty() {
            since + patience
        } else {
            since + patience + self.config.deadlines.grace * graces
        };
        if now >= due {
            return Verdict::Propose(closing_reason(
                ready.len(),
                &missing,
                now.since(since),
                place,
            ));
        }
        let close = since + patience + self.config.deadlines.grace;
        if attempt == 0 && !missing.is_empty() && !self.ballot.closing_sent {
            if now >= close {
                let waited = now.since(since).as_secs_f64();
                return Verdict::Close(format!(
                    "more than half of the voters have been ready for {waited:.1} s; missing: {}",
                    missing.join(", ")
                ));
            }
            return Verdict::Wait(Some(close));
        }
        Verdict::Wait(Some(due))
    }

    /// Whether a node is alive and its link is not just lost.
    fn is_live(&self, node: NodeId) -> bool {
        node == self.me || self.roster.get(node).is_some_and(|peer| !peer.suspect)
    }

    /// Live nodes that are ready for `attempt` and whose link is not just lost.
    fn ready(&self, attempt: Attempt) -> BTreeSet<NodeId> {
        let readies = self.ballot.readies.get(&attempt);
        let live = |node: &NodeId| self.is_live(*node);
        readies.into_iter().flat_map(|r| r.keys()).copied().filter(live).collect()
    }

    /// Whom the coordinator waits for: those whose presence says that they will be ready, and who
    /// did not miss the round before.
    fn expected(&self, attempt: Attempt) -> BTreeSet<NodeId> {
        let open = self.open();
        let own = (self.config.trains && open >= self.first_round).then_some(self.me);
        let live = self.roster.training().filter(|(_, peer)| !peer.suspect);
        if attempt > 0 {
            let before: BTreeSet<NodeId> = (0..attempt).flat_map(|a| self.ready(a)).collect();
            let live = live.map(|(node, _)| node);
            return live.chain(own).filter(|node| before.contains(node)).collect();
        }
        live.filter(|(node, peer)| {
            let presence = &peer.presence;
            let was_there = self.head.position(*node).is_some();
            presence.expects <= open && (was_there || presence.expects == open)
        })
        .map(|(node, _)| node)
        .chain(own)
        .collect()
    }

    fn propose(&mut self, attempt: Attempt, reason: String) {
        let round = self.open();
        // Without anybody to name: when the next Ready comes, it is tried again.
        let Some(plan) = self.plan(attempt) else { return };
        self.ballot.proposed.insert(attempt);
        self.notify(Notice::Closing { round, reason });
        self.gossip(Message::Propose(plan));
    }

    fn plan(&self, attempt: Attempt) -> Option<Plan> {
        let readies = self.ballot.readies.get(&attempt)?;
        let mut chosen = self.chosen(attempt);
        chosen = order::ring(self.head_digest, attempt, &chosen, &self.ballot.refused_links)
            .into_iter()
            .collect();
        let ring = order::ring(self.head_digest, attempt, &chosen, &self.ballot.refused_links);
        let weights: Vec<u32> = ring.iter().map(|node| self.capped(readies[node].weight)).collect();
        let members = self.members(&ring, &weights);
        let median = |code: fn(&Ready) -> u8| {
            let mut codes: Vec<u8> = ring.iter().map(|node| code(&readies[node])).collect();
            codes.sort_unstable();
            codes.get(codes.len() / 2).copied().unwrap_or(0)
        };
        let compression = &self.config.manifest.compression;
        Some(Plan {
            run: self.config.run,
            round: self.open(),
            attempt,
            parent: self.head_digest,
            voters: self.voter_bits(),
            guests: self.guests(&chosen),
            members: Bounded::try_from(members).ok().filter(|members| !members.is_empty())?,
            rank: compression.rank,
            bits: compression.bits,
            gather_bits: compression.gather_bits,
            local_steps: self.h(),
            size: median(|ready| ready.size),
            feedback: median(|ready| ready.feedback),
            cursor: self.head.cursor_after(),
            root_before: self.proposed_root()?,
        })
    }

    /// Who goes into the plan: the ready ones who trained on something, less those who stalled two
    /// attempts, at most 64 of them.
    fn chosen(&self, attempt: Attempt) -> BTreeSet<NodeId> {
        let readies = &self.ballot.readies;
        let ending = self.open() > self.last_round();
        let stalls = |node: &NodeId| self.ballot.blames.get(node).map_or(0, BTreeSet::len) >= 2;
        let mut chosen: Vec<NodeId> = self
            .ready(attempt)
            .into_iter()
            .filter(|node| ending || readies[&attempt][node].weight > 0)
            .filter(|node| !stalls(node) || *node == self.me)
            .collect();
        if chosen.len() > MAX_MEMBERS {
            let rank = |node: &NodeId| {
                Digest::of_parts("dilocox/seats/1", [&node.0[..], &self.head_digest.0])
            };
            chosen.sort_by_cached_key(rank);
            chosen.truncate(MAX_MEMBERS);
        }
        chosen.into_iter().collect()
    }

    fn members(&self, ring: &[NodeId], weights: &[u32]) -> Vec<Member> {
        let largest = weights.iter().copied().max().unwrap_or(0);
        ring.iter()
            .zip(weights)
            .map(|(&node, &weight)| Member {
                node,
                weight,
                omega: omega(weight, largest),
                lease: self.lease_length(weight),
            })
            .collect()
    }

    /// Live peers outside the plan that will want data: late or syncing.
    fn guests(&self, chosen: &BTreeSet<NodeId>) -> Bounded<Guest, { Guest::MAX }> {
        let guests: Vec<Guest> = self
            .roster
            .iter()
            .filter(|(node, peer)| {
                let status = peer.presence.status;
                !chosen.contains(node) && matches!(status, Status::Training | Status::Syncing)
            })
            .map(|(node, _)| Guest { node, lease: self.lease_length(0) })
            .take(Guest::MAX)
            .collect();
        Bounded::try_from(guests).unwrap_or_default()
    }

    /// Sequences leased for the segment after next: 1.25 times the last use, between one batch
    /// and the cap; the cap's half for those whose use is not known.
    pub(super) fn lease_length(&self, used: u32) -> u32 {
        let cap = u32::try_from(self.config.manifest.max_weight()).unwrap_or(u32::MAX);
        if self.open() + 2 > self.last_round() {
            return 0;
        }
        if used == 0 {
            return cap.div_ceil(2);
        }
        let batch = u32::try_from(self.config.manifest.inner.batch).unwrap_or(u32::MAX);
        (used + used / 4).max(batch).min(cap)
    }

    /// The cap on weights holds for whatever a peer claims.
    pub(super) fn capped(&self, weight: u32) -> u32 {
        weight.min(u32::try_from(self.config.manifest.max_weight()).unwrap_or(u32::MAX))
    }

    /// The root after the head: the own one, unless most voters have reported another.
    fn proposed_root(&self) -> Option<Digest> {
        let own = self.head_root?;
        let voters = self.voters();
        let reports = |root: Digest| {
            self.ballot.roots.iter().filter(|(n, r)| voters.contains(n) && **r == root).count()
        };
        let other = self.ballot.roots.values().copied().max_by_key(|&root| reports(root));
        Some(other.filter(|&root| reports(root) * 2 > voters.len()).unwrap_or(own))
    }

    /// Whether a plan of this attempt runs no ring (DESIGN section 5: from the eighth attempt on,
    /// and after the last round).
    pub(super) fn skips_ring(&self, plan: &Plan) -> bool {
        plan.attempt >= EMPTY_FROM || plan.round > self.last_round()
    }
}

/// Attempts that fail at once must not race through all ballots while presence expires.
fn back_off(attempt: Attempt) -> Duration {
    let doublings = u32::from(attempt.saturating_sub(2)).min(5);
    if attempt < 2 { Duration::ZERO } else { Duration::from_millis(200) * (1 << doublings) }
}

/// A member's integer share 1..=256 of the largest weight.
pub(super) fn omega(weight: u32, largest: u32) -> u16 {
    if largest == 0 {
        return 256;
    }
    let share = (u64::from(weight) * 256 + u64::from(largest) / 2) / u64::from(largest);
    share.clamp(1, 256) as u16
}

fn closing_reason(ready: usize, missing: &[String], waited: Duration, place: u32) -> String {
    let who = match place {
        0 => String::new(),
        n => format!("; the {n} before this node in the order were silent"),
    };
    if missing.is_empty() {
        format!("all {ready} expected nodes are ready{who}")
    } else {
        format!(
            "{ready} nodes are ready and the grace of {:.1} s is over; without {}{who}",
            waited.as_secs_f64(),
            missing.join(", ")
        )
    }
}
