//! Node ids, peer ids and the addresses that people type.

use libp2p::{
    Multiaddr, PeerId,
    identity::{PublicKey, ed25519},
    multiaddr::Protocol,
};

use crate::base::NodeId;

/// An address could not be used to reach a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is no multiaddr.
    #[error(
        "`{text}` is not an address: {reason} (an address looks like /ip4/203.0.113.7/tcp/4001/p2p/12D3Koo...)"
    )]
    Malformed {
        /// What was given.
        text: String,
        /// What the parser said.
        reason: String,
    },
    /// The address does not say which node is expected there.
    #[error("`{text}` names no peer: append /p2p/<peer id>, which the other node prints at start")]
    NoPeer {
        /// What was given.
        text: String,
    },
    /// The peer id is not the ed25519 key of a node.
    #[error(
        "`{text}` names a peer whose id is not an ed25519 key: use the id that the other node prints at start (it begins with 12D3Koo)"
    )]
    ForeignPeer {
        /// What was given.
        text: String,
    },
    /// A node id is not a point of the curve, so nobody can hold its key.
    #[error("node {0} is not a valid public key")]
    NotAKey(NodeId),
}

/// The libp2p name of a node; none if the 32 bytes are no public key.
pub(super) fn peer_of(node: NodeId) -> Option<PeerId> {
    let key = ed25519::PublicKey::try_from_bytes(node.as_bytes()).ok()?;
    Some(PublicKey::from(key).to_peer_id())
}

/// The node behind a libp2p name; none for peers with another kind of key.
pub(super) fn node_of(peer: &PeerId) -> Option<NodeId> {
    let hash = peer.as_ref();
    if hash.code() != 0 {
        return None;
    }
    let key = PublicKey::try_decode_protobuf(hash.digest()).ok()?;
    Some(NodeId(key.try_into_ed25519().ok()?.to_bytes()))
}

/// A node's id as people see it: the base58 text after `/p2p/`.
///
/// # Errors
/// If the id is no public key.
pub fn peer_id_text(node: NodeId) -> Result<String, AddressError> {
    peer_of(node).map(|peer| peer.to_base58()).ok_or(AddressError::NotAKey(node))
}

/// `addr` with `/p2p/<node>` at its end, in the place of another peer id if there was one.
///
/// # Errors
/// If the id is no public key.
pub fn multiaddr_with_peer(addr: &Multiaddr, node: NodeId) -> Result<Multiaddr, AddressError> {
    let peer = peer_of(node).ok_or(AddressError::NotAKey(node))?;
    Ok(without_peer(addr.clone()).with(Protocol::P2p(peer)))
}

/// Reads an address with a peer id; the address comes back without it.
///
/// # Errors
/// If the text is no multiaddr, names no peer, or names one whose id is no ed25519 key.
pub fn parse_peer_addr(text: &str) -> Result<(NodeId, Multiaddr), AddressError> {
    let malformed = |reason: String| AddressError::Malformed { text: text.to_owned(), reason };
    if text.trim().is_empty() {
        return Err(malformed("it is empty".to_owned()));
    }
    let parsed = text.trim().parse::<Multiaddr>();
    split_peer(&parsed.map_err(|error| malformed(error.to_string()))?)
}

/// Splits an address that ends in a peer id.
///
/// # Errors
/// If it names no peer, or one whose id is no ed25519 key.
pub fn split_peer(addr: &Multiaddr) -> Result<(NodeId, Multiaddr), AddressError> {
    let mut rest = addr.clone();
    match rest.pop() {
        Some(Protocol::P2p(peer)) => {
            let node = node_of(&peer)
                .ok_or_else(|| AddressError::ForeignPeer { text: addr.to_string() })?;
            Ok((node, rest))
        }
        _ => Err(AddressError::NoPeer { text: addr.to_string() }),
    }
}

/// The address without a peer id at its end.
pub(super) fn without_peer(mut addr: Multiaddr) -> Multiaddr {
    if matches!(addr.iter().last(), Some(Protocol::P2p(_))) {
        addr.pop();
    }
    addr
}

/// The IP address at an address's head.
pub(super) fn ip_of(addr: &Multiaddr) -> Option<std::net::IpAddr> {
    match addr.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    }
}

/// The TCP port of an address.
pub(super) fn tcp_port_of(addr: &Multiaddr) -> Option<u16> {
    addr.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    })
}

/// The address with another TCP port.
pub(super) fn with_tcp_port(addr: &Multiaddr, port: u16) -> Multiaddr {
    addr.iter()
        .map(|part| match part {
            Protocol::Tcp(_) => Protocol::Tcp(port),
            other => other,
        })
        .collect()
}

/// Whether an address that a peer claims is worth dialling, given the address it was seen at:
/// loopback addresses only lead to a peer on this machine.
pub(super) fn usable(claimed: &Multiaddr, seen: &Multiaddr) -> bool {
    match ip_of(claimed) {
        Some(ip) if ip.is_unspecified() => false,
        Some(ip) if ip.is_loopback() => ip_of(seen).is_some_and(|seen| seen.is_loopback()),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    fn node() -> NodeId {
        Identity::from_bytes(&[7; 32]).node_id()
    }

    #[test]
    fn node_ids_and_peer_ids_are_the_same_key() {
        let peer = peer_of(node()).unwrap();
        assert_eq!(node_of(&peer), Some(node()));
        assert!(peer.to_base58().starts_with("12D3Koo"));
    }

    #[test]
    fn an_address_with_its_peer_reads_back() {
        let addr: Multiaddr = "/ip4/127.0.0.1/tcp/4001".parse().unwrap();
        let full = multiaddr_with_peer(&addr, node()).unwrap();
        assert_eq!(parse_peer_addr(&full.to_string()).unwrap(), (node(), addr.clone()));
        assert_eq!(multiaddr_with_peer(&full, node()).unwrap(), full);
    }

    #[test]
    fn bad_addresses_say_what_to_do() {
        let no_peer = parse_peer_addr("/ip4/127.0.0.1/tcp/4001").unwrap_err().to_string();
        assert!(no_peer.contains("names no peer: append /p2p/"), "{no_peer}");
        for text in ["127.0.0.1:4001", "", "/ip4/300.0.0.1/tcp/1", "/ip4/1.2.3.4/tcp/1/p2p/xyz"] {
            let error = parse_peer_addr(text).unwrap_err();
            assert!(matches!(error, AddressError::Malformed { .. }), "{text}: {error}");
        }
        let foreign = "/ip4/1.2.3.4/tcp/1/p2p/QmcgpsyWgH8Y8ajJz1Cu72KnS5uo2Aa2LpzU7kinSupNKC";
        assert!(matches!(parse_peer_addr(foreign), Err(AddressError::ForeignPeer { .. })));
    }

    #[test]
    fn loopback_claims_count_only_on_this_machine() {
        let addr = |text: &str| text.parse::<Multiaddr>().unwrap();
        let lo = addr("/ip4/127.0.0.1/tcp/1");
        assert!(usable(&lo, &addr("/ip4/127.0.0.1/tcp/9")));
        assert!(!usable(&lo, &addr("/ip4/10.0.0.1/tcp/9")));
        assert!(usable(&addr("/ip4/10.0.0.2/tcp/1"), &addr("/ip4/10.0.0.1/tcp/9")));
        assert!(!usable(&addr("/ip4/0.0.0.0/tcp/1"), &lo));
    }
}
