//! 32-byte identifiers: digests, nodes, runs. All print and parse as 64 lower-case hex digits.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An id could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id: expected 64 hexadecimal digits")]
pub struct ParseIdError {
    /// What was given, shortened to 80 characters.
    pub text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// The raw bytes.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// The first ten hex digits: enough for people to tell ids apart.
            pub fn short(&self) -> String {
                hex::encode(&self.0[..5])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let mut bytes = [0; 32];
                hex::decode_to_slice(text, &mut bytes)
                    .map_err(|_| ParseIdError { text: text.chars().take(80).collect() })?;
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                } else {
                    <[u8; 32]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

id!(
    /// A blake3 hash.
    Digest
);
id!(
    /// A node: its ed25519 public key, which is its libp2p peer id too.
    NodeId
);
id!(
    /// A run: the blake3 hash of its canonical founded manifest.
    RunId
);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of the concatenation of `parts`, each preceded by its length, so that no two
    /// different lists of parts collide.
    pub fn of_parts<'a>(domain: &'a str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in std::iter::once(domain.as_bytes()).chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse_as_hex() {
        let id = Digest::of(b"dilocox");
        assert_eq!(id.to_string().parse::<Digest>().unwrap(), id);
        assert_eq!(id.to_string().len(), 64);
        assert!("xyz".parse::<NodeId>().is_err());
        assert!(id.to_string()[1..].parse::<RunId>().is_err());
    }

    #[test]
    fn parts_do_not_run_together() {
        let a = Digest::of_parts("t", [b"ab".as_slice(), b"c"]);
        let b = Digest::of_parts("t", [b"a".as_slice(), b"bc"]);
        assert_ne!(a, b);
    }
}
