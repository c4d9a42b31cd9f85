//! A scenario: network, peers and faults of one simulated world, as a TOML file writes it.
//!
//! Every key has a default that makes a small healthy world; unknown keys are refused.

use serde::{Deserialize, Serialize};

use crate::{
    config::{
        EMBEDDED_RUN, Manifest,
        manifest::{ErrorFeedback, Overlap, WhileWaiting},
    },
    sim::SimError,
};

/// A whole scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// For people.
    pub name: String,
    /// Everything random comes from it.
    pub seed: u64,
    /// Virtual seconds after which the world is stopped.
    pub limit_s: f64,
    /// Whether the run has to finish on all live nodes before the limit.
    pub must_finish: bool,
    /// Most rounds by which the heads of live nodes may differ once all faults are over and
    /// `settle_s` has passed.
    pub max_spread: u64,
    /// The run.
    pub run: RunPart,
    /// The links.
    pub network: NetworkPart,
    /// The peers that are there from the start; peer 0 founds.
    pub peers: PeersPart,
    /// Random crashes with restarts.
    pub churn: Option<ChurnPart>,
    /// What happens when.
    pub fault: Vec<Fault>,
}

/// `[run]`: what goes into the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunPart {
    /// Rounds.
    pub rounds: u64,
    /// H.
    pub local_steps: u32,
    /// Sequences of a step.
    pub batch: usize,
    /// Where segments start.
    pub overlap: Overlap,
    /// What happens after H steps.
    pub while_waiting: WhileWaiting,
    /// Payload bits.
    pub bits: u8,
    /// Which error is fed back.
    pub error_feedback: ErrorFeedback,
}

/// `[network]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkPart {
    /// One-way latency of a link: drawn once for each pair from this range, milliseconds.
    pub latency_ms: [f64; 2],
    /// Added to each message: from 0 to this, milliseconds.
    pub jitter_ms: f64,
    /// Share of control messages that are lost on a link.
    pub loss: f64,
    /// Upload rate of a peer for bulk bytes, Mbit/s.
    pub up_mbit: f64,
    /// Download rate of a peer for bulk bytes, Mbit/s.
    pub down_mbit: f64,
    /// Bulk bytes count as so many: a small model stands for a large one.
    pub scale_bytes: f64,
}

/// `[peers]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PeersPart {
    /// Peers at the start.
    pub count: usize,
    /// Milliseconds of an inner step: drawn once for each peer from this range.
    pub step_ms: [f64; 2],
    /// Milliseconds of a fold.
    pub fold_ms: f64,
    /// Milliseconds of a state root.
    pub root_ms: f64,
}

/// `[churn]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChurnPart {
    /// Seconds between two crashes of random peers.
    pub every_s: f64,
    /// Seconds after which a crashed peer restarts with its disk.
    pub down_s: f64,
    /// No crash after this second.
    pub until_s: f64,
    /// At least so many peers stay.
    pub keep: usize,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The process dies; `restart_after_s` brings it back with its disk.
    Crash,
    /// It says goodbye within a grace of 10 s.
    Leave,
    /// A new peer with an empty disk starts; `peers` are the next free numbers.
    Join,
    /// `peers` are cut off from the rest.
    Partition,
    /// All links work again.
    Heal,
}

/// `[[fault]]`; exactly one of `at_s`, `at_round`, `after_effects`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// To whom.
    #[serde(default)]
    pub peers: Vec<usize>,
    /// At this second.
    #[serde(default)]
    pub at_s: Option<f64>,
    /// When the furthest head reaches this round.
    #[serde(default)]
    pub at_round: Option<u64>,
    /// (crash) When the peer has carried out so many effects.
    #[serde(default)]
    pub after_effects: Option<u64>,
    /// (crash) So many seconds later it starts again.
    #[serde(default)]
    pub restart_after_s: Option<f64>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: "unnamed".to_owned(),
            seed: 1,
            limit_s: 600.0,
            must_finish: true,
            max_spread: 2,
            run: RunPart::default(),
            network: NetworkPart::default(),
            peers: PeersPart::default(),
            churn: None,
            fault: Vec::new(),
        }
    }
}

impl Default for RunPart {
    fn default() -> Self {
        Self {
            rounds: 6,
            local_steps: 5,
            batch: 4,
            overlap: Overlap::OnArrival,
            while_waiting: WhileWaiting::Continue,
            bits: 4,
            error_feedback: ErrorFeedback::Local,
        }
    }
}

impl Default for NetworkPart {
    fn default() -> Self {
        Self {
            latency_ms: [10.0, 40.0],
            jitter_ms: 5.0,
            loss: 0.0,
            up_mbit: 100.0,
            down_mbit: 100.0,
            scale_bytes: 1000.0,
        }
    }
}

impl Default for PeersPart {
    fn default() -> Self {
        Self { count: 3, step_ms: [150.0, 250.0], fold_ms: 30.0, root_ms: 60.0 }
    }
}

