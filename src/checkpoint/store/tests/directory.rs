//! Lock, key, boot counter, peers, runs.

use std::fs;

use super::toy;
use crate::checkpoint::store::{DataDir, Disk, StoreError};

#[test]
fn a_directory_is_used_by_one_node_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let first = DataDir::open(Some(temp.path().join("a/b"))).unwrap();
    let error = DataDir::open(Some(temp.path().join("a/b"))).unwrap_err();
    let StoreError::Locked { dir, holder } = &error else { panic!("{error}") };
    assert_eq!(dir, first.path());
    assert_eq!(holder, &format!("process {}", std::process::id()));
    assert!(error.to_string().contains("--data-dir"), "{error}");
    drop(first);
    DataDir::open(Some(temp.path().join("a/b"))).unwrap();
}

#[test]
fn the_key_stays_and_only_its_owner_can_read_it() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(Some(temp.path().to_owned())).unwrap();
    let id = dir.identity().unwrap().node_id();
    assert_eq!(dir.identity().unwrap().node_id(), id);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let key = temp.path().join("identity.key");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o640, 0o604, 0o644] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let error = dir.identity().unwrap_err();
            assert!(matches!(error, StoreError::KeyPermissions { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&key, [1; 31]).unwrap();
        assert!(matches!(dir.identity(), Err(StoreError::Damaged { .. })));
    }
}

#[test]
fn a_leftover_with_open_mode_does_not_spoil_a_new_key() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(Some(temp.path().to_owned())).unwrap();
    fs::write(temp.path().join("identity.key.tmp"), [1; 7]).unwrap();
    dir.identity().unwrap();
    dir.identity().unwrap();
}

#[test]
fn every_boot_has_a_greater_number() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(Some(temp.path().to_owned())).unwrap();
    let first = dir.next_boot().unwrap();
    let second = dir.next_boot().unwrap();
    assert!(second > first);
    let bytes = fs::read(temp.path().join("boot")).unwrap();
    for len in 0..bytes.len() {
        fs::write(temp.path().join("boot"), &bytes[..len]).unwrap();
        assert!(dir.next_boot().unwrap() >= first, "cut at {len}");
    }
}

#[test]
fn peers_are_remembered_within_bounds() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(Some(temp.path().to_owned())).unwrap();
    assert!(dir.peers().is_empty());
    let mut peers: Vec<String> = (0..300).map(|i| format!("/ip4/10.0.0.1/tcp/{i}")).collect();
    peers[1] = "/dns/with\nbreak".to_owned();
    dir.store_peers(&peers).unwrap();
    assert_eq!(dir.peers().len(), 256);
    assert!(!dir.peers().iter().any(|peer| peer.contains("dns")));
    fs::write(temp.path().join("peers"), [0xff; 100]).unwrap();
    assert!(dir.peers().is_empty());
}

#[test]
fn runs_are_listed_and_their_manifests_checked() {
    let temp = tempfile::tempdir().unwrap();
    let run = toy::manifest().run_id();
    let (dir, store) = toy::open(temp.path(), Disk::default()).unwrap();
    assert_eq!(store.run(), run);
    fs::create_dir_all(temp.path().join("runs/not-a-run")).unwrap();
    assert_eq!(dir.runs().unwrap(), [run]);
    assert_eq!(dir.manifest(run).unwrap(), toy::manifest());
    let path = temp.path().join("runs").join(run.to_string()).join("manifest");
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(dir.manifest(run), Err(StoreError::Damaged { .. })));
}
