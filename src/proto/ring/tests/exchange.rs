//! Whole exchanges between honest members.

use std::collections::BTreeMap;

use super::world::{ROUND, Setup, World};
use crate::{
    base::{Digest, Stream},
    codec::{Bits, bucket::buckets_of, pack_sums, packed_len, quantise, reference::layout_of},
    proto::ring::{RingEvent, bucket_bytes},
    wire::{Frame, JobKind, Pass},
};

#[test]
fn rings_of_all_sizes_give_the_integer_reference() {
    for members in [1, 2, 3, 5, 8] {
        let setup = Setup::new(members);
        for seed in 0..3 {
            let mut world = World::new(setup.clone());
            world.run(seed);
            world.assert_complete();
        }
    }
}

#[test]
fn every_number_of_bits_gives_the_integer_reference() {
    for bits in Bits::ALL {
        let mut world = World::new(Setup { bits, ..Setup::new(3) });
        world.run(u64::from(bits.get()));
        world.assert_complete();
    }
}

#[test]
fn windows_and_frame_sizes_change_nothing() {
    for (window, frame_bytes) in [(1, 1), (1, 57), (3, 300), (100, 1 << 18)] {
        let mut world = World::new(Setup { window, frame_bytes, ..Setup::new(4) });
        world.run(window as u64);
        world.assert_complete();
    }
}

#[test]
fn neighbours_may_have_windows_that_differ_by_two() {
    let mut world = World::new(Setup { window: 2, ..Setup::new(4) });
    let wide = Setup { window: 4, ..world.setup.clone() };
    world.rings[1] = wide.ring(1);
    world.rings[2] = wide.ring(2);
    world.run(1);
    world.assert_complete();
}

#[test]
fn the_ring_s_order_does_not_matter() {
    let mut stream = Stream::new(&Digest::of(b"order"), "");
    let straight = Setup::new(5);
    for seed in 0..6 {
        let mut order = straight.order.clone();
        stream.shuffle(&mut order);
        let mut world = World::new(Setup { order, ..straight.clone() });
        world.run(seed);
        world.assert_complete();
        for bucket in &world.outcome(0).unwrap().buckets {
            assert_eq!(bucket.result, straight.reference(bucket.bucket));
        }
    }
}

#[test]
fn members_agree_on_results_and_proofs() {
    let mut world = World::new(Setup::new(5));
    world.run(1);
    let first = world.outcome(0).unwrap();
    for position in 1..5 {
        for (mine, theirs) in first.buckets.iter().zip(&world.outcome(position).unwrap().buckets) {
            assert_eq!((&mine.result, &mine.proofs), (&theirs.result, &theirs.proofs));
        }
    }
}

#[test]
fn a_ring_of_one_finishes_by_itself() {
    let mut world = World::new(Setup::new(1));
    let mut ring = world.rings.remove(0);
    assert!(ring.poll_frame().is_none());
    assert!(ring.poll_timeout().is_none());
    let events: Vec<RingEvent> = std::iter::from_fn(|| ring.poll_event()).collect();
    assert_eq!(events.len(), world.setup.buckets.len() + 1);
    assert!(matches!(events.last(), Some(RingEvent::Finished(_))));
    assert!(ring.is_drained());
    assert_eq!(ring.progress(), 0);
}

#[test]
fn an_exchange_of_nothing_is_finished() {
    let mut world = World::new(Setup { buckets: vec![], ..Setup::new(3) });
    world.run(0);
    world.assert_complete();
    assert_eq!(world.seen, 0);
}

#[test]
fn a_salvage_exchanges_some_buckets_only() {
    let mut world = World::new(Setup { buckets: vec![1, 4, 5], ..Setup::new(3) });
    world.run(0);
    world.assert_complete();
}

