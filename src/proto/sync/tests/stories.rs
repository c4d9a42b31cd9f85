//! What a joiner or a late node lives through.

use std::time::Duration;

use super::{
    network::Network,
    world::{Donor, Lie, World, node},
};
use crate::{
    proto::sync::{FetchFailure, Outcome},
    wire::fetch::Request,
};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_joiner_takes_a_snapshot_and_the_bodies_since() {
    let mut world = World::new(Network::new(40, 300));
    for i in 1..=4 {
        world.add(i, Donor::honest(40, 17, &[16, 32]));
    }
    assert!(world.run_to(40, MINUTE));
    assert_eq!(world.leaf_requests(), 20, "each leaf is asked for once");
    let folds = world.log.iter().filter(|line| line.contains("Fold")).count();
    assert_eq!(folds, 8, "from snapshot 32 on");
    for i in 1..=4 {
        let used = world.requests.iter().filter(|(to, _)| *to == node(i)).count();
        assert!(used >= 4, "donor {i} gave {used} replies");
    }
    assert!(world.blamed.is_empty() && world.stuck.is_empty());
}

#[test]
fn a_joiner_replays_from_genesis_when_that_is_less() {
    let mut world = World::new(Network::new(4, 300));
    world.add(1, Donor::honest(4, 1, &[2]));
    assert!(world.run_to(4, MINUTE));
    assert_eq!(world.asked(|r| matches!(r, Request::Snapshots(_))), 0);
}

#[test]
fn at_the_head_already_it_says_so() {
    let mut world = World::new(Network::new(0, 300));
    world.add(1, Donor::honest(0, 1, &[]));
    assert_eq!(world.caught_up, Some(0));
    assert_eq!(world.sync.poll_timeout(), None);
}

#[test]
fn a_late_node_fetches_a_few_bodies_and_no_snapshot() {
    let mut world = World::new(Network::new(30, 300));
    world.add(1, Donor::honest(30, 1, &[16]));
    assert!(world.run_to(30, MINUTE));
    (0..3).for_each(|_| world.network.grow(300, 0));
    world.requests.clear();
    world.donors.get_mut(&node(1)).unwrap().head = 33;
    world.announce(1);
    assert!(world.run_to(33, MINUTE));
    assert_eq!(world.requests.len(), 4, "one page of certificates, three bodies");
}

#[test]
fn certificates_that_pass_by_are_used() {
    let mut world = World::new(Network::new(3, 300));
    world.add(1, Donor::honest(3, 1, &[]));
    assert!(world.run_to(3, MINUTE));
    world.network.grow(300, 0);
    let certificate = world.network.chain[3].clone();
    world.donors.get_mut(&node(1)).unwrap().head = 4;
    let (now, requests) = (world.now, world.requests.len());
    world.sync.handle_certificate(now, &certificate);
    world.carry_out();
    world.announce(1);
    assert!(world.run_to(4, MINUTE));
    assert_eq!(world.requests.len(), requests + 1, "only its body is fetched");
}

#[test]
fn a_long_chain_comes_in_pages() {
    let mut world = World::new(Network::new(200, 10));
    world.add(1, Donor::honest(200, 1, &[]));
    assert!(world.run_to(200, 5 * MINUTE));
    assert_eq!(world.asked(|r| matches!(r, Request::Chain { .. })), 4);
}

#[test]
fn a_donor_may_vanish_at_every_reply() {
    for at in 0..60 {
        let mut world = World::new(Network::new(40, 300));
        world.add(1, Donor::honest(40, 17, &[16, 32]).dying(at));
        world.add(2, Donor::honest(40, 17, &[16, 32]).dying(at / 2));
        world.add(3, Donor::honest(40, 17, &[16, 32]));
        assert!(world.run_to(40, MINUTE), "dying at reply {at}: {:#?}", world.log);
        assert!(world.blamed.is_empty());
    }
}

#[test]
fn all_donors_vanish_and_others_come() {
    for at in [0, 1, 3, 5, 8, 10] {
        let mut world = World::new(Network::new(40, 300));
        for i in 1..=3 {
            world.add(i, Donor::honest(40, 17, &[16, 32]).dying(at));
        }
        assert!(!world.run_to(40, 5 * MINUTE));
        assert!(world.stuck.iter().any(|reason| reason.contains("no peer is left")));
        world.add(9, Donor::honest(40, 17, &[16, 32]));
        assert!(world.run_to(40, MINUTE), "{at}: {:#?}", world.log);
        assert!(world.leaf_requests() <= 20 + 12, "what was stored is not fetched again");
    }
}

