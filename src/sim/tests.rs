//! Properties of whole worlds over many seeds. A failure prints the scenario and how to replay it.

use super::*;
use crate::config::manifest::Overlap;

/// Runs a scenario; panics with its last events and how to replay it if it fails.
fn run(scenario: &Scenario, seed: u64) -> Report {
    let scenario = Scenario { seed, ..scenario.clone() };
    let mut world = World::new(scenario.clone()).unwrap();
    world.run();
    let failure = world.verdict();
    if let Some(failure) = &failure {
        let lines: Vec<&str> = world.trace.lines().collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        let text = scenario.to_toml();
        panic!(
            "{last}\n{failure}\nreplay: dilocox-sim run failed.toml --seed {seed}, with this \
             failed.toml:\n{text}"
        );
    }
    Report::of(&world, failure)
}

fn over(seeds: std::ops::Range<u64>, scenario: &Scenario) -> Vec<Report> {
    seeds.map(|seed| run(scenario, seed)).collect()
}

fn world(count: usize, rounds: u64) -> Scenario {
    let mut scenario = Scenario::default();
    scenario.peers.count = count;
    scenario.run.rounds = rounds;
    scenario
}

fn with(mut scenario: Scenario, faults: &[Fault]) -> Scenario {
    scenario.fault = faults.to_vec();
    scenario
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let scenario =
        with(world(3, 5), &[Fault::new(FaultKind::Crash, &[1]).at(3.0).restart_after(2.0)]);
    assert_eq!(run(&scenario, 5).trace_digest, run(&scenario, 5).trace_digest);
    assert_ne!(run(&scenario, 5).trace_digest, run(&scenario, 6).trace_digest);
}

#[test]
fn a_lone_founder_finishes_and_learns() {
    for report in over(0..3, &world(1, 20)) {
        assert_eq!((report.rounds, report.failed_attempts), (21, 0));
        assert!(report.loss < 0.7, "{}", report.loss);
    }
}

#[test]
fn three_nodes_finish_in_every_overlap_without_a_failed_attempt() {
    for overlap in [Overlap::None, Overlap::Delayed, Overlap::Continued, Overlap::OnArrival] {
        let mut scenario = world(3, 8);
        scenario.run.overlap = overlap;
        for report in over(0..4, &scenario) {
            assert_eq!(report.failed_attempts, 0);
            assert!(report.members > 2.5, "{}", report.members);
        }
    }
}

#[test]
fn a_joiner_becomes_a_member() {
    let scenario = with(world(3, 8), &[Fault::new(FaultKind::Join, &[3]).at_round(2)]);
    for report in over(0..6, &scenario) {
        assert!(report.members > 3.0, "{}", report.members);
    }
}

#[test]
fn the_founder_may_die() {
    over(0..10, &with(world(3, 6), &[Fault::new(FaultKind::Crash, &[0]).at(4.0)]));
}

#[test]
fn a_node_may_die_after_each_of_its_effects() {
    for peer in 0..3 {
        for effect in (12..72).step_by(3) {
            let fault = Fault::new(FaultKind::Crash, &[peer]).after_effects(effect);
            run(&with(world(3, 5), std::slice::from_ref(&fault)), effect);
            run(&with(world(3, 5), &[fault.restart_after(1.5)]), effect + 1);
        }
    }
}

#[test]
fn two_of_three_may_die() {
    over(0..10, &with(world(3, 6), &[Fault::new(FaultKind::Crash, &[0, 1]).at(4.0)]));
}

#[test]
fn all_but_a_fresh_joiner_may_die() {
    let faults = [
        Fault::new(FaultKind::Join, &[3]).at_round(2),
        Fault::new(FaultKind::Crash, &[0, 1, 2]).at_round(4),
    ];
    over(0..10, &with(world(3, 8), &faults));
}

#[test]
fn all_may_restart_with_their_disks() {
    let fault = Fault::new(FaultKind::Crash, &[0, 1, 2]).at(5.5).restart_after(2.0);
    over(0..10, &with(world(3, 8), &[fault]));
}

