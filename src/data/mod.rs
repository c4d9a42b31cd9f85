//! Text as training sequences.
//!
//! ```text
//! stories   a seeded generator of small stories and sums: the same bytes on every machine
//! text      text in memory or in mapped files, as one long run of bytes
//! tokenizer one token a byte, and one that separates documents
//! dataset   windows of that text: training sequences by number, and the held-out end
//! ```
//!
//! Which sequence is trained on when is decided elsewhere ([`crate::plan::feistel`]).

mod dataset;
mod stories;
mod text;
pub mod tokenizer;

pub use dataset::Dataset;
pub use stories::stories;
pub use text::Text;

use std::path::PathBuf;

/// Data that cannot be trained on.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be opened or mapped.
    #[error(
        "data file {} cannot be read: {error}; check that it exists and its permissions",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// A file holds nothing.
    #[error(
        "data file {} is empty; give a text file with content, or remove it from data.files",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Files are the source, but none is here.
    #[error(
        "the run's data are files, but none was given; fetch them from a peer or name them in \
         data.files"
    )]
    NoFiles,
    /// A file's length changed while it was in use.
    #[error(
        "data file {} had {expected} bytes and now has {found}; restore it and start the node again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Bytes when it was opened.
        expected: u64,
        /// Bytes now.
        found: u64,
    },
    /// Too little text for one training and one validation sequence.
    #[error(
        "the data ({name}) has {bytes} bytes, too few for sequences of {window} bytes with \
         {held_out} of it held out; give more text, or lower model.sequence_length"
    )]
    TooSmall {
        /// What the text is.
        name: String,
        /// Bytes of text.
        bytes: u64,
        /// Bytes of one sequence.
        window: u64,
        /// Share that is held out.
        held_out: f64,
    },
    /// No such sequence.
    #[error(
        "there is no sequence {index}: the data has {sequences}; this is a bug, please report it"
    )]
    NoSuchSequence {
        /// Asked for.
        index: u64,
        /// There are this many.
        sequences: u64,
    },
}
