//! Where a node stands, gathered from its own events: what `status` and `/metrics` show.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::event::{Event, Stamped};
use crate::base::{Digest, NodeId, Round, RunId};

/// A node's standing. Losses are in nats a token, counts since the process's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// The node.
    pub node_id: Option<NodeId>,
    /// The same, as libp2p writes it.
    pub peer_id: Option<String>,
    /// Addresses under which others reach it.
    pub listen: Vec<String>,
    /// The command with which another machine joins.
    pub join_command: Option<String>,
    /// The run.
    pub run_id: Option<RunId>,
    /// Its name.
    pub name: Option<String>,
    /// Rounds in all.
    pub rounds: Option<Round>,
    /// The newest round committed and folded.
    pub round: Round,
    /// State root after it.
    pub state_root: Option<Digest>,
    /// Members of it.
    pub members: usize,
    /// Live replicas, this one included.
    pub live: usize,
    /// Training loss of the last step.
    pub loss: Option<f64>,
    /// Loss of the newest anchor that was validated.
    pub validation_loss: Option<f64>,
    /// Inner steps done.
    pub steps: u64,
    /// Tokens trained on.
    pub tokens: u64,
    /// Exchanges taken part in.
    pub exchanges: u64,
    /// Contributions that missed their exchange.
    pub missed: u64,
    /// Bytes sent for exchanges.
    pub bytes_sent: u64,
    /// Bytes received for exchanges.
    pub bytes_received: u64,
    /// Seconds spent on training.
    pub train_seconds: f64,
    /// Seconds in which training waited for the network.
    pub stall_seconds: f64,
    /// What the node waits for, or warned of last.
    pub trouble: Option<String>,
    /// Unix time of the last event.
    pub updated: f64,
}

/// A shared standing.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Standing>>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The standing now.
    pub fn standing(&self) -> Standing {
        self.lock().clone()
    }

    /// Takes an event into account.
    pub fn record(&self, stamped: &Stamped) {
        let mut standing = self.lock();
        standing.updated = stamped.time;
        standing.record_life(&stamped.event);
        standing.record_training(&stamped.event);
    }
}

impl Standing {
    fn record_life(&mut self, event: &Event) {
        match event {
            Event::Started { node_id, peer_id, run_id, listen, join_command, .. } => {
                self.node_id = Some(*node_id);
                self.peer_id = Some(peer_id.clone());
                self.run_id = *run_id;
                self.listen.clone_from(listen);
                self.join_command = Some(join_command.clone());
                self.live = 1;
            }
            Event::Founded { run_id, name, rounds, .. } => self.enter(*run_id, name, *rounds, 0),
            Event::Resumed { run_id, name, round, rounds, .. }
            | Event::Joined { run_id, name, round, rounds, .. } => {
                self.enter(*run_id, name, *rounds, *round);
            }
            Event::PeerJoined { live, .. } | Event::PeerLeft { live, .. } => self.live = *live,
            Event::Waiting { what, .. } => self.trouble = Some(format!("waiting for {what}")),
            Event::Stuck { missing, .. } => self.trouble = Some(format!("missing {missing}")),
            Event::Warning { what, .. } => self.trouble = Some(what.clone()),
            Event::BootstrapUnreachable { address, .. } => {
                self.trouble = Some(format!("bootstrap peer {address} is unreachable"));
            }
            _ => {}
        }
    }

    fn record_training(&mut self, event: &Event) {
        match event {
            Event::Step { loss, tokens, .. } => {
                self.loss = Some(*loss);
                self.steps += 1;
                self.tokens += tokens;
            }
            Event::Exchange { bytes_sent, bytes_received, .. } => {
                self.exchanges += 1;
                self.bytes_sent += bytes_sent;
                self.bytes_received += bytes_received;
            }
            Event::Committed { round, members, state_root, .. } => {
                self.round = *round;
                self.members = *members;
                self.state_root = Some(*state_root);
                self.trouble = None;
            }
            Event::Validated { validation_loss, .. } => {
                self.validation_loss = Some(*validation_loss);
            }
            Event::Round { train_seconds, stall_seconds, .. } => {
                self.train_seconds += train_seconds;
                self.stall_seconds += stall_seconds;
            }
            Event::Missed { .. } => self.missed += 1,
            _ => {}
        }
    }

    fn enter(&mut self, run_id: RunId, name: &str, rounds: Round, round: Round) {
        self.run_id = Some(run_id);
        self.name = Some(name.to_owned());
        self.rounds = Some(rounds);
        self.round = round;
        self.trouble = None;
    }

    /// The standing in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let gauges = [
            ("round", self.round as f64, "newest committed round"),
            ("members", self.members as f64, "members of the newest committed round"),
            ("live_replicas", self.live as f64, "live replicas, this one included"),
            ("loss", self.loss.unwrap_or(f64::NAN), "training loss of the last step"),
            (
                "validation_loss",
                self.validation_loss.unwrap_or(f64::NAN),
                "loss of the newest validated anchor",
            ),
        ];
        let counters = [
            ("steps_total", self.steps as f64, "inner steps"),
            ("tokens_total", self.tokens as f64, "tokens trained on"),
            ("exchanges_total", self.exchanges as f64, "exchanges taken part in"),
            ("missed_total", self.missed as f64, "contributions that missed their exchange"),
            ("exchange_sent_bytes_total", self.bytes_sent as f64, "bytes sent for exchanges"),
            (
                "exchange_received_bytes_total",
                self.bytes_received as f64,
                "bytes received for exchanges",
            ),
            ("train_seconds_total", self.train_seconds, "seconds spent on training"),
            ("stall_seconds_total", self.stall_seconds, "seconds waited for the network"),
        ];
        let family = |kind: &'static str| {
            move |(name, value, help): &(&str, f64, &str)| {
                format!(
                    "# HELP dilocox_{name} {help}\n# TYPE dilocox_{name} {kind}\ndilocox_{name} {value}\n"
                )
            }
        };
        gauges.iter().map(family("gauge")).chain(counters.iter().map(family("counter"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::samples::samples;

    #[test]
    fn a_board_follows_the_events() {
        let board = Board::default();
        samples().into_iter().for_each(|event| board.record(&Stamped::now(event)));
        let standing = board.standing();
        assert_eq!(standing.name.as_deref(), Some("stories"));
        assert_eq!((standing.round, standing.members, standing.live), (1, 3, 1));
        assert_eq!((standing.steps, standing.exchanges, standing.missed), (1, 1, 1));
        assert_eq!(standing.validation_loss, Some(5.6));
        let metrics = standing.metrics();
        assert!(metrics.contains("\ndilocox_tokens_total 512\n"), "{metrics}");
    }
}
