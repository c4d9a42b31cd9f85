//! What a node and a bootstrap peer are told at their start, after flags, configuration file and
//! defaults have been brought together. Nothing here is agreed on with other nodes.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use crate::{
    base::{Round, RunId},
    config::{Rate, Size},
};

/// Default port for peers, on TCP and UDP alike. Taken: the next free one, up to
/// [`PORTS_TRIED`] of them.
pub const PEER_PORT: u16 = 7450;
/// Default port of the local HTTP endpoint, on 127.0.0.1.
pub const HTTP_PORT: u16 = 7550;
/// Ports tried from a default on, before giving up: more nodes than one machine will run.
pub const PORTS_TRIED: u16 = 100;
/// Default bound on a clean shutdown.
pub const GRACE: Duration = Duration::from_secs(10);

/// Addresses to accept peers on.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Listen {
    /// All interfaces at [`PEER_PORT`], or at the next free port, which is said.
    #[default]
    Default,
    /// Exactly these multiaddrs; one that is taken is an error.
    Explicit(Vec<String>),
}

impl Listen {
    /// The multiaddrs of the default at `port`.
    pub fn default_at(port: u16) -> Vec<String> {
        vec![format!("/ip4/0.0.0.0/tcp/{port}"), format!("/ip6/::/tcp/{port}")]
    }
}

/// Where the local HTTP endpoint (health, status, metrics) listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Http {
    /// 127.0.0.1 at [`HTTP_PORT`], or at the next free port, which is said.
    #[default]
    Default,
    /// Exactly here; a taken address is an error.
    Explicit(SocketAddr),
    /// Nowhere.
    Off,
}

/// The device that trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Device {
    /// The best one that this build and machine have.
    #[default]
    Auto,
    /// The processor.
    Cpu,
}

/// Everything that a training node is told.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOptions {
    /// First contacts: multiaddrs with peer id (`net::parse_peer_addr` reads them). Empty: found
    /// a run, or go on with the one in the data directory.
    pub bootstrap: Vec<String>,
    /// Manifest template to found; none: join, resume, or found the embedded run.
    pub run: Option<PathBuf>,
    /// The run to join, where the bootstrap peers know several.
    pub run_id: Option<RunId>,
    /// Directory of identity, state and data; exists by then or can be made.
    pub data_dir: PathBuf,
    /// Addresses to accept peers on.
    pub listen: Listen,
    /// The device that trains.
    pub device: Device,
    /// Threads that train.
    pub threads: NonZeroUsize,
    /// When founding: the run's length in rounds, in place of the manifest's. Otherwise: this node
    /// leaves after having committed this round.
    pub rounds: Option<Round>,
    /// Local HTTP endpoint.
    pub http: Http,
    /// Bound on a clean shutdown.
    pub grace: Duration,
    /// Limit on what is sent to peers, in all; none: no limit.
    pub upload_limit: Option<Rate>,
    /// Limit on what is received from peers, in all; none: no limit.
    pub download_limit: Option<Rate>,
    /// Limit on the data directory's size; none: the disk's.
    pub disk_limit: Option<Size>,
    /// Whether to go on serving joiners after the run's last round.
    pub keep_serving: bool,
}

/// Everything that a bootstrap peer is told.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapOptions {
    /// Other bootstrap peers to stay in touch with.
    pub bootstrap: Vec<String>,
    /// Addresses to accept peers on.
    pub listen: Listen,
    /// Addresses under which the peer is reachable from outside, beside those it finds itself.
    pub external: Vec<String>,
    /// Whether to keep snapshots and deltas, so that a run outlives its volunteers.
    pub archive: bool,
    /// Directory of identity, manifests and archive.
    pub data_dir: PathBuf,
    /// Local HTTP endpoint.
    pub http: Http,
    /// Bound on a clean shutdown.
    pub grace: Duration,
    /// Limit on what is sent to peers, in all; none: no limit.
    pub upload_limit: Option<Rate>,
    /// Limit on what is received from peers, in all; none: no limit.
    pub download_limit: Option<Rate>,
    /// Limit on the data directory's size; none: the disk's.
    pub disk_limit: Option<Size>,
}

/// What `dilocox-node runs` looks for.
#[derive(Clone, Debug, PartialEq)]
pub struct RunsOptions {
    /// Peers to ask.
    pub bootstrap: Vec<String>,
    /// How long to wait for their answers.
    pub timeout: Duration,
}

/// What `dilocox-node generate` writes.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Directory of a node that has a run.
    pub data_dir: PathBuf,
    /// Text to go on from.
    pub prompt: String,
    /// Tokens to add.
    pub tokens: usize,
    /// 0 takes the likeliest token each time; 1 samples as the model was trained.
    pub temperature: f64,
    /// Seed of the sampling.
    pub seed: u64,
    /// Threads that compute.
    pub threads: NonZeroUsize,
}

/// What `dilocox-node bench codec` measures.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchCodecOptions {
    /// Elements of the vector.
    pub floats: usize,
    /// Contributions that are summed.
    pub members: usize,
    /// Payload bits of an element.
    pub bits: u8,
    /// Repetitions, of which the median is reported.
    pub rounds: usize,
}

/// What `dilocox-node bench allreduce` measures.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchAllreduceOptions {
    /// Processes on loopback.
    pub peers: usize,
    /// Elements of the vector.
    pub floats: usize,
    /// Payload bits of an element.
    pub bits: u8,
    /// Repetitions, of which the median is reported.
    pub rounds: usize,
    /// Limit on what each process sends; none: no limit.
    pub upload_limit: Option<Rate>,
}
