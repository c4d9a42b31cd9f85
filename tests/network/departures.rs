//! Somebody is gone: the bootstrap peer, the founder, everybody; by signals, and by SIGKILL.

use std::{thread, time::Duration};

use crate::harness::{Entry, Network, Recipe};

#[test]
fn without_the_bootstrap_peer_a_node_joins_through_a_volunteer() {
    let mut network = Network::new("no-bootstrap");
    let bootstrap = network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny(), &[]);
    let volunteer = network.join(&[]);
    let start = network.beginning();
    network.exchanges(start, volunteer, 2);
    network.kill(bootstrap);
    network.forget_bootstrap();
    let address = network.address(volunteer);
    let newcomer = network.join_with(&["--bootstrap", &address]);
    let exchange = network.exchanges(start, newcomer, 3);
    let round = exchange.number("round");
    for id in [founder, volunteer, newcomer] {
        network.commits_above(id, round - 1);
        network.ensure(network.root(id, round).is_some(), "everybody commits the newcomer's round");
    }
}

#[test]
fn without_its_founder_a_run_goes_on_and_takes_newcomers() {
    let mut network = Network::new("no-founder");
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny(), &[]);
    let (second, third) = (network.join(&[]), network.join(&[]));
    let start = network.beginning();
    for id in [second, third] {
        network.exchanges(start, id, 3);
    }
    let newest = network.newest(second).max(network.newest(third));
    network.kill(founder);
    for id in [second, third] {
        network.commits_above(id, newest + 1);
    }
    let newcomer = network.join(&[]);
    network.exchanges(start, newcomer, 3);
}

/// With two voters neither is a majority: the other goes on when its presence has expired.
#[test]
fn the_last_node_goes_on_alone_and_takes_newcomers() {
    let mut network = Network::new("last-node");
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny(), &[]);
    let second = network.join(&[]);
    let start = network.beginning();
    network.exchanges(start, second, 2);
    let newest = network.newest(second);
    network.kill(founder);
    network.commits_above(second, newest + 2);
    let newcomer = network.join(&[]);
    network.exchanges(start, newcomer, 2);
}

#[test]
fn a_run_outlives_its_volunteers_in_an_archive() {
    let mut network = Network::new("archive");
    let archive = network.bootstrap(&["--archive"]);
    let founder = network.found(&Recipe::tiny().set("every", 4), &[]);
    let second = network.join(&[]);
    let start = network.beginning();
    let round = network.exchanges(start, second, 2).number("round");
    network.commits_above(founder, round + 5);
    let volunteers = [founder, second];
    for id in volunteers {
        network.leave(id);
    }
    let last = (1..)
        .take_while(|round| volunteers.iter().any(|id| network.root(*id, *round).is_some()))
        .last();
    let last = last.expect("rounds were committed");
    let what = format!("the last round {last} in the archive");
    network
        .wait_for(archive, &what, |entry| entry.is("committed") && entry.number("round") >= last);
    let newcomer = network.join(&[]);
    let joined = network.joined(newcomer).number("round");
    network.ensure(joined >= last, "the newcomer begins where the volunteers ended");
    network.commits_above(newcomer, joined + 1);
}

/// The archive comes back as it was killed, hears of nobody, and has the whole run to give.
#[test]
fn an_archive_outlives_its_own_death() {
    let mut network = Network::new("archive-restart");
    let archive = network.bootstrap(&["--archive"]);
    let founder = network.found(&Recipe::tiny().set("every", 4), &[]);
    let newest = network.commits_above(founder, 5);
    let kept = |entry: &Entry| entry.is("committed") && entry.number("round") >= newest;
    network.wait_for(archive, &format!("round {newest} in the archive"), kept);
    network.leave(founder);
    let newest = network.newest(archive);
    network.kill(archive);
    network.restart(archive);
    network.refer_to(archive);
    let newcomer = network.join(&[]);
    let joined = network.joined(newcomer).number("round");
    network.ensure(joined >= newest, "the newcomer begins where the archive ended");
    network.commits_above(newcomer, joined + 1);
}

#[test]
fn an_interrupted_node_says_goodbye_and_resumes() {
    let mut network = Network::new("interrupt");
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny().set("every", 2), &[]);
    let second = network.join(&[]);
    let start = network.beginning();
    network.exchanges(start, second, 2);
    network.wait_for(second, "a snapshot", |entry| entry.is("snapshot"));
    let mark = network.mark();
    network.leave(second);
    let left = |entry: &Entry| entry.is("peer_left");
    let said = network.wait_after(mark, founder, "`peer_left`", left);
    network.ensure(
        said.event["reason"].as_str().is_some_and(|why| why.contains("goodbye")),
        "the others hear a goodbye",
    );
    let newest = network.newest(founder);
    network.commits_above(founder, newest + 1);
    let mark = network.mark();
    network.restart(second);
    let resumed = network.wait_for(second, "`resumed`", |entry| entry.is("resumed"));
    network.ensure(resumed.number("round") >= 2, "it resumes from its snapshot");
    network.exchanges(mark, second, 2);
}

#[test]
fn a_lone_node_is_stopped_and_goes_on_with_all_its_rounds() {
    let mut network = Network::new("lone");
    let founder = network.found(&Recipe::tiny(), &[]);
    for _ in 0..2 {
        let newest = network.joined(founder).number("round");
        let newest = network.commits_above(founder, newest + 1);
        network.leave(founder);
        network.restart(founder);
        let joined = network.joined(founder).number("round");
        network.ensure(joined >= newest, "what was committed is on the disk");
    }
    let newest = network.commits_above(founder, 1);
    network.kill(founder);
    network.restart(founder);
    let joined = network.joined(founder).number("round");
    network.ensure(joined >= newest, "what was committed before a SIGKILL is on the disk");
    network.commits_above(founder, joined);
}

#[test]
fn a_second_signal_ends_a_node_at_once() {
    let mut network = Network::new("second-signal");
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny(), &[]);
    let second = network.join(&[]);
    let start = network.beginning();
    network.exchanges(start, second, 2);
    // Two signals before the first is seen are one, so they come until one is the second.
    let status = loop {
        network.interrupt(second);
        thread::sleep(Duration::from_millis(30));
        if let Some(status) = network.try_exit(second) {
            break status;
        }
    };
    network.ensure(status.code() == Some(130), &format!("a second signal ended in {status}"));
    network.exit(second, Duration::ZERO);
    let newest = network.newest(founder);
    network.commits_above(founder, newest + 1);
    let mark = network.mark();
    network.restart(second);
    network.exchanges(mark, second, 2);
}
