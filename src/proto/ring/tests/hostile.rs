//! Frames that no correct member sends.

use proptest::prelude::*;

use super::world::{ROUND, RUN, STALL, Setup, World};
use crate::{
    base::{Digest, Stream},
    identity::Signature,
    proto::ring::{Failure, RingFault, verify::Seal},
    wire::{Frame, FrameHeader, HopProof, JobId, JobKind, JobPhase, Pass, member_set_digest},
};

type Fits = fn(&FrameHeader) -> bool;
type Change = fn(&mut Frame);
type Expected = fn(&RingFault) -> bool;

/// Runs an exchange of three in which the first frame that fits is changed; gives the position
/// that refused it and its fault.
fn fault_of(setup: Setup, fits: Fits, change: Change) -> (World, usize, RingFault) {
    let mut world = World::new(setup);
    let mut changed = false;
    world.run_with(11, |_, frame| {
        if !changed && fits(&frame.header) {
            change(frame);
            changed = true;
        }
        true
    });
    assert!(changed, "no frame fits");
    let (position, fault) = world.faults.first().cloned().expect("a fault");
    (world, position, fault)
}

fn is_sums(header: &FrameHeader) -> bool {
    header.job.kind == JobKind::Sums
}

fn is_reduce(header: &FrameHeader) -> bool {
    header.pass == Pass::Reduce
}

fn proof_mut(frame: &mut Frame) -> &mut HopProof {
    frame.header.proof.as_mut().expect("a last frame")
}

const ANY: Fits = |_| true;
const SOME_PROOF: HopProof = HopProof { digest: Digest([1; 32]), signature: Signature([2; 64]) };

#[test]
fn each_broken_frame_is_refused_for_what_is_wrong_with_it() {
    let table: &[(&str, Fits, Change, Expected)] = &[
        ("no such chunk", ANY, |f| f.header.chunk = 200, |f| *f == RingFault::Chunk { chunk: 200 }),
        (
            "another way's chunk",
            |h| is_reduce(h) && h.hop == 1,
            |f| f.header.chunk = (f.header.chunk + 1) % 3,
            |f| matches!(f, RingFault::Chunk { .. }),
        ),
        ("hop", ANY, |f| f.header.hop += 1, |f| matches!(f, RingFault::Hop { .. })),
        ("hop 0", ANY, |f| f.header.hop = 0, |f| matches!(f, RingFault::Hop { found: 0, .. })),
        (
            "skips a unit",
            ANY,
            |f| f.header.first_unit += 1,
            |f| matches!(f, RingFault::Units { .. }),
        ),
        (
            "far away",
            ANY,
            |f| f.header.first_unit = u32::MAX,
            |f| matches!(f, RingFault::Units { .. }),
        ),
        ("too many units", ANY, |f| f.header.units += 1, |f| matches!(f, RingFault::Units { .. })),
        ("all units", ANY, |f| f.header.units = u32::MAX, |f| matches!(f, RingFault::Units { .. })),
        ("long", ANY, |f| f.payload.push(0), |f| matches!(f, RingFault::Length { .. })),
        ("short", is_sums, |f| _ = f.payload.pop(), |f| matches!(f, RingFault::Length { .. })),
        (
            "no commitment",
            |h| h.commitment.is_some(),
            |f| f.header.commitment = None,
            |f| *f == RingFault::Commitment,
        ),
        (
            "commitment to scales",
            |h| !is_sums(h),
            |f| f.header.commitment = Some(Digest([0; 32])),
            |f| *f == RingFault::Commitment,
        ),
        (
            "second commitment",
            |h| is_sums(h) && h.commitment.is_none(),
            |f| f.header.commitment = Some(Digest([0; 32])),
            |f| *f == RingFault::Commitment,
        ),
        ("no proof", |h| h.proof.is_some(), |f| f.header.proof = None, |f| *f == RingFault::Proof),
        (
            "early proof",
            |h| h.proof.is_none(),
            |f| f.header.proof = Some(SOME_PROOF),
            |f| *f == RingFault::Proof,
        ),
        (
            "other digest",
            |h| h.proof.is_some() && is_reduce(h),
            |f| proof_mut(f).digest.0[3] ^= 1,
            |f| matches!(f, RingFault::Digest { .. }),
        ),
        (
            "other digest of a finished chunk",
            |h| h.proof.is_some() && !is_reduce(h),
            |f| proof_mut(f).digest.0[3] ^= 1,
            |f| matches!(f, RingFault::Digest { .. }),
        ),
        (
            "signature",
            |h| h.proof.is_some() && is_reduce(h),
            |f| proof_mut(f).signature.0[3] ^= 1,
            |f| matches!(f, RingFault::Signature(_)),
        ),
        (
            "owner's signature",
            |h| h.proof.is_some() && !is_reduce(h),
            |f| proof_mut(f).signature.0[3] ^= 1,
            |f| matches!(f, RingFault::Signature(_)),
        ),
        (
            "scales",
            |h| !is_sums(h),
            |f| f.payload.iter_mut().for_each(|b| *b ^= 1),
            |f| matches!(f, RingFault::Digest { .. }),
        ),
        ("sums", is_sums, |f| f.payload.fill(0), |f| matches!(f, RingFault::Digest { .. })),
        (
            "finished scales",
            |h| !is_sums(h) && !is_reduce(h),
            |f| f.payload.iter_mut().for_each(|b| *b ^= 1),
            |f| matches!(f, RingFault::Digest { .. }),
        ),
        (
            "finished sums",
            |h| is_sums(h) && !is_reduce(h),
            |f| f.payload.fill(0),
            |f| matches!(f, RingFault::Digest { .. }),
        ),
        (
            "values",
            |h| is_sums(h) && h.proof.is_none(),
            |f| f.payload.fill(0xff),
            |f| matches!(f, RingFault::Value(_)),
        ),
        (
            "finished values",
            |h| is_sums(h) && !is_reduce(h) && h.proof.is_none(),
            |f| f.payload.fill(0xff),
            |f| matches!(f, RingFault::Value(_)),
        ),
        (
            "phase",
            ANY,
            |f| f.header.job.phase = JobPhase::Q,
            |f| matches!(f, RingFault::UnknownJob(_)),
        ),
        (
            "no such bucket",
            ANY,
            |f| f.header.job.bucket = 99,
            |f| matches!(f, RingFault::UnknownJob(_)),
        ),
        (
            "too far ahead",
            ANY,
            |f| f.header.job.bucket = 4,
            |f| *f == RingFault::Ahead { bucket: 4, allowed: 4 },
        ),
        (
            "sums before scales",
            ANY,
            |f| f.header.job.kind = JobKind::Sums,
            |f| matches!(f, RingFault::Early(_)),
        ),
        (
            "finished before this member's part",
            is_reduce,
            |f| {
                f.header.pass = Pass::Gather;
                f.header.hop += 1;
            },
            |f| matches!(f, RingFault::Unfinished { .. }),
        ),
    ];
    for (name, fits, change, expected) in table {
        let setup = Setup { frame_bytes: 40, ..Setup::new(3) };
        let (world, position, fault) = fault_of(setup, *fits, *change);
        assert!(expected(&fault), "{name}: {fault:?}");
        let sender = world.node((position + 2) % 3);
        let reason = Failure::Fault(fault);
        assert_eq!(world.failure(position), Some((Some(sender), &reason)), "{name}");
        assert_eq!(world.rings[position].memory(), 0);
        assert_eq!(world.rings[position].poll_timeout(), None);
        world.assert_what_stands_is_right();
    }
}

