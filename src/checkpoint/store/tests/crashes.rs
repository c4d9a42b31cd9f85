//! A crash at every step and a disk that fills up at every byte: what was acknowledged is there,
//! what was not is there whole or not at all.

use std::{path::Path, sync::Arc};

use super::{Fault, toy};
use crate::{
    base::{Attempt, Digest, Round},
    checkpoint::store::{Disk, Frozen, LeaseUse, LocalState, RunStore, StoreError},
};

/// What the store has acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    boot: u64,
    head: Round,
    promised: Option<(Round, Attempt)>,
    voted: Option<(Round, Attempt, Digest)>,
    local: Round,
    lease: u32,
    snapshot: Option<Round>,
}

fn local(round: Round) -> LocalState {
    LocalState {
        round,
        contributed: round.saturating_sub(1),
        trained: 40 * round,
        error: vec![vec![round as f32; 70], vec![0.5; 3]],
        frozen: round.is_multiple_of(2).then(|| Frozen {
            round,
            weight: 9,
            delta: vec![vec![-1.0; 70], vec![2.0; 3]],
        }),
        moments: vec![round as u8; 100],
    }
}

fn lease(used: u32) -> LeaseUse {
    LeaseUse { round: 3, first: 100, length: 50, used }
}

/// The life of a node over three rounds.
fn live(path: &Path, disk: &Disk, seen: &mut Acknowledged) -> Result<(), StoreError> {
    let (dir, mut store) = toy::open(path, disk.clone())?;
    dir.identity()?;
    seen.boot = dir.next_boot()?;
    dir.store_peers(&["/ip4/10.0.0.1/tcp/1".to_owned()])?;
    for certificate in toy::chain(3) {
        let header = &certificate.header;
        let round = header.round;
        store.record_promise(round, 1)?;
        seen.promised = Some((round, 1));
        store.store_body(round, b"a result that loses")?;
        store.store_body(round, &toy::body(round))?;
        store.record_vote(round, 2, header.digest(), b"header")?;
        seen.voted = Some((round, 2, header.digest()));
        store.append_certificate(&certificate)?;
        seen.head = round;
        store.record_leases(&[lease(round as u32)])?;
        seen.lease = round as u32;
        store.save_local(&local(round))?;
        seen.local = round;
        toy::snapshot(&mut store, round)?;
        seen.snapshot = Some(round);
        store.forget_votes_below(round)?;
    }
    Ok(())
}

/// The store after the crash, opened with a sound disk.
fn check(path: &Path, seen: &Acknowledged, when: &str) {
    let (dir, mut store) = toy::open(path, toy::quick()).unwrap_or_else(|e| panic!("{when}: {e}"));
    dir.identity().unwrap();
    assert!(dir.next_boot().unwrap() > seen.boot, "{when}");
    let head = store.head().round;
    assert!(head == seen.head || head == seen.head + 1, "{when}: {head}, {seen:?}");
    for (round, certificate) in (1..=head).zip(toy::chain(3)) {
        assert_eq!(store.header(round).unwrap(), certificate.header);
    }
    check_votes(&store, seen, when);
    let state = store.load_local().unwrap_or_else(|e| panic!("{when}: {e}")).unwrap_or_default();
    assert!(state.round == seen.local || state.round == seen.local + 1, "{when}");
    if state.round > 0 {
        assert_eq!(state, local(state.round));
    }
    let used = store.leases().unwrap().last().map_or(0, |lease| lease.used);
    assert!(used == seen.lease || used == seen.lease + 1, "{when}");
    check_state(&mut store, seen, head, when);
    go_on(store, head, when);
}

fn check_votes(store: &RunStore, seen: &Acknowledged, when: &str) {
    if let Some((round, attempt)) = seen.promised {
        let said = &store.load_votes()[&round];
        assert!(said.promised >= Some(attempt), "{when}");
    }
    if let Some((round, attempt, digest)) = seen.voted {
        let said = store.load_votes()[&round].voted.clone();
        assert_eq!(said, Some((attempt, digest, b"header".to_vec())), "{when}");
    }
}

