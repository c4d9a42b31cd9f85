//! The manifest: what all nodes of a run must agree on.
//!
//! A TOML file is a *template*; founding adds the founder's key, a creation time, a nonce and the
//! digests of the blobs, and signs. The run's id is the hash of the canonical founded manifest.

use serde::{Deserialize, Serialize};

use crate::{
    base::{Bounded, Digest, NodeId, RunId, limits},
    config::{
        layout::Layout,
        model::ModelConfig,
        validate::{self, InvalidManifest},
    },
    identity::{BadSignature, Identity, Signature},
    wire::codec,
};

/// Domain of the founder's signature.
pub const MANIFEST_DOMAIN: &str = "dilocox/manifest/1";
/// Version of the bit-exact arithmetic (DESIGN section 4).
pub const ARITHMETIC_VERSION: u32 = 1;

/// A template: the agreed part that a person writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name and length of the run.
    pub run: RunConfig,
    /// Shape of the network.
    pub model: ModelConfig,
    /// How text becomes tokens.
    pub tokenizer: TokenizerConfig,
    /// What is trained on.
    pub data: DataConfig,
    /// The optimizer of the local steps.
    pub inner: InnerConfig,
    /// The outer Nesterov step.
    pub outer: OuterConfig,
    /// Segments and their overlap with exchanges.
    pub rounds: RoundsConfig,
    /// What travels.
    pub compression: CompressionConfig,
    /// When snapshots are written.
    #[serde(default)]
    pub snapshot: SnapshotConfig,
    /// Who may join.
    #[serde(default)]
    pub admission: AdmissionConfig,
}

/// `[run]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// A name for people, at most 64 characters.
    pub name: String,
    /// Seed of genesis and of the data order.
    #[serde(default)]
    pub seed: u64,
    /// Rounds after which the run is finished; at least 1.
    pub rounds: u64,
    /// Version of the bit-exact arithmetic; 1.
    #[serde(default = "arithmetic_version")]
    pub arithmetic: u32,
}

fn arithmetic_version() -> u32 {
    ARITHMETIC_VERSION
}

/// `[tokenizer]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "TokenizerKind", try_from = "TokenizerKind")]
pub enum TokenizerConfig {
    /// One token a byte: 256 of them, and one that separates documents (256).
    Byte,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizerKind {
    kind: String,
}

impl From<TokenizerConfig> for TokenizerKind {
    fn from(value: TokenizerConfig) -> Self {
        match value {
            TokenizerConfig::Byte => Self { kind: "byte".to_owned() },
        }
    }
}

impl TryFrom<TokenizerKind> for TokenizerConfig {
    type Error = String;

    fn try_from(value: TokenizerKind) -> Result<Self, String> {
        match value.kind.as_str() {
            "byte" => Ok(Self::Byte),
            other => Err(format!("unknown tokenizer kind `{other}`; known: byte")),
        }
    }
}

impl TokenizerConfig {
    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Byte => 257,
        }
    }
}

/// Where the text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataSource {
    /// The built-in generator: small stories and sums, made from the seed on every machine.
    Stories,
    /// Text files, read by the founder and fetched by digest from peers.
    Files,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Where the text comes from.
    pub source: DataSource,
    /// `files`: paths, relative to the manifest's file. Names only; the digests decide.
    #[serde(default)]
    pub files: Vec<String>,
    /// `stories`: bytes of text to generate.
    #[serde(default = "default_story_bytes")]
    pub story_bytes: u64,
    /// Share of the text, at its end, that is held out for validation.
    #[serde(default = "default_held_out")]
    pub held_out: f64,
    /// Sequences of a validation pass.
    #[serde(default = "default_validation_sequences")]
    pub validation_sequences: usize,
}

fn default_story_bytes() -> u64 {
    4 << 20
}

fn default_held_out() -> f64 {
    0.05
}

fn default_validation_sequences() -> usize {
    32
}

