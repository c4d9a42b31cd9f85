//! What peers are answered.

use super::toy;
use crate::{
    base::{Digest, RunId, limits::MAX_REPLY_BYTES},
    config::FoundedManifest,
    wire::{
        blob::BlobIndex,
        fetch::{Reply, Request},
    },
};

#[test]
fn every_request_of_the_run_is_answered() {
    let temp = tempfile::tempdir().unwrap();
    let (_dir, mut store) = toy::open(temp.path(), toy::quick()).unwrap();
    let chain = toy::chain(70);
    for certificate in &chain {
        toy::commit(&mut store, certificate).unwrap();
    }
    toy::snapshot(&mut store, 5).unwrap();
    let (server, run) = (store.server(), store.run());
    let ask = |request: Request| {
        let reply = server.reply(&request);
        assert!(reply.to_bytes().len() <= MAX_REPLY_BYTES);
        reply
    };
    let Reply::Manifest(bytes) = ask(Request::Manifest(run)) else { panic!() };
    assert_eq!(FoundedManifest::from_bytes(&bytes, Some(run)).unwrap(), toy::manifest());
    let Reply::Chain(page) = ask(Request::Chain { run, from: 1 }) else { panic!() };
    assert_eq!(&page[..], &chain[..64]);
    let Reply::Chain(page) = ask(Request::Chain { run, from: 65 }) else { panic!() };
    assert_eq!(&page[..], &chain[64..]);
    for from in [0, 71, u64::MAX] {
        let Reply::Chain(page) = ask(Request::Chain { run, from }) else { panic!() };
        assert!(page.is_empty());
    }
    let Reply::Snapshots(offers) = ask(Request::Snapshots(run)) else { panic!() };
    assert_eq!(offers.len(), 1);
    let Reply::BlobIndex(index) = ask(Request::BlobIndex(offers[0].index)) else { panic!() };
    assert_eq!(index, BlobIndex::of(&toy::index(5)).unwrap());
    let chunk = Request::BlobChunk { blob: offers[0].index, chunk: 0 };
    assert_eq!(ask(chunk), Reply::Bytes(toy::index(5).try_into().unwrap()));
    let leaf = Request::SnapshotLeaf { run, round: 5, leaf: 4 };
    assert_eq!(ask(leaf), Reply::Bytes(toy::leaves(5)[4].clone().try_into().unwrap()));
    let body = Request::BlobChunk { blob: chain[69].header.body, chunk: 0 };
    assert_eq!(ask(body), Reply::Bytes(toy::body(70).try_into().unwrap()));
    assert!(matches!(ask(Request::BlobIndex(chain[69].header.body)), Reply::BlobIndex(_)));
}

#[test]
fn what_is_not_there_is_not_found() {
    let temp = tempfile::tempdir().unwrap();
    let (_dir, mut store) = toy::open(temp.path(), toy::quick()).unwrap();
    toy::commit(&mut store, &toy::chain(1)[0]).unwrap();
    let (run, other) = (store.run(), RunId([7; 32]));
    let body = toy::chain(1)[0].header.body;
    for request in [
        Request::Runs,
        Request::Manifest(other),
        Request::Chain { run: other, from: 1 },
        Request::Snapshots(other),
        Request::SnapshotLeaf { run: other, round: 1, leaf: 0 },
        Request::SnapshotLeaf { run, round: 1, leaf: 0 },
        Request::BlobIndex(Digest([7; 32])),
        Request::BlobChunk { blob: Digest([7; 32]), chunk: 0 },
        Request::BlobChunk { blob: body, chunk: 1 },
        Request::BlobChunk { blob: body, chunk: u32::MAX },
    ] {
        assert_eq!(store.server().reply(&request), Reply::NotFound, "{request:?}");
    }
}

#[test]
fn a_damaged_file_is_never_served() {
    let temp = tempfile::tempdir().unwrap();
    let (_dir, mut store) = toy::open(temp.path(), toy::quick()).unwrap();
    let run = store.run();
    for certificate in toy::chain(6) {
        toy::commit(&mut store, &certificate).unwrap();
    }
    toy::snapshot(&mut store, 5).unwrap();
    let folder = temp.path().join("runs").join(run.to_string());
    std::fs::write(folder.join("snapshots/0000000005/00000001"), [9; 300]).unwrap();
    let header = store.header(6).unwrap();
    let body = folder.join(format!("bodies/{:010}-{}", 6, header.body));
    std::fs::write(body, vec![1; header.body_bytes as usize]).unwrap();
    let server = store.server();
    let leaf = Request::SnapshotLeaf { run, round: 5, leaf: 1 };
    assert_eq!(server.reply(&leaf), Reply::NotFound);
    let chunk = Request::BlobChunk { blob: header.body, chunk: 0 };
    assert_eq!(server.reply(&chunk), Reply::NotFound);
}
