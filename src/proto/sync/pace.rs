//! How long a donor takes to reply, learnt as TCP learns its retransmission timeout (RFC 6298):
//! mean + 4 deviations, here doubled, and doubled again with each timeout in a row.

use std::time::Duration;

/// Smoothed reply times of one donor for one kind of reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    mean_us: u64,
    deviation_us: u64,
    samples: u64,
    doublings: u32,
}

/// The timeout is multiplied by at most 2^10.
const MAX_DOUBLINGS: u32 = 10;

impl Pace {
    /// A reply took `elapsed`.
    pub(super) fn replied(&mut self, elapsed: Duration) {
        let sample = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX / 16);
        if self.samples == 0 {
            (self.mean_us, self.deviation_us) = (sample, sample / 2);
        } else {
            let error = sample.abs_diff(self.mean_us);
            self.deviation_us = (3 * self.deviation_us + error) / 4;
            self.mean_us = (7 * self.mean_us + sample) / 8;
        }
        self.samples += 1;
        self.doublings = 0;
    }

    /// A request has timed out.
    pub(super) fn timed_out(&mut self) {
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
    }

    /// The timeout of the next request.
    pub(super) fn timeout(&self, floor: Duration, ceiling: Duration) -> Duration {
        let learnt = if self.samples == 0 {
            3 * floor
        } else {
            Duration::from_micros(2 * self.mean_us.saturating_add(4 * self.deviation_us))
        };
        (learnt.max(floor) * (1 << self.doublings)).min(ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_replies_and_doubles_without_them() {
        let (floor, ceiling) = (Duration::from_secs(1), Duration::from_secs(100));
        let mut pace = Pace::default();
        assert_eq!(pace.timeout(floor, ceiling), Duration::from_secs(3));
        for _ in 0..50 {
            pace.replied(Duration::from_secs(4));
        }
        let learnt = pace.timeout(floor, ceiling);
        assert!((8.0..9.0).contains(&learnt.as_secs_f64()), "{learnt:?}");
        pace.timed_out();
        assert_eq!(pace.timeout(floor, ceiling), 2 * learnt);
        (0..20).for_each(|_| pace.timed_out());
        assert_eq!(pace.timeout(floor, ceiling), ceiling);
        pace.replied(Duration::from_millis(1));
        assert!(pace.timeout(floor, ceiling) < ceiling);
    }
}
