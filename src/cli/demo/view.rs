//! What a person sees while the demo runs: one bar or line a process.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    base::Round,
    cli::demo::director::BOOTSTRAP,
    config::units::bytes_text,
    observe::{Event, Stamped, sink::Lines},
};

/// What one process shows.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Row {
    state: String,
    round: Round,
    rounds: Round,
    loss: Option<f64>,
    validation_loss: Option<f64>,
    members: usize,
    bytes_sent: u64,
    train_seconds: f64,
    stall_seconds: f64,
}

impl Row {
    /// Takes an event into account; says whether a line about it is worth reading.
    pub(super) fn record(&mut self, event: &Event) -> bool {
        match event {
            Event::Started { .. } => self.state = "started".into(),
            Event::Founded { rounds, name, .. } => {
                (self.rounds, self.state) = (*rounds, format!("founded {name}"));
            }
            Event::Joined { rounds, round, .. } | Event::Resumed { rounds, round, .. } => {
                (self.rounds, self.round) = (*rounds, *round);
                self.state = format!("joined after round {round}");
            }
            Event::SyncProgress { round, target_round, .. } => {
                self.state = format!("fetching round {round} of {target_round}");
            }
            Event::Waiting { what, .. } => self.state = format!("waiting for {what}"),
            Event::Stuck { missing, .. } => self.state = format!("missing {missing}"),
            Event::Warning { what, .. } => self.state.clone_from(what),
            Event::Finished { .. } => self.state = "finished".into(),
            Event::DemoKilled { round, .. } => {
                self.state = format!("killed (SIGKILL) after round {round}");
            }
            other => return self.record_training(other),
        }
        true
    }

    fn record_training(&mut self, event: &Event) -> bool {
        match event {
            Event::Step { loss, .. } => self.loss = Some(*loss),
            Event::Exchange { bytes_sent, .. } => self.bytes_sent += bytes_sent,
            Event::Committed { round, members, .. } => {
                (self.round, self.members) = (*round, *members);
                self.state.clear();
            }
            Event::Round { loss, validation_loss, train_seconds, stall_seconds, .. } => {
                self.loss = Some(*loss);
                self.validation_loss = validation_loss.or(self.validation_loss);
                self.train_seconds += train_seconds;
                self.stall_seconds += stall_seconds;
                return true;
            }
            _ => {}
        }
        false
    }

    /// The text beside the bar.
    pub(super) fn message(&self) -> String {
        let mut parts = Vec::new();
        if let Some(loss) = self.validation_loss.or(self.loss) {
            parts.push(format!("loss {loss:.3}"));
        }
        if self.members > 0 {
            parts.push(format!("{} members", self.members));
        }
        if self.bytes_sent > 0 {
            parts.push(format!("{} sent", bytes_text(self.bytes_sent)));
        }
        let busy = self.train_seconds + self.stall_seconds;
        if busy > 0.0 {
            parts.push(format!("{:.0} % busy", self.train_seconds / busy * 100.0));
        }
        if !self.state.is_empty() {
            parts.push(self.state.clone());
        }
        parts.join("  ")
    }

    fn line(&self, node: &str) -> String {
        format!("{node:<9}  round {:>3}/{:<3}  {}", self.round, self.rounds, self.message())
    }
}

/// How the demo is shown.
pub(super) struct View {
    rows: BTreeMap<String, Row>,
    mode: Mode,
}

enum Mode {
    Json(Lines<io::Stdout>),
    Lines(Lines<io::Stdout>),
    Bars(MultiProgress, BTreeMap<String, ProgressBar>),
}

impl View {
    /// JSON lines, bars on a terminal, or lines elsewhere.
    pub(super) fn new(json: bool) -> Self {
        let lines = Lines::new(io::stdout());
        let mode = if json {
            Mode::Json(lines)
        } else if io::stdout().is_terminal() {
            let target = ProgressDrawTarget::stdout();
            Mode::Bars(MultiProgress::with_draw_target(target), BTreeMap::new())
        } else {
            Mode::Lines(lines)
        };
        Self { rows: BTreeMap::new(), mode }
    }

    /// Shows an event of a process. `raw` is its line of JSON.
    pub(super) fn show(&mut self, node: &str, event: &Event, raw: &str) {
        if let Mode::Json(lines) = &mut self.mode {
            return lines.line(&with_node(node, raw));
        }
        let row = self.rows.entry(node.to_owned()).or_default();
        let worth = row.record(event);
        match &mut self.mode {
            Mode::Lines(lines) if worth => lines.line(&row.line(node)),
            Mode::Bars(all, bars) => {
                let bar = bars.entry(node.to_owned()).or_insert_with(|| bar(all, node));
                bar.set_length(row.rounds);
                bar.set_position(row.round);
                bar.set_message(row.message());
            }
            _ => {}
        }
    }

    /// Shows an event of the demo itself about a process.
    pub(super) fn show_own(&mut self, node: &str, event: Event) {
        let stamped = Stamped::now(event);
        let raw = stamped.to_json();
        match &mut self.mode {
            Mode::Json(lines) => lines.line(&raw),
            _ => self.show(node, &stamped.event, &raw),
        }
    }

    /// Whether the reader of the output is gone.
    pub(super) fn is_broken(&self) -> bool {
        match &self.mode {
            Mode::Json(lines) | Mode::Lines(lines) => lines.is_broken(),
            Mode::Bars(..) => false,
        }
    }

    /// Ends the progress; what comes after is plain text.
    pub(super) fn finish(&mut self) {
        if let Mode::Bars(_, bars) = &mut self.mode {
            bars.values().for_each(ProgressBar::abandon);
        }
    }
}

fn bar(all: &MultiProgress, node: &str) -> ProgressBar {
    let bar = all.add(ProgressBar::new(0));
    let template = if node == BOOTSTRAP {
        "{prefix:9} {msg}"
    } else {
        "{prefix:9} {bar:20} {pos:>3}/{len:<3} {wide_msg}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(node.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// A line of JSON with the field `node` put in front.
pub(super) fn with_node(node: &str, raw: &str) -> String {
    let rest = raw.trim_start().strip_prefix('{').unwrap_or(raw);
    format!(r#"{{"node":"{node}",{rest}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::samples::samples;

    #[test]
    fn a_row_says_what_the_node_does() {
        let mut row = Row::default();
        for event in samples().iter().filter(|event| {
            matches!(
                event,
                Event::Founded { .. }
                    | Event::Exchange { .. }
                    | Event::Committed { .. }
                    | Event::Round { .. }
            )
        }) {
            row.record(event);
        }
        assert_eq!(
            row.line("node-1"),
            "node-1     round   1/30   loss 4.000  3 members  900 kB sent  100 % busy"
        );
    }

    #[test]
    fn a_killed_node_shows_it() {
        let mut row = Row::default();
        assert!(row.record(&Event::DemoKilled { node: "node-1".into(), round: 10 }));
        assert!(row.message().contains("SIGKILL"));
    }

    #[test]
    fn the_node_is_put_into_the_line() {
        let line = with_node("node-2", r#"{"event":"step","time":1.0}"#);
        assert_eq!(line, r#"{"node":"node-2","event":"step","time":1.0}"#);
    }
}
