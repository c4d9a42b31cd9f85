//! The process's monotonic clock as the machines' time.

use std::time::Instant;

use crate::base::Time;

/// Microseconds since the process's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Now.
    pub(crate) fn now(self) -> Time {
        Time::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Sleeps until a machine's deadline; for ever if there is none.
    pub(crate) async fn sleep_until(self, at: Option<Time>) {
        match at {
            Some(at) => tokio::time::sleep(at.since(self.now())).await,
            None => std::future::pending().await,
        }
    }
}
