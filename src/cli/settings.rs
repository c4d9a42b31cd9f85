//! Settings of a node and of a bootstrap peer: each is a flag and a key of a TOML file of the same
//! name. Flags win; lists of flags replace lists of the file; defaults come last.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use clap::Args;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};

use crate::{
    base::RunId,
    cli::failure::Failure,
    config::{Rate, Size},
    node::options::{BootstrapOptions, Device, GRACE, Http, Listen, NodeOptions},
};

/// `ADDR` or `off`, as `--http` takes it.
fn parse_http(text: &str) -> Result<Http, String> {
    if text == "off" {
        return Ok(Http::Off);
    }
    let address: Result<SocketAddr, _> = text.parse();
    address
        .map(Http::Explicit)
        .map_err(|_| "write an address and port like 127.0.0.1:7550, or `off`".to_owned())
}

fn parse_device(text: &str) -> Result<Device, String> {
    match text {
        "auto" => Ok(Device::Auto),
        "cpu" => Ok(Device::Cpu),
        _ if text.starts_with("cuda") => {
            Err("this version trains on processors only; use `auto` or `cpu`".to_owned())
        }
        _ => Err("use `auto` or `cpu`".to_owned()),
    }
}

/// A multiaddr in outline; whether it is one, the network layer checks.
fn parse_multiaddr(text: &str) -> Result<String, String> {
    if text.starts_with('/') && text.len() > 1 && !text.contains(char::is_whitespace) {
        return Ok(text.to_owned());
    }
    Err("a multiaddr begins with a slash, like /ip4/0.0.0.0/tcp/7450".to_owned())
}

/// A multiaddr that ends with a peer id, in outline.
fn parse_peer_multiaddr(text: &str) -> Result<String, String> {
    let address = parse_multiaddr(text)
        .map_err(|problem| format!("{problem}, and a peer's ends with its id: /p2p/12D3KooW..."))?;
    if address.contains("/p2p/") {
        return Ok(address);
    }
    Err(format!(
        "it lacks the peer id; the other machine printed it: {}/p2p/12D3KooW...",
        text.trim_end_matches('/')
    ))
}

/// Seconds, whole or with a fraction, up to a day.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds, like 10 or 2.5".to_owned())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err("it must be from 0 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn with<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(|problem| D::Error::custom(format!("`{text}`: {problem}")))
}

fn http_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Http>, D::Error> {
    with(deserializer, parse_http).map(Some)
}

fn device_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Device>, D::Error> {
    with(deserializer, parse_device).map(Some)
}

fn seconds_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    parse_seconds(&seconds.to_string()).map(Some).map_err(D::Error::custom)
}

fn addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
    parse: fn(&str) -> Result<String, String>,
) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let checked = |text: &String| parse(text).map_err(|problem| format!("`{text}`: {problem}"));
    texts.iter().map(checked).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn listen_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    addresses(deserializer, parse_multiaddr)
}

fn bootstrap_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    addresses(deserializer, parse_peer_multiaddr)
}

/// Settings that every kind of peer has.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NodeSettings {
    /// First contact: a multiaddr with peer id, as the other machine printed it. May be given
    /// several times. Default: none, and the node founds a run or goes on with its own.
    #[arg(long, value_name = "MULTIADDR", value_parser = parse_peer_multiaddr)]
    #[serde(deserialize_with = "bootstrap_key")]
    pub bootstrap: Vec<String>,
    /// Manifest template of the run to found (TOML; see configs/README.md). Default: join the run
    /// found at the bootstrap peers, or found the small embedded run when there are none.
    #[arg(long, value_name = "FILE")]
    pub run: Option<PathBuf>,
    /// The run to join, 64 hexadecimal digits, where the bootstrap peers know several (`runs`
    /// lists them). Default: the only one.
    #[arg(long, value_name = "HEX")]
    pub run_id: Option<RunId>,
    /// Directory of identity, state and data, made if it is missing; one node at a time uses it,
    /// and a node that finds a run in it goes on with that. Default: the platform's directory for
    /// application data.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to accept peers on. May be given several times; one that is taken is an error.
    /// Default: all interfaces at TCP port 7450, or the next free one, which is printed.
    #[arg(long, value_name = "MULTIADDR", value_parser = parse_multiaddr)]
    #[serde(deserialize_with = "listen_key")]
    pub listen: Vec<String>,
    /// Device that trains: `auto` (the best that this build has) or `cpu`. Default: auto.
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    #[serde(deserialize_with = "device_key")]
    pub device: Option<Device>,
    /// Threads that train. More are faster and leave less for others. Default: all cores but one.
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// When founding: the run's length in rounds, in place of the manifest's. Otherwise this node
    /// leaves after that round. Default: the manifest's last round.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// Local HTTP endpoint for /health, /status and /metrics, or `off`. Default: 127.0.0.1:7550,
    /// or the next free port, which is printed.
    #[arg(long, value_name = "ADDR|off", value_parser = parse_http)]
    #[serde(deserialize_with = "http_key")]
    pub http: Option<Http>,
    /// Seconds that a clean shutdown may take; the running exchange is finished or handed over
    /// within them. A second signal ends at once. Default: 10.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    #[serde(deserialize_with = "seconds_key")]
    pub grace: Option<Duration>,
    /// Limit on what is sent to peers, in all, such as 100mbit (bits) or 2mbps (bytes a second,
    /// as in tc). Too low a limit makes exchanges miss their rounds. Default: none.
    #[arg(long, value_name = "RATE")]
    pub upload_limit: Option<Rate>,
    /// Limit on what is received from peers, in all, written as --upload-limit. Default: none.
    #[arg(long, value_name = "RATE")]
    pub download_limit: Option<Rate>,
    /// Limit on the size of the data directory, such as 500mb or 2gib; below what the run needs
    /// the node says so and exits. Default: none but the disk's.
    #[arg(long, value_name = "SIZE")]
    pub disk_limit: Option<Size>,
    /// Go on serving joiners after the run's last round, until a signal comes. Default: serve
    /// those that are fetching, for a minute at most, and exit.
    #[arg(long)]
    pub keep_serving: bool,
}

