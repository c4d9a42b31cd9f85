//! One child process: its events, its last words, its end.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Lines of standard error that are kept: an error, its help and some context.
const LAST_WORDS: usize = 12;

/// What a process does.
#[derive(Debug)]
pub(super) enum Report {
    /// It printed a line.
    Line {
        /// Which process.
        node: String,
        /// The line.
        text: String,
    },
    /// It ended.
    Exit {
        /// Which process.
        node: String,
        /// How.
        status: io::Result<ExitStatus>,
    },
}

/// A running child. It dies when this is dropped, and when this process does, however that dies:
/// its standard input, which it watches, closes then.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    last_words: Arc<Mutex<VecDeque<String>>>,
    kill: CancellationToken,
    task: JoinHandle<()>,
}

impl Process {
    /// Starts `executable` in a process group of its own, so that a Ctrl-C at the terminal reaches
    /// only the demo, which then ends all at once.
    pub(super) fn start(
        node: &str,
        executable: &PathBuf,
        arguments: &[String],
        reports: mpsc::Sender<Report>,
    ) -> io::Result<Self> {
        let mut command = Command::new(executable);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let pid = child.id().unwrap_or_default();
        let last_words = Arc::default();
        if let Some(errors) = child.stderr.take() {
            tokio::spawn(keep_last(errors, Arc::clone(&last_words)));
        }
        let kill = CancellationToken::new();
        let task = tokio::spawn(watch(node.to_owned(), child, kill.clone(), reports));
        Ok(Self { pid, last_words, kill, task })
    }

    /// The system's process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills it (SIGKILL).
    pub(super) fn kill(&self) {
        self.kill.cancel();
    }

    /// Kills it, if it lives, and waits until it is gone.
    pub(super) async fn end(&mut self) {
        self.kill.cancel();
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
    }

    /// The last lines of its standard error.
    pub(super) fn last_words(&self) -> Vec<String> {
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().cloned().collect()
    }
}

async fn keep_last(errors: impl AsyncRead + Unpin, kept: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LAST_WORDS {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

/// Passes on what the child prints until it is gone; kills it when asked to.
async fn watch(
    node: String,
    mut child: Child,
    kill: CancellationToken,
    reports: mpsc::Sender<Report>,
) {
    // Held until the child is gone: its end tells the child that its parent is gone.
    let stdin: Option<ChildStdin> = child.stdin.take();
    let status = tokio::select! {
        status = until_exit(&node, &mut child, &reports) => status,
        () = kill.cancelled() => {
            let _ = child.start_kill();
            child.wait().await
        }
    };
    drop(stdin);
    // After a kill nobody may be left to read.
    let _ = reports.try_send(Report::Exit { node, status });
}

async fn until_exit(
    node: &str,
    child: &mut Child,
    reports: &mpsc::Sender<Report>,
) -> io::Result<ExitStatus> {
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output).lines();
        while let Some(text) = lines.next_line().await? {
            if reports.send(Report::Line { node: node.to_owned(), text }).await.is_err() {
                break;
            }
        }
    }
    child.wait().await
}
