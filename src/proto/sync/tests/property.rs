//! Random schedules: whatever the others do, one honest donor that stays is enough.

use std::time::Duration;

use super::{
    network::Network,
    world::{Donor, Lie, World, node},
};
use crate::base::{Digest, Stream};

const LIES: [Lie; 12] = [
    Lie::None,
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

fn random_donor(random: &mut Stream, head: u64) -> Donor {
    let lie = LIES[random.below(LIES.len() as u64) as usize];
    let head = head - random.below(6).min(head - 1);
    let oldest = 1 + random.below(head);
    let mut snapshots: Vec<u64> =
        (1..head).filter(|round| round % 5 == 0 && round + 1 >= oldest).collect();
    if random.below(3) == 0 {
        snapshots.clear();
    }
    snapshots.truncate(8);
    let mut donor = Donor::liar(lie, head, oldest, &snapshots)
        .slow(Duration::from_millis(1 + random.below(3000)));
    if random.below(2) == 0 {
        donor = donor.dying(random.below(40) as usize);
    }
    donor
}

fn scenario(seed: u64) {
    let mut random = Stream::new(&Digest::of(&seed.to_le_bytes()), "sync/property");
    let rounds = 2 + random.below(40);
    let mut world = World::new(Network::new(rounds, random.below(700) as usize));
    let kept = 1 + random.below(rounds);
    let from = if random.below(2) == 0 { 1 } else { kept };
    let snapshots: Vec<u64> = if from == 1 { vec![] } else { vec![from - 1] };
    world.add(200, Donor::honest(rounds, from, &snapshots));
    let mut next = 1;
    for _ in 0..random.below(20) {
        world.run_to(rounds, Duration::from_millis(random.below(4000)));
        match random.below(6) {
            0 => world.remove(1 + random.below(u64::from(next)) as u8),
            1 => (1..next).for_each(|i| world.announce(i)),
            2 => world.bad_installs = usize::from(random.below(4) == 0),
            _ => {
                world.add(next, random_donor(&mut random, rounds));
                next += 1;
            }
        }
    }
    let replay = format!("seed {seed}: {} rounds, bodies from {from}", rounds);
    assert!(world.run_to(rounds, Duration::from_secs(3600)), "{replay}\n{:#?}", world.log);
    assert!(!world.blamed.contains(&node(200)), "{replay}: the honest donor is blamed");
    assert!(world.mismatches.is_empty(), "{replay}");
}

#[test]
fn one_honest_donor_is_enough_on_every_schedule() {
    (0..150).for_each(scenario);
}
