//! How long the machines wait, in one table (DESIGN section 5: three times the floors, until
//! enough rounds have been seen to learn from).

use std::time::Duration;

/// The waits of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From a quorum of Ready to `Closing`, and again as long at most from there to the plan.
    pub grace: Duration,
    /// After this much more, the next in the order proposes if the one before it has not.
    pub takeover: Duration,
    /// From a plan to its `Start`.
    pub accept: Duration,
    /// Without a ring frame (progress, not total time).
    pub stall: Duration,
    /// From the end of the own ring to the certificate.
    pub signatures: Duration,
    /// Between repetitions of a message that nobody acknowledges.
    pub repeat: Duration,
    /// Least period of presence; the period is at least N/20 s.
    pub presence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            grace: Duration::from_millis(1500),
            takeover: Duration::from_secs(3),
            accept: Duration::from_secs(3),
            stall: Duration::from_secs(6),
            signatures: Duration::from_secs(6),
            repeat: Duration::from_secs(2),
            presence: Duration::from_secs(1),
        }
    }
}

impl Deadlines {
    /// The period of presence among `peers` live nodes.
    pub fn presence_period(&self, peers: usize) -> Duration {
        self.presence.max(Duration::from_millis(peers as u64 * 50))
    }

    /// How long a presence holds at its receivers: four periods or the sender's median segment,
    /// at most 120 s or four periods.
    pub fn lifetime(&self, peers: usize, median_segment: Duration) -> Duration {
        let four = self.presence_period(peers) * 4;
        four.max(median_segment).min(four.max(Duration::from_secs(120)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_follow_the_table() {
        let deadlines = Deadlines::default();
        let seconds = Duration::from_secs;
        assert_eq!(deadlines.presence_period(3), seconds(1));
        assert_eq!(deadlines.presence_period(100), seconds(5));
        assert_eq!(deadlines.lifetime(3, Duration::ZERO), seconds(4));
        assert_eq!(deadlines.lifetime(3, seconds(60)), seconds(60));
        assert_eq!(deadlines.lifetime(3, seconds(600)), seconds(120));
        assert_eq!(deadlines.lifetime(4000, seconds(600)), seconds(800));
    }
}