#[test]
fn frames_of_others_change_nothing() {
    let mut world = World::new(Setup::new(3));
    let frame = world.rings[0].poll_frame().unwrap();
    let (now, predecessor, other) = (world.now, world.node(0), world.node(2));
    let mut refuse = |from, change: Change| {
        let mut frame = frame.clone();
        change(&mut frame);
        world.rings[1].handle_frame(now, from, &frame).unwrap_err()
    };
    assert_eq!(refuse(other, |_| ()), RingFault::NotPredecessor(other));
    let other_round = RingFault::OtherExchange { round: ROUND + 1, attempt: 1 };
    assert_eq!(refuse(predecessor, |f| f.header.round += 1), other_round);
    let other_attempt = RingFault::OtherExchange { round: ROUND, attempt: 0 };
    assert_eq!(refuse(predecessor, |f| f.header.attempt = 0), other_attempt);
    assert_eq!(world.rings[1].progress(), 0);
    world.deliver(0, &frame);
    world.run(1);
    world.assert_complete();
}

#[test]
fn a_frame_that_comes_twice_is_refused() {
    for at in [0, 5, 50, 200] {
        let mut world = World::new(Setup::new(3));
        let mut kept = None;
        world.run_with(2, |number, frame| {
            if number == at {
                kept = Some(frame.clone());
            }
            number <= at
        });
        // Only the frame itself again, on the link that it came from.
        let frame = kept.unwrap();
        let position = (0..3).find(|&i| starts_or_forwards(&frame, i)).unwrap();
        world.deliver(position, &frame);
        let fault = world.faults.pop().unwrap().1;
        let is_refused = matches!(
            fault,
            RingFault::Units { .. }
                | RingFault::Repeated { .. }
                | RingFault::Done(_)
                | RingFault::Commitment
        );
        assert!(is_refused, "{at}: {fault:?}");
    }
}

/// Whether a frame was sent by `position` of three.
fn starts_or_forwards(frame: &Frame, position: usize) -> bool {
    let FrameHeader { pass, chunk, hop, .. } = frame.header;
    let steps = (position + 3 - usize::from(chunk)) % 3;
    match pass {
        Pass::Reduce => steps == usize::from(hop),
        Pass::Gather => steps + 1 == usize::from(hop),
    }
}

