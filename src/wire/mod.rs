//! The wire specification, version 1.
//!
//! | carrier | content | bound |
//! |---|---|---|
//! | gossip topic `dilocox/1/<run>` | [`Envelope`] | [`MAX_CONTROL_BYTES`](crate::base::limits::MAX_CONTROL_BYTES) |
//! | direct message | [`Envelope`] | the same |
//! | request and reply | [`fetch::Request`], [`fetch::Reply`] | [`MAX_REPLY_BYTES`](crate::base::limits::MAX_REPLY_BYTES) |
//! | bulk stream | [`BulkHello`], then [`Frame`]s | [`MAX_FRAME_WIRE_BYTES`](crate::base::limits::MAX_FRAME_WIRE_BYTES) |
//!
//! Every value has one encoding ([`codec`]). An enum's tag is its position; the tables of tags are
//! pinned by tests, and a tag is never used again for something else. Signatures cover a domain
//! string ([`domain`]) that names protocol and version.
//!
//! Lists are [`Bounded`](crate::base::Bounded): a longer one is refused while it is being decoded.

pub mod blob;
pub mod codec;
mod envelope;
pub mod fetch;
mod frame;
mod ledger;
mod message;
#[cfg(test)]
mod tests;

pub use envelope::{Envelope, EnvelopeError};
pub use frame::{
    BulkHello, Frame, FrameError, FrameHeader, HopProof, JobId, JobKind, JobPhase, Pass,
};
pub(crate) use ledger::electorate;
pub use ledger::{
    Certificate, CertificateError, Guest, Header, Member, MemberSet, Vote, member_set_digest,
    vote_bytes,
};
pub use message::{Finished, Head, Message, Plan, Presence, Ready, Refusal, SignedHeader, Status};

/// Version of this specification; the protocols' names carry it too.
pub const VERSION: u16 = 1;

/// Domain strings of everything that is signed.
pub mod domain {
    /// Control messages.
    pub const ENVELOPE: &str = "dilocox/envelope/1";
    /// A voter's signature on a header.
    pub const VOTE: &str = "dilocox/vote/1";
    /// A partial sum handed to the next member.
    pub const HOP: &str = "dilocox/hop/1";
    /// A finished chunk, by its owner.
    pub const CHUNK: &str = "dilocox/chunk/1";
    /// The hello of a bulk stream.
    pub const BULK: &str = "dilocox/bulk/1";
}
