//! Keys and signatures. A node's ed25519 key is its name here and in libp2p.
//!
//! Every signature covers a domain string that names protocol and version, so that bytes signed
//! for one purpose are worth nothing for another.

use std::fmt;

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::base::NodeId;

/// A node's secret key. Never printed, never serialised except by [`Identity::to_bytes`].
#[derive(Clone)]
pub struct Identity(SigningKey);

impl Identity {
    /// The identity of 32 secret bytes.
    pub fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(secret))
    }

    /// The secret bytes, for the key file.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The public name.
    pub fn node_id(&self) -> NodeId {
        NodeId(self.0.verifying_key().to_bytes())
    }

    /// Signs `message` for `domain`.
    pub fn sign(&self, domain: &str, message: &[u8]) -> Signature {
        Signature(self.0.sign(&framed(domain, message)).to_bytes())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.node_id().short())
    }
}

/// An ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub [u8; 64]);

/// A signature does not fit its signer, domain and message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature by {signer} does not fit")]
pub struct BadSignature {
    /// Who is said to have signed.
    pub signer: NodeId,
}

impl Signature {
    /// Checks that `signer` signed `message` for `domain`. Strict: small-order keys are refused.
    pub fn verify(&self, signer: NodeId, domain: &str, message: &[u8]) -> Result<(), BadSignature> {
        let bad = BadSignature { signer };
        let key = VerifyingKey::from_bytes(signer.as_bytes()).map_err(|_| bad)?;
        let signature = ed25519_dalek::Signature::from_bytes(&self.0);
        key.verify_strict(&framed(domain, message), &signature).map_err(|_| bad)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({})", hex::encode(&self.0[..5]))
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&hex::encode(self.0))
        } else {
            // Serde has no impl for 64-byte arrays; two of 32 bytes carry no length on the wire.
            let mut halves = [[0u8; 32]; 2];
            halves[0].copy_from_slice(&self.0[..32]);
            halves[1].copy_from_slice(&self.0[32..]);
            halves.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut bytes = [0; 64];
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            hex::decode_to_slice(text, &mut bytes).map_err(D::Error::custom)?;
        } else {
            let halves = <[[u8; 32]; 2]>::deserialize(deserializer)?;
            bytes[..32].copy_from_slice(&halves[0]);
            bytes[32..].copy_from_slice(&halves[1]);
        }
        Ok(Self(bytes))
    }
}

fn framed(domain: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(domain.len() + 1 + message.len());
    bytes.extend_from_slice(domain.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(message);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_binds_signer_domain_and_message() {
        let me = Identity::from_bytes(&[7; 32]);
        let other = Identity::from_bytes(&[8; 32]);
        let signature = me.sign("dilocox/test/1", b"hello");
        assert!(signature.verify(me.node_id(), "dilocox/test/1", b"hello").is_ok());
        assert!(signature.verify(me.node_id(), "dilocox/test/2", b"hello").is_err());
        assert!(signature.verify(me.node_id(), "dilocox/test/1", b"hellp").is_err());
        assert!(signature.verify(other.node_id(), "dilocox/test/1", b"hello").is_err());
    }

    #[test]
    fn the_secret_is_not_printed() {
        let me = Identity::from_bytes(&[7; 32]);
        assert!(!format!("{me:?}").contains(&hex::encode([7; 4])));
    }
}
