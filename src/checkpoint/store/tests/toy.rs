//! A small run: its manifest, certificates by its founder, a toy state.

use std::path::Path;

use crate::{
    base::{Bitmap, Bounded, Digest, Round},
    checkpoint::store::{BlobStore, DataDir, Disk, RunStore, StoreError},
    config::{EMBEDDED_RUN, FoundedManifest, Founding, Manifest},
    identity::Identity,
    proto::sync::{IndexReader, LeafRef, LeafTable},
    wire::{Certificate, Header, Member, Vote, blob::BlobIndex, codec, domain, vote_bytes},
};

pub(super) fn founder() -> Identity {
    Identity::from_bytes(&[3; 32])
}

pub(super) fn manifest() -> FoundedManifest {
    let founding = Founding {
        manifest: Manifest::from_toml(EMBEDDED_RUN).unwrap(),
        founder: founder().node_id(),
        created: 1_800_000_000,
        nonce: [9; 16],
        data: Bounded::new(),
    };
    FoundedManifest::found(founding, &founder())
}

pub(super) fn body(round: Round) -> Vec<u8> {
    vec![round as u8; 500 + round as usize]
}

/// The state after a round: a few leaves.
pub(super) fn leaves(round: Round) -> Vec<Vec<u8>> {
    (0..5).map(|leaf| vec![(round as u8).wrapping_mul(10).wrapping_add(leaf); 300]).collect()
}

pub(super) fn index(round: Round) -> Vec<u8> {
    let list: Vec<(Digest, u32)> =
        leaves(round).iter().map(|leaf| (Digest::of(leaf), leaf.len() as u32)).collect();
    codec::encode(&(round, list))
}

pub(super) fn root(round: Round) -> Digest {
    Digest::of(&index(round))
}

pub(super) fn reader() -> IndexReader {
    IndexReader::new(|round, bytes| {
        let (of, list): (Round, Vec<(Digest, u32)>) =
            codec::decode::<_, 10_000>(bytes).map_err(|e| e.to_string())?;
        if of != round {
            return Err("it is of another round".to_owned());
        }
        let leaves = list.into_iter().map(|(digest, bytes)| LeafRef { digest, bytes }).collect();
        Ok(LeafTable { root: Digest::of(bytes), leaves })
    })
}

/// Certificates of rounds 1 to `rounds`.
pub(super) fn chain(rounds: Round) -> Vec<Certificate> {
    let manifest = manifest();
    let mut parent = Header::genesis(&manifest);
    let mut chain = Vec::new();
    for round in 1..=rounds {
        let bytes = body(round);
        let member = Member { node: founder().node_id(), weight: 4, omega: 256, lease: 8 };
        let header = Header {
            round,
            parent: parent.digest(),
            voters: Bitmap::full(1),
            members: vec![member].try_into().unwrap(),
            cursor: parent.cursor_after(),
            body_bytes: bytes.len() as u64,
            body: BlobIndex::of(&bytes).unwrap().digest(),
            root_before: root(round - 1),
            weight: parent.weight + 4,
            ..parent
        };
        let signed = vote_bytes(manifest.run_id(), round, 0, header.digest());
        let signature = founder().sign(domain::VOTE, &signed);
        let vote = Vote { voter: founder().node_id(), signature };
        parent = header.clone();
        chain.push(Certificate { header, attempt: 0, votes: vec![vote].try_into().unwrap() });
    }
    chain
}

/// A disk that tests need not wait for.
pub(super) fn quick() -> Disk {
    Disk::faulty(std::sync::Arc::new(super::Fault::never()))
}

/// Opens the toy run in a directory.
pub(super) fn open(path: &Path, disk: Disk) -> Result<(DataDir, RunStore), StoreError> {
    let dir = DataDir::open_with(Some(path.to_owned()), disk)?;
    let blobs: BlobStore = dir.blobs(None)?;
    let store = dir.create_run(&manifest(), reader(), blobs)?;
    Ok((dir, store))
}

/// Writes the state after a round as a snapshot.
pub(super) fn snapshot(store: &mut RunStore, round: Round) -> Result<(), StoreError> {
    let writer = store.begin_snapshot(round)?;
    for (leaf, bytes) in leaves(round).iter().enumerate() {
        writer.put_leaf(leaf as u32, bytes)?;
    }
    writer.finish(&index(round))?;
    store.adopt_snapshot(round).map(drop)
}

/// Stores the round's body and then its certificate.
pub(super) fn commit(store: &mut RunStore, certificate: &Certificate) -> Result<(), StoreError> {
    let round = certificate.header.round;
    store.store_body(round, &body(round))?;
    store.append_certificate(certificate)
}