#[test]
fn an_interrupted_join_resumes_with_the_leaves_it_has() {
    let mut first = World::new(Network::new(40, 300));
    first.add(1, Donor::honest(40, 33, &[32]));
    while first.disk.leaves.values().map(|leaves| leaves.len()).sum::<usize>() < 12 {
        assert!(first.step(first.now + MINUTE));
    }
    let World { network, disk, .. } = first;
    let stored = disk.leaves[&32].len();
    let mut second = World::resumed(network, disk);
    second.add(1, Donor::honest(40, 33, &[32]));
    assert!(second.run_to(40, MINUTE));
    assert_eq!(second.leaf_requests(), 20 - stored);
    assert_eq!(second.asked(|r| matches!(r, Request::Chain { .. })), 0);
}

#[test]
fn a_whole_snapshot_on_disk_needs_no_donor_of_it() {
    let mut first = World::new(Network::new(40, 300));
    first.add(1, Donor::honest(40, 33, &[32]));
    while first.disk.leaves.is_empty() {
        assert!(first.step(first.now + MINUTE));
    }
    let World { network, mut disk, .. } = first;
    let state = network.states[32].clone();
    disk.index.insert(32, super::network::index_bytes(32, &state));
    let leaves = super::network::leaves(&state);
    disk.leaves.insert(32, (0..).zip(leaves).collect());
    let mut second = World::resumed(network, disk);
    second.add(1, Donor::honest(40, 33, &[]));
    assert!(second.run_to(40, MINUTE));
    assert_eq!(second.leaf_requests(), 0);
}

#[test]
fn it_jumps_to_a_newer_snapshot_that_gets_it_there_sooner() {
    let mut world = World::new(Network::new(40, 900));
    world.add(1, Donor::honest(40, 17, &[16]).slow(Duration::from_secs(2)));
    while world.disk.leaves.values().map(|leaves| leaves.len()).sum::<usize>() < 4 {
        assert!(world.step(world.now + MINUTE));
    }
    world.add(2, Donor::honest(40, 33, &[32]));
    assert!(world.run_to(40, 5 * MINUTE));
    assert!(world.log.iter().any(|line| line.contains("InstallSnapshot { round: 32")));
    assert!(!world.log.iter().any(|line| line.contains("InstallSnapshot { round: 16")));
    assert!(world.disk.leaves.is_empty(), "the older one's leaves are dropped");
}

#[test]
fn it_stays_when_the_newer_snapshot_is_more_to_fetch() {
    let mut world = World::new(Network::new(40, 10));
    world.add(1, Donor::honest(40, 17, &[16]).slow(Duration::from_secs(2)));
    while world.disk.leaves.values().map(|leaves| leaves.len()).sum::<usize>() < 12 {
        assert!(world.step(world.now + MINUTE));
    }
    world.add(2, Donor::honest(40, 33, &[32]));
    // Rounds 17 to 40 are 900 bytes, eight leaves 800; a whole snapshot is 2000.
    assert!(world.run_to(40, 5 * MINUTE));
    assert!(world.log.iter().any(|line| line.contains("InstallSnapshot { round: 16")));
}

#[test]
fn it_is_stuck_without_old_bodies_and_goes_on_with_an_archive() {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::honest(40, 17, &[]));
    assert!(!world.run_to(40, MINUTE));
    let reason = world.stuck.last().unwrap();
    assert!(reason.contains("delta of round 1 ") && reason.contains("archive"), "{reason}");
    assert_eq!(world.stuck.len(), 1, "it is said once");
    world.add(2, Donor::honest(40, 1, &[]));
    assert!(world.run_to(40, MINUTE));
}

#[test]
fn a_stuck_sync_finds_a_snapshot_that_the_same_donor_makes_later() {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::honest(40, 17, &[]));
    assert!(!world.run_to(40, MINUTE));
    world.donors.get_mut(&node(1)).unwrap().snapshots = vec![32];
    assert!(world.run_to(40, MINUTE), "offers are asked again");
}

#[test]
fn without_any_donor_it_waits_a_while_before_it_complains() {
    let mut world = World::new(Network::new(3, 300));
    world.sync.handle_timeout(world.now);
    world.carry_out();
    assert!(!world.run_to(3, Duration::from_secs(10)));
    assert!(world.stuck.is_empty());
    assert!(!world.run_to(3, MINUTE));
    assert_eq!(world.stuck.len(), 1);
}

#[test]
fn donors_that_never_answer_are_said() {
    let mut world = World::new(Network::new(3, 300));
    world.add(1, Donor::liar(Lie::Silent, 3, 1, &[]));
    assert!(!world.run_to(3, 10 * MINUTE));
    assert!(world.stuck.last().unwrap().contains("none answers"), "{:?}", world.stuck);
    world.add(2, Donor::honest(3, 1, &[]));
    assert!(world.run_to(3, 20 * MINUTE));
}

