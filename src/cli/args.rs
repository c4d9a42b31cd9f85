//! Flags and subcommands of `dilocox-node` and `dilocox-bootstrap`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{
    cli::settings::{BootstrapSettings, NodeSettings, parse_seconds},
    config::Rate,
};

const EXAMPLES: &str = "\
Examples:
  dilocox-node                            found the small embedded run and train
  dilocox-node --bootstrap MULTIADDR      join the run that the peer there knows
  dilocox-node --run configs/runs/embedded.toml --bootstrap MULTIADDR
                                          found a run there
  dilocox-node demo                       a whole network of processes on this machine

RUST_LOG=info shows diagnostics on standard error.
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";

/// Beginning of a text that a model goes on with: many of the built-in stories begin so.
pub(super) const PROMPT: &str = "Once there was";

/// Trains a language model together with other machines. Without a subcommand this is the node.
#[derive(Debug, Parser)]
#[command(name = "dilocox-node", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct NodeArgs {
    /// Settings of the node.
    #[command(flatten)]
    pub settings: NodeSettings,
    /// Flags of this start.
    #[command(flatten)]
    pub start: StartArgs,
    /// Something else than training.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// First contact of runs: keeps the address book (a Kademlia DHT), serves manifests and data that
/// it has been shown, and trains nothing.
#[derive(Debug, Parser)]
#[command(name = "dilocox-bootstrap", version)]
pub struct BootstrapArgs {
    /// Settings of the peer.
    #[command(flatten)]
    pub settings: BootstrapSettings,
    /// Flags of this start.
    #[command(flatten)]
    pub start: StartArgs,
}

/// Flags that are not settings.
#[derive(Args, Debug, Default)]
pub struct StartArgs {
    /// Configuration file: TOML whose keys are the names of the flags. Flags win. Paths in it are
    /// relative to it. Default: none.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print events, one JSON object a line, and nothing else on standard output. Default: text.
    #[arg(long)]
    pub json: bool,
    /// End at once when standard input closes: a parent that holds its other end takes this
    /// process with it, however it dies.
    #[arg(long, hide = true)]
    pub exit_with_parent: bool,
}

/// Everything that is not training.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show it all on this machine: a bootstrap peer and some nodes as processes, one of which is
    /// killed and one of which joins late.
    Demo(DemoArgs),
    /// Write, check or show a manifest.
    #[command(subcommand)]
    Run(RunCommand),
    /// List the runs that can be joined at some peers.
    Runs(RunsArgs),
    /// Show the node's identity, made if it is missing.
    Identity(IdentityArgs),
    /// Show where a running node stands.
    Status(StatusArgs),
    /// Write text with the newest state in a data directory.
    Generate(GenerateArgs),
    /// Measure parts of the node.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// The bootstrap peer, as in `dilocox-bootstrap`.
    #[command(hide = true)]
    Bootstrap(BootstrapArgs),
}

/// Flags of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Nodes that train from the start, 1 to 16. Each takes a thread and some 200 MB of memory.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub nodes: u16,
    /// Rounds of the run. Fewer are faster and leave the model worse. Default: the embedded run's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rounds: Option<u64>,
    /// Print all nodes' events, one JSON object a line with a `node` field, and `demo_result` as
    /// the last. Default: progress, a summary, a loss curve and a text.
    #[arg(long)]
    pub json: bool,
    /// Kill no node and let none join late. Default: the founder is killed after a third of the
    /// rounds, and a new node joins after two thirds.
    #[arg(long)]
    pub no_churn: bool,
    /// Train on this text file. Default: stories and sums made by a generator.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// The executable of the nodes, for tests. Default: this one.
    #[arg(long, value_name = "FILE", hide = true)]
    pub executable: Option<PathBuf>,
    /// Seconds without an event after which the demo gives up, for tests.
    #[arg(long, value_name = "SECONDS", hide = true, default_value = "60", value_parser = parse_seconds)]
    pub patience: Duration,
}

