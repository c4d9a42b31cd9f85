//! The codec: pseudo-gradients as blocks of small integers that add up exactly.
//!
//! ```text
//! fragment --gather--> bucket --propose--> scales --merge over the ring--> agreed codes
//!                        |                                                     |
//!                        +---------------------- quantise <--------------------+
//!                                                   | i32
//!                        pack_sums / unpack_sums_add hop by hop: exact integer sums
//!                                                   |
//!                     JobResult: codes and sums --dequantise_mean--> Delta --> outer::fold
//! ```
//!
//! - A vector is cut into blocks of [`BLOCK`] values; each tensor is padded so that no block holds
//!   values of two tensors ([`bucket`]).
//! - A block's scale is one code of a table of constants ([`scale`]); members agree on the codes
//!   first ([`proposal`]), then quantise once against them ([`quantise()`]).
//! - Partial sums travel at exactly the width that they need ([`pack`]).
//! - What quantising cut off is fed back into the next round ([`feedback()`]).
//! - A finished job is a value that can be checked, hashed and proven ([`result`], [`merkle`]).
//!
//! From DESIGN section 4; the scheme stands in for the paper's int4 quantisation (arXiv
//! 2506.21263, section 2.4). Not here: low-rank factors, stochastic rounding, a narrow all-gather.
//! Nothing here performs I/O, reads a clock or draws entropy.

pub mod bucket;
pub mod chunk;
pub mod merkle;
pub mod pack;
pub mod proposal;
pub mod result;
pub mod scale;

mod bits;
mod bytes;
mod error;
mod feedback;
mod quantise;
#[cfg(test)]
pub(crate) mod reference;
mod size;

pub use bits::{Bits, UnsupportedBits};
pub use bucket::{BucketSpec, TensorPart, buckets};
pub use chunk::{chunk_digest, chunk_range, job_digest};
pub use error::CodecError;
pub use feedback::{feedback, own_contribution};
pub use pack::{pack_sums, packed_len, sum_width, unpack_sums, unpack_sums_add};
pub use proposal::{
    ScaleProposal, agreed_codes, merge_units, propose, unit_range_bytes, units, wire_len,
};
pub use quantise::{dequantise_mean, quantise};
pub use result::{Body, InvalidBody, InvalidResult, JobResult, divisor};
pub use scale::{bound, code_for, step};
pub use size::{median, size_code, size_of};

/// Values of a block: one scale code covers them.
pub const BLOCK: usize = 64;

/// The largest omega: the share of the member with the largest weight.
pub const OMEGA_ONE: u16 = 256;
