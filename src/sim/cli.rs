//! `dilocox-sim run`: from a scenario's text to a report.

use crate::sim::{Report, Scenario, World};

/// What the command line has said.
#[derive(Clone, Debug)]
pub struct RunArgs {
    /// The scenario file's text.
    pub text: String,
    /// Instead of the file's seed.
    pub seed: Option<u64>,
    /// A JSON object instead of lines for people.
    pub json: bool,
    /// Say what happened, line by line, to stderr.
    pub trace: bool,
}

/// Why there is no report, or a bad one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The file is not a scenario.
    #[error("the scenario cannot be read: {0}")]
    Syntax(String),
    /// A value is impossible.
    #[error("`{0}` of the scenario is not possible: {1}")]
    Value(String, String),
    /// An invariant broke, or the scenario's own check failed; the report says so.
    #[error("{0}")]
    Failed(String),
}

/// Runs a scenario and gives its report.
///
/// # Errors
/// If the scenario is impossible, or it failed: the report is in the error then.
pub fn main(args: &RunArgs) -> Result<String, SimError> {
    let mut scenario = Scenario::from_toml(&args.text)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let mut world = World::new(scenario)?;
    world.trace.verbose = args.trace;
    world.run();
    if args.trace {
        world.trace.lines().for_each(|line| eprintln!("{line}"));
    }
    let failure = world.verdict();
    let report = Report::of(&world, failure.clone());
    let text = if args.json { report.to_json() } else { report.to_text() };
    if failure.is_none() { Ok(text) } else { Err(SimError::Failed(text)) }
}
