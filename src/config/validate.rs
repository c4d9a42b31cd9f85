//! One typed pass over a manifest: every impossible value is named with its key and the remedy.

use crate::{
    base::{NodeId, RunId, limits},
    config::manifest::{ARITHMETIC_VERSION, DataSource, Founding, Manifest, Overlap, Strategy},
};

/// A manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidManifest {
    /// Not TOML, an unknown key, a missing key, or malformed bytes.
    #[error("the manifest cannot be read: {0}")]
    Syntax(String),
    /// A value is impossible.
    #[error("manifest key `{key}`: {problem}; {remedy}")]
    Value {
        /// The key, such as `rounds.local_steps`.
        key: &'static str,
        /// What is wrong, with the value.
        problem: String,
        /// What to write instead.
        remedy: String,
    },
    /// The manifest is not the one asked for.
    #[error("this is the manifest of run {found}, but {expected} was asked for")]
    WrongRun {
        /// Asked for.
        expected: RunId,
        /// Received.
        found: RunId,
    },
    /// The founder's signature does not fit.
    #[error(
        "the manifest's signature by its founder {founder} does not fit; fetch it from another peer"
    )]
    Signature {
        /// The founder it names.
        founder: NodeId,
    },
}

fn ensure(
    holds: bool,
    key: &'static str,
    problem: impl FnOnce() -> String,
    remedy: &str,
) -> Result<(), InvalidManifest> {
    if holds {
        return Ok(());
    }
    Err(InvalidManifest::Value { key, problem: problem(), remedy: remedy.to_owned() })
}

fn in_range<T: PartialOrd + std::fmt::Display + Copy>(
    value: T,
    least: T,
    most: T,
    key: &'static str,
) -> Result<(), InvalidManifest> {
    ensure(
        value >= least && value <= most,
        key,
        || format!("{value} is out of range"),
        &format!("choose a value from {least} to {most}"),
    )
}

/// Checks every value of a template.
///
/// # Errors
/// The first impossible value.
pub fn manifest(manifest: &Manifest) -> Result<(), InvalidManifest> {
    run(manifest)?;
    model(manifest)?;
    data(manifest)?;
    inner(manifest)?;
    outer(manifest)?;
    in_range(manifest.rounds.local_steps, 1, 1_000_000, "rounds.local_steps")?;
    compression(manifest)?;
    in_range(manifest.snapshot.every, 1, 32, "snapshot.every")
}

/// Checks what founding added.
///
/// # Errors
/// The first thing that does not fit.
pub fn founding(founding: &Founding) -> Result<(), InvalidManifest> {
    let named = founding.manifest.data.files.len();
    ensure(
        founding.data.len() == named,
        "data.files",
        || format!("{named} files are named but {} digests given", founding.data.len()),
        "found the run again",
    )?;
    let plain = |name: &str| {
        !name.is_empty() && name.len() <= limits::MAX_TEXT && !name.contains(['/', '\\', '\0'])
    };
    ensure(
        founding.data.iter().all(|blob| plain(&blob.name)),
        "data.files",
        || "a file's name is empty, too long or contains a path".to_owned(),
        "use plain file names",
    )
}

fn run(manifest: &Manifest) -> Result<(), InvalidManifest> {
    let run = &manifest.run;
    let name_fits = !run.name.trim().is_empty()
        && run.name.chars().count() <= 64
        && !run.name.chars().any(char::is_control);
    ensure(
        name_fits,
        "run.name",
        || "it is empty, longer than 64 characters, or holds control characters".to_owned(),
        "choose a short name",
    )?;
    in_range(run.rounds, 1, 1 << 32, "run.rounds")?;
    ensure(
        run.arithmetic == ARITHMETIC_VERSION,
        "run.arithmetic",
        || format!("version {} is unknown here, which knows {ARITHMETIC_VERSION}", run.arithmetic),
        "use a dilocox release that knows this version",
    )
}

fn model(manifest: &Manifest) -> Result<(), InvalidManifest> {
    let model = &manifest.model;
    in_range(model.vocab_size, 2, 1 << 22, "model.vocab_size")?;
    in_range(model.hidden_size, 2, 1 << 17, "model.hidden_size")?;
    in_range(model.intermediate_size, 1, 1 << 19, "model.intermediate_size")?;
    in_range(model.layers, 1, limits::MAX_FRAGMENTS - 2, "model.layers")?;
    in_range(model.heads, 1, 1 << 12, "model.heads")?;
    in_range(model.sequence_length, 2, 1 << 20, "model.sequence_length")?;
    ensure(
        model.hidden_size.is_multiple_of(model.heads)
            && (model.hidden_size / model.heads).is_multiple_of(2),
        "model.heads",
        || format!("{} heads do not cut a width of {} evenly", model.heads, model.hidden_size),
        "make hidden_size / heads an even whole number",
    )?;
    ensure(
        model.kv_heads >= 1 && model.heads.is_multiple_of(model.kv_heads),
        "model.kv_heads",
        || format!("{} does not divide {} heads", model.kv_heads, model.heads),
        "choose a divisor of heads",
    )?;
    finite_in(model.rope_base, 1.0, 1e12, "model.rope_base")?;
    finite_in(model.norm_epsilon, 1e-12, 1.0, "model.norm_epsilon")?;
    let needed = manifest.tokenizer.vocab_size();
    ensure(
        model.vocab_size >= needed,
        "model.vocab_size",
        || format!("{} is too small for the tokenizer's {needed} tokens", model.vocab_size),
        &format!("set it to {needed} or more"),
    )
}