#[test]
fn events_name_every_bucket_once_and_then_the_end() {
    let mut world = World::new(Setup::new(3));
    world.run(9);
    for events in &world.events {
        let (last, buckets) = events.split_last().unwrap();
        assert!(matches!(last, RingEvent::Finished(_)));
        let mut numbers: Vec<u32> = buckets
            .iter()
            .map(|event| match event {
                RingEvent::JobFinished(bucket) => bucket.bucket,
                other => panic!("{other:?}"),
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, world.setup.buckets);
    }
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let hash = |seed| {
        let mut world = World::new(Setup::new(5));
        world.run(seed);
        world.frames.finalize()
    };
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
}

#[test]
fn golden_exchange() {
    let mut world = World::new(Setup::new(5));
    world.run(42);
    let mut outcome = blake3::Hasher::new();
    for bucket in &world.outcome(2).unwrap().buckets {
        outcome.update(&bucket.result.to_bytes());
        bucket.proofs.iter().for_each(|proof| _ = outcome.update(&proof.signature.0));
        outcome.update(&bucket.commitment.0);
    }
    assert_eq!(
        outcome.finalize().to_hex().as_str(),
        "eb4e7866a762346b0087d09c7787ff1eae8b19e08cb1e9db34c60b2e9b97f149"
    );
    assert_eq!(
        world.frames.finalize().to_hex().as_str(),
        "d5219e8178fbb5349ec87075122252e3d7243a301ba6f55268795b70be8619ba"
    );
}

#[test]
fn partial_sums_have_exactly_the_width_of_their_contributions() {
    let mut world = World::new(Setup::new(5));
    let bits = world.setup.bits;
    world.run_with(3, |_, frame| {
        let header = &frame.header;
        if header.job.kind == JobKind::Sums {
            let contributions = if header.pass == Pass::Reduce { header.hop.into() } else { 5 };
            let expected = packed_len(header.units as usize, bits, contributions);
            assert_eq!(frame.payload.len(), expected);
        }
        true
    });
    world.assert_complete();
}

#[test]
fn what_one_sends_the_next_one_receives() {
    let mut world = World::new(Setup::new(4));
    let mut bytes = 0;
    world.run_with(3, |_, frame| {
        bytes += frame.to_bytes().len() as u64;
        true
    });
    for position in 0..4 {
        let (sent, received) =
            (world.rings[position].traffic(), world.rings[(position + 1) % 4].traffic());
        assert_eq!(sent.frames_sent, received.frames_received);
        assert_eq!(sent.bytes_sent, received.bytes_received);
        assert_eq!(sent.payload_sent, received.payload_received);
        assert_eq!(world.rings[position].progress(), received_by(&world, position));
        assert_eq!(
            world.outcome(position).unwrap().traffic.frames_received,
            received_by(&world, position)
        );
    }
    let sent: u64 = world.rings.iter().map(|ring| ring.traffic().bytes_sent).sum();
    assert_eq!(bytes, sent);
}

fn received_by(world: &World, position: usize) -> u32 {
    world.rings[position].traffic().frames_received
}

#[test]
fn a_frame_in_is_a_frame_out() {
    // Cut-through: a forwarder needs one frame, not the chunk.
    let mut world = World::new(Setup { frame_bytes: 8, ..Setup::new(3) });
    let first = world.rings[0].poll_frame().unwrap();
    let unit = |frame: &Frame| {
        let header = &frame.header;
        (header.job, header.pass, header.chunk, header.first_unit, header.units)
    };
    // Own frames are open at member 1; the partial result goes ahead of the rest of them.
    let own = world.rings[1].poll_frame().unwrap();
    assert_eq!((own.header.chunk, own.header.hop), (0, 1));
    world.deliver(0, &first);
    let onward = world.rings[1].poll_frame().unwrap();
    assert_eq!(unit(&onward), unit(&first));
    assert_eq!((first.header.hop, onward.header.hop), (1, 2));
}

#[test]
fn the_first_frame_of_sums_commits_to_the_whole_contribution() {
    let setup = Setup::new(4);
    let mut world = World::new(setup.clone());
    let mut commitments = BTreeMap::new();
    world.run_with(5, |_, frame| {
        let header = &frame.header;
        if let Some(commitment) = header.commitment {
            assert_eq!(
                (header.job.kind, header.pass, header.hop),
                (JobKind::Sums, Pass::Reduce, 1)
            );
            let owner = usize::from(header.chunk);
            commitments.insert((header.job.bucket, (owner + 1) % 4), commitment);
        }
        true
    });
    assert_eq!(commitments.len(), 4 * setup.buckets.len());
    for (&(bucket, position), &commitment) in &commitments {
        let spec = &setup.specs[bucket as usize];
        let values = spec.gather(&setup.delta(setup.order[position])[spec.fragment]);
        let codes = setup.reference(bucket).codes;
        let omega = Setup::omega(setup.order[position]);
        let mut packed = Vec::new();
        let quantised = quantise(&values, omega, &codes, setup.bits).unwrap();
        pack_sums(&quantised, setup.bits, 1, &mut packed);
        assert_eq!(commitment, Digest::of(&packed));
        let mine = &world.outcome(position).unwrap().buckets[bucket as usize];
        let next = &world.outcome((position + 1) % 4).unwrap().buckets[bucket as usize];
        assert_eq!(mine.commitment, commitment);
        assert_eq!(next.predecessor_commitment, Some(commitment));
    }
}

#[test]
fn fewer_units_than_members_still_get_every_owner_s_signature() {
    let specs = buckets_of(&layout_of(&[&[70], &[3]]), 8).into();
    let mut world = World::new(Setup { specs, buckets: vec![0, 1], ..Setup::new(8) });
    world.run(1);
    world.assert_complete();
    assert!(world.outcome(3).unwrap().buckets.iter().all(|bucket| bucket.proofs.len() == 8));
}

#[test]
fn memory_stays_within_its_bound() {
    for (members, window, seed) in [(2, 1, 0), (3, 2, 1), (5, 3, 2), (5, 1, 3)] {
        let mut world = World::new(Setup { window, ..Setup::new(members) });
        world.run(seed);
        let setup = &world.setup;
        let each = setup.specs.iter().map(|spec| bucket_bytes(spec, setup.bits, members));
        let bound = window * each.max().unwrap();
        assert!(world.memory > 0 && world.memory <= bound, "{} of {bound}", world.memory);
    }
}

#[test]
fn a_successor_that_does_not_read_holds_the_window() {
    let mut world = World::new(Setup { window: 2, ..Setup::new(3) });
    let frames: Vec<Frame> = std::iter::from_fn(|| world.rings[0].poll_frame()).collect();
    let last = frames.iter().map(|frame| frame.header.job.bucket).max();
    assert_eq!(last, Some(1));
    assert!(frames.iter().all(|frame| frame.header.job.kind == JobKind::Scales));
    assert!(frames.iter().all(|frame| frame.header.round == ROUND));
}