#[test]
fn a_lost_frame_is_seen_at_the_next_one() {
    let mut world = World::new(Setup { frame_bytes: 2, ..Setup::new(3) });
    world.run_with(2, |number, frame| number != 4 || frame.header.proof.is_some());
    assert!(world.faults.iter().any(|(_, fault)| matches!(fault, RingFault::Units { .. })));
    world.assert_what_stands_is_right();
}

#[test]
fn signatures_of_other_exchanges_are_refused() {
    let setup = Setup::new(3);
    let set = member_set_digest(&setup.members());
    let honest = Seal { run: RUN, round: ROUND, attempt: 1, set };
    let seals = [
        (true, honest),
        (false, Seal { attempt: 2, ..honest }),
        (false, Seal { round: ROUND + 1, ..honest }),
        (false, Seal { set: Digest([0; 32]), ..honest }),
    ];
    for (fits, seal) in seals {
        let mut world = World::new(setup.clone());
        let mut changed = false;
        world.run_with(1, |_, frame| {
            let FrameHeader { job, chunk, hop, pass, proof, .. } = frame.header;
            if let (false, Pass::Reduce, Some(HopProof { digest, .. })) = (changed, pass, proof) {
                let sender = (usize::from(chunk) + usize::from(hop)) % 3;
                let signed = seal.sign_hop(&Setup::identity(sender), job, chunk, hop, digest);
                frame.header.proof = Some(signed);
                changed = true;
            }
            true
        });
        let refused =
            world.faults.first().is_some_and(|(_, fault)| matches!(fault, RingFault::Signature(_)));
        assert_eq!(refused, !fits);
    }
}

#[test]
fn a_corrupted_byte_never_makes_a_wrong_result() {
    let mut stream = Stream::new(&Digest::of(b"corruption"), "");
    let setup = Setup { frame_bytes: 40, buckets: vec![0, 4, 5], ..Setup::new(3) };
    let mut honest = World::new(setup.clone());
    honest.run(0);
    let total = honest.seen as u64;
    for _ in 0..150 {
        let (at, seed) = (stream.below(total) as usize, stream.below(20));
        let mut world = World::new(setup.clone());
        let mut commitment_only = false;
        world.run_with(seed, |number, frame| {
            number != at || {
                let before = frame.header.clone();
                let taken = corrupt(frame, &mut stream);
                let mut after = frame.header.clone();
                after.commitment = before.commitment;
                commitment_only = before.commitment.is_some() && after == before && taken;
                taken
            }
        });
        world.stall();
        world.assert_what_stands_is_right();
        let has_failed = (0..3).any(|position| world.failure(position).is_some());
        let is_complete = (0..3).all(|position| world.outcome(position).is_some());
        // The last frames of all may be lost on nobody but their receiver.
        assert!(has_failed || (commitment_only && is_complete), "frame {at}, schedule {seed}");
    }
}

/// Changes one byte of the encoded frame; false if it cannot be decoded any more.
fn corrupt(frame: &mut Frame, stream: &mut Stream) -> bool {
    let mut bytes = frame.to_bytes();
    let at = stream.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << stream.below(8);
    Frame::from_bytes(&bytes).map(|changed| *frame = changed).is_ok()
}

fn header() -> impl Strategy<Value = FrameHeader> {
    let job = (0u32..10, 0usize..3, any::<bool>()).prop_map(|(bucket, phase, is_sums)| JobId {
        bucket,
        phase: if phase == 2 { JobPhase::P } else { JobPhase::Plain },
        kind: if is_sums { JobKind::Sums } else { JobKind::Scales },
    });
    let counts = (prop_oneof![0u8..4, any::<u8>()], prop_oneof![0u8..4, any::<u8>()]);
    let units = (prop_oneof![0u32..12, any::<u32>()], prop_oneof![0u32..12, any::<u32>()]);
    (job, any::<bool>(), counts, units, any::<bool>(), any::<bool>()).prop_map(
        |(job, is_reduce, (chunk, hop), (first_unit, units), commits, proves)| FrameHeader {
            round: ROUND,
            attempt: 1,
            job,
            pass: if is_reduce { Pass::Reduce } else { Pass::Gather },
            chunk,
            hop,
            first_unit,
            units,
            commitment: commits.then_some(Digest([3; 32])),
            proof: proves.then_some(SOME_PROOF),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn arbitrary_frames_never_panic(
        seed in 0u64..4,
        after in 0usize..150,
        header in header(),
        payload in prop::collection::vec(any::<u8>(), 0..70),
    ) {
        let setup = Setup { frame_bytes: 40, buckets: vec![0, 4, 5], ..Setup::new(3) };
        let mut world = World::new(setup);
        world.run_with(seed, |number, frame| {
            if number == after {
                *frame = Frame { header: header.clone(), payload: payload.clone() };
            }
            true
        });
        world.stall();
        world.assert_what_stands_is_right();
        prop_assert!(world.now.as_micros() == STALL.as_micros() as u64);
    }
}