#[test]
fn what_a_silent_donor_was_asked_for_comes_from_others() {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::liar(Lie::Silent, 40, 17, &[32]));
    world.add(2, Donor::honest(40, 17, &[32]));
    assert!(world.run_to(40, 2 * MINUTE));
    let wasted = world.requests.iter().filter(|(to, _)| *to == node(1)).count();
    assert!(wasted <= 30, "{wasted} requests went to the silent donor");
}

#[test]
fn one_donor_slower_than_every_first_timeout_still_gets_it_there() {
    let mut world = World::new(Network::new(12, 300));
    world.add(1, Donor::honest(12, 1, &[8]).slow(Duration::from_secs(50)));
    assert!(world.run_to(12, 120 * MINUTE), "{:#?}", world.log);
}

#[test]
fn busy_donors_are_asked_later() {
    let mut world = World::new(Network::new(12, 300));
    world.add(1, Donor::liar(Lie::Busy, 12, 1, &[8]));
    world.add(2, Donor::honest(12, 1, &[8]));
    assert!(world.run_to(12, MINUTE));
    assert!(world.blamed.is_empty());
}

#[test]
fn chunks_of_one_body_come_from_several_donors() {
    let mut network = Network::new(1, 300);
    network.grow(5 * 1024 * 1024, 0);
    let mut world = World::new(network);
    for i in 1..=3 {
        world.add(i, Donor::honest(2, 1, &[]));
    }
    assert!(world.run_to(2, MINUTE));
    for i in 1..=3 {
        let chunks = |r: &Request| matches!(r, Request::BlobChunk { .. });
        assert!(world.requests.iter().any(|(to, r)| *to == node(i) && chunks(r)), "donor {i}");
    }
}

#[test]
fn a_wrong_fold_is_seen_and_replaced_by_a_snapshot() {
    let mut world = World::new(Network::new(6, 300));
    world.bad_folds = 1;
    world.add(1, Donor::honest(6, 1, &[4]));
    assert!(world.run_to(6, 2 * MINUTE), "{:#?}", world.log);
    assert_eq!(world.mismatches, [1]);
    assert!(world.log.iter().any(|line| line.contains("InstallSnapshot { round: 4")));
}

#[test]
fn a_root_that_comes_later_is_compared_too() {
    let mut world = World::new(Network::new(2, 300));
    world.add(1, Donor::honest(2, 1, &[]));
    assert!(world.run_to(2, MINUTE));
    world.sync.handle_root(world.now, 2, crate::base::Digest([0; 32]));
    world.network.grow(300, 0);
    let (now, certificate) = (world.now, world.network.chain[2].clone());
    world.sync.handle_certificate(now, &certificate);
    world.carry_out();
    assert_eq!(world.mismatches, [2]);
}

#[test]
fn a_failed_installation_is_said_and_tried_again() {
    let mut world = World::new(Network::new(40, 300));
    world.bad_installs = 1;
    world.add(1, Donor::honest(40, 33, &[32]));
    assert!(world.run_to(40, 2 * MINUTE), "{:#?}", world.log);
    assert!(world.log.iter().any(|line| line.contains("DropPartial")));
}

#[test]
fn answers_to_nobody_are_ignored() {
    let mut world = World::new(Network::new(2, 300));
    world.add(1, Donor::honest(2, 1, &[]));
    world.sync.handle_reply(world.now, 999, Err(FetchFailure::Gone));
    world.sync.handle_replayed(world.now, 5, Outcome::DoneWithoutRoot);
    world.sync.handle_donor_gone(world.now, node(77));
    world.carry_out();
    assert!(world.run_to(2, MINUTE));
}

#[test]
fn the_same_story_gives_the_same_log() {
    let story = || {
        let mut world = World::new(Network::new(40, 300));
        world.add(1, Donor::honest(40, 17, &[16, 32]).dying(9));
        world.add(2, Donor::liar(Lie::Bytes, 40, 17, &[16, 32]));
        world.add(3, Donor::honest(40, 17, &[16]));
        assert!(world.run_to(40, MINUTE));
        world.log
    };
    assert_eq!(story(), story());
}

#[test]
fn progress_can_be_shown() {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::honest(40, 33, &[32]));
    while world.disk.leaves.is_empty() {
        assert!(world.step(world.now + MINUTE));
    }
    let progress = world.sync.progress();
    assert_eq!((progress.head_round, progress.claimed_round, progress.state_round), (40, 40, 0));
    assert_eq!(progress.snapshot.map(|(round, _, all)| (round, all)), Some((32, 20)));
    assert!(progress.bytes_left > 2000 && progress.bytes_left < 2000 + 8 * 350);
    assert!(world.run_to(40, MINUTE));
    assert_eq!(world.sync.progress().bytes_left, 0);
}
