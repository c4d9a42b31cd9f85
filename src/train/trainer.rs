//! The trainer: one replica's model, its optimizer, and its data.
//!
//! ```text
//! step:   for each micro batch: loss -> backward -> add to the gradient sums
//!         mean over micro batches -> clip -> AdamW, tensor by tensor, in place
//! ```
//!
//! Everything is synchronous and belongs to one thread; heavy work runs in a rayon pool of the
//! size that was asked for. A step that fails (a loss that is not finite, a changed data file)
//! leaves parameters, moments and step count as they were.

use std::{sync::Arc, time::Instant};

use candle_core::Device;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::{
    base::{Digest, Stream},
    checkpoint::{StateError, TrainerState},
    compute::{DeviceChoice, DeviceError, host},
    config::Manifest,
    data::{DataError, Dataset, tokenizer},
    model::{Llama, ShapeMismatch, parameters, sample},
    optim::{
        AdamW, Moments,
        adamw::Step,
        clip::{clip_factor, global_norm},
    },
};

/// What a trainer is made from.
#[derive(Clone, Debug)]
pub struct TrainerConfig {
    /// What the run agreed on.
    pub manifest: Manifest,
    /// Where to compute.
    pub device: DeviceChoice,
    /// Threads of the numeric code, at least 1.
    pub threads: usize,
}

/// Training cannot go on as asked.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Parameters do not fit the model.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// Saved moments do not fit.
    #[error(transparent)]
    State(#[from] StateError),
    /// Threads cannot be started.
    #[error("{threads} compute threads cannot be started: {error}; use fewer with --threads")]
    Threads {
        /// Asked for.
        threads: usize,
        /// The reason.
        error: ThreadPoolBuildError,
    },
    /// Loss or gradient is infinite or not a number; nothing was changed.
    #[error(
        "the loss ({loss}) or the gradient's norm ({grad_norm}) is not finite after {steps} steps; \
         lower inner.learning_rate, or go back to an older state"
    )]
    NotFinite {
        /// Mean loss of the batch.
        loss: f64,
        /// Norm of its gradient.
        grad_norm: f64,
        /// Steps that were done before.
        steps: u64,
    },
    /// A step was asked for without sequences.
    #[error("a step needs at least one sequence")]
    EmptyBatch,
    /// The tensor library failed.
    #[error("the tensor library failed: {0}")]
    Tensor(#[from] candle_core::Error),
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Mean loss of the batch before the step, in nats a token.
    pub loss: f64,
    /// Norm of the mean gradient, before clipping.
    pub grad_norm: f64,
    /// Sequences trained on.
    pub sequences: u64,
    /// Tokens predicted.
    pub tokens: u64,
    /// Wall time.
    pub seconds: f64,
}

/// One replica in training.
pub struct Trainer {
    manifest: Manifest,
    device: Device,
    dataset: Arc<Dataset>,
    pool: ThreadPool,
    model: Llama,
    /// For losses of other parameters than the local ones; made when first needed.
    other: Option<Llama>,
    optimizer: AdamW,
    state: TrainerState,
    gradients: Vec<Vec<f32>>,
}

