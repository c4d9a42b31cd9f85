//! `[model]` of a manifest: the shape of the network.

use serde::{Deserialize, Serialize};

/// Family of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// RMSNorm, rotary positions, SwiGLU, no biases (arXiv 2302.13971).
    Llama,
}

/// Normalisation layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// Root mean square (arXiv 1910.07467).
    #[default]
    Rms,
}

/// The shape of the network, in the ecosystem's `config.json` terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Family.
    pub architecture: Architecture,
    /// Rows of the embedding; at least the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream; a multiple of `heads`.
    pub hidden_size: usize,
    /// Width inside the feed-forward part.
    pub intermediate_size: usize,
    /// Transformer blocks.
    pub layers: usize,
    /// Attention heads; `hidden_size / heads` must be even (rotary pairs).
    pub heads: usize,
    /// Key and value heads (grouped-query attention); divides `heads`.
    pub kv_heads: usize,
    /// Tokens of a training sequence.
    pub sequence_length: usize,
    /// Base of the rotary frequencies.
    #[serde(default = "default_rope_base")]
    pub rope_base: f64,
    /// Epsilon inside the norms.
    #[serde(default = "default_norm_epsilon")]
    pub norm_epsilon: f64,
    /// Normalisation.
    #[serde(default)]
    pub norm: Norm,
}

fn default_rope_base() -> f64 {
    10_000.0
}

fn default_norm_epsilon() -> f64 {
    1e-5
}

impl ModelConfig {
    /// Width of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.heads
    }
}
