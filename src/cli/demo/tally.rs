//! What all nodes' events add up to. Pure: events in, figures out.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    base::{Digest, Round},
    observe::{DemoResult, Event},
};

/// Figures gathered over all nodes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    nodes: BTreeSet<String>,
    roots: BTreeMap<Round, BTreeMap<String, BTreeSet<Digest>>>,
    validated: BTreeMap<Round, f64>,
    training: BTreeMap<Round, Vec<f64>>,
    exchanges: u64,
    bytes_sent: u64,
    dense_bytes: f64,
    train_seconds: f64,
    stall_seconds: f64,
}

/// Nodes that disagree about a round.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disagreement {
    pub(super) round: Round,
    pub(super) roots: Vec<(String, String)>,
}

impl Tally {
    /// Counts a training node.
    pub(super) fn node_started(&mut self, node: &str) {
        self.nodes.insert(node.to_owned());
    }

    /// Takes an event of `node` into account.
    pub(super) fn record(&mut self, node: &str, event: &Event) {
        match event {
            Event::Committed { round, state_root, .. } => self.root(node, *round, *state_root),
            Event::Validated { round, validation_loss, .. } => {
                self.validated.insert(*round, *validation_loss);
            }
            Event::Exchange { members, bytes_sent, dense_bytes, local_steps, .. }
                if *members > 1 =>
            {
                self.exchanges += 1;
                self.bytes_sent += bytes_sent;
                self.dense_bytes += *dense_bytes as f64 * f64::from(*local_steps);
            }
            Event::Round {
                round,
                loss,
                validation_loss,
                validated_round,
                train_seconds,
                stall_seconds,
                ..
            } => {
                self.training.entry(*round).or_default().push(*loss);
                if let (Some(round), Some(loss)) = (validated_round, validation_loss) {
                    self.validated.insert(*round, *loss);
                }
                self.train_seconds += train_seconds;
                self.stall_seconds += stall_seconds;
            }
            Event::Finished { round, state_root, validation_loss, .. } => {
                self.root(node, *round, *state_root);
                self.validated.extend(validation_loss.map(|loss| (*round, loss)));
            }
            _ => {}
        }
    }

    fn root(&mut self, node: &str, round: Round, root: Digest) {
        let nodes = self.roots.entry(round).or_default();
        nodes.entry(node.to_owned()).or_default().insert(root);
    }

    /// The newest round that a node committed.
    pub(super) fn rounds(&self) -> Round {
        self.roots.keys().next_back().copied().unwrap_or(0)
    }

    /// Bytes sent for exchanges, by all nodes.
    pub(super) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// The first round about which nodes, or one node twice, disagree.
    pub(super) fn disagreement(&self) -> Option<Disagreement> {
        let differs = |nodes: &BTreeMap<String, BTreeSet<Digest>>| {
            nodes.values().flatten().collect::<BTreeSet<_>>().len() > 1
        };
        let (round, nodes) = self.roots.iter().find(|(_, nodes)| differs(nodes))?;
        let roots = nodes
            .iter()
            .flat_map(|(node, roots)| roots.iter().map(move |root| (node.clone(), root.short())));
        Some(Disagreement { round: *round, roots: roots.collect() })
    }

    /// (node, round) pairs of rounds that more than one node committed.
    fn compared(&self) -> u64 {
        self.roots.values().map(BTreeMap::len).filter(|&nodes| nodes > 1).sum::<usize>() as u64
    }

    /// Losses by round: of validated anchors, or else the mean training losses.
    pub(super) fn curve(&self) -> (Vec<(f64, f64)>, &'static str) {
        if self.validated.len() > 1 {
            let points = self.validated.iter().map(|(round, loss)| (*round as f64, *loss));
            return (points.collect(), "validation loss");
        }
        let mean = |losses: &Vec<f64>| losses.iter().sum::<f64>() / losses.len() as f64;
        let points = self.training.iter().map(|(round, losses)| (*round as f64, mean(losses)));
        (points.collect(), "training loss")
    }

