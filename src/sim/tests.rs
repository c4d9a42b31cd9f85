use super::*;

fn run(scenario: Scenario) -> World {
    let mut world = World::new(scenario).unwrap();
    world.run();
    if let Some(failure) = world.verdict() {
        for line in world.trace.lines() {
            eprintln!("{line}");
        }
        let toml = world.scenario.to_toml();
        let seed = world.scenario.seed;
        panic!(
            "{failure}\nreplay: write this to x.toml and run `dilocox-sim run x.toml --seed {seed}`:\n{toml}"
        );
    }
    world
}

#[test]
fn a_lone_founder_finishes() {
    let mut scenario = Scenario::default();
    scenario.peers.count = 1;
    run(scenario);
}

#[test]
fn three_nodes_finish() {
    run(Scenario::default());
}
