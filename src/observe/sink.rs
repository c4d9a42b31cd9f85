//! Where events go: JSON lines for programs, lines and a bar for people, or nowhere.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    event::{Event, Stamped},
    text,
};

/// A consumer of events, on the output thread.
pub trait Sink: Send {
    /// Takes one event. A sink whose reader is gone goes quiet; it never fails.
    fn write(&mut self, stamped: &Stamped);

    /// Ends the output.
    fn finish(&mut self) {}
}

/// Writes whole lines and goes quiet for good when the reader is gone (a closed pipe).
pub struct Lines<W> {
    writer: W,
    broken: bool,
}

impl<W: Write> Lines<W> {
    /// Lines to `writer`.
    pub fn new(writer: W) -> Self {
        Self { writer, broken: false }
    }

    /// Writes one line and flushes it.
    pub fn line(&mut self, line: &str) {
        if self.broken {
            return;
        }
        let written = self
            .writer
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.writer.flush());
        self.broken = written.is_err();
    }

    /// Whether the reader is gone.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// One JSON object a line.
pub struct JsonSink<W>(Lines<W>);

impl<W: Write> JsonSink<W> {
    /// JSON lines to `writer`.
    pub fn new(writer: W) -> Self {
        Self(Lines::new(writer))
    }
}

impl<W: Write + Send> Sink for JsonSink<W> {
    fn write(&mut self, stamped: &Stamped) {
        self.0.line(&stamped.to_json());
    }
}

/// Lines for people and, on a terminal, one bar for the running segment.
pub struct TextSink {
    lines: Lines<io::Stdout>,
    bar: Option<ProgressBar>,
}

impl TextSink {
    /// Text to standard output.
    pub fn stdout() -> Self {
        let bar = io::stdout().is_terminal().then(segment_bar);
        Self { lines: Lines::new(io::stdout()), bar }
    }
}

fn segment_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {pos}/{len}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl Sink for TextSink {
    fn write(&mut self, stamped: &Stamped) {
        if let (Event::Step { step, local_steps, .. }, Some(bar)) = (&stamped.event, &self.bar) {
            bar.set_length(u64::from(*local_steps));
            bar.set_position(u64::from(*step));
            bar.set_message(text::step(&stamped.event));
        }
        let Some(line) = text::line(&stamped.event) else { return };
        match &self.bar {
            Some(bar) => bar.suspend(|| self.lines.line(&line)),
            None => self.lines.line(&line),
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The sink of a command line: JSON lines with `--json`, else text, both to standard output.
pub fn stdout(json: bool) -> Box<dyn Sink> {
    if json { Box::new(JsonSink::new(io::stdout())) } else { Box::new(TextSink::stdout()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_ends_the_output_quietly() {
        let mut sink = JsonSink::new(Closed);
        let stamped = Stamped::now(Event::Snapshot { round: 1, bytes: 1, seconds: 0.1 });
        sink.write(&stamped);
        sink.write(&stamped);
        assert!(sink.0.is_broken());
    }

    #[test]
    fn json_is_one_object_a_line() {
        let mut bytes = Vec::new();
        let warning = Event::Warning { what: "two\nlines".into(), remedy: String::new() };
        JsonSink::new(&mut bytes).write(&Stamped::now(warning));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(text.starts_with(r#"{"event":"warning""#), "{text}");
    }
}
