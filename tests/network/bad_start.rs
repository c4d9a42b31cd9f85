//! Flags and surroundings with which a node cannot start, or has to wait.

use std::{net::TcpListener, path::Path};

use crate::harness::{BOOTSTRAP, Ended, NODE, Network, Recipe, run};

const PEER: &str = "12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp";

fn start(name: &str, program: &str, data_dir: &Path, flags: &[&str]) -> Ended {
    let mut arguments = vec!["--data-dir", data_dir.to_str().expect("UTF-8")];
    arguments.extend(["--http", "off", "--json"]);
    arguments.extend(flags);
    if !flags.contains(&"--listen") {
        arguments.extend(["--listen", "/ip4/127.0.0.1/tcp/0"]);
    }
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    run(name, program, &arguments)
}

#[test]
fn a_port_in_use_is_an_error_where_it_was_asked_for() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its address").port();
    let address = format!("/ip4/127.0.0.1/tcp/{port}");
    for (name, program) in [("port-node", NODE), ("port-bootstrap", BOOTSTRAP)] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let ended = start(name, program, dir.path(), &["--listen", &address]);
        ended.assert_error(1, &["cannot listen on", &address, "--listen"]);
    }
}

#[test]
fn an_http_port_in_use_is_an_error_where_it_was_asked_for() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("its address").to_string();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data_dir = dir.path().to_str().expect("UTF-8");
    let flags = ["--data-dir", data_dir, "--listen", "/ip4/127.0.0.1/tcp/0", "--http", &address];
    let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    run("http-port", BOOTSTRAP, &flags).assert_error(1, &["HTTP", &address, "--http"]);
}

#[test]
fn addresses_that_cannot_be_used_are_named() {
    let cases = [
        ("no-peer-id", "/ip4/127.0.0.1/tcp/7450", "/tcp/7450/p2p/12D3KooW"),
        ("no-multiaddr", "127.0.0.1:7450", "/ip4/"),
        ("bad-peer-id", "/ip4/127.0.0.1/tcp/7450/p2p/QmNobody", "bootstrap address"),
    ];
    for (name, address, word) in cases {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let ended = start(name, NODE, dir.path(), &["--bootstrap", address]);
        ended.assert_error(2, &["bootstrap", address, word]);
    }
}

#[test]
fn a_data_directory_serves_one_node() {
    let mut network = Network::new("in-use");
    let founder = network.found(&Recipe::tiny(), &[]);
    network.joined(founder);
    let dir = network.data_dir(founder).to_owned();
    let ended = start("in-use-second", NODE, &dir, &[]);
    ended.assert_error(1, &[dir.to_str().expect("UTF-8"), "in use", "--data-dir"]);
    let newest = network.newest(founder);
    network.commits_above(founder, newest);
}

#[test]
fn a_run_in_the_data_directory_is_not_founded_over() {
    let mut network = Network::new("founded-over");
    let founder = network.found(&Recipe::tiny(), &[]);
    network.joined(founder);
    network.leave(founder);
    let dir = network.data_dir(founder).to_owned();
    let other = tempfile::tempdir().expect("a temporary directory");
    let manifest = Recipe::tiny().write(other.path());
    let ended = start("founded-over", NODE, &dir, &["--run", manifest.to_str().expect("UTF-8")]);
    ended.assert_error(2, &["already holds run", "--data-dir"]);
}

/// It waits, says for what and what to do, and joins when the peer is there after all.
#[test]
fn an_unreachable_bootstrap_peer_is_tried_for_ever() {
    let mut network = Network::new("unreachable");
    let nobody = format!("/ip4/127.0.0.1/tcp/9/p2p/{PEER}");
    let waiting = network.join_with(&["--bootstrap", &nobody]);
    for attempt in 1..=2 {
        let again = |entry: &crate::harness::Entry| {
            entry.is("bootstrap_unreachable") && entry.number("attempts") >= attempt
        };
        let said = network.wait_for(waiting, "`bootstrap_unreachable`", again);
        let address = said.event["address"].as_str().unwrap_or_default();
        let remedy = said.event["remedy"].as_str().unwrap_or_default();
        network.ensure(address.contains("/tcp/9"), "the event names the address");
        network.ensure(remedy.contains("check"), "the event names a remedy");
    }
    network.leave(waiting);
}

#[test]
fn a_bootstrap_peer_that_comes_back_is_found_again() {
    let mut network = Network::new("comes-back");
    let bootstrap = network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny(), &[]);
    network.commits_above(founder, 1);
    let address = network.address(bootstrap);
    let listen = address.split("/p2p/").next().expect("an address").to_owned();
    network.kill(bootstrap);
    let joiner = network.join(&[]);
    let unreachable = |entry: &crate::harness::Entry| entry.is("bootstrap_unreachable");
    network.wait_for(joiner, "`bootstrap_unreachable`", unreachable);
    network.listen_at(bootstrap, &listen);
    network.restart(bootstrap);
    network.joined(joiner);
    let start = network.beginning();
    network.exchanges(start, joiner, 2);
}

#[test]
fn of_several_runs_one_must_be_chosen() {
    let mut network = Network::new("several-runs");
    network.bootstrap(&[]);
    let first = network.found(&Recipe::tiny().set("name", "\"first\""), &[]);
    let founded = network.wait_for(first, "`founded`", |entry| entry.is("founded"));
    network.commits_above(first, 0);
    network.leave(first);
    let second = network.found(&Recipe::tiny().set("name", "\"second\"").set("seed", 8), &[]);
    network.commits_above(second, 0);
    let wanted = founded.event["run_id"].as_str().expect("a run").to_owned();
    let undecided = network.join(&[]);
    let ended = network.fails(undecided);
    ended.assert_error(2, &["2 runs", "first", "second", &wanted, "MEMBERS", "--run-id"]);
    network.restart(first);
    network.joined(first);
    let chosen = network.join_run_of(first, &["--run-id", &wanted]);
    let joined = network.joined(chosen);
    assert_eq!(joined.event["run_id"], founded.event["run_id"]);
    let start = network.beginning();
    network.exchanges(start, chosen, 2);
}
