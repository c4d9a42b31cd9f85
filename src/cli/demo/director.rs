//! The play: which process starts or dies when. Pure: events in, actions out.

use std::collections::BTreeSet;

use crate::{base::Round, observe::Event};

/// Name of the bootstrap peer.
pub(super) const BOOTSTRAP: &str = "bootstrap";

/// The name of the training node `index`, from 1.
pub(super) fn node_name(index: usize) -> String {
    format!("node-{index}")
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Start a node that founds the run, or joins it, at the bootstrap peer's address.
    Start {
        /// Its name.
        node: String,
        /// The bootstrap peer's multiaddr.
        bootstrap: String,
        /// Whether it founds the run.
        founds: bool,
    },
    /// Kill a node without warning.
    Kill {
        /// Its name.
        node: String,
        /// The newest committed round.
        round: Round,
    },
}

/// Where the play stands.
#[derive(Debug)]
pub(super) struct Director {
    nodes: usize,
    churn: bool,
    bootstrap: Option<String>,
    rounds: Option<Round>,
    joined: BTreeSet<String>,
    in_rounds: BTreeSet<String>,
    newest: Round,
    killed: bool,
    latecomer: bool,
}

impl Director {
    /// A play with so many nodes; one alone is neither killed nor joined late.
    pub(super) fn new(nodes: usize, churn: bool) -> Self {
        Self {
            nodes,
            churn: churn && nodes > 1,
            bootstrap: None,
            rounds: None,
            joined: BTreeSet::new(),
            in_rounds: BTreeSet::new(),
            newest: 0,
            killed: false,
            latecomer: false,
        }
    }

    /// What an event of a process leads to.
    pub(super) fn on_event(&mut self, node: &str, event: &Event) -> Vec<Action> {
        match event {
            Event::Started { listen, .. } if node == BOOTSTRAP => self.bootstrap_is_up(listen),
            Event::Founded { rounds, .. } if self.rounds.is_none() => {
                self.rounds = Some(*rounds);
                (2..=self.nodes).filter_map(|index| self.start(index)).collect()
            }
            Event::Joined { .. } => {
                self.joined.insert(node.to_owned());
                Vec::new()
            }
            Event::Committed { round, replayed: false, .. } => {
                self.in_rounds.insert(node.to_owned());
                self.newest = self.newest.max(*round);
                self.churn()
            }
            _ => Vec::new(),
        }
    }

    fn bootstrap_is_up(&mut self, listen: &[String]) -> Vec<Action> {
        if self.bootstrap.is_none() {
            self.bootstrap = listen.first().cloned();
            return self.start(1).into_iter().collect();
        }
        Vec::new()
    }

    fn start(&self, index: usize) -> Option<Action> {
        let bootstrap = self.bootstrap.clone()?;
        Some(Action::Start { node: node_name(index), bootstrap, founds: index == 1 })
    }

    /// After a third of the rounds the founder dies, if the others hold the run by then; after two
    /// thirds somebody new comes.
    fn churn(&mut self) -> Vec<Action> {
        let Some(rounds) = self.rounds.filter(|_| self.churn) else { return Vec::new() };
        if !self.killed && self.newest * 3 >= rounds && self.others_hold_the_run() {
            self.killed = true;
            return vec![Action::Kill { node: node_name(1), round: self.newest }];
        }
        if self.killed && !self.latecomer && self.newest * 3 >= 2 * rounds {
            self.latecomer = true;
            return self.start(self.nodes + 1).into_iter().collect();
        }
        Vec::new()
    }

    fn others_hold_the_run(&self) -> bool {
        let others: BTreeSet<String> = (2..=self.nodes).map(node_name).collect();
        others.is_subset(&self.joined) && others.iter().any(|node| self.in_rounds.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{Digest, NodeId, RunId},
        observe::samples::samples,
    };

    fn up() -> Event {
        Event::Started {
            node_id: NodeId([0; 32]),
            peer_id: "p".into(),
            role: "bootstrap".into(),
            run_id: None,
            listen: vec!["/a/p2p/p".into()],
            join_command: String::new(),
            http: None,
            data_dir: String::new(),
            version: String::new(),
        }
    }

    fn founded() -> Event {
        Event::Founded { run_id: RunId([0; 32]), name: "x".into(), parameters: 1, rounds: 30 }
    }

    fn joined() -> Event {
        samples().into_iter().find(|event| matches!(event, Event::Joined { .. })).unwrap()
    }

    fn committed(round: Round) -> Event {
        let state_root = Digest([0; 32]);
        Event::Committed { round, members: 3, state_root, cumulative_weight: 1, replayed: false }
    }

    fn started(actions: &[Action]) -> Vec<&str> {
        actions
            .iter()
            .filter_map(|action| match action {
                Action::Start { node, .. } => Some(node.as_str()),
                Action::Kill { .. } => None,
            })
            .collect()
    }

    #[test]
    fn the_whole_play() {
        let mut director = Director::new(3, true);
        assert_eq!(
            director.on_event(BOOTSTRAP, &up()),
            [Action::Start { node: "node-1".into(), bootstrap: "/a/p2p/p".into(), founds: true }]
        );
        assert_eq!(started(&director.on_event("node-1", &founded())), ["node-2", "node-3"]);
        director.on_event("node-2", &joined());
        director.on_event("node-3", &joined());
        assert!(director.on_event("node-2", &committed(9)).is_empty());
        let kill = Action::Kill { node: "node-1".into(), round: 10 };
        assert_eq!(director.on_event("node-1", &committed(10)), [kill]);
        assert!(director.on_event("node-2", &committed(19)).is_empty());
        assert_eq!(started(&director.on_event("node-3", &committed(20))), ["node-4"]);
        assert!(director.on_event("node-3", &committed(30)).is_empty());
    }

    #[test]
    fn the_founder_lives_until_the_others_hold_the_run() {
        let mut director = Director::new(2, true);
        director.on_event(BOOTSTRAP, &up());
        director.on_event("node-1", &founded());
        assert!(director.on_event("node-1", &committed(15)).is_empty());
        director.on_event("node-2", &joined());
        assert!(director.on_event("node-1", &committed(16)).is_empty());
        assert_eq!(director.on_event("node-2", &committed(17)).len(), 1);
    }

    #[test]
    fn without_churn_nobody_dies_or_comes() {
        for mut director in [Director::new(3, false), Director::new(1, true)] {
            director.on_event(BOOTSTRAP, &up());
            director.on_event("node-1", &founded());
            director.on_event("node-2", &joined());
            director.on_event("node-3", &joined());
            for round in 1..=30 {
                assert!(director.on_event("node-2", &committed(round)).is_empty());
            }
        }
    }
}
