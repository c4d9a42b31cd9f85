//! Data files by content.

use std::{fs, sync::Arc};

use super::Fault;
use crate::{
    base::{Digest, limits::BLOB_CHUNK_BYTES},
    checkpoint::store::{BlobStore, Disk, StoreError},
    wire::blob::BlobIndex,
};

fn text() -> Vec<u8> {
    (0..2 * BLOB_CHUNK_BYTES + 1000).map(|i| (i / 7) as u8).collect()
}

#[test]
fn a_file_is_imported_and_its_original_may_change() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("story.txt");
    fs::write(&file, text()).unwrap();
    let store = BlobStore::open(&Disk::default(), &temp.path().join("blobs"), None).unwrap();
    let blob = store.import_file(&file).unwrap();
    assert_eq!(store.import_file(&file).unwrap(), blob);
    assert_eq!((blob.name.as_str(), blob.bytes), ("story.txt", text().len() as u64));
    assert_eq!(blob.digest, BlobIndex::of(&text()).unwrap().digest());
    fs::write(&file, b"edited").unwrap();
    let store = BlobStore::open(&Disk::default(), &temp.path().join("blobs"), None).unwrap();
    assert_eq!(fs::read(store.path(blob.digest).unwrap()).unwrap(), text());
    assert_eq!(store.get_chunk(blob.digest, 2).unwrap().len(), 1000);
    assert!(store.complete(blob.digest).unwrap());
}

#[test]
fn a_fetched_blob_resumes_with_the_chunks_it_has() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, index) = (text(), BlobIndex::of(&text()).unwrap());
    let (digest, chunk) = (index.digest(), |i: usize| {
        let start = i * BLOB_CHUNK_BYTES;
        bytes[start..bytes.len().min(start + BLOB_CHUNK_BYTES)].to_vec()
    });
    let store = BlobStore::open(&Disk::default(), temp.path(), None).unwrap();
    assert!(store.begin(Digest([1; 32]), index.clone()).is_err());
    store.begin(digest, index.clone()).unwrap();
    store.put_chunk(digest, 2, &chunk(2)).unwrap();
    assert!(matches!(store.put_chunk(digest, 0, &chunk(1)), Err(StoreError::WrongBytes { .. })));
    assert!(matches!(store.put_chunk(digest, 9, &chunk(1)), Err(StoreError::WrongBytes { .. })));
    assert!(!store.complete(digest).unwrap());
    assert!(store.get_chunk(digest, 0).is_err());
    assert_eq!(store.get_chunk(digest, 2).unwrap(), chunk(2), "served before it is complete");
    let store = BlobStore::open(&Disk::default(), temp.path(), None).unwrap();
    assert_eq!(store.missing(digest), Some([0, 1].into()));
    store.put_chunk(digest, 0, &chunk(0)).unwrap();
    store.put_chunk(digest, 1, &chunk(1)).unwrap();
    assert!(!store.is_complete(digest));
    assert!(store.complete(digest).unwrap());
    assert_eq!(fs::read(store.path(digest).unwrap()).unwrap(), bytes);
}

#[test]
fn the_limit_is_kept_and_says_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("story.txt");
    fs::write(&file, text()).unwrap();
    let dir = temp.path().join("blobs");
    let store = BlobStore::open(&Disk::default(), &dir, Some(text().len() as u64 + 10)).unwrap();
    store.import_file(&file).unwrap();
    let index = BlobIndex::of(&[5; 11]).unwrap();
    let error = store.begin(index.digest(), index).unwrap_err();
    assert!(error.is_full() && error.to_string().contains("--disk-limit"), "{error}");
    let index = BlobIndex::of(&[5; 10]).unwrap();
    store.begin(index.digest(), index).unwrap();
    assert_eq!(store.bytes(), text().len() as u64 + 10);
}

#[test]
fn an_import_that_fails_at_any_step_leaves_nothing() {
    for step in 1.. {
        let temp = tempfile::tempdir().unwrap();
        let (file, dir) = (temp.path().join("story.txt"), temp.path().join("blobs"));
        fs::write(&file, vec![3; 5000]).unwrap();
        let disk = Disk::faulty(Arc::new(Fault::crash_at(step)));
        let imported = BlobStore::open(&disk, &dir, None).and_then(|s| s.import_file(&file));
        let store = BlobStore::open(&Disk::default(), &dir, None).unwrap();
        let digest = BlobIndex::of(&[3; 5000]).unwrap().digest();
        assert!(imported.is_err() || store.is_complete(digest), "step {step}");
        assert!(
            !fs::read_dir(&dir).unwrap().any(|entry| {
                entry.unwrap().file_name().to_string_lossy().ends_with(".importing")
            })
        );
        assert_eq!(store.import_file(&file).unwrap().digest, digest);
        if imported.is_ok() {
            return;
        }
    }
}
