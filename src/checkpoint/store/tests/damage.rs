//! Files that are cut or changed: seen, said, and replaced by what is older or fetched.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::toy;
use crate::{
    base::Round,
    checkpoint::store::{LocalState, RunStore, StoreError},
};

fn folder(path: &Path) -> PathBuf {
    path.join("runs").join(toy::manifest().run_id().to_string())
}

fn store_at(path: &Path) -> RunStore {
    toy::open(path, toy::quick()).unwrap().1
}

/// A store with six rounds and snapshots after 2 and 4.
fn filled(path: &Path) {
    let mut store = store_at(path);
    for certificate in toy::chain(6) {
        toy::commit(&mut store, &certificate).unwrap();
        let round = certificate.header.round;
        if round == 2 || round == 4 {
            toy::snapshot(&mut store, round).unwrap();
        }
    }
}

#[test]
fn a_ledger_cut_at_every_length_keeps_its_whole_records() {
    let temp = tempfile::tempdir().unwrap();
    let chain = toy::chain(3);
    {
        let mut store = store_at(temp.path());
        chain.iter().for_each(|c| store.append_certificate(c).unwrap());
    }
    let path = folder(temp.path()).join("ledger");
    let whole = fs::read(&path).unwrap();
    let record = whole.len() / 3;
    for len in 0..=whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let mut store = store_at(temp.path());
        assert_eq!(store.head().round as usize, len / record, "cut at {len}");
        assert_eq!(store.warnings().is_empty(), len % record == 0, "cut at {len}");
        if len % 50 == 0 {
            for certificate in &chain[len / record..] {
                store.append_certificate(certificate).unwrap();
            }
            drop(store);
            assert_eq!(store_at(temp.path()).head().round, 3);
        }
    }
}

#[test]
fn a_changed_byte_in_the_ledger_is_seen() {
    let temp = tempfile::tempdir().unwrap();
    filled(temp.path());
    let path = folder(temp.path()).join("ledger");
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(41) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let store = store_at(temp.path());
        assert!((store.head().round as usize) < 6, "byte {at}");
        assert!(store.warnings()[0].contains("ledger"), "{:?}", store.warnings());
        assert!(store.snapshot_rounds().iter().all(|&round| round <= store.head().round));
    }
}

#[test]
fn votes_cut_at_every_length_keep_what_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    {
        let mut store = store_at(temp.path());
        (1..=3).for_each(|round| store.record_promise(round, 1).unwrap());
    }
    let path = folder(temp.path()).join("votes");
    let whole = fs::read(&path).unwrap();
    for len in 0..=whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert_eq!(store_at(temp.path()).load_votes().len(), len / (whole.len() / 3));
    }
}

#[test]
fn a_local_state_cut_or_changed_anywhere_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = store_at(temp.path());
    assert_eq!(store.load_local().unwrap(), None);
    let state = LocalState {
        round: 3,
        error: vec![vec![1.0; 5], vec![]],
        moments: vec![4; 9],
        ..LocalState::default()
    };
    store.save_local(&state).unwrap();
    assert_eq!(store.load_local().unwrap(), Some(state));
    let path = folder(temp.path()).join("local");
    let whole = fs::read(&path).unwrap();
    let refused = || {
        let error = store.load_local().unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("remove it"), "{error}");
    };
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        refused();
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x80;
        fs::write(&path, &bytes).unwrap();
        refused();
    }
}

#[test]
fn a_cut_snapshot_is_discarded_for_the_older_one() {
    for (file, cut) in [("index", 10), ("00000003", 0), ("00000000", 299)] {
        let temp = tempfile::tempdir().unwrap();
        filled(temp.path());
        let path = folder(temp.path()).join("snapshots/0000000004").join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..cut]).unwrap();
        let mut store = store_at(temp.path());
        assert!(store.warnings()[0].contains("round 4 is discarded"), "{:?}", store.warnings());
        assert_eq!(store.newest_snapshot(Round::MAX).unwrap(), Some(2));
        for round in 3..=6 {
            let header = store.header(round).unwrap();
            assert_eq!(store.body(&header).unwrap(), toy::body(round));
        }
    }
}

#[test]
fn a_changed_snapshot_is_found_by_its_digests() {
    let temp = tempfile::tempdir().unwrap();
    filled(temp.path());
    let path = folder(temp.path()).join("snapshots/0000000004/00000002");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut store = store_at(temp.path());
    assert_eq!(store.newest_snapshot(Round::MAX).unwrap(), Some(2));
    assert!(store.warnings()[0].contains("does not have its digest"));
    assert_eq!(store.snapshot_rounds(), [2].into());
    fs::write(folder(temp.path()).join("snapshots/0000000002/00000000"), [0; 300]).unwrap();
    assert_eq!(store.newest_snapshot(Round::MAX).unwrap(), None, "sync takes over");
}

#[test]
fn a_snapshot_that_is_not_the_chains_is_discarded() {
    let temp = tempfile::tempdir().unwrap();
    filled(temp.path());
    let dir = folder(temp.path()).join("snapshots");
    fs::rename(dir.join("0000000004"), dir.join("0000000005")).unwrap();
    let store = store_at(temp.path());
    assert_eq!(store.snapshot_rounds(), [2].into());
}

#[test]
fn a_damaged_body_is_removed_so_that_it_is_fetched_again() {
    let temp = tempfile::tempdir().unwrap();
    filled(temp.path());
    let mut store = store_at(temp.path());
    let header = store.header(6).unwrap();
    let path = folder(temp.path()).join(format!("bodies/{:010}-{}", 6, header.body));
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(store.has_body(&header));
    assert!(matches!(store.body(&header), Err(StoreError::Damaged { .. })));
    assert!(!store.has_body(&header) && !path.exists());
    fs::write(
        folder(temp.path()).join(format!("bodies/{:010}-{}", 5, store.header(5).unwrap().body)),
        b"x",
    )
    .unwrap();
    drop(store);
    let store = store_at(temp.path());
    assert!(!store.has_body(&store.header(5).unwrap()), "a cut one is found on open");
}

#[test]
fn rolling_back_forgets_what_came_later() {
    let temp = tempfile::tempdir().unwrap();
    filled(temp.path());
    let mut store = store_at(temp.path());
    store.roll_back(3).unwrap();
    assert_eq!(store.head().round, 3);
    assert_eq!(store.snapshot_rounds(), [2].into());
    drop(store);
    let mut store = store_at(temp.path());
    assert_eq!((store.head().round, store.warnings().len()), (3, 0));
    toy::commit(&mut store, &toy::chain(4)[3]).unwrap();
    store.roll_back(0).unwrap();
    assert_eq!(store.head().round, 0);
    toy::commit(&mut store, &toy::chain(1)[0]).unwrap();
}

#[test]
fn old_snapshots_and_bodies_go() {
    let temp = tempfile::tempdir().unwrap();
    let mut store = store_at(temp.path());
    for certificate in toy::chain(100) {
        toy::commit(&mut store, &certificate).unwrap();
        let round = certificate.header.round;
        if round % 10 == 0 {
            toy::snapshot(&mut store, round).unwrap();
        }
    }
    // 10 to 70 waited for a pair 64 rounds apart; 10 and 80 are one, 80 will be the next older.
    assert_eq!(store.snapshot_rounds(), [10, 80, 100].into());
    let kept = |round: Round| store.has_body(&store.header(round).unwrap());
    assert!(!kept(10) && kept(11) && kept(100));
    let names = fs::read_dir(folder(temp.path()).join("bodies")).unwrap().count();
    assert_eq!(names, 2 * 90);
}