#[test]
fn deaths_at_any_effect_of_all_three_lose_nothing() {
    for first in (15..60).step_by(5) {
        let faults: Vec<Fault> = (0..3)
            .map(|peer| {
                let after = first + 3 * peer as u64;
                Fault::new(FaultKind::Crash, &[peer]).after_effects(after).restart_after(2.0)
            })
            .collect();
        let mut scenario = with(world(3, 6), &faults);
        scenario.network.loss = 0.02;
        run(&scenario, first);
    }
}

#[test]
fn long_latency_fails_no_attempt() {
    let mut scenario = world(5, 6);
    scenario.network.latency_ms = [50.0, 300.0];
    scenario.network.jitter_ms = 30.0;
    for report in over(0..5, &scenario) {
        assert_eq!(report.failed_attempts, 0);
    }
}

#[test]
fn lost_messages_stop_nobody() {
    let mut scenario = world(5, 6);
    scenario.network.loss = 0.05;
    for report in over(0..6, &scenario) {
        assert!(report.highest_attempt < 4);
    }
}

#[test]
fn half_may_leave_at_once_and_no_attempt_fails() {
    let scenario = with(world(6, 8), &[Fault::new(FaultKind::Leave, &[0, 1, 2]).at_round(3)]);
    for report in over(0..6, &scenario) {
        assert_eq!(report.failed_attempts, 0);
    }
}

#[test]
fn half_may_die_at_once() {
    over(0..6, &with(world(6, 8), &[Fault::new(FaultKind::Crash, &[0, 1, 2]).at_round(3)]));
}

#[test]
fn a_partition_that_heals_breaks_no_invariant() {
    let faults = [
        Fault::new(FaultKind::Partition, &[0, 1]).at_round(3),
        Fault::new(FaultKind::Heal, &[]).at(30.0),
    ];
    let mut scenario = with(world(6, 12), &faults);
    scenario.must_finish = false;
    scenario.max_spread = 99;
    scenario.limit_s = 120.0;
    over(0..6, &scenario);
}

#[test]
fn churn_with_loss_ends_well() {
    let mut scenario = world(5, 12);
    scenario.network.loss = 0.03;
    scenario.network.latency_ms = [30.0, 200.0];
    scenario.churn = Some(ChurnPart { every_s: 6.0, down_s: 4.0, until_s: 40.0, keep: 2 });
    over(0..8, &scenario);
}

#[test]
fn the_scenario_files_are_valid_and_round_trip() {
    let files = [
        include_str!("../../simulations/smoke.toml"),
        include_str!("../../simulations/churn.toml"),
        include_str!("../../simulations/latency.toml"),
    ];
    for text in files {
        let scenario = Scenario::from_toml(text).unwrap();
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
    }
}

#[test]
fn unknown_keys_and_impossible_values_are_refused() {
    assert!(matches!(Scenario::from_toml("peer = 3"), Err(SimError::Syntax(_))));
    assert!(matches!(Scenario::from_toml("[peers]\ncount = 0"), Err(SimError::Value(..))));
    let fault = "[[fault]]\nkind = \"crash\"\npeers = [9]\nat_s = 1.0";
    assert!(matches!(Scenario::from_toml(fault), Err(SimError::Value(..))));
    let never = "[[fault]]\nkind = \"crash\"\npeers = [0]";
    assert!(matches!(Scenario::from_toml(never), Err(SimError::Value(..))));
}

#[test]
fn the_command_reports_as_text_and_json() {
    let text = include_str!("../../simulations/smoke.toml").to_owned();
    let args = cli::RunArgs { text, seed: None, json: false, trace: false };
    let people = cli::main(&args).unwrap();
    assert!(people.contains("goodput"));
    let json = cli::main(&cli::RunArgs { seed: Some(7), json: true, ..args }).unwrap();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["result"], "pass");
    assert_eq!(report["seed"], 7);
}
