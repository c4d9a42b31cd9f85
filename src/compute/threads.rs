//! Threads of the numeric code.
//!
//! Three pools could fight for the cores: rayon's, which our operations and candle's matrix
//! products use; candle's own barrier pool for elementwise work, whose idle workers spin; and
//! tokio's. A trainer brings a rayon pool of its own size. candle's barrier pool is turned off by
//! the environment variable `CANDLE_NUM_THREADS`, read once when it is first needed.

/// Leaves candle's spinning pool without workers, unless the user has set `CANDLE_NUM_THREADS`.
///
/// A binary calls this first in `main`. It costs little: elementwise work is memory-bound, and
/// everything heavy runs in the trainer's pool.
pub fn quiet_candle() {
    const NAME: &str = "CANDLE_NUM_THREADS";
    if std::env::var_os(NAME).is_none() {
        // SAFETY: called at the start of `main`, before any other thread exists that could read
        // the environment at the same time.
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var(NAME, "1");
        }
    }
}
