//! A data directory that is not as it was left.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::harness::{Id, Network, Recipe};

/// The newest snapshot of a node: its round and folder.
fn newest_snapshot(data_dir: &Path) -> (u64, PathBuf) {
    let snapshots = the_run(data_dir).join("snapshots");
    let entries = fs::read_dir(&snapshots).expect("a folder of snapshots").flatten();
    let rounds = entries.filter_map(|entry| {
        let round = entry.file_name().to_str()?.parse::<u64>().ok()?;
        Some((round, entry.path()))
    });
    rounds.max().expect("a snapshot")
}

fn the_run(data_dir: &Path) -> PathBuf {
    let mut runs = fs::read_dir(data_dir.join("runs")).expect("a folder of runs").flatten();
    runs.next().expect("a run").path()
}

/// Cuts every file below `folder` in half.
fn truncate(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            truncate(&path);
        } else {
            let bytes = fs::read(&path).expect("a file");
            fs::write(&path, &bytes[..bytes.len() / 2]).expect("written");
        }
    }
}

/// A network whose second node has stopped and whose newest snapshot is cut short; that snapshot's
/// round.
fn with_a_cut_snapshot(network: &mut Network, id: Id) -> u64 {
    for _ in 0..3 {
        let mark = network.mark();
        network.wait_after(mark, id, "a snapshot", |entry| entry.is("snapshot"));
    }
    network.leave(id);
    let (round, folder) = newest_snapshot(network.data_dir(id));
    truncate(&folder);
    round
}

#[test]
fn a_truncated_snapshot_is_fetched_again() {
    let mut network = Network::new("cut-snapshot");
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny().set("every", 2), &[]);
    let second = network.join(&[]);
    network.joined(founder);
    let round = with_a_cut_snapshot(&mut network, second);
    let mark = network.mark();
    network.restart(second);
    let joined = network.joined(second).number("round");
    network.ensure(joined >= round, "it has caught up");
    network.exchanges(mark, second, 2);
}

/// Nobody can be asked: the older snapshot and the deltas since are there.
#[test]
fn a_lone_node_survives_a_truncated_snapshot() {
    let mut network = Network::new("cut-snapshot-lone");
    let founder = network.found(&Recipe::tiny().set("every", 2), &[]);
    let round = with_a_cut_snapshot(&mut network, founder);
    network.restart(founder);
    let joined = network.joined(founder).number("round");
    network.ensure(joined >= round, "no committed round is lost");
    network.commits_above(founder, joined);
}

#[test]
fn damaged_local_state_costs_no_agreed_state() {
    let mut network = Network::new("cut-local");
    let founder = network.found(&Recipe::tiny(), &[]);
    network.commits_above(founder, 2);
    network.leave(founder);
    let newest = fs::read(the_run(network.data_dir(founder)).join("local")).expect("local state");
    fs::write(the_run(network.data_dir(founder)).join("local"), &newest[..newest.len() / 3])
        .expect("written");
    network.restart(founder);
    let joined = network.joined(founder).number("round");
    network.ensure(joined >= 3, "no committed round is lost");
    network.commits_above(founder, joined);
}

#[test]
fn a_tampered_manifest_is_refused() {
    let mut network = Network::new("tampered");
    let founder = network.found(&Recipe::tiny(), &[]);
    network.commits_above(founder, 0);
    network.leave(founder);
    let path = the_run(network.data_dir(founder)).join("manifest");
    let sound = fs::read(&path).expect("a manifest");
    let mut bytes = sound.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).expect("written");
    network.restart(founder);
    let ended = network.fails(founder);
    ended.assert_error(1, &[path.to_str().expect("UTF-8")]);
    fs::write(&path, &sound[..sound.len() / 2]).expect("written");
    network.restart(founder);
    let ended = network.fails(founder);
    ended.assert_error(1, &[path.to_str().expect("UTF-8")]);
    fs::write(&path, &sound).expect("written");
    network.restart(founder);
    network.joined(founder);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let mut network = Network::new("open-key");
    let founder = network.found(&Recipe::tiny(), &[]);
    network.joined(founder);
    network.leave(founder);
    let key = network.data_dir(founder).join("identity.key");
    let mode = |path: &Path| fs::metadata(path).expect("a key").permissions().mode() & 0o777;
    assert_eq!(mode(&key), 0o600);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("changed");
    network.restart(founder);
    network.fails(founder).assert_error(1, &["identity.key", "chmod 600"]);
}
