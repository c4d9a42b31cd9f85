//! How a command fails: what was wrong, where, what to do, and the exit code.

use std::{fmt, process::ExitCode};

use crate::node::NodeError;

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was wrong, and where.
    pub what: String,
    /// What to do.
    pub help: String,
    /// Whether the command line or a configuration is to blame.
    pub usage: bool,
}

impl Failure {
    /// The world is to blame: exit code 1.
    pub fn failed(what: impl fmt::Display, help: impl Into<String>) -> Self {
        Self { what: what.to_string(), help: help.into(), usage: false }
    }

    /// The command line or a configuration is to blame: exit code 2.
    pub fn usage(what: impl fmt::Display, help: impl Into<String>) -> Self {
        Self { what: what.to_string(), help: help.into(), usage: true }
    }

    /// 1 or 2.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.usage { 2 } else { 1 })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhelp: {}", self.what, self.help)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self { what: error.to_string(), help: error.help(), usage: error.is_usage() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_remedy() {
        let error = NodeError::DataDirInUse { path: "/tmp/x".into() };
        let failure = Failure::from(error);
        assert_eq!(
            failure.to_string(),
            "error: the data directory /tmp/x is in use by another node\n\
             help: stop the other node, or give this one its own --data-dir"
        );
        assert!(!failure.usage);
    }
}
