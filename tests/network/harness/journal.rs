//! What all processes of a test say, in the order in which it was heard, and the state roots in it.
//!
//! Two processes of one run that name different roots for one round fail whatever test hears it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Events that a failed wait shows.
const SHOWN_EVENTS: usize = 60;
/// Lines of standard error that a failed wait shows of each process.
const SHOWN_LINES: usize = 25;
/// Lines of standard error that are kept of each process.
const KEPT_LINES: usize = 4000;

/// A moment in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(usize);

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Since the journal began.
    pub(crate) at: Duration,
    /// Which process, by its number in the journal.
    pub(crate) process: usize,
    /// The object that was printed.
    pub(crate) event: Value,
}

impl Entry {
    /// Whether it is an event of this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.event["event"] == name
    }

    /// A field that is a count; 0 if it is none.
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.event[field].as_u64().unwrap_or_default()
    }

    /// A field in seconds; 0 if it is none.
    pub(crate) fn seconds(&self, field: &str) -> f64 {
        self.event[field].as_f64().unwrap_or_default()
    }

    /// The round, if this commits one that this process was there for.
    pub(crate) fn live_commit(&self) -> Option<u64> {
        let live = self.is("committed") && self.event["replayed"] == false;
        live.then(|| self.number("round"))
    }
}

struct Source {
    name: String,
    run: usize,
    errors: VecDeque<String>,
    ended: bool,
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    sources: Vec<Source>,
    /// By run and round: the root, and who named it.
    roots: BTreeMap<(usize, u64), (String, BTreeSet<String>)>,
    disagreement: Option<String>,
}

/// What all processes of a test say.
pub(crate) struct Journal {
    inner: Mutex<Inner>,
    news: Condvar,
    began: Instant,
    name: String,
}

impl Journal {
    /// An empty journal of the test `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            inner: Mutex::default(),
            news: Condvar::new(),
            began: Instant::now(),
            name: name.to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process of one of the test's runs; its number.
    pub(crate) fn add(&self, name: &str, run: usize) -> usize {
        let mut inner = self.lock();
        let (name, errors) = (name.to_owned(), VecDeque::new());
        inner.sources.push(Source { name, run, errors, ended: false });
        inner.sources.len() - 1
    }