/// What can be done with a manifest.
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Write a manifest template that can be edited and founded.
    New(RunNewArgs),
    /// Check a manifest and the data it names; exit 2 and name the key if it cannot be founded.
    Check(RunFileArgs),
    /// Show a manifest with all defaults filled in.
    Show(RunFileArgs),
}

/// Flags of `run new`.
#[derive(Args, Debug)]
pub struct RunNewArgs {
    /// The file to write; an existing one is not overwritten.
    pub file: PathBuf,
    /// Name of the run, for people. Default: the file's name.
    #[arg(long)]
    pub name: Option<String>,
    /// Text file to train on. May be given several times. Default: the generator of stories.
    #[arg(long, value_name = "FILE")]
    pub data: Vec<PathBuf>,
    /// Rounds of the run. Default: the embedded run's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// Print one JSON object. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `run check` and `run show`.
#[derive(Args, Debug)]
pub struct RunFileArgs {
    /// The manifest. Default: the embedded run's.
    pub file: Option<PathBuf>,
    /// Print one JSON object. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `runs`.
#[derive(Args, Debug)]
pub struct RunsArgs {
    /// Peer to ask: a multiaddr with peer id. May be given several times.
    #[arg(long, value_name = "MULTIADDR", required = true)]
    pub bootstrap: Vec<String>,
    /// Seconds to wait for answers.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    pub timeout: Duration,
    /// Print one JSON object. Default: a table.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `identity`.
#[derive(Args, Debug)]
pub struct IdentityArgs {
    /// The node's data directory. Default: the platform's directory for application data.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print one JSON object. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The node's HTTP endpoint, as the node printed it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7550")]
    pub http: std::net::SocketAddr,
    /// Print one JSON object. Default: text.
    #[arg(long)]
    pub json: bool,
}

/// Flags of `generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// Text to go on from.
    #[arg(default_value = PROMPT)]
    pub prompt: String,
    /// Data directory of a node that has a run. Default: the platform's directory for application
    /// data.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Tokens to add.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tokens: u32,
    /// 0 takes the likeliest token each time, 1 samples as trained, more is wilder.
    #[arg(long, value_name = "T", default_value_t = 0.7)]
    pub temperature: f64,
    /// Seed of the sampling; the same seed writes the same text.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Threads that compute. Default: all cores but one.
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print one JSON object. Default: the text.
    #[arg(long)]
    pub json: bool,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Encode, sum and decode in this process.
    Codec(BenchCodecArgs),
    /// The whole exchange between processes on loopback: encode, ring, decode.
    Allreduce(BenchAllreduceArgs),
    /// One process of `bench allreduce`, which it obeys on standard input.
    #[command(hide = true)]
    Peer,
}

/// Flags of `bench codec`.
#[derive(Args, Debug)]
pub struct BenchCodecArgs {
    /// Contributions that are summed.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub peers: u16,
    /// What both benches have.
    #[command(flatten)]
    pub common: BenchArgs,
}

/// Flags of `bench allreduce`.
#[derive(Args, Debug)]
pub struct BenchAllreduceArgs {
    /// Processes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub peers: u16,
    /// Limit on what each process sends, such as 100mbit. Default: none.
    #[arg(long, value_name = "RATE")]
    pub upload_limit: Option<Rate>,
    /// What both benches have.
    #[command(flatten)]
    pub common: BenchArgs,
}

/// Flags of both benches.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Elements of the vector.
    #[arg(long, value_name = "M", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(64..=(1 << 32)))]
    pub floats: u64,
    /// Payload bits of an element: 2, 3, 4, 8, 16 or 24.
    #[arg(long, value_name = "BITS", default_value_t = 4, value_parser = parse_bits)]
    pub bits: u8,
    /// Repetitions, of which the median is reported.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Print one JSON object. Default: text.
    #[arg(long)]
    pub json: bool,
}

fn parse_bits(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(bits @ (2 | 3 | 4 | 8 | 16 | 24)) => Ok(bits),
        _ => Err("choose 2, 3, 4, 8, 16 or 24".to_owned()),
    }
}