impl Fault {
    /// A fault of `kind` on `peers` that no trigger starts yet.
    pub fn new(kind: FaultKind, peers: &[usize]) -> Self {
        let peers = peers.to_vec();
        Self { kind, peers, at_s: None, at_round: None, after_effects: None, restart_after_s: None }
    }

    /// At this second.
    #[must_use]
    pub fn at(mut self, seconds: f64) -> Self {
        self.at_s = Some(seconds);
        self
    }

    /// When the furthest head reaches this round.
    #[must_use]
    pub fn at_round(mut self, round: u64) -> Self {
        self.at_round = Some(round);
        self
    }

    /// When the peer has carried out so many effects.
    #[must_use]
    pub fn after_effects(mut self, count: u64) -> Self {
        self.after_effects = Some(count);
        self
    }

    /// So many seconds later the crashed peer starts again.
    #[must_use]
    pub fn restart_after(mut self, seconds: f64) -> Self {
        self.restart_after_s = Some(seconds);
        self
    }
}

impl Scenario {
    /// Parses and validates a scenario file.
    ///
    /// # Errors
    /// If it is no TOML, names unknown keys, or a value is impossible.
    pub fn from_toml(text: &str) -> Result<Self, SimError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| SimError::Syntax(error.to_string()))?;
        scenario.validate()?;
        Ok(scenario)
    }

    /// The scenario as a file that replays it.
    ///
    /// # Panics
    /// Never: a scenario is plain data.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a scenario is plain data")
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first one that is impossible.
    pub fn validate(&self) -> Result<(), SimError> {
        let bad = |key: &str, why: &str| Err(SimError::Value(key.to_owned(), why.to_owned()));
        if !(1..=64).contains(&self.peers.count) {
            return bad("peers.count", "1 to 64 are possible");
        }
        let range = |[low, high]: [f64; 2]| low >= 0.0 && high >= low && high <= 1e6;
        if !range(self.network.latency_ms) {
            return bad("network.latency_ms", "two ascending numbers of 0 to 1e6");
        }
        if !range(self.peers.step_ms) || self.peers.step_ms[0] < 1.0 {
            return bad("peers.step_ms", "two ascending numbers of 1 to 1e6");
        }
        if !(0.0..=0.5).contains(&self.network.loss) {
            return bad("network.loss", "0 to 0.5 are possible");
        }
        if !(self.network.up_mbit > 0.0 && self.network.down_mbit > 0.0) {
            return bad("network.up_mbit", "rates are above 0");
        }
        if !(self.limit_s > 0.0 && self.limit_s <= 1e6) {
            return bad("limit_s", "above 0, up to 1e6");
        }
        if self.churn.as_ref().is_some_and(|churn| churn.every_s < 0.1 || churn.down_s < 0.1) {
            return bad("churn.every_s", "at least 0.1, as down_s");
        }
        self.faults()?;
        self.manifest().map(|_| ())
    }

    fn faults(&self) -> Result<(), SimError> {
        let bad = |why: &str| Err(SimError::Value("fault".to_owned(), why.to_owned()));
        let mut known = self.peers.count;
        for fault in &self.fault {
            let triggers = usize::from(fault.at_s.is_some())
                + usize::from(fault.at_round.is_some())
                + usize::from(fault.after_effects.is_some());
            if triggers != 1 {
                return bad("exactly one of at_s, at_round and after_effects says when");
            }
            if fault.after_effects.is_some() && fault.kind != FaultKind::Crash {
                return bad("after_effects belongs to crashes");
            }
            if fault.kind == FaultKind::Join {
                if fault.peers.iter().enumerate().any(|(i, &peer)| peer != known + i) {
                    return bad("joining peers have the next free numbers");
                }
                known += fault.peers.len();
            } else if fault.peers.iter().any(|&peer| peer >= known) {
                return bad("there is no such peer");
            }
        }
        Ok(())
    }

    /// The manifest of the run.
    ///
    /// # Errors
    /// If it would be no valid manifest.
    pub fn manifest(&self) -> Result<Manifest, SimError> {
        let invalid = |error: crate::config::InvalidManifest| {
            SimError::Value("run".to_owned(), error.to_string())
        };
        let mut manifest = Manifest::from_toml(EMBEDDED_RUN).map_err(invalid)?;
        manifest.run.rounds = self.run.rounds;
        manifest.run.seed = self.seed;
        manifest.rounds.local_steps = self.run.local_steps;
        manifest.rounds.overlap = self.run.overlap;
        manifest.rounds.while_waiting = self.run.while_waiting;
        manifest.inner.batch = self.run.batch;
        manifest.inner.micro_batch = self.run.batch;
        manifest.compression.bits = self.run.bits;
        manifest.compression.error_feedback = self.run.error_feedback;
        crate::config::validate::manifest(&manifest).map_err(invalid)?;
        Ok(manifest)
    }
}
