//! The main functions of `dilocox-node` and `dilocox-bootstrap`.

use std::{future::Future, process::ExitCode};

use clap::Parser;

use crate::{
    cli::{
        args::{BootstrapArgs, Command, NodeArgs, StartArgs},
        commands,
        failure::Failure,
        settings::{self, BootstrapSettings, NodeSettings},
    },
    node::{self, NodeError, Outcome, Shutdown, shutdown},
    observe::{self, Emitter},
};

/// The main function of `dilocox-node`.
pub fn node_main() -> ExitCode {
    node::quiet_candle();
    observe::log::init();
    let args = NodeArgs::parse();
    exit(match args.command {
        None => node_command(args.settings, &args.start),
        Some(Command::Bootstrap(args)) => bootstrap_command(args.settings, &args.start),
        Some(command) => commands::dispatch(command),
    })
}

/// The main function of `dilocox-bootstrap`.
pub fn bootstrap_main() -> ExitCode {
    node::quiet_candle();
    observe::log::init();
    let args = BootstrapArgs::parse();
    exit(bootstrap_command(args.settings, &args.start))
}

fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

fn node_command(flags: NodeSettings, start: &StartArgs) -> Result<(), Failure> {
    let options = flags.or(settings::from_file(start.config.as_deref())?).resolve()?;
    let grace = options.grace;
    live(start, grace, move |emitter, shutdown| node::run(options, emitter, shutdown))
}

fn bootstrap_command(flags: BootstrapSettings, start: &StartArgs) -> Result<(), Failure> {
    let options = flags.or(settings::from_file(start.config.as_deref())?).resolve()?;
    let grace = options.grace;
    live(start, grace, move |emitter, shutdown| node::bootstrap(options, emitter, shutdown))
}

/// Runs a process that lives until it is done or asked to end: signals, events, runtime.
fn live<F>(
    start: &StartArgs,
    grace: std::time::Duration,
    body: impl FnOnce(Emitter, Shutdown) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Outcome, NodeError>>,
{
    if start.exit_with_parent {
        shutdown::exit_with_parent();
    }
    let (emitter, output) = Emitter::new(observe::sink::stdout(start.json));
    let result = runtime()?.block_on(async {
        let shutdown = Shutdown::on_signals(grace).map_err(|error| {
            Failure::failed(format!("cannot handle signals: {error}"), "report this system")
        })?;
        body(emitter, shutdown).await.map_err(Failure::from)
    });
    output.finish();
    result.map(|_| ())
}

/// The runtime of all commands that wait for something.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Runtime::new().map_err(|error| {
        Failure::failed(
            format!("cannot start threads: {error}"),
            "raise the limit on processes and open files (ulimit -u, -n)",
        )
    })
}
