//! The processes of a demo, from the first start to the last exit.

use std::{
    collections::BTreeMap,
    io,
    process::ExitStatus,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{
    Scene,
    director::{Action, BOOTSTRAP, Director},
    process::{Process, Report},
    tally::Tally,
    view::View,
};
use crate::{
    cli::{args::DemoArgs, failure::Failure},
    observe::{Event, Stamped},
};

/// Reports that wait to be looked at: a little more than all processes say in a moment.
const REPORTS: usize = 256;

/// What became of a training node.
#[derive(Debug, PartialEq)]
enum Fate {
    Alive,
    Killed,
    Finished,
}

struct Actor {
    process: Process,
    fate: Fate,
    /// The last thing it said, for the case that nothing moves any more.
    doing: String,
}

/// All processes, and what they have said so far.
pub(super) struct Stage<'a> {
    scene: &'a Scene,
    patience: Duration,
    actors: BTreeMap<String, Actor>,
    director: Director,
    tally: Tally,
    view: View,
    reports: mpsc::Receiver<Report>,
    reporter: mpsc::Sender<Report>,
    progress: Instant,
}

impl<'a> Stage<'a> {
    pub(super) fn new(args: &DemoArgs, scene: &'a Scene) -> Self {
        let (reporter, reports) = mpsc::channel(REPORTS);
        Self {
            scene,
            patience: args.patience,
            actors: BTreeMap::new(),
            director: Director::new(usize::from(args.nodes), !args.no_churn),
            tally: Tally::default(),
            view: View::new(args.json),
            reports,
            reporter,
            progress: Instant::now(),
        }
    }

    /// What all events add up to.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// A node that was there at the end.
    pub(super) fn survivor(&self) -> String {
        let finished = self.actors.iter().find(|(_, actor)| actor.fate == Fate::Finished);
        finished.map(|(node, _)| node.clone()).unwrap_or_default()
    }

    /// Plays until every training node has finished or been killed on purpose.
    pub(super) async fn play(&mut self) -> Result<(), Failure> {
        self.start(BOOTSTRAP, &bootstrap_arguments())?;
        self.progress = Instant::now();
        while !self.is_over() {
            let left = self.patience.saturating_sub(self.progress.elapsed());
            match tokio::time::timeout(left, self.reports.recv()).await {
                Ok(Some(Report::Line { node, text })) => self.hear(&node, &text)?,
                Ok(Some(Report::Exit { node, status })) => self.bury(&node, status)?,
                Ok(None) | Err(_) => return Err(self.nothing_moves()),
            }
            if self.view.is_broken() {
                return Err(Failure::failed("the reader of the output is gone", "keep it open"));
            }
        }
        Ok(())
    }

    /// Ends all processes and waits until they are gone.
    pub(super) async fn clear(&mut self) {
        self.reports.close();
        self.view.finish();
        for actor in self.actors.values() {
            actor.process.kill();
        }
        for actor in self.actors.values_mut() {
            actor.process.end().await;
        }
    }

    /// All nodes are gone, none is still to come, and the run's end was seen.
    fn is_over(&self) -> bool {
        let mut nodes = self.actors.iter().filter(|(node, _)| *node != BOOTSTRAP).peekable();
        nodes.peek().is_some()
            && nodes.all(|(_, actor)| actor.fate != Fate::Alive)
            && self.actors.values().any(|actor| actor.fate == Fate::Finished)
    }