/// Form of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine down to `final_share`.
    Cosine,
    /// Stable, then linearly down to `final_share` over the last `decay_share` of the run (WSD).
    Wsd,
    /// Stays.
    Constant,
}

/// `[inner]`: AdamW (arXiv 1711.05101).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerConfig {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Steps of linear warm-up at the start of the run.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Form after warm-up.
    #[serde(default = "default_schedule")]
    pub schedule: Schedule,
    /// Share of the peak rate that is left at the end.
    #[serde(default = "default_final_share")]
    pub final_share: f64,
    /// `wsd`: share of the run over which the rate falls.
    #[serde(default = "default_decay_share")]
    pub decay_share: f64,
    /// Decay of the first moment.
    #[serde(default = "default_beta1")]
    pub beta1: f64,
    /// Decay of the second moment.
    #[serde(default = "default_beta2")]
    pub beta2: f64,
    /// Added to the root of the second moment.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// Decoupled weight decay, on matrices.
    #[serde(default = "default_weight_decay")]
    pub weight_decay: f64,
    /// Gradients are scaled down to this global norm; 0 turns clipping off.
    #[serde(default = "default_clip")]
    pub clip_norm: f64,
    /// Sequences of an inner step.
    pub batch: usize,
    /// Sequences of one forward and backward pass; divides `batch`. The rest is accumulated.
    pub micro_batch: usize,
}

fn default_schedule() -> Schedule {
    Schedule::Cosine
}
fn default_final_share() -> f64 {
    0.1
}
fn default_decay_share() -> f64 {
    0.2
}
fn default_beta1() -> f64 {
    0.9
}
fn default_beta2() -> f64 {
    0.95
}
fn default_epsilon() -> f64 {
    1e-8
}
fn default_weight_decay() -> f64 {
    0.1
}
fn default_clip() -> f64 {
    1.0
}

/// `[outer]`: Nesterov momentum (arXiv 2311.08105).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OuterConfig {
    /// Outer learning rate.
    #[serde(default = "default_outer_rate")]
    pub learning_rate: f32,
    /// Outer momentum.
    #[serde(default = "default_outer_momentum")]
    pub momentum: f32,
}

fn default_outer_rate() -> f32 {
    0.7
}
fn default_outer_momentum() -> f32 {
    0.5
}

/// Where segment k starts and when the average is applied (DESIGN section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Wait for the average (OpenDiLoCo).
    None,
    /// From A_{k-2}: the paper's text.
    Delayed,
    /// The local model goes on from where it was, moved by what the anchor moved.
    Continued,
    /// As `continued`, and the average replaces the node's own part the moment it arrives.
    #[default]
    OnArrival,
}

/// What a node does after H steps while the exchange before is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhileWaiting {
    /// Trains on, up to 2H steps.
    #[default]
    Continue,
    /// Stops at H.
    Wait,
}

/// `[rounds]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundsConfig {
    /// H: local steps of a segment.
    pub local_steps: u32,
    /// Where segments start and when averages are applied.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens between H steps and the fold.
    #[serde(default)]
    pub while_waiting: WhileWaiting,
}

/// The system whose exchange is run (DESIGN section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Compressed pseudo-gradients, overlapped.
    DiLoCoX,
    /// 16-bit pseudo-gradients, overlap `none` (arXiv 2407.07852).
    OpenDiLoCo,
}

/// Which error is fed back into the next round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorFeedback {
    /// delta minus the node's own decompressed contribution.
    #[default]
    Local,
    /// delta minus the average: Algorithm 2 as printed.
    Global,
    /// Nothing.
    Off,
}

/// `[compression]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompressionConfig {
    /// The system.
    pub strategy: Strategy,
    /// Payload bits of an element: 2, 3, 4, 8, 16 or 24.
    #[serde(default = "default_bits")]
    pub bits: u8,
    /// Bits of the all-gather; 0 carries the exact sum.
    #[serde(default)]
    pub gather_bits: u8,
    /// Rank of the low-rank part; 0 turns it off.
    #[serde(default)]
    pub rank: u32,
    /// Which error is fed back.
    #[serde(default)]
    pub error_feedback: ErrorFeedback,
}