    /// The result.
    pub(super) fn result(&self) -> DemoResult {
        let rounds = self.rounds();
        let compared = self.compared();
        let busy = self.train_seconds + self.stall_seconds;
        DemoResult {
            nodes: self.nodes.len(),
            rounds,
            first_loss: self.validated.get(&0).copied(),
            last_loss: self.validated.get(&rounds).filter(|_| rounds > 0).copied(),
            state_roots_equal: self.disagreement().is_none()
                && (compared > 0 || self.nodes.len() == 1),
            roots_compared: compared,
            bytes_per_node_per_round: self.bytes_sent as f64 / self.exchanges.max(1) as f64,
            compression_ratio: (self.bytes_sent > 0)
                .then(|| self.dense_bytes / self.bytes_sent as f64),
            utilization: if busy > 0.0 { self.train_seconds / busy } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Stamped;

    /// Lines as `demo --json` prints them.
    fn tally(lines: &str) -> Tally {
        let mut tally = Tally::default();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let json: serde_json::Value = serde_json::from_str(line).unwrap();
            let node = json["node"].as_str().unwrap();
            let stamped: Stamped = serde_json::from_str(line).unwrap();
            tally.node_started(node);
            tally.record(node, &stamped.event);
        }
        tally
    }

    fn committed(node: &str, round: u64, root: char) -> String {
        format!(
            r#"{{"node":"{node}","event":"committed","time":1.0,"round":{round},"members":2,"state_root":"{}","cumulative_weight":9,"replayed":false}}"#,
            root.to_string().repeat(64)
        )
    }

    #[test]
    fn roots_of_killed_and_joined_nodes_count() {
        let lines = [
            committed("node-1", 1, 'a'),
            committed("node-2", 1, 'a'),
            committed("node-1", 2, 'b'),
            committed("node-2", 2, 'b'),
            committed("node-2", 3, 'c'),
            committed("node-3", 2, 'b'),
        ];
        let result = tally(&lines.join("\n")).result();
        assert!(result.state_roots_equal);
        assert_eq!((result.nodes, result.rounds, result.roots_compared), (3, 3, 5));
    }

    #[test]
    fn a_differing_root_is_named() {
        let lines = [committed("node-1", 4, 'a'), committed("node-2", 4, 'b')];
        let tally = tally(&lines.join("\n"));
        assert!(!tally.result().state_roots_equal);
        let found = tally.disagreement().unwrap();
        assert_eq!(found.round, 4);
        assert_eq!(found.roots[1], ("node-2".into(), "bbbbbbbbbb".into()));
    }

    #[test]
    fn a_node_that_contradicts_itself_is_seen() {
        let lines = [committed("node-1", 4, 'a'), committed("node-1", 4, 'b')];
        assert!(tally(&lines.join("\n")).disagreement().is_some());
    }

    #[test]
    fn nothing_compared_is_no_proof() {
        let lines = [committed("node-1", 1, 'a'), committed("node-2", 2, 'b')];
        let result = tally(&lines.join("\n")).result();
        assert!(!result.state_roots_equal && result.roots_compared == 0);
    }

    #[test]
    fn losses_bytes_and_time_add_up() {
        let result = tally(
            r#"
            {"node":"node-1","event":"validated","time":1.0,"round":0,"validation_loss":5.5,"seconds":0.1}
            {"node":"node-1","event":"exchange","time":1.0,"round":1,"members":1,"attempt":0,"bytes_sent":0,"bytes_received":0,"dense_bytes":0,"local_steps":10,"seconds":0.1}
            {"node":"node-1","event":"exchange","time":1.0,"round":2,"members":2,"attempt":0,"bytes_sent":100,"bytes_received":90,"dense_bytes":800,"local_steps":10,"seconds":0.1}
            {"node":"node-2","event":"exchange","time":1.0,"round":2,"members":2,"attempt":0,"bytes_sent":300,"bytes_received":90,"dense_bytes":800,"local_steps":10,"seconds":0.1}
            {"node":"node-1","event":"round","time":1.0,"round":2,"loss":4.0,"validation_loss":3.0,"validated_round":1,"local_steps":10,"tokens":1,"train_seconds":3.0,"stall_seconds":1.0,"utilization":0.75}
            {"node":"node-1","event":"finished","time":1.0,"run_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","round":2,"state_root":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","validation_loss":2.0,"bytes_sent":1,"bytes_received":1,"train_seconds":3.0,"stall_seconds":1.0}
            "#,
        );
        assert_eq!(result.curve().0, [(0.0, 5.5), (1.0, 3.0), (2.0, 2.0)]);
        let result = result.result();
        assert_eq!((result.first_loss, result.last_loss), (Some(5.5), Some(2.0)));
        assert_eq!(result.bytes_per_node_per_round, 200.0);
        assert_eq!(result.compression_ratio, Some(40.0));
        assert_eq!(result.utilization, 0.75);
    }
}