fn finite_in(value: f64, least: f64, most: f64, key: &'static str) -> Result<(), InvalidManifest> {
    in_range(if value.is_nan() { f64::INFINITY } else { value }, least, most, key)
}

fn data(manifest: &Manifest) -> Result<(), InvalidManifest> {
    let data = &manifest.data;
    finite_in(data.held_out, 0.001, 0.5, "data.held_out")?;
    in_range(data.validation_sequences, 1, 4096, "data.validation_sequences")?;
    match data.source {
        DataSource::Files => ensure(
            (1..=limits::MAX_DATA_BLOBS).contains(&data.files.len()),
            "data.files",
            || format!("{} files are named", data.files.len()),
            "name 1 to 1024 text files, or set source = \"stories\"",
        ),
        DataSource::Stories => {
            ensure(
                data.files.is_empty(),
                "data.files",
                || "files are named but the source is `stories`".to_owned(),
                "set source = \"files\" or remove them",
            )?;
            let least = 40 * manifest.model.sequence_length as u64;
            in_range(data.story_bytes, least.max(1 << 16), 1 << 32, "data.story_bytes")
        }
    }
}

fn inner(manifest: &Manifest) -> Result<(), InvalidManifest> {
    let inner = &manifest.inner;
    finite_in(inner.learning_rate, 1e-9, 10.0, "inner.learning_rate")?;
    finite_in(inner.final_share, 0.0, 1.0, "inner.final_share")?;
    finite_in(inner.decay_share, 0.0, 1.0, "inner.decay_share")?;
    finite_in(inner.beta1, 0.0, 0.999_999, "inner.beta1")?;
    finite_in(inner.beta2, 0.0, 0.999_999, "inner.beta2")?;
    finite_in(inner.epsilon, 1e-16, 1.0, "inner.epsilon")?;
    finite_in(inner.weight_decay, 0.0, 10.0, "inner.weight_decay")?;
    finite_in(inner.clip_norm, 0.0, 1e6, "inner.clip_norm")?;
    in_range(inner.batch, 1, 1 << 16, "inner.batch")?;
    ensure(
        inner.micro_batch >= 1 && inner.batch.is_multiple_of(inner.micro_batch),
        "inner.micro_batch",
        || format!("{} does not divide a batch of {}", inner.micro_batch, inner.batch),
        "choose a divisor of inner.batch",
    )
}

fn outer(manifest: &Manifest) -> Result<(), InvalidManifest> {
    finite_in(f64::from(manifest.outer.learning_rate), 1e-6, 10.0, "outer.learning_rate")?;
    finite_in(f64::from(manifest.outer.momentum), 0.0, 0.9999, "outer.momentum")
}

fn compression(manifest: &Manifest) -> Result<(), InvalidManifest> {
    let compression = &manifest.compression;
    ensure(
        [2, 3, 4, 8, 16, 24].contains(&compression.bits),
        "compression.bits",
        || format!("{} bits are not supported", compression.bits),
        "choose 2, 3, 4, 8, 16 or 24",
    )?;
    let most = largest_rank(manifest);
    ensure(
        compression.rank as usize <= most,
        "compression.rank",
        || format!("{} is above the smaller dimension of every matrix ({most})", compression.rank),
        "choose a smaller rank, or 0 to turn it off",
    )?;
    ensure(
        compression.rank == 0,
        "compression.rank",
        || format!("low rank ({}) is not in this version", compression.rank),
        "set it to 0",
    )?;
    ensure(
        compression.gather_bits == 0,
        "compression.gather_bits",
        || format!("a {}-bit all-gather is not in this version", compression.gather_bits),
        "set it to 0: the exact sum is carried",
    )?;
    let plain = compression.bits == 16 && manifest.rounds.overlap == Overlap::None;
    ensure(
        compression.strategy != Strategy::OpenDiLoCo || plain,
        "compression.strategy",
        || "opendiloco sends 16 bits and waits".to_owned(),
        "set compression.bits = 16 and rounds.overlap = \"none\"",
    )
}

/// The largest rank that any matrix of the model can have.
fn largest_rank(manifest: &Manifest) -> usize {
    // Query and output projections are square of this width, and no other is wider on both sides.
    manifest.model.hidden_size
}