    /// A process printed a line to standard output.
    pub(crate) fn heard(&self, process: usize, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return self.heard_error(process, &format!("NOT JSON ON STDOUT: {line}"));
        };
        if event["event"] == "step" {
            return;
        }
        let mut inner = self.lock();
        inner.compare(process, &event);
        let at = self.began.elapsed();
        inner.entries.push(Entry { at, process, event });
        self.news.notify_all();
    }

    /// A process printed a line to standard error.
    pub(crate) fn heard_error(&self, process: usize, line: &str) {
        let line = format!("[{:8.3}] {line}", self.began.elapsed().as_secs_f64());
        let errors = &mut self.lock().sources[process].errors;
        if errors.len() == KEPT_LINES {
            errors.pop_front();
        }
        errors.push_back(line);
    }

    /// A process has closed its standard output.
    pub(crate) fn ended(&self, process: usize) {
        self.lock().sources[process].ended = true;
        self.news.notify_all();
    }

    /// Now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.lock().entries.len())
    }

    /// All that was said since `mark`.
    pub(crate) fn since(&self, mark: Mark) -> Vec<Entry> {
        self.lock().entries[mark.0..].to_vec()
    }

    /// What a process wrote to standard error.
    pub(crate) fn errors(&self, process: usize) -> String {
        let inner = self.lock();
        let text = inner.sources[process].errors.iter().filter_map(|line| line.split_once("] "));
        text.fold(String::new(), |text, (_, line)| text + line + "\n")
    }

    /// Waits for something that was said since `mark`.
    ///
    /// Panics when it takes longer than `within`, when `process` has ended without having said it,
    /// or when roots differ.
    pub(crate) fn wait<T>(
        &self,
        (what, process): (&str, Option<usize>),
        mark: Mark,
        within: Duration,
        mut pick: impl FnMut(&Entry) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + within;
        let mut seen = mark.0;
        let mut inner = self.lock();
        loop {
            let fresh = inner.entries[seen..].iter();
            let fresh = fresh.filter(|entry| process.is_none_or(|number| number == entry.process));
            let found = fresh.into_iter().find_map(&mut pick);
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = process.is_some_and(|number| inner.sources[number].ended);
            let fault = match (&inner.disagreement, &found) {
                (Some(disagreement), _) => Some(disagreement.clone()),
                (None, Some(_)) => None,
                (None, None) if ended => Some(format!("it ended, and this was missing: {what}")),
                (None, None) if left.is_zero() => Some(format!("not within {within:?}: {what}")),
                (None, None) => None,
            };
            if let Some(fault) = fault {
                drop(inner);
                self.fail(&fault);
            }
            if let Some(found) = found {
                return found;
            }
            seen = inner.entries.len();
            inner = self.news.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The state root that a process of `run` called `node` named for a round.
    pub(crate) fn root(&self, run: usize, node: &str, round: u64) -> Option<String> {
        let inner = self.lock();
        let (root, nodes) = inner.roots.get(&(run, round))?;
        nodes.contains(node).then(|| root.clone())
    }

    /// Fails if two processes of one run ever named different roots for one round.
    pub(crate) fn assert_agreement(&self) {
        let disagreement = self.lock().disagreement.clone();
        if let Some(disagreement) = disagreement {
            self.fail(&disagreement);
        }
    }

    /// Panics with what all processes said last; everything that is kept goes into a file.
    pub(crate) fn fail(&self, fault: &str) -> ! {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.log", self.name));
        let whole = self.report(usize::MAX, usize::MAX);
        let kept = match std::fs::write(&path, format!("{fault}\n{whole}")) {
            Ok(()) => format!("all of it: {}", path.display()),
            Err(error) => format!("{} cannot be written: {error}", path.display()),
        };
        panic!("{}: {fault}\n{}\n{kept}", self.name, self.report(SHOWN_EVENTS, SHOWN_LINES));
    }

    fn report(&self, events: usize, lines: usize) -> String {
        let inner = self.lock();
        let mut text = String::from("--- events\n");
        for entry in &inner.entries[inner.entries.len().saturating_sub(events)..] {
            let (at, name) = (entry.at.as_secs_f64(), &inner.sources[entry.process].name);
            let _ = writeln!(text, "[{at:8.3}] {name}: {}", entry.event);
        }
        for source in &inner.sources {
            let ended = if source.ended { ", which has ended" } else { "" };
            let _ = writeln!(text, "--- standard error of {}{ended}", source.name);
            let skipped = source.errors.len().saturating_sub(lines);
            for line in source.errors.iter().skip(skipped) {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

impl Inner {
    /// Compares a root with what others of the run have named for the round.
    fn compare(&mut self, process: usize, event: &Value) {
        let named = event["event"] == "committed" || event["event"] == "finished";
        let (Some(root), Some(round)) = (event["state_root"].as_str(), event["round"].as_u64())
        else {
            return;
        };
        if !named {
            return;
        }
        let source = &self.sources[process];
        // The demo passes its processes' events on.
        let passed_on = event["node"].as_str();
        let name = passed_on.map_or_else(|| base_name(&source.name), str::to_owned);
        let key = (source.run, round);
        let known = self.roots.entry(key).or_insert_with(|| (root.to_owned(), BTreeSet::new()));
        if known.0 != root {
            self.disagreement.get_or_insert_with(|| {
                format!("after round {round} {name} has root {root}, {:?} had {}", known.1, known.0)
            });
        }
        known.1.insert(name);
    }
}

/// `node-2` of `node-2#3`, its third start.
fn base_name(name: &str) -> String {
    name.split('#').next().unwrap_or(name).to_owned()
}
