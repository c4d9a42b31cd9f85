//! The inner learning rate: a function of (round, share of H) and of nothing local, so that every
//! node uses the same rate at the same place of the run, whenever it joined.

use std::f64::consts::PI;

use crate::config::manifest::{InnerConfig, Schedule};

/// Steps over which a joiner warms up, at most (DESIGN section 5).
const JOINER_WARMUP_STEPS: u64 = 100;

/// The learning rate in segment `round` (from 1) after `share_of_h` (0 to 1; more counts as 1) of
/// its steps, in a run of `total_rounds` segments of `local_steps`.
///
/// `local_steps` is the manifest's H: a segment that was adapted to be shorter moves along the
/// schedule as far as any other.
pub fn learning_rate(
    inner: &InnerConfig,
    round: u64,
    share_of_h: f64,
    local_steps: u32,
    total_rounds: u64,
) -> f64 {
    let h = f64::from(local_steps);
    let step = (round.saturating_sub(1) as f64 + share_of_h.clamp(0.0, 1.0)) * h;
    let total = total_rounds as f64 * h;
    let warmup = (inner.warmup_steps as f64).min(total);
    if step < warmup {
        return inner.learning_rate * ((step + 1.0) / warmup).min(1.0);
    }
    let progress = ((step - warmup) / (total - warmup).max(1.0)).min(1.0);
    inner.learning_rate * shape(inner, progress, step / total.max(1.0))
}

/// Share of the peak rate at `progress` (0 to 1) after warm-up, `whole` being the share of the run.
fn shape(inner: &InnerConfig, progress: f64, whole: f64) -> f64 {
    let fall = 1.0 - inner.final_share;
    match inner.schedule {
        Schedule::Constant => 1.0,
        Schedule::Cosine => inner.final_share + fall * 0.5 * (1.0 + (PI * progress).cos()),
        Schedule::Wsd => {
            let stable = 1.0 - inner.decay_share;
            let into = ((whole - stable) / inner.decay_share.max(1e-9)).clamp(0.0, 1.0);
            1.0 - fall * into
        }
    }
}

/// The factor on a joiner's rate after `steps` steps of its own: it has no moments yet, so the rate
/// rises linearly over min(100, `local_steps`) steps.
pub fn joiner_warmup(steps: u64, local_steps: u32) -> f64 {
    let span = JOINER_WARMUP_STEPS.min(u64::from(local_steps)).max(1);
    ((steps + 1) as f64 / span as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EMBEDDED_RUN, Manifest};

    fn inner(schedule: Schedule) -> InnerConfig {
        let inner = Manifest::from_toml(EMBEDDED_RUN).unwrap().inner;
        InnerConfig { learning_rate: 1.0, warmup_steps: 10, schedule, final_share: 0.1, ..inner }
    }

    #[test]
    fn it_warms_up_and_falls() {
        // (schedule, round, share, rate) in a run of 10 rounds of 10 steps.
        let cases = [
            (Schedule::Cosine, 1, 0.0, 0.1),
            (Schedule::Cosine, 1, 0.9, 1.0),
            (Schedule::Cosine, 2, 0.0, 1.0),
            (Schedule::Cosine, 6, 0.5, 0.55),
            (Schedule::Cosine, 10, 1.0, 0.1),
            (Schedule::Cosine, 99, 0.0, 0.1),
            (Schedule::Wsd, 8, 0.0, 1.0),
            (Schedule::Wsd, 10, 0.0, 0.55),
            (Schedule::Wsd, 10, 1.0, 0.1),
            (Schedule::Constant, 10, 1.0, 1.0),
            (Schedule::Constant, 1, 7.0, 1.0),
        ];
        for (schedule, round, share, rate) in cases {
            let found = learning_rate(&inner(schedule), round, share, 10, 10);
            assert!((found - rate).abs() < 1e-9, "{schedule:?} {round} {share}: {found}");
        }
    }

    #[test]
    fn odd_settings_stay_finite() {
        let mut config = inner(Schedule::Wsd);
        config.decay_share = 0.0;
        config.warmup_steps = 1_000_000;
        for round in [0, 1, 5, u64::MAX] {
            let rate = learning_rate(&config, round, 0.5, 1, 5);
            assert!(rate.is_finite() && rate >= 0.0, "{rate}");
        }
    }

    #[test]
    fn joiners_start_slowly() {
        assert_eq!(joiner_warmup(0, 10), 0.1);
        assert_eq!(joiner_warmup(9, 10), 1.0);
        assert_eq!(joiner_warmup(0, 1000), 0.01);
        assert_eq!(joiner_warmup(5, 0), 1.0);
    }
}
