//! A shared limit on bytes per second: a token bucket that may go into debt.
//!
//! Whoever takes bytes pays at once and then sleeps until the debt is gone, so callers are served in
//! the order in which they came and a frame larger than the burst needs no special case.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// Seconds of the full rate that may pass at once after a pause.
const BURST_SECONDS: f64 = 0.1;
/// The smallest burst: one frame, so that slow limits do not chop frames.
const MIN_BURST_BYTES: f64 = 16.0 * 1024.0;

/// A limit on bytes per second, shared by everything that holds it; or none.
#[derive(Debug, Default)]
pub struct RateLimiter {
    bucket: Option<Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    updated: Instant,
}

impl RateLimiter {
    /// A limit of `bytes_per_second`; `None` and zero mean no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        let bucket = bytes_per_second.filter(|&rate| rate > 0).map(|rate| {
            let rate = rate as f64;
            let burst = (rate * BURST_SECONDS).max(MIN_BURST_BYTES);
            Mutex::new(Bucket { rate, burst, tokens: burst, updated: Instant::now() })
        });
        Self { bucket }
    }

    /// Waits until `bytes` may pass.
    pub async fn take(&self, bytes: usize) {
        let wait = self.charge(bytes, Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    fn charge(&self, bytes: usize, now: Instant) -> Duration {
        let Some(bucket) = &self.bucket else { return Duration::ZERO };
        bucket.lock().unwrap_or_else(PoisonError::into_inner).charge(bytes, now)
    }
}

impl Bucket {
    fn charge(&mut self, bytes: usize, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = now;
        self.tokens = (self.tokens + elapsed * self.rate).min(self.burst) - bytes as f64;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-self.tokens / self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time_whatever_the_frame_size() {
        let limiter = RateLimiter::new(Some(1_000_000));
        let start = Instant::now();
        let mut now = start;
        for _ in 0..40 {
            now += limiter.charge(100_000, now);
        }
        let seconds = now.duration_since(start).as_secs_f64();
        assert!((3.8..=4.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn no_limit_never_waits() {
        assert_eq!(RateLimiter::new(None).charge(usize::MAX, Instant::now()), Duration::ZERO);
        assert_eq!(RateLimiter::new(Some(0)).charge(1 << 40, Instant::now()), Duration::ZERO);
    }
}