fn default_bits() -> u8 {
    4
}

/// `[snapshot]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotConfig {
    /// Rounds after which a snapshot is due at the latest: 1 to 32.
    pub every: u64,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        Self { every: 16 }
    }
}

/// Who may join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admission {
    /// Everybody.
    #[default]
    Open,
}

/// `[admission]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionConfig {
    /// Who may join.
    #[serde(default)]
    pub policy: Admission,
}

impl Manifest {
    /// Parses and validates a template.
    ///
    /// # Errors
    /// If the text is no TOML, names unknown keys, or a value is impossible.
    pub fn from_toml(text: &str) -> Result<Self, InvalidManifest> {
        let manifest: Self =
            toml::from_str(text).map_err(|error| InvalidManifest::Syntax(error.to_string()))?;
        validate::manifest(&manifest)?;
        Ok(manifest)
    }

    /// The template as TOML.
    ///
    /// # Panics
    /// Never: a manifest is plain data.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a manifest is plain data")
    }

    /// The model's fragments and tensors.
    pub fn layout(&self) -> Layout {
        Layout::of(&self.model)
    }

    /// The cap on a contribution's weight: sequences of 2H steps (DESIGN section 4).
    pub fn max_weight(&self) -> u64 {
        2 * u64::from(self.rounds.local_steps) * self.inner.batch as u64
    }
}

/// A data file, by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// Name for people; never a path.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// blake3 of the list of its chunks' digests ([`crate::wire::blob`]).
    pub digest: Digest,
}

/// A manifest with everything that founding adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Founding {
    /// The template.
    pub manifest: Manifest,
    /// The founder.
    pub founder: NodeId,
    /// Unix seconds at founding, for people.
    pub created: u64,
    /// Makes two foundings of one template two runs.
    pub nonce: [u8; 16],
    /// The data files, in the template's order.
    pub data: Bounded<BlobRef, { limits::MAX_DATA_BLOBS }>,
}

/// A founded and signed manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundedManifest {
    /// What is signed.
    pub founding: Founding,
    /// The founder's signature over the canonical bytes of `founding`.
    pub signature: Signature,
}

impl FoundedManifest {
    /// Signs a founding.
    pub fn found(founding: Founding, founder: &Identity) -> Self {
        let signature = founder.sign(MANIFEST_DOMAIN, &codec::encode(&founding));
        Self { founding, signature }
    }

    /// The run's name: the hash of the canonical founding.
    pub fn run_id(&self) -> RunId {
        RunId(Digest::of(&codec::encode(&self.founding)).0)
    }

    /// Checks signature, values and, if given, the expected run.
    ///
    /// # Errors
    /// If anything does not fit.
    pub fn verify(&self, expected: Option<RunId>) -> Result<(), InvalidManifest> {
        let found = self.run_id();
        if let Some(expected) = expected.filter(|&run| run != found) {
            return Err(InvalidManifest::WrongRun { expected, found });
        }
        self.signature
            .verify(self.founding.founder, MANIFEST_DOMAIN, &codec::encode(&self.founding))
            .map_err(|BadSignature { signer }| InvalidManifest::Signature { founder: signer })?;
        validate::manifest(&self.founding.manifest)?;
        validate::founding(&self.founding)
    }

    /// The wire form.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes and verifies a manifest from a stranger.
    ///
    /// # Errors
    /// If it is malformed, too large, or does not verify.
    pub fn from_bytes(bytes: &[u8], expected: Option<RunId>) -> Result<Self, InvalidManifest> {
        let founded: Self = codec::decode::<_, { limits::MAX_MANIFEST_BYTES }>(bytes)
            .map_err(|error| InvalidManifest::Syntax(error.to_string()))?;
        founded.verify(expected)?;
        Ok(founded)
    }
}
