//! The demo: its result, and that nobody is left when it ends.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::harness::{Journal, NODE, Process, alone, signal};

const WHOLE_DEMO: Duration = Duration::from_secs(240);

fn demo(name: &str, flags: &[&str]) -> (Arc<Journal>, Process) {
    let journal = Arc::new(Journal::new(name));
    let arguments: Vec<String> =
        ["demo", "--json"].iter().chain(flags).map(|&flag| flag.to_owned()).collect();
    let process = Process::start(&journal, ("demo", 0), NODE, &arguments);
    (journal, process)
}

/// The processes that the demo has started.
fn children(journal: &Journal, process: &Process) -> Vec<u32> {
    let said = journal.since(process.began).into_iter();
    let started = said.filter(|entry| entry.is("demo_started"));
    started.map(|entry| u32::try_from(entry.number("pid")).expect("a pid")).collect()
}

fn assert_gone(journal: &Journal, pids: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while let Some(pid) = pids.iter().find(|pid| signal("0", **pid)) {
        if Instant::now() > deadline {
            journal.fail(&format!("process {pid} of the demo is still there"));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_demo_ends_with_equal_roots() {
    let _alone = alone();
    let (journal, mut process) = demo("demo", &["--rounds", "6", "--nodes", "2"]);
    let status = process.exit(WHOLE_DEMO);
    if !status.success() {
        journal.fail(&format!("the demo ended with {status}"));
    }
    let said = journal.since(process.began);
    let result = said.last().expect("events");
    let count = |name: &str| said.iter().filter(|entry| entry.is(name)).count();
    assert!(result.is("demo_result"), "the last line: {}", result.event);
    assert_eq!(result.event["state_roots_equal"], true, "{}", result.event);
    assert_eq!((result.number("nodes"), result.number("rounds")), (3, 6), "{}", result.event);
    assert!(result.number("roots_compared") >= 6, "{}", result.event);
    assert!(result.seconds("bytes_per_node_per_round") > 0.0, "{}", result.event);
    let (first, last) = (result.seconds("first_loss"), result.seconds("last_loss"));
    assert!(last < first, "{}", result.event);
    assert_eq!((count("demo_killed"), count("demo_started")), (1, 4));
    journal.assert_agreement();
    assert_gone(&journal, &children(&journal, &process));
}

#[test]
fn an_interrupted_demo_leaves_nobody_behind() {
    let _alone = alone();
    let (journal, mut process) = demo("demo-interrupted", &["--nodes", "2"]);
    let what = ("a round by two nodes", Some(process.number));
    let both = |entry: &crate::harness::Entry| {
        (entry.is("exchange") && entry.number("members") == 2).then_some(())
    };
    journal.wait(what, process.began, Duration::from_secs(120), both);
    let pids = children(&journal, &process);
    assert_eq!(pids.len(), 3, "a bootstrap peer and two nodes");
    assert!(pids.iter().all(|pid| signal("0", *pid)), "all live");
    process.interrupt();
    let began = Instant::now();
    let status = process.exit(Duration::from_secs(10));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "Ctrl-C took {took:?}");
    assert!(status.code().is_some(), "it ends by itself: {status}");
    assert_gone(&journal, &pids);
}

/// A demo that dies without a word takes its processes with it.
#[test]
fn a_killed_demo_leaves_nobody_behind() {
    let _alone = alone();
    let (journal, mut process) = demo("demo-killed", &["--nodes", "1"]);
    let what = ("a node that has joined", Some(process.number));
    let joined = |entry: &crate::harness::Entry| entry.is("joined").then_some(());
    journal.wait(what, process.began, Duration::from_secs(60), joined);
    let pids = children(&journal, &process);
    process.kill();
    assert_gone(&journal, &pids);
}
