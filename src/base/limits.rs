//! Every bound on what a stranger can send, with its reason.

/// Members of one exchange: one word of a bitmap; larger runs exchange on two levels.
pub const MAX_MEMBERS: usize = 64;
/// Distinct member sets in a header: deaths fall into few groups, and a header stays small.
pub const MAX_MEMBER_SETS: usize = 16;
/// Ballots of one round: they fit one byte. From the eighth on nothing is exchanged, so that many
/// more mean that the voters do not agree who is alive; a round cannot be given up without them.
pub const MAX_ATTEMPTS: u8 = 250;
/// Bytes of one control message (plans and certificates of 64 members fit twice).
pub const MAX_CONTROL_BYTES: usize = 32 * 1024;
/// Bytes of a header on the wire.
pub const MAX_HEADER_BYTES: usize = 4 * 1024;
/// Bytes of one ring frame's payload.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;
/// Bytes of a ring frame with its header.
pub const MAX_FRAME_WIRE_BYTES: usize = MAX_FRAME_BYTES + 1024;
/// Bytes of a founded manifest: a page of TOML and the list of its blobs.
pub const MAX_MANIFEST_BYTES: usize = 256 * 1024;
/// Bytes of one reply to a fetch: one blob chunk and its envelope.
pub const MAX_REPLY_BYTES: usize = 1024 * 1024 + 4096;
/// Bytes of one chunk of a blob: small enough to lose, large enough to fill a link.
pub const BLOB_CHUNK_BYTES: usize = 1024 * 1024;
/// Certificates in one reply: each is at most a header and 64 signatures of 96 bytes.
pub const MAX_CHAIN_PAGE: usize = 64;
/// Peers in a roster; presence of more is ignored, since an exchange takes 64 of them at a time.
pub const MAX_ROSTER: usize = 4096;
/// Addresses of a peer that are kept.
pub const MAX_ADDRESSES: usize = 16;
/// Characters of an address or a name in a message.
pub const MAX_TEXT: usize = 256;
/// Fragments of a model: an embedding, a head, and as many blocks as the deepest published models have, with room.
pub const MAX_FRAGMENTS: usize = 1024;
/// Tensors of a fragment.
pub const MAX_TENSORS: usize = 64;
/// Buckets of a round, over all fragments.
pub const MAX_BUCKETS: usize = 65_536;
/// Data blobs named by a manifest.
pub const MAX_DATA_BLOBS: usize = 1024;
