//! The Llama family (arXiv 2302.13971): RMSNorm before each part, rotary positions, grouped
//! queries, SwiGLU, no biases, an untied head. Tensors are named and ordered by
//! [`Layout`](crate::config::Layout).

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

use crate::{
    compute::ops::{
        AttentionShape, RotaryTable, attention, cross_entropy, linear, rms_norm, rotary, swiglu,
    },
    config::{Layout, ModelConfig},
    model::parameters::Parameters,
};

/// A block's tensors, in layout order.
struct Block {
    input_norm: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    post_norm: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

/// The network. Its tensors are the parameters' variables: changing those changes the network.
pub struct Llama {
    config: ModelConfig,
    parameters: Parameters,
    embed: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    head: Tensor,
    rotary: Arc<RotaryTable>,
    device: Device,
}

fn named<const N: usize>(parameters: &Parameters, fragment: usize) -> Result<[Tensor; N]> {
    let tensors = parameters.tensors(fragment);
    let found = tensors.len();
    match tensors.try_into() {
        Ok(tensors) => Ok(tensors),
        Err(_) => bail!("fragment {fragment} has {found} tensors, not {N}"),
    }
}

impl Block {
    fn of(parameters: &Parameters, fragment: usize) -> Result<Self> {
        let [input_norm, q, k, v, o, post_norm, gate, up, down] = named(parameters, fragment)?;
        Ok(Self { input_norm, q, k, v, o, post_norm, gate, up, down })
    }
}

impl Llama {
    /// The network of `config`, with parameters of zero.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn new(config: &ModelConfig, device: &Device) -> Result<Self> {
        let parameters = Parameters::zeros(Layout::of(config), device)?;
        let [embed] = named(&parameters, 0)?;
        let blocks = (1..=config.layers).map(|fragment| Block::of(&parameters, fragment));
        let blocks = blocks.collect::<Result<_>>()?;
        let [norm, head] = named(&parameters, config.layers + 1)?;
        let table = RotaryTable::new(config.sequence_length, config.head_dim(), config.rope_base);
        Ok(Self {
            config: config.clone(),
            parameters,
            embed,
            blocks,
            norm,
            head,
            rotary: Arc::new(table),
            device: device.clone(),
        })
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Logits (batch * length, vocabulary) of `tokens`: sequences of `length` one after another.
    ///
    /// # Errors
    /// If the tokens are no whole sequences, a sequence is longer than the model's, or a token is
    /// outside of the vocabulary.
    pub fn logits(&self, tokens: &[u32], length: usize) -> Result<Tensor> {
        if length == 0 || !tokens.len().is_multiple_of(length) {
            bail!("{} tokens are no whole sequences of {length}", tokens.len());
        }
        let ids = Tensor::new(tokens, &self.device)?;
        let mut x = self.embed.index_select(&ids, 0)?; // (batch * length, width)
        for block in &self.blocks {
            x = self.block(block, &x, length)?;
        }
        linear(&self.normed(&x, &self.norm)?, &self.head)
    }

    /// Mean loss in nats a token over `windows`: sequences of `length` + 1 tokens one after
    /// another, each predicting its tokens from the second on.
    ///
    /// # Errors
    /// As [`logits`](Self::logits).
    pub fn loss(&self, windows: &[u32], length: usize) -> Result<Tensor> {
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for window in windows.chunks(length + 1) {
            inputs.extend_from_slice(&window[..window.len() - 1]);
            targets.extend_from_slice(&window[1..]);
        }
        let logits = self.logits(&inputs, length)?;
        cross_entropy(&logits, &Tensor::new(targets, &self.device)?)
    }

    fn normed(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        rms_norm(x, weight, self.config.norm_epsilon)
    }

    fn block(&self, block: &Block, x: &Tensor, length: usize) -> Result<Tensor> {
        let normed = self.normed(x, &block.input_norm)?;
        let x = (x + self.attend(block, &normed, length)?)?;
        let normed = self.normed(&x, &block.post_norm)?;
        let inner = swiglu(&linear(&normed, &block.gate)?, &linear(&normed, &block.up)?)?;
        x + linear(&inner, &block.down)?
    }

    fn attend(&self, block: &Block, x: &Tensor, length: usize) -> Result<Tensor> {
        let shape = AttentionShape {
            length,
            heads: self.config.heads,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim(),
        };
        let q = rotary(&linear(x, &block.q)?, &self.rotary, length)?;
        let k = rotary(&linear(x, &block.k)?, &self.rotary, length)?;
        let v = linear(x, &block.v)?;
        linear(&attention(&q, &k, &v, shape)?, &block.o)
    }
}
