//! Deaths, silence, and exchanges that cannot be.

use std::{sync::Arc, time::Duration};

use super::world::{STALL, Setup, World};
use crate::{
    base::Time,
    proto::ring::{Failure, InvalidRing, Ring, RingConfig, RingEvent, RingFault},
};

/// Frames of a whole exchange.
fn frames_of(setup: &Setup, seed: u64) -> usize {
    let mut world = World::new(setup.clone());
    world.run(seed);
    world.seen
}

fn small(members: usize) -> Setup {
    Setup { frame_bytes: 200, buckets: vec![1, 4], ..Setup::new(members) }
}

/// After the stall deadline nobody runs, and what stands is right.
fn assert_over(world: &World, survivors: &[usize]) {
    for &position in survivors {
        let ends =
            world.outcome(position).is_some() as usize + world.failure(position).is_some() as usize;
        assert_eq!(ends, 1, "position {position} after {} frames", world.seen);
    }
    world.assert_what_stands_is_right();
}

#[test]
fn a_link_that_dies_at_any_frame_never_hangs_anybody() {
    for members in [2, 3, 4] {
        let setup = small(members);
        for at in 0..frames_of(&setup, 3) {
            let mut world = World::new(setup.clone());
            world.run_with(3, |number, _| number < at);
            world.stall();
            assert_over(&world, &(0..members).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_member_that_dies_at_any_frame_never_hangs_the_others() {
    let setup = small(4);
    for at in 0..frames_of(&setup, 5) {
        let mut world = World::new(setup.clone());
        let dead = at % 4;
        // Nothing more moves from then on; both neighbours see their streams break.
        world.run_with(5, |number, _| number < at);
        for neighbour in [(dead + 1) % 4, (dead + 3) % 4] {
            let (now, node) = (world.now, world.node(dead));
            world.rings[neighbour].handle_link_lost(now, node);
        }
        world.collect();
        for neighbour in [(dead + 1) % 4, (dead + 3) % 4] {
            let expected = (Some(world.node(dead)), &Failure::LinkLost);
            let failure = world.failure(neighbour);
            assert!(failure == Some(expected) || world.outcome(neighbour).is_some());
        }
        world.stall();
        assert_over(&world, &[(dead + 1) % 4, (dead + 2) % 4, (dead + 3) % 4]);
    }
}

#[test]
fn silence_is_the_predecessor_s_and_every_frame_restarts_the_clock() {
    let mut world = World::new(Setup::new(3));
    let frame = world.rings[0].poll_frame().unwrap();
    assert_eq!(world.rings[1].poll_timeout(), Some(Time::ZERO + STALL));
    world.now += STALL - Duration::from_millis(1);
    world.rings[1].handle_timeout(world.now);
    world.deliver(0, &frame);
    assert_eq!(world.rings[1].poll_timeout(), Some(world.now + STALL));
    world.now += STALL - Duration::from_millis(1);
    world.rings[1].handle_timeout(world.now);
    assert_eq!(world.rings[1].poll_event(), None);
    world.now += Duration::from_millis(1);
    world.rings[1].handle_timeout(world.now);
    let (peer, reason) = (Some(world.node(0)), Failure::Stalled(STALL));
    assert_eq!(world.rings[1].poll_event(), Some(RingEvent::Failed { peer, reason }));
    assert_eq!(world.rings[1].poll_event(), None);
}

#[test]
fn a_failed_ring_is_silent() {
    let mut world = World::new(Setup::new(3));
    let frame = world.rings[0].poll_frame().unwrap();
    world.deliver(0, &frame);
    let (now, next) = (world.now, world.node(2));
    world.rings[1].handle_link_lost(now, next);
    let ring = &mut world.rings[1];
    assert!(ring.poll_frame().is_none() && ring.poll_timeout().is_none() && !ring.is_drained());
    ring.handle_timeout(now + 2 * STALL);
    ring.handle_link_lost(now, next);
    assert_eq!(std::iter::from_fn(|| ring.poll_event()).count(), 1);
    world.deliver(0, &frame);
    assert_eq!(world.faults, [(1, RingFault::Over)]);
}

#[test]
fn strangers_links_do_not_matter() {
    let mut world = World::new(Setup::new(4));
    let (now, opposite) = (world.now, world.node(2));
    world.rings[0].handle_link_lost(now, opposite);
    world.rings[0].handle_link_lost(now, Setup::identity(77).node_id());
    world.run(0);
    world.assert_complete();
}

#[test]
fn a_successor_lost_after_the_end_costs_nothing() {
    let mut world = World::new(Setup { frame_bytes: 8, ..Setup::new(3) });
    // Member 1 sends only when nobody else can, so it ends with frames that its successor lacks.
    let send = |world: &mut World, from: usize| {
        let frame = world.rings[from].poll_frame();
        frame.inspect(|frame| world.deliver(from, frame)).is_some()
    };
    while world.outcome(1).is_none() {
        let moved = send(&mut world, 0) || send(&mut world, 2) || send(&mut world, 1);
        assert!(moved);
        world.collect();
    }
    assert!(world.outcome(2).is_none() && !world.rings[1].is_drained());
    let (now, node) = (world.now, world.node(2));
    world.rings[1].handle_link_lost(now, node);
    assert!(world.rings[1].is_drained());
    world.stall();
    assert!(world.failure(1).is_none() && world.failure(2).is_some());
    world.assert_what_stands_is_right();
}

#[test]
fn buckets_that_were_finished_before_a_failure_stand() {
    let setup = Setup { window: 1, ..Setup::new(3) };
    let half = frames_of(&setup, 1) / 2;
    let mut world = World::new(setup);
    world.run_with(1, |number, _| number < half);
    world.stall();
    for position in 0..3 {
        assert!(world.failure(position).is_some());
        let reported = world.finished(position).len();
        assert!(reported > 0);
        assert_eq!(world.rings[position].finished().count(), reported);
    }
    world.assert_what_stands_is_right();
}

fn new(change: impl FnOnce(&mut RingConfig, &mut Vec<Vec<f32>>)) -> Result<Ring, InvalidRing> {
    let setup = Setup::new(3);
    let (mut config, mut delta) = (setup.config(1), setup.delta(1));
    change(&mut config, &mut delta);
    Ring::new(config, Setup::identity(1), Arc::new(delta), Time::ZERO)
}

#[test]
fn exchanges_that_cannot_be_are_refused() {
    assert!(new(|_, _| ()).is_ok());
    let error = |change: fn(&mut RingConfig, &mut Vec<Vec<f32>>)| new(change).unwrap_err();
    let node = |n| Setup::identity(n).node_id();
    assert_eq!(error(|c, _| c.members.clear()), InvalidRing::Members(0));
    assert_eq!(error(|c, _| c.members[2] = c.members[0]), InvalidRing::Twice(node(0)));
    let omega = InvalidRing::Omega { node: node(2), omega: 257 };
    assert_eq!(error(|c, _| c.members[2].omega = 257), omega);
    assert_eq!(error(|c, _| _ = c.members.remove(1)), InvalidRing::NotMember(node(1)));
    assert_eq!(error(|c, _| c.me = c.members[0].node), InvalidRing::NotMember(node(0)));
    let count = Setup::new(3).specs.len();
    assert_eq!(error(|c, _| c.buckets = vec![1, 0]), InvalidRing::Buckets(count));
    assert_eq!(error(|c, _| c.buckets = vec![1, 1]), InvalidRing::Buckets(count));
    assert_eq!(error(|c, _| c.buckets = vec![99]), InvalidRing::Buckets(count));
    assert_eq!(error(|c, _| c.window = 0), InvalidRing::Window);
    let shape = InvalidRing::Shape { fragment: 2, found: 0, expected: 1 };
    assert_eq!(error(|_, d| d[2].clear()), shape);
    assert!(matches!(error(|_, d| d.truncate(3)), InvalidRing::Shape { fragment: 3, .. }));
}

#[test]
fn a_poisoned_pseudo_gradient_is_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = new(|_, delta| delta[1][1000] = bad).unwrap_err();
        assert_eq!(error, InvalidRing::NotFinite { fragment: 1, element: 1000 });
    }
}
