//! What happened, as a hash that tells whether two worlds were the same, and as the last lines for
//! people.

use std::collections::VecDeque;

use crate::{
    base::{Digest, Time},
    sim::event::Event,
};

/// Lines that are kept for a failure's report.
const LINES: usize = 400;

/// A trace.
#[derive(Clone, Default)]
pub struct Trace {
    hasher: blake3::Hasher,
    lines: VecDeque<String>,
    /// Keep every line.
    pub verbose: bool,
}

impl Trace {
    /// An event happens.
    pub(super) fn event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Step { .. } | Event::Wake { .. } => self.hash(now, &format!("{event:?}")),
            Event::Deliver { from, to, envelope, .. } => {
                let (name, sequence) = (envelope.message.name(), envelope.sequence);
                self.hash(now, &format!("{from}>{to} {name} {sequence}"));
            }
            Event::FetchBody { peer, header, .. } => {
                self.line(now, &format!("{peer} fetches the body of {}", header.round));
            }
            Event::BodyHere { peer, header, .. } => {
                self.line(now, &format!("{peer} has the body of {}", header.round));
            }
            Event::Folded { peer, header, .. } => {
                self.line(now, &format!("{peer} folds {}", header.round));
            }
            other => self.line(now, &format!("{other:?}")),
        }
    }

    /// A line for people, which counts for the hash too.
    pub(super) fn line(&mut self, now: Time, text: &str) {
        self.hash(now, text);
        if !self.verbose && self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{now} {text}"));
    }

    fn hash(&mut self, now: Time, text: &str) {
        self.hasher.update(&now.as_micros().to_le_bytes());
        self.hasher.update(text.as_bytes());
    }

    /// The hash of everything so far.
    pub fn digest(&self) -> Digest {
        Digest(*self.hasher.finalize().as_bytes())
    }

    /// The last lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
