//! The exchange of one plan at one member: a ring that adds integers.
//!
//! ```text
//!   reduce of chunk c            owner c signs            gather of chunk c
//!   c+1 --1--> c+2 --2--> ... --N-1--> c  ------------------1--> c+1 --2--> ... --N-1--> c-1
//! ```
//!
//! Every bucket has two jobs, [`Scales`](crate::wire::JobKind::Scales) directly ahead of
//! [`Sums`](crate::wire::JobKind::Sums); a job's units are cut into one chunk per member
//! ([`chunk_range`](crate::codec::chunk_range)), and chunk c belongs to position c. All chunks
//! travel at once, in frames that are forwarded as they arrive.
//!
//! - **Frames** of one job have the same units in every pass and hop: as many as fit into
//!   [`MAX_FRAME_BYTES`](crate::base::limits::MAX_FRAME_BYTES) at the width of all N
//!   contributions. So a frame in is a frame out, and its place is checked by comparing numbers.
//!   A chunk without units is one empty frame, so that every owner signs.
//! - **Reduce**: a partial sum of m contributions is packed at exactly the width of m. The last
//!   frame of a chunk carries blake3 over the chunk's bytes at this hop, signed by the sender.
//! - **Gather**: the exact sums at the width of N. The last frame carries the owner's signature
//!   on the chunk's digest: over the merged bytes of a Scales job; over the agreed codes and the
//!   sums ([`chunk_digest`](crate::codec::chunk_digest)) of a Sums job, so that whoever holds a
//!   [`JobResult`](crate::codec::JobResult) can compute it again: salvage and voters need no
//!   Scales job ([`BucketClaim`]).
//! - **Commitment**: a member's first frame of a Sums job starts a chunk with its own
//!   contribution, and carries blake3 over its whole contribution, packed at the width of one. It
//!   is taken before any frame of the job is read.
//! - **Order on a link**: finished chunks, then partial results, then own chunks of the oldest
//!   bucket. So a member holds all scales of a bucket before the first frame of its sums comes,
//!   and a frame of another order is a fault.
//! - **Faults**: members check every frame before they forward what they made of it, and the last
//!   frame of a chunk only once its digest and signature hold; so a bad frame is its sender's
//!   fault, and the exchange fails there. Frames from anyone else are refused and change nothing.
//!
//! **Memory.** Outbound frames are made when the link asks for them; queues hold places, not bytes.
//! A member starts buckets up to `window` ahead of its oldest unfinished one, and takes frames up to
//! twice that far, so that neighbours may have other windows. Per bucket in flight it holds at most
//! [`bucket_bytes`]: its packed contribution, the sums at the width of N, and three bytes a block:
//! `2 * window * bucket_bytes` against a hostile predecessor, half of it otherwise, and two hash
//! states of 2 KiB a chunk. While a bucket is encoded, 8 bytes an element of this bucket come on top. Finished buckets are handed out
//! in [`RingEvent::JobFinished`] and shared with [`RingOutcome`], not copied.
//!
//! **Duties of the driver**: hand in every frame of the predecessor's stream in order; call
//! [`Ring::poll_frame`] while the successor's stream has room; [`Ring::poll_event`] and
//! [`Ring::poll_timeout`] after each call; expect a call to take as long as encoding a bucket
//! takes, since that is done when the first frame needs it; keep both streams until [`Ring::is_drained`].
//!
//! From DESIGN sections 4 and 5; the ring takes the place of the paper's AllReduce (arXiv
//! 2506.21263, section 2.3). Not here: low-rank phases, a narrow all-gather, two levels, and who
//! belongs to the plan.

mod bucket;
mod check;
mod config;
mod context;
mod fault;
mod job;
mod machine;
mod outcome;
mod schedule;
#[cfg(test)]
mod tests;
mod verify;

pub use bucket::bucket_bytes;
pub use config::{InvalidRing, RingConfig};
pub use fault::{Failure, RingFault};
pub use machine::Ring;
pub use outcome::{ChunkProof, FinishedBucket, RingEvent, RingOutcome, Traffic};
pub use verify::{BucketClaim, InvalidBucket};
