//! The command line of `dilocox-sim`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Runs many dilocox nodes in one process on virtual time: same protocol code, simulated network.
#[derive(Debug, Parser)]
#[command(name = "dilocox-sim", version, arg_required_else_help = true)]
pub struct SimArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// What the simulator can do.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run one scenario; exit 0 if all its invariants held.
    Run {
        /// The scenario, such as simulations/churn.toml.
        scenario: PathBuf,
        /// Seed of the world, in place of the scenario's: the same seed gives the same events.
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Print the report as one JSON object on the last line, and nothing else.
        #[arg(long)]
        json: bool,
    },
}

/// The main function of `dilocox-sim`.
pub fn main() -> ExitCode {
    run(SimArgs::parse())
}

/// Carries a command out. Exit codes: 0 done, 1 failed, 2 wrong usage or scenario.
pub fn run(args: SimArgs) -> ExitCode {
    let SimCommand::Run { scenario, .. } = args.command;
    eprintln!("error: cannot run {}: the simulator is not built yet", scenario.display());
    eprintln!("help: use a later version");
    ExitCode::FAILURE
}
