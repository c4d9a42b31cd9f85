//! A network of processes on loopback, each with a data directory that outlives it.

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::{BOOTSTRAP, Ended, Entry, Journal, Mark, NODE, PATIENCE, Process, Recipe};

/// One network at a time: they share the machine's cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Waits until no other test has processes, and keeps it so.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member of a network, over all its starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(usize);

struct Member {
    name: String,
    program: &'static str,
    arguments: Vec<String>,
    data_dir: PathBuf,
    run: usize,
    starts: usize,
    process: Option<Process>,
}

/// A network of processes. All die when it is dropped.
pub(crate) struct Network {
    members: Vec<Member>,
    first_contact: Option<String>,
    runs: usize,
    journal: Arc<Journal>,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Network {
    /// A network without members, for the test `name`.
    pub(crate) fn new(name: &str) -> Self {
        let alone = alone();
        Self {
            members: Vec::new(),
            first_contact: None,
            runs: 0,
            journal: Arc::new(Journal::new(name)),
            dir: tempfile::tempdir().expect("a temporary directory"),
            _alone: alone,
        }
    }

    /// Starts a bootstrap peer, which everybody who starts later is told of.
    pub(crate) fn bootstrap(&mut self, flags: &[&str]) -> Id {
        // Its events are those of the first run that will be founded.
        let id = self.add("bootstrap", BOOTSTRAP, self.runs + 1, flags);
        self.refer_to(id);
        id
    }

    /// From now on everybody who starts is told of this peer, at its present address.
    pub(crate) fn refer_to(&mut self, id: Id) {
        self.first_contact = Some(self.address(id));
    }

    /// Founds a run.
    pub(crate) fn found(&mut self, recipe: &Recipe, flags: &[&str]) -> Id {
        self.runs += 1;
        let manifest = recipe.write(self.dir.path());
        let manifest = manifest.to_str().expect("UTF-8").to_owned();
        let contact = self.contact();
        let mut all: Vec<&str> = vec!["--threads", "1", "--run", &manifest];
        all.extend(contact.iter().map(String::as_str));
        all.extend(flags);
        let name = format!("node-{}", self.members.len());
        let id = self.add(&name, NODE, self.runs, &all);
        // A second start finds the run in the data directory.
        let again = |at: usize, all: &[String]| all[at] != manifest && all[at] != "--run";
        let arguments = std::mem::take(&mut self.members[id.0].arguments);
        let kept = (0..arguments.len()).filter(|&at| again(at, &arguments));
        self.members[id.0].arguments = kept.map(|at| arguments[at].clone()).collect();
        id
    }

    /// Starts a node that joins the newest run through the bootstrap peer.
    pub(crate) fn join(&mut self, flags: &[&str]) -> Id {
        let contact = self.contact();
        let mut all: Vec<&str> = contact.iter().map(String::as_str).collect();
        all.extend(flags);
        self.join_with(&all)
    }

    /// Starts a node that joins the newest run, with these flags and no first contact but theirs.
    pub(crate) fn join_with(&mut self, flags: &[&str]) -> Id {
        let name = format!("node-{}", self.members.len());
        let all: Vec<&str> = ["--threads", "1"].iter().chain(flags).copied().collect();
        self.add(&name, NODE, self.runs, &all)
    }

    /// Starts a node that joins the run of another member, which is not the newest.
    pub(crate) fn join_run_of(&mut self, other: Id, flags: &[&str]) -> Id {
        let newest = std::mem::replace(&mut self.runs, self.members[other.0].run);
        let id = self.join(flags);
        self.runs = newest;
        id
    }

    /// A member's next start listens exactly here.
    pub(crate) fn listen_at(&mut self, id: Id, address: &str) {
        let arguments = &mut self.members[id.0].arguments;
        let flag = arguments.iter().position(|argument| argument == "--listen");
        arguments[flag.expect("all listen somewhere") + 1] = address.to_owned();
    }

    /// From now on nobody is told of the bootstrap peer.
    pub(crate) fn forget_bootstrap(&mut self) {
        self.first_contact = None;
    }

    fn contact(&self) -> Vec<String> {
        let address = self.first_contact.iter();
        address.flat_map(|address| ["--bootstrap".to_owned(), address.clone()]).collect()
    }

    fn add(&mut self, name: &str, program: &'static str, run: usize, flags: &[&str]) -> Id {
        let data_dir = self.dir.path().join(name);
        let data = data_dir.to_str().expect("UTF-8");
        let common = [
            "--data-dir",
            data,
            "--listen",
            "/ip4/127.0.0.1/tcp/0",
            "--http",
            "off",
            "--json",
            "--exit-with-parent",
        ];
        let arguments = common.iter().chain(flags).map(|&flag| flag.to_owned()).collect();
        let name = name.to_owned();
        let (starts, process) = (0, None);
        self.members.push(Member { name, program, arguments, data_dir, run, starts, process });
        let id = Id(self.members.len() - 1);
        self.restart(id);
        id
    }

    /// Starts a member again on the same data directory.
    pub(crate) fn restart(&mut self, id: Id) {
        let member = &mut self.members[id.0];
        assert!(member.process.is_none(), "{} still runs", member.name);
        member.starts += 1;
        let name = format!("{}#{}", member.name, member.starts);
        let whose = (name.as_str(), member.run);
        let started = Process::start(&self.journal, whose, member.program, &member.arguments);
        member.process = Some(started);
    }

    fn process(&mut self, id: Id) -> &mut Process {
        let member = &mut self.members[id.0];
        member.process.as_mut().unwrap_or_else(|| panic!("{} does not run", member.name))
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, id: Id) {
        self.process(id).kill();
        self.members[id.0].process = None;
    }

    /// SIGINT.
    pub(crate) fn interrupt(&mut self, id: Id) {
        self.process(id).interrupt();
    }

    /// How a process has ended, if it has.
    pub(crate) fn try_exit(&mut self, id: Id) -> Option<ExitStatus> {
        self.process(id).try_exit()
    }

    /// How a process ends, within a bound.
    pub(crate) fn exit(&mut self, id: Id, within: Duration) -> ExitStatus {
        let status = self.process(id).exit(within);
        self.members[id.0].process = None;
        status
    }

    /// How a member ends that cannot start.
    pub(crate) fn fails(&mut self, id: Id) -> Ended {
        let process = self.process(id);
        let (number, began) = (process.number, process.began);
        let status = self.exit(id, PATIENCE);
        let said = self.journal.since(began).into_iter();
        let printed = said.filter(|entry| entry.process == number).map(|entry| entry.event);
        let errors = self.journal.errors(number);
        Ended { code: status.code(), errors, printed: printed.collect() }
    }

    /// SIGINT, and a clean end within the grace time.
    pub(crate) fn leave(&mut self, id: Id) {
        let mark = self.mark();
        let number = self.process(id).number;
        self.interrupt(id);
        let status = self.exit(id, Duration::from_secs(10));
        if !status.success() {
            let name = &self.members[id.0].name;
            self.journal.fail(&format!("{name} was interrupted and ended with {status}"));
        }
        let said = self.journal.since(mark);
        let stopped = said.iter().any(|entry| entry.process == number && entry.is("stopped"));
        if !stopped {
            self.journal.fail(&format!("{} ended without `stopped`", self.members[id.0].name));
        }
    }

    /// Waits for an event of a member's running process.
    pub(crate) fn wait_for(
        &mut self,
        id: Id,
        what: &str,
        wanted: impl FnMut(&Entry) -> bool,
    ) -> Entry {
        let began = self.process(id).began;
        self.wait_after(began, id, what, wanted)
    }

    /// Waits for an event that a member's running process says after `mark`.
    pub(crate) fn wait_after(
        &mut self,
        mark: Mark,
        id: Id,
        what: &str,
        mut wanted: impl FnMut(&Entry) -> bool,
    ) -> Entry {
        let number = self.process(id).number;
        let what = format!("{}: {what}", self.members[id.0].name);
        let pick = |entry: &Entry| wanted(entry).then(|| entry.clone());
        self.journal.wait((&what, Some(number)), mark, PATIENCE, pick)
    }

    /// Waits until a member takes part.
    pub(crate) fn joined(&mut self, id: Id) -> Entry {
        self.wait_for(id, "`joined`", |entry| entry.is("joined"))
    }

    /// Waits until a member commits a round above `round` that it was there for; the round.
    pub(crate) fn commits_above(&mut self, id: Id, round: u64) -> u64 {
        let what = format!("a commit above round {round}");
        let wanted = |entry: &Entry| entry.live_commit().is_some_and(|found| found > round);
        self.wait_for(id, &what, wanted).number("round")
    }

    /// Waits until a member, from `mark` on, takes part in an exchange of at least `members`.
    pub(crate) fn exchanges(&mut self, mark: Mark, id: Id, members: u64) -> Entry {
        let what = format!("an exchange of {members} members");
        let wanted = |entry: &Entry| entry.is("exchange") && entry.number("members") >= members;
        self.wait_after(mark, id, &what, wanted)
    }

    /// A multiaddr with peer id at which a member can be dialled.
    pub(crate) fn address(&mut self, id: Id) -> String {
        let started = self.wait_for(id, "`started`", |entry| entry.is("started"));
        let first = started.event["listen"].get(0).and_then(Value::as_str);
        first.unwrap_or_else(|| panic!("no address in {}", started.event)).to_owned()
    }

    /// The newest round that a member, over all its starts, has committed.
    pub(crate) fn newest(&self, id: Id) -> u64 {
        let of_it = self.said(id).into_iter().filter(|entry| entry.is("committed"));
        of_it.map(|entry| entry.number("round")).max().unwrap_or(0)
    }

    /// All that a member's running process has said.
    pub(crate) fn said(&self, id: Id) -> Vec<Entry> {
        let Some(process) = &self.members[id.0].process else { return Vec::new() };
        let said = self.journal.since(process.began);
        said.into_iter().filter(|entry| entry.process == process.number).collect()
    }

    /// The state root that a member had after a round, over all its starts.
    pub(crate) fn root(&self, id: Id, round: u64) -> Option<String> {
        let member = &self.members[id.0];
        self.journal.root(member.run, &member.name, round)
    }

    /// A member's data directory.
    pub(crate) fn data_dir(&self, id: Id) -> &Path {
        &self.members[id.0].data_dir
    }

    /// Now.
    pub(crate) fn mark(&self) -> Mark {
        self.journal.mark()
    }

    /// Before anything was said.
    pub(crate) fn beginning(&self) -> Mark {
        Mark::default()
    }

    /// Fails the test with what everybody said last, unless it holds.
    pub(crate) fn ensure(&self, holds: bool, fault: &str) {
        if !holds {
            self.journal.fail(fault);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.members.clear();
        if !std::thread::panicking() {
            self.journal.assert_agreement();
        }
    }
}