/// Settings of a bootstrap peer.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BootstrapSettings {
    /// Another bootstrap peer to stay in touch with, as it printed its multiaddr. May be given
    /// several times. Default: none.
    #[arg(long, value_name = "MULTIADDR", value_parser = parse_peer_multiaddr)]
    #[serde(deserialize_with = "bootstrap_key")]
    pub bootstrap: Vec<String>,
    /// Address to accept peers on. May be given several times; one that is taken is an error.
    /// Default: all interfaces at TCP port 7450, or the next free one, which is printed.
    #[arg(long, value_name = "MULTIADDR", value_parser = parse_multiaddr)]
    #[serde(deserialize_with = "listen_key")]
    pub listen: Vec<String>,
    /// Address under which the peer is reached from outside, such as /dns4/boot.example.org/tcp/7450.
    /// May be given several times. Default: what other peers report.
    #[arg(long, value_name = "MULTIADDR", value_parser = parse_multiaddr)]
    #[serde(deserialize_with = "listen_key")]
    pub external: Vec<String>,
    /// Keep snapshots and deltas too, so that a run survives all its volunteers leaving. Takes
    /// disk space: about three copies of the model and the deltas between. Default: no.
    #[arg(long)]
    pub archive: bool,
    /// Directory of identity, manifests and archive, made if it is missing. Default: the
    /// platform's directory for application data.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Local HTTP endpoint for /health, /status and /metrics, or `off`. Default: 127.0.0.1:7550,
    /// or the next free port, which is printed.
    #[arg(long, value_name = "ADDR|off", value_parser = parse_http)]
    #[serde(deserialize_with = "http_key")]
    pub http: Option<Http>,
    /// Seconds that a clean shutdown may take. A second signal ends at once. Default: 10.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    #[serde(deserialize_with = "seconds_key")]
    pub grace: Option<Duration>,
    /// Limit on what is sent to peers, in all, such as 100mbit (bits) or 2mbps (bytes a second,
    /// as in tc). Default: none.
    #[arg(long, value_name = "RATE")]
    pub upload_limit: Option<Rate>,
    /// Limit on what is received from peers, in all, written as --upload-limit. Default: none.
    #[arg(long, value_name = "RATE")]
    pub download_limit: Option<Rate>,
    /// Limit on the size of the data directory, such as 500mb or 2gib; the archive drops its
    /// oldest run to stay below. Default: none but the disk's.
    #[arg(long, value_name = "SIZE")]
    pub disk_limit: Option<Size>,
}

impl NodeSettings {
    /// These settings, with those of `file` where these say nothing.
    pub fn or(self, file: Self) -> Self {
        Self {
            bootstrap: either(self.bootstrap, file.bootstrap),
            run: self.run.or(file.run),
            run_id: self.run_id.or(file.run_id),
            data_dir: self.data_dir.or(file.data_dir),
            listen: either(self.listen, file.listen),
            device: self.device.or(file.device),
            threads: self.threads.or(file.threads),
            rounds: self.rounds.or(file.rounds),
            http: self.http.or(file.http),
            grace: self.grace.or(file.grace),
            upload_limit: self.upload_limit.or(file.upload_limit),
            download_limit: self.download_limit.or(file.download_limit),
            disk_limit: self.disk_limit.or(file.disk_limit),
            keep_serving: self.keep_serving || file.keep_serving,
        }
    }

