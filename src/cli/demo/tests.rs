//! The demo with actors instead of nodes: a shell script that prints events.

use std::os::unix::fs::PermissionsExt;

use clap::Parser;

use super::*;
use crate::cli::args::{Command as Subcommand, NodeArgs};

/// Prints what a bootstrap peer or a node would; `$FOUNDER` and `$JOINER` are the plot.
const ACTOR: &str = r#"#!/bin/sh
root=$(printf 'a%.0s' $(seq 64))
started() {
  echo '{"event":"started","time":1,"node_id":"'$root'","peer_id":"p","role":"x","run_id":null,"listen":["/ip4/127.0.0.1/tcp/1/p2p/p"],"join_command":"","http":null,"data_dir":"","version":""}'
}
committed() {
  echo '{"event":"committed","time":1,"round":'$1',"members":2,"state_root":"'$root'","cumulative_weight":1,"replayed":false}'
}
finished() {
  echo '{"event":"finished","time":1,"run_id":"'$root'","round":'$1',"state_root":"'$root'","validation_loss":1.0,"bytes_sent":1,"bytes_received":1,"train_seconds":1,"stall_seconds":0}'
}
founded() {
  echo '{"event":"founded","time":1,"run_id":"'$root'","name":"x","parameters":1,"rounds":'$1'}'
}
joined() {
  echo '{"event":"joined","time":1,"run_id":"'$root'","name":"x","round":0,"members":1,"parameters":1,"rounds":3,"seconds":0,"bytes":0}'
}
all="$*"
case "$all" in
  generate*) echo '{"round":3,"prompt":"Once","text":" more"}'; exit 0;;
  bootstrap*) started; cat >/dev/null; exit 130;;
  *--run*) started; founded 3; FOUNDER;;
  *) started; joined; JOINER;;
esac
"#;

fn demo(founder: &str, joiner: &str, flags: &[&str]) -> Result<(), Failure> {
    let dir = tempfile::tempdir().unwrap();
    let actor = dir.path().join("actor.sh");
    fs::write(&actor, ACTOR.replace("FOUNDER", founder).replace("JOINER", joiner)).unwrap();
    fs::set_permissions(&actor, fs::Permissions::from_mode(0o755)).unwrap();
    let executable = actor.to_string_lossy().into_owned();
    let mut line = vec!["dilocox-node", "demo", "--executable", &executable, "--nodes", "2"];
    line.extend(flags);
    let Some(Subcommand::Demo(args)) = NodeArgs::parse_from(line).command else {
        panic!("not a demo")
    };
    tokio::runtime::Runtime::new().unwrap().block_on(run(args))
}

#[test]
fn a_founder_is_killed_and_a_latecomer_finishes() {
    // The founder never ends by itself; the joiners go on when it has been killed.
    let joiner = "committed 1; sleep 0.3; committed 2; committed 3; finished 3";
    demo("committed 1; cat >/dev/null", joiner, &[]).unwrap();
}

#[test]
fn without_churn_all_nodes_finish() {
    demo("committed 1; finished 3", "committed 1; finished 3", &["--no-churn", "--json"]).unwrap();
}

#[test]
fn a_failing_child_is_reported_with_its_last_words() {
    let failure = demo("echo 'error: the disk is full' >&2; exit 1", "cat", &[]).unwrap_err();
    assert!(failure.what.contains("node-1 ended"), "{failure}");
    assert!(failure.what.contains("the disk is full"), "{failure}");
}

#[test]
fn a_play_that_stands_still_is_ended() {
    let waiting = r#"while true; do echo '{"event":"waiting","time":1,"what":"a miracle","seconds":1,"remedy":"none"}'; sleep 0.2; done"#;
    let failure = demo("cat >/dev/null", waiting, &["--patience", "1.5"]).unwrap_err();
    assert!(failure.what.contains("node-2: waiting for a miracle"), "{failure}");
    assert!(failure.what.contains("bootstrap: accepting peers"), "{failure}");
}

#[test]
fn differing_states_are_a_failure() {
    let other = "root=$(printf 'b%.0s' $(seq 64)); committed 2; finished 3";
    let failure = demo("committed 2; finished 3", other, &["--no-churn"]).unwrap_err();
    assert!(failure.what.contains("after round 2 differ"), "{failure}");
}

#[test]
fn a_prompt_is_the_beginning_of_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    fs::write(&path, "\n\nCall me Ishmael. Some years ago - never mind how long\n").unwrap();
    assert_eq!(beginning(&path), "Call me Ishmael. Some years ago - neve");
    fs::write(&path, "").unwrap();
    assert_eq!(beginning(&path), PROMPT);
}
