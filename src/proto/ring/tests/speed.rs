//! How fast one core drives a whole ring; `cargo test --release -- --ignored --nocapture speed`.

use std::time::Instant;

use super::world::{Setup, World};
use crate::{
    base::limits,
    codec::{Bits, buckets, reference::layout_of},
};

#[test]
fn full_frames_fit_their_bound() {
    let specs = buckets(&layout_of(&[&[1 << 20]]), Bits::B4).into();
    let frame_bytes = limits::MAX_FRAME_BYTES;
    let mut world = World::new(Setup { specs, buckets: vec![0], frame_bytes, ..Setup::new(2) });
    let mut largest = 0;
    world.run_with(1, |_, frame| {
        largest = largest.max(frame.payload.len());
        assert!(frame.to_bytes().len() <= limits::MAX_FRAME_WIRE_BYTES);
        true
    });
    assert!(largest <= limits::MAX_FRAME_BYTES && largest > limits::MAX_FRAME_BYTES - 64);
    assert!(world.rings.iter().all(crate::proto::ring::Ring::is_drained));
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    for members in [2, 4, 8] {
        let specs = buckets(&layout_of(&[&[1 << 25]]), Bits::B4);
        let buckets = (0..specs.len() as u32).collect();
        let frame_bytes = limits::MAX_FRAME_BYTES;
        let setup = Setup { specs: specs.into(), buckets, frame_bytes, ..Setup::new(members) };
        let mut world = World::new(setup);
        let start = Instant::now();
        world.run(1);
        let seconds = start.elapsed().as_secs_f64();
        let sent: u64 = world.rings.iter().map(|ring| ring.traffic().bytes_sent).sum();
        println!(
            "{members} members: {:.2} s, {:.0} MB/s sent over all members, memory {} MiB",
            seconds,
            sent as f64 / 1e6 / seconds,
            world.memory >> 20,
        );
    }
}
