//! The signed wrapper of every control message.

use serde::{Deserialize, Serialize};

use crate::{
    base::{NodeId, RunId, limits},
    identity::{BadSignature, Identity, Signature},
    wire::{
        Message, VERSION,
        codec::{self, DecodeError},
        domain,
    },
};

/// A control message with its author. A receiver drops what it has seen before: `boot` grows with
/// every start of the author's process and is stored before use, `sequence` with every message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// [`VERSION`] of the author.
    pub version: u16,
    /// The run that the message belongs to.
    pub run: RunId,
    /// Who signs.
    pub author: NodeId,
    /// Start counter of the author's process.
    pub boot: u64,
    /// Number of the message within this boot, from 1.
    pub sequence: u64,
    /// What is said.
    pub message: Message,
    /// Over everything above.
    pub signature: Signature,
}

/// An envelope that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The bytes are malformed or too many.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The author speaks another version.
    #[error("a peer speaks wire version {theirs}, this node {VERSION}: upgrade the older one")]
    Version {
        /// The author's version.
        theirs: u16,
    },
    /// The message belongs to another run.
    #[error("the message belongs to run {0}")]
    OtherRun(RunId),
    /// The signature does not fit.
    #[error(transparent)]
    Signature(#[from] BadSignature),
}

impl Envelope {
    /// Signs a message.
    pub fn seal(
        identity: &Identity,
        run: RunId,
        boot: u64,
        sequence: u64,
        message: Message,
    ) -> Self {
        let author = identity.node_id();
        let covered = codec::encode(&(VERSION, run, author, boot, sequence, &message));
        let signature = identity.sign(domain::ENVELOPE, &covered);
        Self { version: VERSION, run, author, boot, sequence, message, signature }
    }

    /// The wire form.
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes and verifies an envelope of `run`.
    ///
    /// # Errors
    /// If it is malformed, of another version or run, or its signature does not fit.
    pub fn open(bytes: &[u8], run: RunId) -> Result<Self, EnvelopeError> {
        let version = bytes.get(..2).map_or(VERSION, |v| u16::from_le_bytes([v[0], v[1]]));
        if version != VERSION {
            return Err(EnvelopeError::Version { theirs: version });
        }
        let envelope: Self = codec::decode::<_, { limits::MAX_CONTROL_BYTES }>(bytes)?;
        if envelope.run != run {
            return Err(EnvelopeError::OtherRun(envelope.run));
        }
        let Self { version, run, author, boot, sequence, ref message, signature } = envelope;
        let covered = codec::encode(&(version, run, author, boot, sequence, message));
        signature.verify(author, domain::ENVELOPE, &covered)?;
        Ok(envelope)
    }
}