    fn start(&mut self, node: &str, arguments: &[String]) -> Result<(), Failure> {
        let data_dir = self.scene.data_dir(node).to_string_lossy().into_owned();
        let common = ["--data-dir", &data_dir, "--listen", "/ip4/127.0.0.1/tcp/0", "--http", "off"];
        let mut all = arguments.to_vec();
        all.extend(common.map(str::to_owned));
        all.extend(["--json", "--exit-with-parent"].map(str::to_owned));
        let process = Process::start(node, &self.scene.executable, &all, self.reporter.clone())
            .map_err(|error| {
                Failure::failed(
                    format!("cannot start {}: {error}", self.scene.executable.display()),
                    "check the limits on processes and memory",
                )
            })?;
        let pid = process.pid();
        let doing = "starting".to_owned();
        self.actors.insert(node.to_owned(), Actor { process, fate: Fate::Alive, doing });
        if node != BOOTSTRAP {
            self.tally.node_started(node);
        }
        self.view.show_own(node, Event::DemoStarted { node: node.to_owned(), pid });
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Start { node, bootstrap, founds } => {
                let run = founds.then(|| self.scene.manifest.to_string_lossy().into_owned());
                self.start(&node, &node_arguments(&bootstrap, run))
            }
            Action::Kill { node, round } => {
                if let Some(actor) = self.actors.get_mut(&node) {
                    actor.fate = Fate::Killed;
                    actor.process.kill();
                }
                self.view.show_own(&node, Event::DemoKilled { node: node.clone(), round });
                Ok(())
            }
        }
    }

    /// One line of a process: an event, or something that should not be there.
    fn hear(&mut self, node: &str, text: &str) -> Result<(), Failure> {
        let Ok(Stamped { event, .. }) = serde_json::from_str::<Stamped>(text) else {
            return Err(Failure::failed(
                format!("{node} printed something else than an event: {text}"),
                "this is a bug: report it",
            ));
        };
        if moves(&event) {
            self.progress = Instant::now();
        }
        if let Some(actor) = self.actors.get_mut(node) {
            actor.doing = doing(&event).unwrap_or_else(|| actor.doing.clone());
            if matches!(event, Event::Finished { .. }) && actor.fate == Fate::Alive {
                actor.fate = Fate::Finished;
            }
        }
        self.view.show(node, &event, text);
        self.tally.record(node, &event);
        for action in self.director.on_event(node, &event) {
            self.act(action)?;
        }
        Ok(())
    }

    /// The end of a process: wanted, or a failure that its last words explain.
    fn bury(&mut self, node: &str, status: io::Result<ExitStatus>) -> Result<(), Failure> {
        let Some(actor) = self.actors.get(node) else { return Ok(()) };
        let success = status.as_ref().is_ok_and(ExitStatus::success);
        if actor.fate == Fate::Killed || (actor.fate == Fate::Finished && success) {
            return Ok(());
        }
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = actor.process.last_words().join("\n  ");
        let words = if words.is_empty() { "(nothing on standard error)".to_owned() } else { words };
        Err(Failure::failed(
            format!(
                "{node} ended before its run did ({how}); last heard: {}; its last words:\n  {words}",
                actor.doing
            ),
            "RUST_LOG=info shows more of what it did",
        ))
    }

    fn nothing_moves(&self) -> Failure {
        let doings: Vec<String> = self
            .actors
            .iter()
            .filter(|(_, actor)| actor.fate != Fate::Killed)
            .map(|(node, actor)| format!("  {node}: {}", actor.doing))
            .collect();
        Failure::failed(
            format!(
                "nothing has moved for {} seconds; last heard:\n{}",
                self.patience.as_secs(),
                doings.join("\n")
            ),
            "RUST_LOG=info shows more of what the processes do",
        )
    }
}

/// Whether an event shows that something moves, unlike complaints that nothing does.
fn moves(event: &Event) -> bool {
    !matches!(
        event,
        Event::Waiting { .. }
            | Event::Stuck { .. }
            | Event::BootstrapUnreachable { .. }
            | Event::Warning { .. }
            | Event::EventsDropped { .. }
    )
}

/// What a process is doing, by what it said last; none if that tells nothing.
fn doing(event: &Event) -> Option<String> {
    match event {
        Event::Step { round, step, local_steps, .. } => {
            Some(format!("training, round {round}, step {step} of {local_steps}"))
        }
        Event::Started { .. } => Some("accepting peers".to_owned()),
        Event::Committed { round, .. } => Some(format!("committed round {round}")),
        other => crate::observe::text::line(other),
    }
}

fn bootstrap_arguments() -> Vec<String> {
    ["bootstrap", "--grace", "2"].map(str::to_owned).to_vec()
}

fn node_arguments(bootstrap: &str, run: Option<String>) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--bootstrap", bootstrap, "--threads", "1"].map(str::to_owned).to_vec();
    if let Some(run) = run {
        arguments.extend(["--run".to_owned(), run]);
    }
    arguments
}
