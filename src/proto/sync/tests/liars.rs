//! Donors that lie: each is found out, and the sync ends all the same.

use std::time::Duration;

use super::{
    network::{Network, genesis, initial},
    world::{Donor, Lie, World, config, node},
};
use crate::{
    base::Digest,
    proto::sync::{IndexReader, LeafRef, LeafTable, Sync},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A liar and an honest donor; the liar comes first.
fn against(lie: Lie) -> World {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::liar(lie, 40, 17, &[16, 32]));
    world.add(2, Donor::honest(40, 17, &[16, 32]));
    assert!(world.run_to(40, 5 * MINUTE), "{lie:?}: {:#?}", world.log);
    assert!(!world.blamed.contains(&node(2)), "the honest donor is blamed for {lie:?}");
    world
}

#[test]
fn wrong_bytes_are_blamed() {
    assert!(against(Lie::Bytes).blamed.contains(&node(1)));
}

#[test]
fn a_wrong_index_is_blamed() {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::liar(Lie::Index, 40, 17, &[36]));
    world.add(2, Donor::honest(40, 17, &[16, 32]));
    assert!(world.run_to(40, 5 * MINUTE), "{:#?}", world.log);
    assert_eq!(world.blamed, [node(1)].into());
}

#[test]
fn a_snapshot_of_another_state_is_blamed() {
    let mut world = World::new(Network::new(40, 300));
    world.add(1, Donor::liar(Lie::Snapshot, 40, 17, &[36]));
    world.add(3, Donor::liar(Lie::Snapshot, 40, 17, &[36]));
    world.add(2, Donor::honest(40, 17, &[16, 32]));
    assert!(world.run_to(40, 5 * MINUTE), "{:#?}", world.log);
    assert_eq!(world.blamed, [node(1), node(3)].into(), "everybody who offers it");
    assert_eq!(world.leaf_requests(), 20, "none of its leaves is fetched");
}

#[test]
fn certificates_without_a_quorum_are_blamed() {
    assert!(against(Lie::NoQuorum).blamed.contains(&node(1)));
}

#[test]
fn a_chain_of_foreign_keys_is_blamed() {
    assert!(against(Lie::Forged).blamed.contains(&node(1)));
}

#[test]
fn malformed_replies_and_replies_of_another_kind_are_blamed() {
    assert!(against(Lie::Malformed).blamed.contains(&node(1)));
    assert!(against(Lie::OtherKind).blamed.contains(&node(1)));
}

#[test]
fn a_donor_that_is_ahead_of_what_it_shows_is_dropped_in_the_end() {
    let mut world = against(Lie::Ahead);
    assert!(world.blamed.is_empty(), "once may be a mistake");
    for _ in 0..5 {
        world.run_to(41, MINUTE);
        world.announce(1);
    }
    assert!(world.blamed.contains(&node(1)));
    assert!(world.sync.is_caught_up());
}

#[test]
fn a_donor_that_has_nothing_does_no_harm() {
    against(Lie::Empty);
    against(Lie::Silent);
    against(Lie::Busy);
}

#[test]
fn a_blamed_donor_is_not_taken_again() {
    let mut world = against(Lie::Bytes);
    let before = world.requests.len();
    world.network.grow(300, 0);
    world.donors.get_mut(&node(1)).unwrap().head = 41;
    world.announce(1);
    world.run_to(41, MINUTE);
    assert_eq!(world.requests.len(), before);
}

#[test]
fn another_branch_is_set_aside_and_said() {
    // Both chains are signed by the voters of genesis; the joiner has followed the first one.
    let mut world = World::new(Network::new(3, 300));
    world.add(1, Donor::honest(3, 1, &[]));
    assert!(world.run_to(3, MINUTE));
    world.remove(1);
    world.network = Network::branch(genesis(), initial(), 6, 400, 0);
    world.add(2, Donor::honest(6, 1, &[]));
    assert!(!world.run_to(6, MINUTE));
    assert!(world.diverged.contains(&node(2)));
    assert!(world.blamed.is_empty());
    assert!(world.stuck.iter().any(|reason| reason.contains("another branch")));
}

#[test]
fn huge_lists_are_refused_before_a_leaf_is_fetched() {
    let network = Network::new(40, 300);
    let state_root = network.header(33).root_before;
    let reader = IndexReader::new(move |_, _| {
        let leaf = LeafRef { digest: Digest([1; 32]), bytes: 1 << 20 };
        Ok(LeafTable { root: state_root, leaves: vec![leaf; 1000] })
    });
    let mut world = World::new(network);
    let mut config = config(&world.network.genesis);
    config.index = reader;
    world.sync = Sync::new(config, crate::proto::sync::Have::genesis());
    world.add(1, Donor::honest(40, 17, &[32]));
    assert!(!world.run_to(40, MINUTE));
    assert!(world.blamed.contains(&node(1)));
    assert_eq!(world.leaf_requests(), 0);
}

#[test]
fn a_crowd_of_liars_cannot_stop_it() {
    let lies = [
        Lie::Bytes,
        Lie::Index,
        Lie::Snapshot,
        Lie::NoQuorum,
        Lie::Forged,
        Lie::Ahead,
        Lie::Malformed,
        Lie::OtherKind,
        Lie::Empty,
        Lie::Silent,
        Lie::Busy,
    ];
    let mut world = World::new(Network::new(40, 300));
    for (i, lie) in lies.into_iter().enumerate() {
        world.add(i as u8 + 10, Donor::liar(lie, 40, 17, &[16, 32]));
    }
    world.add(2, Donor::honest(40, 17, &[16, 32]));
    assert!(world.run_to(40, 10 * MINUTE), "{:#?}", world.log);
    assert!(!world.blamed.contains(&node(2)));
    assert!(!world.blamed.is_empty(), "some are found out on the way");
}
