//! A join from one store to another through the sync machine, interrupted at every effect.

use std::{path::Path, time::Duration};

use super::toy;
use crate::{
    base::{Digest, NodeId, Round, Time},
    checkpoint::store::{RunStore, Server},
    proto::sync::{Effect, Outcome, Sync, SyncConfig, SyncLimits},
    wire::Head,
};

const DONOR: NodeId = NodeId([8; 32]);

fn config(store: &RunStore) -> SyncConfig {
    SyncConfig {
        run: store.run(),
        genesis: store.header(0).unwrap(),
        seed: Digest([1; 32]),
        state_bytes: 1500,
        index: toy::reader(),
        limits: SyncLimits::for_elements(1000),
    }
}

/// Joins until it has caught up or `effects` are carried out; the round that was reached.
fn join(path: &Path, server: &Server, head: Head, effects: usize) -> Option<Round> {
    let (_dir, mut store) = toy::open(path, toy::quick()).unwrap();
    let mut state = store.newest_snapshot(Round::MAX).unwrap().unwrap_or(0);
    let have = store.have(state, Some(toy::root(state))).unwrap();
    let mut sync = Sync::new(config(&store), have);
    let mut now = Time::from_micros(1);
    sync.handle_donor(now, DONOR, head);
    for _ in 0..effects {
        now += Duration::from_millis(1);
        match sync.poll_effect()? {
            Effect::Fetch { id, request, .. } => {
                sync.handle_reply(now, id, Ok(server.reply(&request)));
            }
            Effect::StoreCertificate(certificate) => {
                store.append_certificate(&certificate).unwrap();
            }
            Effect::StoreIndex { round, bytes } => {
                store.store_partial_index(round, &bytes).unwrap()
            }
            Effect::StoreLeaf { round, leaf, bytes } => {
                store.store_partial_leaf(round, leaf, &bytes).unwrap();
            }
            Effect::StoreBody { round, bytes } => drop(store.store_body(round, &bytes).unwrap()),
            Effect::InstallSnapshot { round } => {
                store.finish_partial(round).unwrap();
                let mut leaves = Vec::new();
                let visit = |_, bytes: &[u8]| {
                    leaves.push(bytes.to_vec());
                    Ok(())
                };
                store.load_snapshot(round, visit).unwrap();
                assert_eq!(leaves, toy::leaves(round));
                state = round;
                sync.handle_replayed(now, round, Outcome::Done(toy::root(round)));
            }
            Effect::Fold { round } => {
                assert_eq!(round, state + 1);
                let header = store.header(round).unwrap();
                assert_eq!(store.body(&header).unwrap(), toy::body(round));
                state = round;
                sync.handle_replayed(now, round, Outcome::Done(toy::root(round)));
            }
            Effect::CaughtUp { round } => return Some(round),
            Effect::DropPartial { round } => store.drop_partial(round).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    None
}

#[test]
fn a_join_that_is_interrupted_at_every_effect_resumes() {
    let donor = tempfile::tempdir().unwrap();
    let (_dir, mut store) = toy::open(donor.path(), toy::quick()).unwrap();
    for certificate in toy::chain(30) {
        toy::commit(&mut store, &certificate).unwrap();
    }
    toy::snapshot(&mut store, 25).unwrap();
    let header = store.head();
    let head = Head { round: header.round, digest: header.digest(), weight: header.weight };
    for effects in 1.. {
        let joiner = tempfile::tempdir().unwrap();
        let first = join(joiner.path(), &store.server(), head, effects);
        assert_eq!(join(joiner.path(), &store.server(), head, 10_000), Some(30), "{effects}");
        let (_dir, mut joined) = toy::open(joiner.path(), toy::quick()).unwrap();
        assert_eq!(joined.head().round, 30);
        assert_eq!(joined.newest_snapshot(30).unwrap(), Some(25));
        assert!(joined.warnings().is_empty(), "{:?}", joined.warnings());
        if first.is_some() {
            return;
        }
    }
}
