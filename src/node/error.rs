//! Why a node could not start or had to stop: what was wrong, where, and what to do.

use std::{io, net::SocketAddr, path::PathBuf};

use crate::{
    base::{Round, RunId},
    config::InvalidManifest,
};

/// How a node ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run's last round is committed and served.
    Finished,
    /// A signal, or `--rounds`, ended it early; the state is written.
    Stopped,
}

/// A run that can be joined, as `dilocox-node runs` lists it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RunRow {
    /// The run.
    pub run_id: RunId,
    /// Its name.
    pub name: String,
    /// Parameters of its model.
    pub parameters: u64,
    /// Members of the newest committed round.
    pub members: usize,
    /// The newest committed round.
    pub round: Round,
    /// Rounds in all.
    pub rounds: Round,
    /// Validation loss, where somebody has measured it.
    pub loss: Option<f32>,
    /// Bytes of memory that training it takes.
    pub memory_bytes: u64,
}

/// A node cannot start or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A manifest cannot be used.
    #[error("{path}: {source}", path = .path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: InvalidManifest,
    },
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// `read`, `write`, `create`, ...
        action: &'static str,
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process uses the data directory.
    #[error("the data directory {path} is in use by another node", path = .path.display())]
    DataDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// An address to listen on is taken or not ours.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The multiaddr.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// The HTTP endpoint's address is taken or not ours.
    #[error("cannot listen for HTTP on {address}: {source}")]
    Http {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A bootstrap address cannot be used.
    #[error("bootstrap address `{address}`: {reason}")]
    PeerAddress {
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The bootstrap peers know several runs and none was chosen.
    #[error("{} runs can be joined there:\n{}", .runs.len(), table(.runs))]
    SeveralRuns {
        /// The runs.
        runs: Vec<RunRow>,
    },
    /// Training data is missing, empty or too short.
    #[error("training data {what}: {problem}")]
    Data {
        /// The file, or the source.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The data directory holds nothing to work with.
    #[error("{path} holds no run", path = .path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// The run cannot be gone on with.
    #[error("{what}")]
    Failed {
        /// What happened, and where.
        what: String,
        /// What to do.
        help: String,
    },
    /// The command line or configuration asks for something impossible.
    #[error("{what}")]
    Usage {
        /// What was wrong.
        what: String,
        /// What to do.
        help: String,
    },
}

impl NodeError {
    /// What a person can do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Manifest { .. } => {
                "correct the manifest; `dilocox-node run check FILE` checks it without founding".into()
            }
            Self::File { .. } => "check the path, its permissions and the free disk space".into(),
            Self::DataDirInUse { .. } => {
                "stop the other node, or give this one its own --data-dir".into()
            }
            Self::Listen { .. } => {
                "choose another --listen address, or leave it out: the next free port is taken".into()
            }
            Self::Http { .. } => "choose another --http address, or `--http off`".into(),
            Self::PeerAddress { .. } => {
                "write it as the other machine printed it, like /ip4/192.0.2.7/tcp/7450/p2p/12D3KooW..."
                    .into()
            }
            Self::SeveralRuns { .. } => "choose one with --run-id".into(),
            Self::Data { .. } => "name readable, non-empty text files in the manifest".into(),
            Self::NoRun { .. } => {
                "name the --data-dir of a node that has joined or founded a run".into()
            }
            Self::Failed { help, .. } | Self::Usage { help, .. } => help.clone(),
        }
    }

    /// Whether the command line or a configuration was wrong (exit code 2), rather than the world
    /// (exit code 1).
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Manifest { .. }
                | Self::PeerAddress { .. }
                | Self::SeveralRuns { .. }
                | Self::Usage { .. }
        )
    }
}

/// Runs as an aligned table for people.
pub fn table(runs: &[RunRow]) -> String {
    let mut lines = vec![format!(
        "{:<64}  {:<20} {:>12} {:>7} {:>11} {:>7}",
        "RUN", "NAME", "PARAMETERS", "MEMBERS", "ROUND", "LOSS"
    )];
    lines.extend(runs.iter().map(|run| {
        let loss = run.loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.3}"));
        let round = format!("{}/{}", run.round, run.rounds);
        format!(
            "{:<64}  {:<20} {:>12} {:>7} {:>11} {:>7}",
            run.run_id, run.name, run.parameters, run.members, round, loss
        )
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_are_shown_as_a_table_with_a_remedy() {
        let row = RunRow {
            run_id: RunId([7; 32]),
            name: "stories-1m".into(),
            parameters: 1_000_000,
            members: 3,
            round: 4,
            rounds: 30,
            loss: None,
            memory_bytes: 1 << 30,
        };
        let error = NodeError::SeveralRuns { runs: vec![row.clone(), row] };
        let text = error.to_string();
        assert!(text.starts_with("2 runs") && text.contains("4/30"), "{text}");
        assert!(error.help().contains("--run-id") && error.is_usage());
    }
}
