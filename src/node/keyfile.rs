//! The node's key file: 32 secret bytes, readable by its owner alone, made when it is missing.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use crate::{base::NodeId, identity::Identity, node::NodeError};

/// Name of the key file in a data directory.
const NAME: &str = "identity.key";

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NodeError {
    let path = path.to_owned();
    move |source| NodeError::File { action, path, source }
}

/// The identity kept in `dir`, made there if it is missing.
///
/// # Errors
/// If the file cannot be read or written, or is no key.
pub fn load_or_create_identity(dir: &Path) -> Result<Identity, NodeError> {
    let path = dir.join(NAME);
    match fs::read(&path) {
        Ok(bytes) => parse(&bytes, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(dir, &path),
        Err(error) => Err(file_error("read", &path)(error)),
    }
}

fn parse(bytes: &[u8], path: PathBuf) -> Result<Identity, NodeError> {
    let secret = bytes.try_into().map_err(|_| NodeError::Failed {
        what: format!("{} is no key file: {} bytes, not 32", path.display(), bytes.len()),
        help: "restore it from a backup, or move it away and the node makes a new identity".into(),
    })?;
    Ok(Identity::from_bytes(secret))
}

/// Writes a new key beside its place, then gives it its name: never half a key, never another
/// process's key replaced.
fn create(dir: &Path, path: &Path) -> Result<Identity, NodeError> {
    fs::create_dir_all(dir).map_err(file_error("create", dir))?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| NodeError::Failed {
        what: format!("the system gives no randomness for a key: {error}"),
        help: "check /dev/urandom".into(),
    })?;
    // A temporary file is made with mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(file_error("create", path))?;
    file.write_all(&secret)
        .and_then(|()| file.as_file().sync_all())
        .map_err(file_error("write", path))?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(Identity::from_bytes(&secret)),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            load_or_create_identity(dir)
        }
        Err(error) => Err(file_error("write", path)(error.error)),
    }
}

/// A node's id as libp2p writes it: base58 of the identity multihash of its protobuf key.
pub fn peer_id_text(node: NodeId) -> String {
    let mut bytes = vec![0x00, 0x24, 0x08, 0x01, 0x12, 0x20];
    bytes.extend_from_slice(node.as_bytes());
    base58(&bytes)
}

fn base58(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut digits: Vec<u8> = Vec::new();
    for &byte in bytes {
        let mut carry = u32::from(byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 58) as u8;
            carry /= 58;
        }
        while carry > 0 {
            digits.push((carry % 58) as u8);
            carry /= 58;
        }
    }
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let ones = std::iter::repeat_n(0, zeros);
    let symbols = ones.chain(digits.into_iter().rev());
    symbols.map(|digit| char::from(ALPHABET[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("deep/er");
        let first = load_or_create_identity(&home).unwrap().node_id();
        assert_eq!(load_or_create_identity(&home).unwrap().node_id(), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(home.join(NAME)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), b"short").unwrap();
        let error = load_or_create_identity(dir.path()).unwrap_err();
        assert!(error.to_string().contains("5 bytes"), "{error}");
        assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), b"short");
    }

    #[test]
    fn a_peer_id_is_written_as_libp2p_writes_it() {
        let text = peer_id_text(Identity::from_bytes(&[7; 32]).node_id());
        assert!(text.starts_with("12D3KooW") && text.len() == 52, "{text}");
        assert_eq!(base58(b"Hello World!"), "2NEpo7TZRRrLZSi2U");
        assert_eq!(base58(&[0, 0, 1]), "112");
    }
}
