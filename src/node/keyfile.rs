//! A node's name, for who only asks: also while the node is running.

use std::{fs, path::Path};

use crate::{
    base::NodeId,
    checkpoint::store::{DataDir, StoreError},
    identity::Identity,
    net,
    node::NodeError,
};

/// The identity kept in `dir`, made there if it is missing. A directory that a running node has
/// locked is read all the same.
///
/// # Errors
/// If the key cannot be read or written, others can read it, or it is damaged.
pub fn load_or_create_identity(dir: &Path) -> Result<Identity, NodeError> {
    match DataDir::open(Some(dir.to_owned())) {
        Err(locked @ StoreError::Locked { .. }) => {
            let path = dir.join("identity.key");
            let secret = fs::read(path).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            secret.map(|secret| Identity::from_bytes(&secret)).ok_or_else(|| locked.into())
        }
        opened => Ok(opened?.identity()?),
    }
}

/// A node's id as libp2p writes it.
pub fn peer_id_text(node: NodeId) -> String {
    net::peer_id_text(node).unwrap_or_else(|_| node.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once_and_told_beside_a_running_node() {
        let dir = tempfile::tempdir().unwrap();
        let first = load_or_create_identity(dir.path()).unwrap().node_id();
        let running = DataDir::open(Some(dir.path().to_owned())).unwrap();
        assert_eq!(load_or_create_identity(dir.path()).unwrap().node_id(), first);
        drop(running);
        assert!(peer_id_text(first).starts_with("12D3KooW"));
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.key");
        load_or_create_identity(dir.path()).unwrap();
        fs::write(&path, b"short").unwrap();
        assert!(load_or_create_identity(dir.path()).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"short");
    }
}