fn check_state(store: &mut RunStore, seen: &Acknowledged, head: Round, when: &str) {
    let newest = store.newest_snapshot(Round::MAX).unwrap();
    assert!(newest >= seen.snapshot, "{when}: {newest:?}, {seen:?}");
    for round in store.snapshot_rounds() {
        let mut found = Vec::new();
        store
            .load_snapshot(round, |_, bytes| {
                found.push(bytes.to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(found, toy::leaves(round), "{when}");
    }
    // What lies after the newest snapshot can be replayed.
    for round in newest.unwrap_or(0) + 1..=head {
        let header = store.header(round).unwrap();
        assert_eq!(store.body(&header).unwrap(), toy::body(round), "{when}");
    }
}

/// The node lives on.
fn go_on(mut store: RunStore, head: Round, when: &str) {
    for certificate in toy::chain(5).iter().skip(head as usize) {
        let round = certificate.header.round;
        toy::commit(&mut store, certificate).unwrap_or_else(|e| panic!("{when}: {e}"));
        store.record_promise(round, 3).unwrap();
        store.save_local(&local(round)).unwrap();
        toy::snapshot(&mut store, round).unwrap();
    }
    assert_eq!(store.newest_snapshot(Round::MAX).unwrap(), Some(5), "{when}");
}

#[test]
fn a_crash_at_every_step() {
    for step in 1.. {
        let temp = tempfile::tempdir().unwrap();
        let disk = Disk::faulty(Arc::new(Fault::crash_at(step)));
        let mut seen = Acknowledged::default();
        let lived = live(temp.path(), &disk, &mut seen);
        check(temp.path(), &seen, &format!("crash at step {step}"));
        if lived.is_ok() {
            assert!(step > 100, "the script has {step} steps");
            return;
        }
    }
}

#[test]
fn a_disk_that_fills_up_at_every_byte() {
    for bytes in (0..).step_by(97) {
        let temp = tempfile::tempdir().unwrap();
        let disk = Disk::faulty(Arc::new(Fault::full_after(bytes)));
        let mut seen = Acknowledged::default();
        let lived = live(temp.path(), &disk, &mut seen);
        check(temp.path(), &seen, &format!("{bytes} bytes of room"));
        match lived {
            Ok(()) => return,
            Err(error) => {
                assert!(error.is_full(), "{bytes}: {error}");
                assert!(error.to_string().contains("free space"), "{error}");
            }
        }
    }
}

#[test]
fn a_node_lives_on_when_there_is_room_again() {
    for bytes in (3000..16_000).step_by(501) {
        let temp = tempfile::tempdir().unwrap();
        let fault = Arc::new(Fault::full_after(bytes));
        let Ok((_dir, mut store)) = toy::open(temp.path(), Disk::faulty(fault.clone())) else {
            continue;
        };
        for certificate in toy::chain(4) {
            let round = certificate.header.round;
            let step = |store: &mut RunStore| {
                toy::commit(store, &certificate)?;
                store.record_promise(round, 1)?;
                store.save_local(&local(round))?;
                toy::snapshot(store, round)
            };
            if step(&mut store).is_err() {
                let folder = temp.path().join("runs");
                assert_eq!(leftovers(&folder), Vec::<String>::new(), "{bytes} bytes of room");
                fault.make_room();
                step(&mut store).unwrap();
            }
        }
        assert_eq!(store.head().round, 4);
        assert_eq!(store.newest_snapshot(Round::MAX).unwrap(), Some(4));
    }
}

/// Temporary files below a folder.
fn leftovers(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if name.ends_with(".tmp") || name.ends_with(".writing") {
            found.push(name);
        } else if path.is_dir() {
            found.extend(leftovers(&path));
        }
    }
    found
}

#[test]
fn nothing_contradicts_what_was_said_before_a_crash() {
    let temp = tempfile::tempdir().unwrap();
    let header = toy::chain(1)[0].header.clone();
    let (dir, mut store) = toy::open(temp.path(), Disk::default()).unwrap();
    store.record_promise(1, 2).unwrap();
    store.record_vote(1, 3, header.digest(), b"header").unwrap();
    drop((dir, store));
    let (_dir, mut store) = toy::open(temp.path(), Disk::default()).unwrap();
    let conflict = |r: Result<(), StoreError>| matches!(r, Err(StoreError::Conflict { .. }));
    assert!(conflict(store.record_promise(1, 2)));
    assert!(conflict(store.record_vote(1, 2, header.digest(), b"header")));
    assert!(conflict(store.record_vote(1, 3, Digest([7; 32]), b"another")));
    store.record_vote(1, 3, header.digest(), b"header").unwrap();
    store.record_promise(1, 4).unwrap();
    store.record_promise(2, 0).unwrap();
    store.record_vote(1, 4, header.digest(), b"header").unwrap();
    let said = &store.load_votes()[&1];
    assert_eq!(said.voted, Some((4, header.digest(), b"header".to_vec())));
}

#[test]
fn the_file_of_votes_does_not_grow_for_ever() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, mut store) = toy::open(temp.path(), toy::quick()).unwrap();
    let path = temp.path().join("runs").join(store.run().to_string()).join("votes");
    for round in 1..600 {
        store.record_vote(round, 1, Digest([round as u8; 32]), &[5; 4000]).unwrap();
        store.forget_votes_below(round).unwrap();
    }
    assert!(std::fs::metadata(&path).unwrap().len() < (1 << 20) + 10_000);
    drop((dir, store));
    let (_dir, store) = toy::open(temp.path(), Disk::default()).unwrap();
    assert!(store.load_votes().contains_key(&599));
}
