//! Windows of text: training sequences by number, and validation sequences from the held-out end.

use std::path::PathBuf;

use crate::{
    config::{
        Manifest,
        manifest::{DataSource, TokenizerConfig},
    },
    data::{DataError, Text, stories, tokenizer},
};

/// The sequences of a run.
#[derive(Debug)]
pub struct Dataset {
    text: Text,
    /// Tokens of a sequence: the model's length and one more, the last target.
    window: u64,
    /// Bytes before the held-out part.
    train_bytes: u64,
    validation: u64,
}

impl Dataset {
    /// The data of a manifest. `files` are the local paths of its data files, in the manifest's
    /// order; generated text needs none.
    ///
    /// # Errors
    /// If a file is missing, unreadable or empty, or there is too little text.
    pub fn open(manifest: &Manifest, files: &[PathBuf]) -> Result<Self, DataError> {
        let text = match manifest.data.source {
            DataSource::Stories => {
                let bytes = stories(manifest.run.seed, manifest.data.story_bytes);
                Text::memory("built-in stories", bytes)
            }
            DataSource::Files => Text::files(files)?,
        };
        Self::new(manifest, text)
    }

    /// The sequences of `text`, cut as the manifest says.
    ///
    /// # Errors
    /// If there is too little text.
    pub fn new(manifest: &Manifest, text: Text) -> Result<Self, DataError> {
        let TokenizerConfig::Byte = manifest.tokenizer;
        let (bytes, held_out) = (text.len(), manifest.data.held_out);
        let window = manifest.model.sequence_length as u64 + 1;
        // One validation sequence at least, also where the share is less than that.
        let held_out_bytes = ((bytes as f64 * held_out) as u64).max(window);
        let train_bytes = bytes.saturating_sub(held_out_bytes);
        if train_bytes < window {
            let name = text.name().to_owned();
            return Err(DataError::TooSmall { name, bytes, window, held_out });
        }
        let available = (bytes - train_bytes) / window;
        let validation = available.min(manifest.data.validation_sequences as u64);
        Ok(Self { text, window, train_bytes, validation })
    }

    /// Training sequences: windows side by side before the held-out part.
    pub fn sequences(&self) -> u64 {
        self.train_bytes / self.window
    }

    /// Validation sequences: as many as the manifest wants, if the held-out part has them.
    pub fn validation_sequences(&self) -> u64 {
        self.validation
    }

    /// Tokens of a sequence: the model's length plus one.
    pub fn window(&self) -> usize {
        self.window as usize
    }

    /// The tokens of training sequence `index`.
    ///
    /// # Errors
    /// If there is no such sequence, or a data file has changed.
    pub fn train_sequence(&self, index: u64) -> Result<Vec<u32>, DataError> {
        let sequences = self.sequences();
        if index >= sequences {
            return Err(DataError::NoSuchSequence { index, sequences });
        }
        self.tokens(index * self.window)
    }

    /// The tokens of validation sequence `index`; they are spread evenly over the held-out part.
    ///
    /// # Errors
    /// If there is no such sequence, or a data file has changed.
    pub fn validation_sequence(&self, index: u64) -> Result<Vec<u32>, DataError> {
        let sequences = self.validation;
        if index >= sequences {
            return Err(DataError::NoSuchSequence { index, sequences });
        }
        let available = (self.text.len() - self.train_bytes) / self.window;
        let chosen = (u128::from(index) * u128::from(available) / u128::from(sequences)) as u64;
        self.tokens(self.train_bytes + chosen * self.window)
    }

    /// Validation batch `index` of `sequences` sequences, one after another; the last may be
    /// shorter, and beyond it there is `None`.
    ///
    /// # Errors
    /// If a data file has changed.
    pub fn validation_batch(
        &self,
        index: u64,
        sequences: u64,
    ) -> Result<Option<Vec<u32>>, DataError> {
        let start = index.saturating_mul(sequences);
        if start >= self.validation {
            return Ok(None);
        }
        let mut tokens = Vec::new();
        for sequence in start..self.validation.min(start + sequences) {
            tokens.extend(self.validation_sequence(sequence)?);
        }
        Ok(Some(tokens))
    }

    fn tokens(&self, start: u64) -> Result<Vec<u32>, DataError> {
        // One byte more in front: whether a newline separates documents depends on it.
        let lead = u64::from(start > 0);
        let bytes = self.text.read(start - lead, (self.window + lead) as usize)?;
        let (before, bytes) = bytes.split_at(lead as usize);
        Ok(tokenizer::encode_after(before.first().copied(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EMBEDDED_RUN;

    fn manifest() -> Manifest {
        let mut manifest = Manifest::from_toml(EMBEDDED_RUN).unwrap();
        manifest.model.sequence_length = 9;
        manifest.data.held_out = 0.25;
        manifest.data.validation_sequences = 5;
        manifest
    }

    fn digits(bytes: usize) -> Text {
        Text::memory("digits", (0..bytes).map(|i| b'0' + (i % 10) as u8).collect())
    }

    #[test]
    fn windows_do_not_overlap_and_the_end_is_held_out() {
        let dataset = Dataset::new(&manifest(), digits(400)).unwrap();
        assert_eq!((dataset.sequences(), dataset.validation_sequences()), (30, 5));
        let first: Vec<u32> = (48..58).collect();
        assert_eq!(dataset.train_sequence(0).unwrap(), first);
        assert_eq!(dataset.train_sequence(29).unwrap(), first);
        assert_eq!(dataset.validation_sequence(4).unwrap(), first);
        assert!(matches!(
            dataset.train_sequence(30),
            Err(DataError::NoSuchSequence { index: 30, sequences: 30 })
        ));
        assert!(dataset.validation_sequence(5).is_err());
    }

    #[test]
    fn validation_comes_in_batches() {
        let dataset = Dataset::new(&manifest(), digits(400)).unwrap();
        let lengths: Vec<usize> = (0..)
            .map_while(|index| dataset.validation_batch(index, 2).unwrap())
            .map(|batch| batch.len())
            .collect();
        assert_eq!(lengths, [20, 20, 10]);
    }

    #[test]
    fn a_separator_on_a_window_edge_is_seen() {
        let mut bytes = vec![b'a'; 100];
        (bytes[9], bytes[10]) = (b'\n', b'\n');
        let dataset = Dataset::new(&manifest(), Text::memory("edge", bytes)).unwrap();
        assert_eq!(dataset.train_sequence(1).unwrap()[0], tokenizer::SEPARATOR);
    }

    #[test]
    fn too_little_text_is_one_clear_error() {
        let error = Dataset::new(&manifest(), digits(19)).unwrap_err().to_string();
        assert!(error.contains("digits") && error.contains("give more text"), "{error}");
        assert!(Dataset::new(&manifest(), digits(20)).is_ok());
        assert!(Dataset::new(&manifest(), digits(0)).is_err());
    }

    #[test]
    fn the_embedded_run_has_data() {
        let manifest = Manifest::from_toml(EMBEDDED_RUN).unwrap();
        let dataset = Dataset::open(&manifest, &[]).unwrap();
        assert_eq!(dataset.validation_sequences(), 32);
        assert!(dataset.sequences() > 30_000);
        assert_eq!(dataset.train_sequence(0).unwrap().len(), 129);
    }
}
