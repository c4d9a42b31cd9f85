//! What parent and peers of `bench allreduce` say to each other, one JSON line each.
//!
//! ```text
//! parent                       every peer
//! Setup         -------------> makes its vector, starts its network
//!               <------------- Listening
//! Members       -------------> learns the others' addresses
//! Prepare(r)    -------------> checks its vector, opens its stream
//!               <------------- Ready
//! Run           -------------> exchanges and decodes
//!               <------------- Done
//! Judge         -------------> compares its mean with the exact one
//!               <------------- Judged
//! ```

use serde::{Deserialize, Serialize};

use crate::base::{Digest, NodeId, Round};

/// What the parent says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    /// What to measure.
    Setup(Setup),
    /// All peers in ring order.
    Members(Vec<Contact>),
    /// Get ready for a round.
    Prepare(Round),
    /// Let frames move.
    Run,
    /// Compare the last mean with the exact one (`true`), and say what all of it took.
    Judge(bool),
}

/// What to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Position in the ring.
    pub(super) position: usize,
    /// Elements of the vector.
    pub(super) floats: usize,
    /// Payload bits.
    pub(super) bits: u8,
    /// Bytes a second.
    pub(super) upload_limit: Option<u64>,
}

/// Where a peer is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Contact {
    /// Its name.
    pub(super) node: NodeId,
    /// Its multiaddrs.
    pub(super) addresses: Vec<String>,
}

/// What a peer says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// The network is up.
    Listening(Contact),
    /// The stream to the successor is open.
    Ready,
    /// The mean is decoded, and everything is sent.
    Done(Cost),
    /// The last word.
    Judged(Verdict),
    /// It cannot go on.
    Failed(String),
}

/// What one round took at one peer, in seconds and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    /// Checking the vector and opening the stream.
    pub(super) prepare: f64,
    /// Calls of the ring machine that encoded a bucket.
    pub(super) encode: f64,
    /// Its other calls.
    pub(super) ring: f64,
    /// Waiting for neighbours and links.
    pub(super) wire: f64,
    /// Encoding and hashing the body.
    pub(super) store: f64,
    /// From the body's bytes to the mean.
    pub(super) decode: f64,
    /// Bytes of ring frames sent.
    pub(super) bytes_sent: u64,
    /// Their payloads.
    pub(super) payload_sent: u64,
}

impl Cost {
    /// The parts by name.
    pub(super) fn parts(&self) -> [(&'static str, f64); 6] {
        [
            ("prepare", self.prepare),
            ("encode", self.encode),
            ("ring", self.ring),
            ("wire", self.wire),
            ("store", self.store),
            ("decode", self.decode),
        ]
    }

    /// Seconds of the round.
    pub(super) fn seconds(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }
}

/// What all rounds took at one peer, and what came out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// Digest of the mean's bits: the same at every peer.
    pub(super) mean: Digest,
    /// |mean - exact| / |exact|, where it was asked for.
    pub(super) relative_error: Option<f64>,
    /// Processor seconds of all rounds; none where the system does not tell.
    pub(super) cpu_seconds: Option<f64>,
    /// Peak of resident memory; none where the system does not tell.
    pub(super) peak_memory_bytes: Option<u64>,
}
