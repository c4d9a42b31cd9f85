//! One child process: what it says goes into the journal, and it dies when this is dropped.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Journal, Mark, PATIENCE};

/// Between two looks whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A child process.
pub(crate) struct Process {
    child: Child,
    /// Its other end tells the child that this process is gone.
    _stdin: Option<ChildStdin>,
    readers: Vec<JoinHandle<()>>,
    journal: Arc<Journal>,
    /// Its number in the journal.
    pub(crate) number: usize,
    /// Where in the journal it began.
    pub(crate) began: Mark,
}

impl Process {
    /// Starts `program` for one of the runs of a test.
    pub(crate) fn start(
        journal: &Arc<Journal>,
        (name, run): (&str, usize),
        program: &str,
        arguments: &[String],
    ) -> Self {
        let log = std::env::var("RUST_LOG").unwrap_or_else(|_| "warn,dilocox=debug".to_owned());
        let began = journal.mark();
        let number = journal.add(name, run);
        let mut child = Command::new(program)
            .args(arguments)
            .env("RUST_LOG", log)
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (out, errors) = (Arc::clone(journal), Arc::clone(journal));
        let readers = vec![
            thread::spawn(move || {
                read_lines(stdout, |line| out.heard(number, line));
                out.ended(number);
            }),
            thread::spawn(move || read_lines(stderr, |line| errors.heard_error(number, line))),
        ];
        let journal = Arc::clone(journal);
        Self { child, _stdin: stdin, readers, journal, number, began }
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.readers.drain(..).for_each(|reader| reader.join().expect("a reader"));
    }

    /// SIGINT.
    pub(crate) fn interrupt(&self) {
        signal("INT", self.child.id());
    }

    /// How it has ended, if it has.
    pub(crate) fn try_exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// How it ends, within a bound; all that it said is in the journal then.
    pub(crate) fn exit(&mut self, within: Duration) -> ExitStatus {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.try_exit() {
                self.readers.drain(..).for_each(|reader| reader.join().expect("a reader"));
                return status;
            }
            if Instant::now() > deadline {
                self.journal.fail(&format!("a process did not end within {within:?}"));
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_lines(from: Option<impl Read>, mut heard: impl FnMut(&str)) {
    let Some(from) = from else { return };
    for line in BufReader::new(from).split(b'\n') {
        let Ok(line) = line else { return };
        heard(&String::from_utf8_lossy(&line));
    }
}

/// Sends a signal; whether there was such a process.
pub(crate) fn signal(name: &str, pid: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null());
    kill.status().expect("`kill` runs").success()
}

/// How a process ended that ends by itself.
pub(crate) struct Ended {
    /// Its exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard error.
    pub(crate) errors: String,
    /// The JSON objects that it printed.
    pub(crate) printed: Vec<Value>,
}

impl Ended {
    /// It failed with one clear error: this exit code, words that say what and where, a remedy, and
    /// no panic.
    pub(crate) fn assert_error(&self, code: i32, words: &[&str]) {
        let text = &self.errors;
        let count = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(self.code, Some(code), "exit code, with standard error:\n{text}");
        assert_eq!(count("error: "), 1, "one line `error: ...`:\n{text}");
        // The parser of the command line has a remedy's words of its own.
        let remedies = count("help: ") + count("For more information, try '--help'");
        assert_eq!(remedies, 1, "one remedy:\n{text}");
        assert!(!text.contains("panicked"), "{text}");
        for word in words {
            assert!(text.contains(word), "`{word}` is missing:\n{text}");
        }
    }
}

/// Runs `program` until it ends by itself.
pub(crate) fn run(name: &str, program: &str, arguments: &[String]) -> Ended {
    let journal = Arc::new(Journal::new(name));
    let mut process = Process::start(&journal, (name, 0), program, arguments);
    let status = process.exit(PATIENCE);
    Ended {
        code: status.code(),
        errors: journal.errors(process.number),
        printed: journal.since(process.began).into_iter().map(|entry| entry.event).collect(),
    }
}
