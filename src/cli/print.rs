//! Standard output of commands that end: text, or one JSON object on the last line.

use std::io::{self, Write};

use serde::Serialize;

/// Prints `value` as one line of JSON, or `text`. A reader that has gone away is no failure.
pub(super) fn result<T: Serialize>(json: bool, value: &T, text: impl FnOnce() -> String) {
    let line = if json { serde_json::to_string(value).unwrap_or_default() } else { text() };
    line_out(&line);
}

/// Prints one line; a reader that has gone away is no failure.
pub(super) fn line_out(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{}", line.trim_end_matches('\n'));
}