    /// The options, with defaults for what is not set.
    ///
    /// # Errors
    /// If settings contradict each other, or there is no default data directory.
    pub fn resolve(self) -> Result<NodeOptions, Failure> {
        if self.run.is_some() && self.run_id.is_some() {
            return Err(Failure::usage(
                "--run founds a run and --run-id joins one",
                "give one of them",
            ));
        }
        if self.run_id.is_some() && self.bootstrap.is_empty() {
            return Err(Failure::usage(
                "--run-id names a run to join, but there is nobody to ask",
                "add --bootstrap with the address of a peer",
            ));
        }
        Ok(NodeOptions {
            bootstrap: self.bootstrap,
            run: self.run,
            run_id: self.run_id,
            data_dir: data_dir(self.data_dir, "node")?,
            listen: listen(self.listen),
            device: self.device.unwrap_or_default(),
            threads: self.threads.unwrap_or_else(default_threads),
            rounds: self.rounds,
            http: self.http.unwrap_or_default(),
            grace: self.grace.unwrap_or(GRACE),
            upload_limit: self.upload_limit,
            download_limit: self.download_limit,
            disk_limit: self.disk_limit,
            keep_serving: self.keep_serving,
        })
    }
}

impl BootstrapSettings {
    /// These settings, with those of `file` where these say nothing.
    pub fn or(self, file: Self) -> Self {
        Self {
            bootstrap: either(self.bootstrap, file.bootstrap),
            listen: either(self.listen, file.listen),
            external: either(self.external, file.external),
            archive: self.archive || file.archive,
            data_dir: self.data_dir.or(file.data_dir),
            http: self.http.or(file.http),
            grace: self.grace.or(file.grace),
            upload_limit: self.upload_limit.or(file.upload_limit),
            download_limit: self.download_limit.or(file.download_limit),
            disk_limit: self.disk_limit.or(file.disk_limit),
        }
    }

    /// The options, with defaults for what is not set.
    ///
    /// # Errors
    /// If there is no default data directory.
    pub fn resolve(self) -> Result<BootstrapOptions, Failure> {
        Ok(BootstrapOptions {
            bootstrap: self.bootstrap,
            listen: listen(self.listen),
            external: self.external,
            archive: self.archive,
            data_dir: data_dir(self.data_dir, "bootstrap")?,
            http: self.http.unwrap_or_default(),
            grace: self.grace.unwrap_or(GRACE),
            upload_limit: self.upload_limit,
            download_limit: self.download_limit,
            disk_limit: self.disk_limit,
        })
    }
}

fn either(first: Vec<String>, second: Vec<String>) -> Vec<String> {
    if first.is_empty() { second } else { first }
}

fn listen(addresses: Vec<String>) -> Listen {
    if addresses.is_empty() { Listen::Default } else { Listen::Explicit(addresses) }
}

/// All cores but one, and at least one.
pub(super) fn default_threads() -> NonZeroUsize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN)
}

/// The directory given, or `role` inside the platform's directory for application data.
pub(super) fn data_dir(given: Option<PathBuf>, role: &str) -> Result<PathBuf, Failure> {
    if let Some(dir) = given {
        return Ok(dir);
    }
    directories::ProjectDirs::from("", "", "dilocox")
        .map(|dirs| dirs.data_dir().join(role))
        .ok_or_else(|| {
            Failure::usage(
                "no data directory: this user has no home directory",
                "name one with --data-dir",
            )
        })
}

/// Settings of a file that holds paths relative to itself.
pub trait FileSettings: DeserializeOwned + Default {
    /// Makes relative paths relative to `base`.
    fn rebase(&mut self, base: &Path);
}

impl FileSettings for NodeSettings {
    fn rebase(&mut self, base: &Path) {
        for path in [&mut self.run, &mut self.data_dir].into_iter().flatten() {
            *path = base.join(&*path);
        }
    }
}

impl FileSettings for BootstrapSettings {
    fn rebase(&mut self, base: &Path) {
        if let Some(path) = &mut self.data_dir {
            *path = base.join(&*path);
        }
    }
}

/// Reads settings from a TOML file; none given: no settings.
///
/// # Errors
/// If the file cannot be read, names an unknown key, or a value is impossible.
pub fn from_file<S: FileSettings>(path: Option<&Path>) -> Result<S, Failure> {
    let Some(path) = path else { return Ok(S::default()) };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("cannot read the configuration {}: {error}", path.display()),
            "check the path given to --config",
        )
    })?;
    let mut settings: S = toml::from_str(&text).map_err(|error| {
        Failure::usage(
            format!("configuration {}: {}", path.display(), error.to_string().trim_end()),
            "its keys are the names of the flags; configs/README.md lists them",
        )
    })?;
    settings.rebase(path.parent().unwrap_or_else(|| Path::new("")));
    Ok(settings)
}
