//! What an exchange has cost so far, read while it runs and after it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::proto::ring::{Ring, Traffic};

/// Where the time of an exchange's task went, and what it moved. Time not in here was spent waiting
/// for the neighbours and their links.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Calls of the machine that encoded a bucket.
    pub(crate) encode: Duration,
    /// All its other calls: checking, adding and making frames.
    pub(crate) frames: Duration,
    /// Writing the result and hashing what a header says of it.
    pub(crate) store: Duration,
    /// Frames and bytes, those forwarded after the end included.
    pub(crate) traffic: Traffic,
}

/// The account of one exchange.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<Spent>>);

impl Meter {
    /// The account as it stands.
    pub(crate) fn read(&self) -> Spent {
        *self.lock()
    }

    /// Makes a call of the machine. A bucket is encoded inside the call that needs it first; only
    /// that makes the machine hold more bytes.
    pub(crate) fn call<T>(&self, ring: &mut Ring, call: impl FnOnce(&mut Ring) -> T) -> T {
        let (started, held) = (Instant::now(), ring.memory());
        let done = call(ring);
        let mut spent = self.lock();
        let encoded = ring.memory() > held;
        let part = if encoded { &mut spent.encode } else { &mut spent.frames };
        *part += started.elapsed();
        spent.traffic = ring.traffic();
        done
    }

    /// Counts the time since `started` as storing.
    pub(crate) fn stored(&self, started: Instant) {
        self.lock().store += started.elapsed();
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
