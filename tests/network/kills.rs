//! SIGKILL at random moments: the others go on, and whoever was killed comes back to the same state.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::harness::{Network, Recipe, Seeded};

const KILLS: usize = 20;
const SEED: u64 = 2506;
/// Until the next kill, at most: more than a segment and its exchange.
const MOMENT_MS: u64 = 1200;

/// One in four is killed while it starts or fetches what it missed, the others at any moment of a
/// round.
#[test]
fn twenty_kills_at_random_moments_cost_nobody_the_state() {
    let mut network = Network::new("kills");
    let mut seeded = Seeded(SEED);
    network.bootstrap(&[]);
    let founder = network.found(&Recipe::tiny(), &[]);
    network.commits_above(founder, 0);
    let nodes = [founder, network.join(&[]), network.join(&[])];
    let start = network.beginning();
    for id in nodes {
        network.exchanges(start, id, 3);
    }
    let began = Instant::now();
    let mut kills = 0;
    while kills < KILLS {
        let victim = nodes[seeded.below(3) as usize];
        let others = nodes.into_iter().filter(|id| *id != victim);
        thread::sleep(Duration::from_millis(seeded.below(MOMENT_MS)));
        let newest: Vec<u64> = others.clone().map(|id| network.newest(id)).collect();
        network.kill(victim);
        kills += 1;
        for (id, newest) in others.clone().zip(newest) {
            network.commits_above(id, newest);
        }
        if seeded.below(4) == 0 && kills < KILLS {
            network.restart(victim);
            thread::sleep(Duration::from_millis(seeded.below(MOMENT_MS)));
            network.kill(victim);
            kills += 1;
        }
        let mark = network.mark();
        network.restart(victim);
        let round = network.joined(victim).number("round");
        let round = network.commits_above(victim, round);
        let equal = others.clone().all(|id| {
            let theirs = network.newest(id) < round || network.root(id, round).is_some();
            theirs || network.root(victim, round).is_none()
        });
        network.ensure(equal, "the others have a root for the victim's round");
        network.exchanges(mark, victim, 3);
        eprintln!("{kills} kills, round {round}, {:.1} s", began.elapsed().as_secs_f64());
    }
    // Roots of all rounds are compared as they come; here is that there was something to compare.
    let last = nodes.map(|id| network.newest(id)).into_iter().min().unwrap_or(0);
    let roots = nodes.map(|id| network.root(id, last));
    network.ensure(roots[0].is_some() && roots[0] == roots[1] && roots[0] == roots[2], "one root");
}
