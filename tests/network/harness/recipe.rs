//! A tiny run: a byte model of some 27 thousand parameters whose segments last under a second.

use std::path::{Path, PathBuf};

const TINY: &str = r#"
[run]
name = "tiny"
seed = 7
rounds = 100000

[model]
architecture = "llama"
vocab_size = 257
hidden_size = 32
intermediate_size = 64
layers = 1
heads = 2
kv_heads = 2
sequence_length = 32

[tokenizer]
kind = "byte"

[data]
source = "stories"
story_bytes = 262144
held_out = 0.05
validation_sequences = 4

[inner]
learning_rate = 2e-3
warmup_steps = 20
schedule = "constant"
batch = 2
micro_batch = 2

[outer]
learning_rate = 0.7
momentum = 0.5

[rounds]
local_steps = 200
overlap = "on_arrival"

[compression]
strategy = "dilocox"
bits = 4
rank = 0

[snapshot]
every = 16
"#;

/// A manifest in the making.
#[derive(Clone, Debug)]
pub(crate) struct Recipe(String);

impl Recipe {
    /// The tiny run.
    pub(crate) fn tiny() -> Self {
        Self(TINY.to_owned())
    }

    /// Another value, written as TOML, for a key that the recipe has.
    pub(crate) fn set(&self, key: &str, value: impl ToString) -> Self {
        let value = value.to_string();
        let mut hits = 0;
        let lines = self.0.lines().map(|line| {
            let hit = line.split('=').next().is_some_and(|left| left.trim() == key);
            hits += usize::from(hit);
            if hit { format!("{key} = {value}\n") } else { format!("{line}\n") }
        });
        let text = lines.collect();
        assert_eq!(hits, 1, "`{key}` stands once in the recipe");
        Self(text)
    }

    /// The recipe with other text in place of `from`.
    pub(crate) fn replace(&self, from: &str, to: &str) -> Self {
        assert!(self.0.contains(from), "`{from}` stands in the recipe");
        Self(self.0.replace(from, to))
    }

    /// Writes it into a folder, under the run's name.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let name = self.0.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or("run");
        let path = folder.join(format!("{}.toml", name.trim_matches('"')));
        std::fs::write(&path, &self.0).expect("a manifest is written");
        path
    }
}
