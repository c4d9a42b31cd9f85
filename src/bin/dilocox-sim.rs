//! `dilocox-sim`: runs scenarios; see `dilocox::sim`.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use dilocox::sim::cli::{RunArgs, SimError, main as run_scenario};

/// Runs many dilocox nodes in one process on virtual time: same protocol code, simulated network.
#[derive(Debug, Parser)]
#[command(name = "dilocox-sim", version, arg_required_else_help = true)]
struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Run one scenario; exit 0 if all its invariants held, 1 if not.
    Run {
        /// The scenario, such as simulations/churn.toml.
        scenario: PathBuf,
        /// Seed of the world, in place of the scenario's: the same seed gives the same events.
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Run so many seeds from there on and stop at the first that fails.
        #[arg(long, value_name = "N", default_value_t = 1)]
        seeds: u64,
        /// Print the report as one JSON object on the last line, and nothing else.
        #[arg(long)]
        json: bool,
        /// Print what happened, to stderr.
        #[arg(long)]
        trace: bool,
    },
}

fn main() -> ExitCode {
    let SimArgs { command: SimCommand::Run { scenario, seed, seeds, json, trace } } =
        SimArgs::parse();
    let text = match std::fs::read_to_string(&scenario) {
        Ok(text) => text,
        Err(error) => return fail(&format!("cannot read {}: {error}", scenario.display()), 2),
    };
    let mut report = String::new();
    for index in 0..seeds.max(1) {
        let first = seed.or((seeds > 1).then_some(1));
        let seed = first.map(|seed| seed + index);
        match run_scenario(&RunArgs { text: text.clone(), seed, json, trace }) {
            Ok(text) => report = text,
            Err(SimError::Failed(text)) => {
                println!("{}", text.trim_end());
                return ExitCode::FAILURE;
            }
            Err(error) => return fail(&format!("{}: {error}", scenario.display()), 2),
        }
    }
    println!("{}", report.trim_end());
    ExitCode::SUCCESS
}

fn fail(problem: &str, code: u8) -> ExitCode {
    eprintln!("error: {problem}");
    ExitCode::from(code)
}
