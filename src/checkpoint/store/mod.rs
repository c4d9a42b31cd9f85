//! The data directory: one per node, locked while in use.
//!
//! ```text
//! <data-dir>/
//!   lock            held while a node runs; holds its pid
//!   identity.key    32 secret bytes, mode 0600
//!   boot            counter of starts, stored before use
//!   peers           addresses remembered, one a line
//!   blobs/<digest>/ index, then data (or data.part on its way)
//!   runs/<run>/
//!     manifest      canonical bytes of the founded manifest
//!     ledger        certificates, appended
//!     votes         promises and signatures, appended, on disk before they are said
//!     local         error buffers, frozen pseudo-gradient, moments: replaced once a round
//!     leases        how much of each lease was used
//!     bodies/       <round>-<digest>, and its index beside it
//!     snapshots/    <round>/ with index and leaves; <round>.partial/ while it is fetched,
//!                   <round>.writing/ while it is written
//! ```
//!
//! Three ways of writing, all of them through [`Disk`]:
//! *replace* (temporary file, fsync, rename, fsync of the folder) for small files,
//! *append* (length, checksum, bytes, fsync) for ledger and votes; a torn tail is cut on open,
//! *collect and rename* for folders of many files. A write that fails leaves what was there before.
//!
//! It trusts no byte that it reads: everything has a checksum, or a digest that the chain names.

mod blobs;
mod bodies;
mod dir;
mod disk;
mod error;
mod ledger;
mod local;
mod own;
mod records;
mod retention;
mod run;
mod sealed;
mod serve;
mod snapshot_files;
mod snapshots;
#[cfg(test)]
mod tests;
mod votes;

pub use blobs::BlobStore;
pub use dir::DataDir;
pub use disk::Disk;
pub use error::StoreError;
pub use local::{Frozen, LeaseUse, LocalState};
pub use retention::{Retained, retain};
pub use run::RunStore;
pub use serve::Server;
pub use snapshots::SnapshotWriter;
pub use votes::{Votes, VotesOfRound};