impl Trainer {
    /// A trainer whose parameters are all zero until [`set_parameters`](Self::set_parameters).
    ///
    /// # Errors
    /// If the device or the threads are not to be had.
    pub fn new(config: TrainerConfig, dataset: Arc<Dataset>) -> Result<Self, TrainError> {
        let TrainerConfig { manifest, device, threads } = config;
        let device = device.open()?;
        let model = Llama::new(&manifest.model, &device)?;
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|index| format!("compute-{index}"))
            .build()
            .map_err(|error| TrainError::Threads { threads, error })?;
        Ok(Self {
            dataset,
            pool,
            optimizer: AdamW::of(&manifest.inner),
            state: TrainerState::fresh(model.parameters().layout()),
            gradients: model.parameters().flat(),
            model,
            other: None,
            manifest,
            device,
        })
    }

    /// The manifest it trains by.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Replaces the parameters: one flat vector a fragment, in layout order. Moments stay.
    ///
    /// # Errors
    /// If they do not fit the model.
    pub fn set_parameters(&mut self, fragments: &[Vec<f32>]) -> Result<(), TrainError> {
        set(&self.model, fragments)
    }

    /// The parameters: one flat vector a fragment, in layout order.
    ///
    /// # Errors
    /// If the device fails.
    pub fn parameters(&self) -> Result<Vec<Vec<f32>>, TrainError> {
        Ok(self.model.parameters().to_vecs()?)
    }

    /// Moves the parameters by `shift` (L += shift), between two steps. Moments stay.
    ///
    /// # Errors
    /// If it does not fit the model; nothing was moved then.
    pub fn add(&mut self, shift: &[Vec<f32>]) -> Result<(), TrainError> {
        let own = self.model.parameters();
        parameters::check(own.layout(), shift)?;
        Ok(own.add(shift)?)
    }

    /// One step of AdamW on the mean gradient of the training sequences with these numbers, in
    /// micro batches of the manifest's size.
    ///
    /// # Errors
    /// If a sequence cannot be read, or loss or gradient are not finite. Nothing was changed then.
    pub fn step(
        &mut self,
        sequence_indices: &[u64],
        learning_rate: f64,
    ) -> Result<StepReport, TrainError> {
        let started = Instant::now();
        let sequences = sequence_indices.len();
        if sequences == 0 {
            return Err(TrainError::EmptyBatch);
        }
        self.gradients.iter_mut().for_each(|fragment| fragment.fill(0.0));
        let mut loss = 0.0;
        for indices in sequence_indices.chunks(self.manifest.inner.micro_batch) {
            loss += self.accumulate(indices, indices.len() as f64 / sequences as f64)?;
        }
        let grad_norm = self.pool.install(|| global_norm(&self.gradients));
        if !loss.is_finite() || !grad_norm.is_finite() {
            return Err(TrainError::NotFinite { loss, grad_norm, steps: self.state.step });
        }
        self.apply(learning_rate, clip_factor(grad_norm, self.manifest.inner.clip_norm))?;
        Ok(StepReport {
            loss,
            grad_norm,
            sequences: sequences as u64,
            tokens: (sequences * self.manifest.model.sequence_length) as u64,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Adds `share` of a micro batch's mean gradient to the sums; returns that share of its loss.
    fn accumulate(&mut self, indices: &[u64], share: f64) -> Result<f64, TrainError> {
        let mut windows = Vec::with_capacity(indices.len() * self.dataset.window());
        for &index in indices {
            windows.extend(self.dataset.train_sequence(index)?);
        }
        let (model, gradients) = (&self.model, &mut self.gradients);
        let length = self.manifest.model.sequence_length;
        self.pool.install(|| {
            let loss = (model.loss(&windows, length)? * share)?;
            model.parameters().add_gradients(&loss.backward()?, gradients)?;
            Ok(f64::from(loss.to_scalar::<f32>()?))
        })
    }

    fn apply(&mut self, rate: f64, gradient_scale: f32) -> Result<(), TrainError> {
        let (state, gradients, optimizer) = (&mut self.state, &self.gradients, &self.optimizer);
        let number = state.step.saturating_add(1);
        self.pool.install(|| {
            self.model.parameters().for_each(|fragment, range, decay, var| {
                let step = Step { number, rate, gradient_scale, decay };
                let Moments { first, second } = &mut state.moments[fragment];
                let moments = (&mut first[range.clone()], &mut second[range.clone()]);
                let gradient = &gradients[fragment][range];
                host::write(var, |theta| optimizer.update(theta, gradient, moments, &step))
            })
        })?;
        state.step = number;
        Ok(())
    }

    /// Mean loss in nats a token on the held-out sequences: of `parameters` if given, else of the
    /// local ones. Infinite or NaN if the parameters make it so.
    ///
    /// # Errors
    /// If the parameters do not fit, or a data file has changed.
    pub fn validate(&mut self, parameters: Option<&[Vec<f32>]>) -> Result<f64, TrainError> {
        let model = match parameters {
            None => &self.model,
            Some(fragments) => {
                let made_from = (&self.manifest, &self.device);
                with_parameters(&mut self.other, made_from, fragments)?
            }
        };
        let (length, window) = (self.manifest.model.sequence_length, self.dataset.window());
        let micro_batch = self.manifest.inner.micro_batch as u64;
        let (mut total, mut index) = (0.0, 0);
        while let Some(windows) = self.dataset.validation_batch(index, micro_batch)? {
            let loss = self.pool.install(|| model.loss(&windows, length)?.to_scalar::<f32>())?;
            total += f64::from(loss) * (windows.len() / window) as f64;
            index += 1;
        }
        Ok(total / self.dataset.validation_sequences() as f64)
    }

    /// Goes on with `prompt` for `tokens` tokens, or until the document ends; returns what was
    /// added. A `temperature` of 0 takes the likeliest token; one seed gives one text.
    ///
    /// # Errors
    /// If the tensor library fails.
    pub fn generate(
        &self,
        prompt: &str,
        tokens: usize,
        temperature: f64,
        seed: u64,
    ) -> Result<String, TrainError> {
        let mut random = Stream::new(&Digest::of(&seed.to_le_bytes()), "generate");
        let mut text = vec![tokenizer::SEPARATOR];
        text.extend(tokenizer::encode(prompt.as_bytes()));
        let prompt_len = text.len();
        for _ in 0..tokens {
            let next = self.next_token(&text, temperature, &mut random)?;
            text.push(next);
            if next == tokenizer::SEPARATOR {
                break;
            }
        }
        let bytes = tokenizer::decode(&text[prompt_len..]);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Draws the token after `text`, of which the model sees as much as fits.
    fn next_token(
        &self,
        text: &[u32],
        temperature: f64,
        random: &mut Stream,
    ) -> Result<u32, TrainError> {
        let seen = &text[text.len().saturating_sub(self.manifest.model.sequence_length)..];
        let logits = self.pool.install(|| {
            self.model.logits(seen, seen.len())?.get(seen.len() - 1)?.to_vec1::<f32>()
        })?;
        // Rows of the embedding beyond the tokenizer's tokens spell nothing.
        let known = logits.len().min(self.manifest.tokenizer.vocab_size());
        Ok(sample(&logits[..known], temperature, random))
    }

    /// Moments and step count as bytes, for a restart.
    pub fn state_bytes(&self) -> Vec<u8> {
        self.state.to_bytes()
    }

    /// Takes moments and step count from [`state_bytes`](Self::state_bytes).
    ///
    /// # Errors
    /// If the bytes are damaged or another model's; nothing was changed then.
    pub fn restore_state(&mut self, bytes: &[u8]) -> Result<(), TrainError> {
        self.state = TrainerState::from_bytes(self.model.parameters().layout(), bytes)?;
        Ok(())
    }

    /// Forgets moments and step count, as a joiner has none.
    pub fn reset_moments(&mut self) {
        self.state = TrainerState::fresh(self.model.parameters().layout());
    }

    /// Steps since the moments were zero.
    pub fn steps(&self) -> u64 {
        self.state.step
    }
}

fn set(model: &Llama, fragments: &[Vec<f32>]) -> Result<(), TrainError> {
    parameters::check(model.parameters().layout(), fragments)?;
    Ok(model.parameters().set(fragments)?)
}

/// The second model, made if need be, with these parameters.
fn with_parameters<'a>(
    slot: &'a mut Option<Llama>,
    (manifest, device): (&Manifest, &Device),
    fragments: &[Vec<f32>],
) -> Result<&'a Llama, TrainError> {
    let model = match slot {
        Some(model) => model,
        None => slot.insert(Llama::new(&manifest.model, device)?),
    };
    set(model, fragments)?;
    Ok(model)
}
