//! Words that every other module uses: ids, time, bounded containers, seeded randomness, limits.
//!
//! Nothing here performs I/O, reads a clock or draws entropy.

mod bitmap;
mod bounded;
mod id;
pub mod limits;
mod random;
mod time;

pub use bitmap::Bitmap;
pub use bounded::{Bounded, TooLong};
pub use id::{Digest, NodeId, ParseIdError, RunId};
pub use random::Stream;
pub use time::Time;

/// The number of a round: segment k and the exchange of its pseudo-gradient. Genesis is round 0.
pub type Round = u64;

/// The ballot number of one try at a round's exchange, from 0 (DESIGN section 5, agreement).
pub type Attempt = u8;
