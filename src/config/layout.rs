//! The model as the exchange sees it: fragments of named tensors with shapes and initial values.
//!
//! A fragment is the embedding, one block or the head; it is the unit that a pipeline stage owns
//! and that a ring reduces. Its parameters are one flat f32 vector: its tensors in order,
//! row-major, without padding.

use crate::config::model::{ModelConfig, Norm};

/// How a tensor of genesis is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element is this value.
    Constant(f32),
    /// Bell-shaped random values of mean zero with this standard deviation
    /// ([`Stream::bell_f32`](crate::base::Stream::bell_f32)).
    Normal(f32),
}

/// One named tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The ecosystem's name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Row-major shape; matrices are (out, in), as in the ecosystem's files.
    pub shape: Vec<usize>,
    /// Genesis values.
    pub init: Init,
    /// Whether AdamW's decoupled weight decay applies (matrices, not norms).
    pub decay: bool,
}

impl TensorSpec {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Consecutive tensors that one ring reduces.
#[derive(Clone, Debug, PartialEq)]
pub struct FragmentSpec {
    /// `embed`, `block.N` or `head`.
    pub name: String,
    /// The tensors, in order.
    pub tensors: Vec<TensorSpec>,
}

impl FragmentSpec {
    /// Number of parameters.
    pub fn elements(&self) -> usize {
        self.tensors.iter().map(TensorSpec::elements).sum()
    }
}

/// All fragments of a model, in the order in which activations pass them.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The fragments.
    pub fragments: Vec<FragmentSpec>,
}

impl Layout {
    /// Number of parameters of the whole model.
    pub fn elements(&self) -> usize {
        self.fragments.iter().map(FragmentSpec::elements).sum()
    }

    /// The layout of a Llama-style model. Residual outputs are initialised with
    /// `std / sqrt(2 * layers)`, the rest with `std` = 0.02 (GPT-2's rule).
    pub fn of(model: &ModelConfig) -> Self {
        let mut fragments = vec![embed(model)];
        fragments.extend((0..model.layers).map(|layer| block(model, layer)));
        fragments.push(head(model));
        Self { fragments }
    }
}

const STD: f32 = 0.02;

fn matrix(name: String, rows: usize, columns: usize, std: f32) -> TensorSpec {
    TensorSpec { name, shape: vec![rows, columns], init: Init::Normal(std), decay: true }
}

fn norm(name: String, width: usize) -> TensorSpec {
    TensorSpec { name, shape: vec![width], init: Init::Constant(1.0), decay: false }
}

fn embed(model: &ModelConfig) -> FragmentSpec {
    let name = "model.embed_tokens.weight".to_owned();
    let tensors = vec![matrix(name, model.vocab_size, model.hidden_size, STD)];
    FragmentSpec { name: "embed".to_owned(), tensors }
}

fn block(model: &ModelConfig, layer: usize) -> FragmentSpec {
    let Norm::Rms = model.norm;
    let (width, inner) = (model.hidden_size, model.intermediate_size);
    let kv_width = model.kv_heads * model.head_dim();
    let residual = STD / (2.0 * model.layers as f32).sqrt();
    let named = |part: &str| format!("model.layers.{layer}.{part}.weight");
    let tensors = vec![
        norm(named("input_layernorm"), width),
        matrix(named("self_attn.q_proj"), width, width, STD),
        matrix(named("self_attn.k_proj"), kv_width, width, STD),
        matrix(named("self_attn.v_proj"), kv_width, width, STD),
        matrix(named("self_attn.o_proj"), width, width, residual),
        norm(named("post_attention_layernorm"), width),
        matrix(named("mlp.gate_proj"), inner, width, STD),
        matrix(named("mlp.up_proj"), inner, width, STD),
        matrix(named("mlp.down_proj"), width, inner, residual),
    ];
    FragmentSpec { name: format!("block.{layer}"), tensors }
}

fn head(model: &ModelConfig) -> FragmentSpec {
    let tensors = vec![
        norm("model.norm.weight".to_owned(), model.hidden_size),
        matrix("lm_head.weight".to_owned(), model.vocab_size, model.hidden_size, STD),
    ];
    FragmentSpec { name: "head".to_owned(), tensors }
}
