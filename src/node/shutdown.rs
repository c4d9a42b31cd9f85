//! The end of a process: the first signal asks for a clean end within a bound, the second ends it
//! at once.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// Exit code of a process that a signal ended at once.
pub const KILLED_BY_SIGNAL: i32 = 130;
/// Signals this close to the first are the same request: `timeout` and some supervisors signal a
/// process and then its whole group, microseconds apart.
const SAME_REQUEST: Duration = Duration::from_millis(20);
/// Time beyond the grace after which a process that still runs is ended by force: what a
/// destructor or the runtime's own end may take.
const FORCE_AFTER: Duration = Duration::from_secs(3);

/// A request to end, shared by all parts of a process.
#[derive(Clone, Debug)]
pub struct Shutdown {
    token: CancellationToken,
    deadline: Arc<OnceLock<Instant>>,
    grace: Duration,
}

impl Shutdown {
    /// A request that nobody has made yet; no signal makes it.
    pub fn new(grace: Duration) -> Self {
        Self { token: CancellationToken::new(), deadline: Arc::default(), grace }
    }

    /// A request that SIGINT or SIGTERM makes (Ctrl-C elsewhere than on Unix). The handlers are
    /// installed even where the signal was inherited as ignored. Runs inside a tokio runtime.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn on_signals(grace: Duration) -> io::Result<Self> {
        let shutdown = Self::new(grace);
        let mut signals = Signals::install()?;
        let asked = shutdown.clone();
        tokio::spawn(async move {
            signals.next().await;
            asked.request();
            let first = Instant::now();
            while first.elapsed() < SAME_REQUEST {
                signals.next().await;
            }
            std::process::exit(KILLED_BY_SIGNAL);
        });
        Ok(shutdown)
    }

    /// Asks for a clean end. From the first call on the grace runs; when it is over by far, the
    /// process is ended by force with exit code 1.
    pub fn request(&self) {
        let first = self.deadline.set(Instant::now() + self.grace).is_ok();
        self.token.cancel();
        if first && !cfg!(test) {
            let bound = self.grace + FORCE_AFTER;
            std::thread::spawn(move || {
                std::thread::sleep(bound);
                eprintln!("error: the node did not end within its grace time and is ended now");
                eprintln!("help: it resumes from its last written state; a longer --grace may do");
                std::process::exit(1);
            });
        }
    }

    /// Completes when an end has been asked for.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// Whether an end has been asked for.
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// The moment by which everything should be done; none while no end has been asked for.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Time left until [`Shutdown::deadline`]; the whole grace while no end has been asked for.
    pub fn remaining(&self) -> Duration {
        self.deadline()
            .map_or(self.grace, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The token, for parts that take one.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn install() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Ends this process at once when its standard input closes, which is when its parent is gone,
/// however that died. The parent holds the other end of a pipe and never writes to it.
pub fn exit_with_parent() {
    std::thread::spawn(|| {
        // Whatever is read is thrown away; both an end and an error mean that nobody is there.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(KILLED_BY_SIGNAL);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_grace_runs_from_the_first_request() {
        let shutdown = Shutdown::new(Duration::from_secs(10));
        assert!(!shutdown.is_requested() && shutdown.deadline().is_none());
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        shutdown.request();
        let first = shutdown.deadline();
        shutdown.request();
        assert_eq!(shutdown.deadline(), first);
        assert!(shutdown.is_requested() && shutdown.remaining() <= Duration::from_secs(10));
        waiting.await.unwrap();
    }
}
