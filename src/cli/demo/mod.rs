//! `demo`: a bootstrap peer and some nodes as processes on this machine.
//!
//! ```text
//! processes --lines of JSON--> Stage --> Director: what to start or kill
//!                                |-----> Tally: what it all adds up to
//!                                '-----> View: bars, lines or JSON
//! ```
//!
//! Nothing is left behind: children die with their handle, with this process (their standard input
//! closes then), and with Ctrl-C; their data lives in one temporary directory.

mod curve;
mod director;
mod process;
mod stage;
mod summary;
mod tally;
mod view;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::process::Command;

use crate::{
    cli::{
        args::{DemoArgs, PROMPT},
        failure::Failure,
        manifest, print,
    },
    node::Shutdown,
    observe::{Event, Stamped},
};
use stage::Stage;

/// How long ending all processes may take when a signal comes.
const GRACE: Duration = Duration::from_secs(5);
/// Time that a model has to write its text.
const WRITING: Duration = Duration::from_secs(60);
/// Bytes of a data file that its model is given to go on with.
const PROMPT_BYTES: usize = 40;

/// Runs the demo to its end.
pub(super) async fn run(args: DemoArgs) -> Result<(), Failure> {
    let shutdown = Shutdown::on_signals(GRACE).map_err(|error| {
        Failure::failed(format!("cannot handle signals: {error}"), "report this system")
    })?;
    let started = Instant::now();
    let scene = Scene::set(&args)?;
    let mut stage = Stage::new(&args, &scene);
    let played = tokio::select! {
        played = stage.play() => played,
        () = shutdown.requested() => Err(interrupted()),
    };
    stage.clear().await;
    played?;
    let survivor = stage.survivor();
    let generated = tokio::select! {
        text = write_text(&scene, &survivor) => text?,
        () = shutdown.requested() => return Err(interrupted()),
    };
    close(&args, &mut stage, &generated, started.elapsed())
}

fn interrupted() -> Failure {
    Failure::failed("interrupted; all processes are ended", "run it again")
}

/// The executable, the manifest and the temporary directory.
struct Scene {
    executable: PathBuf,
    manifest: PathBuf,
    prompt: String,
    dir: tempfile::TempDir,
}

impl Scene {
    fn set(args: &DemoArgs) -> Result<Self, Failure> {
        let executable = match &args.executable {
            Some(path) => path.clone(),
            None => std::env::current_exe().map_err(|error| {
                Failure::failed(
                    format!("cannot find this program's own file: {error}"),
                    "start it by its full path",
                )
            })?,
        };
        let dir = tempfile::Builder::new().prefix("dilocox-demo-").tempdir().map_err(no_room)?;
        let name = if args.data.is_some() { "demo" } else { "stories-1m" };
        let text = manifest::template(name, args.data.as_slice(), args.rounds)?;
        let manifest = dir.path().join("demo.toml");
        fs::write(&manifest, text).map_err(no_room)?;
        let prompt = args.data.as_deref().map_or_else(|| PROMPT.to_owned(), beginning);
        Ok(Self { executable, manifest, prompt, dir })
    }

    fn data_dir(&self, node: &str) -> PathBuf {
        self.dir.path().join(node)
    }
}

fn no_room(error: io::Error) -> Failure {
    Failure::failed(
        format!("cannot write to the temporary directory: {error}"),
        "free some space, or set TMPDIR to a directory that has some",
    )
}

/// The first words of a file.
fn beginning(path: &Path) -> String {
    use io::Read;
    let mut bytes = Vec::new();
    let read = fs::File::open(path)
        .and_then(|file| file.take(PROMPT_BYTES as u64).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(if read.is_ok() { &bytes } else { &[] });
    let line = text.trim_end_matches('\u{fffd}').trim_start().lines().next().unwrap_or_default();
    if line.is_empty() { PROMPT.to_owned() } else { line.to_owned() }
}

/// The text that a node's newest state writes.
async fn write_text(scene: &Scene, node: &str) -> Result<Generated, Failure> {
    let output = Command::new(&scene.executable)
        .args(["generate", "--json", "--tokens", "240", "--data-dir"])
        .arg(scene.data_dir(node))
        .arg(&scene.prompt)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let failed = |what: String| {
        Failure::failed(
            format!("the state of {node} writes no text: {what}"),
            "report it with the lines above",
        )
    };
    let output = tokio::time::timeout(WRITING, output)
        .await
        .map_err(|_| failed(format!("no answer in {} seconds", WRITING.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()));
    }
    let last = String::from_utf8_lossy(&output.stdout).lines().last().map(str::to_owned);
    serde_json::from_str(&last.unwrap_or_default()).map_err(|error| failed(error.to_string()))
}

/// What `generate --json` prints.
#[derive(serde::Deserialize)]
struct Generated {
    round: u64,
    prompt: String,
    text: String,
}

/// The last words, and whether all nodes agreed.
fn close(
    args: &DemoArgs,
    stage: &mut Stage<'_>,
    generated: &Generated,
    took: Duration,
) -> Result<(), Failure> {
    let tally = stage.tally();
    let text = format!("{}{}", generated.prompt, generated.text);
    if args.json {
        let Generated { round, prompt, text } = generated;
        let event = Event::Generated { round: *round, prompt: prompt.clone(), text: text.clone() };
        let line = Stamped::now(event).to_json();
        print::line_out(&view::with_node(&stage.survivor(), &line));
        print::line_out(&Stamped::now(Event::DemoResult(tally.result())).to_json());
    } else {
        print::line_out(&summary::text(tally, took.as_secs_f64(), &text));
    }
    match tally.disagreement() {
        None => Ok(()),
        Some(found) => Err(Failure::failed(
            format!("the states after round {} differ: {:?}", found.round, found.roots),
            "this is a bug: report it with the output of `demo --json`",
        )),
    }
}

#[cfg(all(test, unix))]
mod tests;
