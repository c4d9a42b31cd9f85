//! The sending half of a bulk stream.

use std::{io, sync::Arc, time::Duration};

use futures::{AsyncWriteExt, io::WriteHalf};
use libp2p::Stream;
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{END_MARK, LENGTH_BYTES};
use crate::{
    base::limits::MAX_FRAME_WIRE_BYTES,
    net::{
        BulkError,
        shared::{Activity, Shared},
    },
};

/// Frames under way on a link with injected latency: 16 MiB of the largest, 50 ms at 2.5 Gbit/s.
const DELAYED_FRAMES: usize = 64;

/// Sends frames. Dropping it without [`BulkSender::close`] is a loss for the receiver.
#[derive(Debug)]
pub struct BulkSender {
    path: Path,
    shared: Arc<Shared>,
}

#[derive(Debug)]
enum Path {
    Direct(Writer),
    Delayed(mpsc::Sender<Delayed>),
}

#[derive(Debug)]
enum Delayed {
    Frame(Instant, Vec<u8>),
    Close(Instant, oneshot::Sender<Result<(), BulkError>>),
}

impl BulkSender {
    pub(super) fn new(io: WriteHalf<Stream>, shared: Arc<Shared>, activity: Arc<Activity>) -> Self {
        let writer = Writer {
            io: Some(io),
            pending: Vec::new(),
            written: 0,
            failed: None,
            shared: Arc::clone(&shared),
            activity,
        };
        let path = match shared.test_latency {
            None => Path::Direct(writer),
            Some(_) => Path::Delayed(delay_line(writer, &shared)),
        };
        Self { path, shared }
    }

    /// Sends one frame; waits while the peer reads slowly or the upload limit says so.
    ///
    /// When the future is dropped, the frame may or may not go out, but always as a whole: the
    /// stream stays intact and the next call finishes what was begun.
    ///
    /// # Errors
    /// If the frame is too large, the stream is lost, or it makes no progress for
    /// [`NetLimits::bulk_stall`](crate::net::NetLimits::bulk_stall).
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), BulkError> {
        if frame.len() > MAX_FRAME_WIRE_BYTES {
            return Err(BulkError::TooLarge { len: frame.len(), max: MAX_FRAME_WIRE_BYTES });
        }
        self.shared.upload.take(LENGTH_BYTES + frame.len()).await;
        let due = self.due();
        match &mut self.path {
            Path::Direct(writer) => writer.put(frame).await,
            Path::Delayed(line) => {
                line.send(Delayed::Frame(due, frame.to_vec())).await.map_err(|_| line_lost())
            }
        }
    }

    /// Marks the end of the stream and closes this half.
    ///
    /// # Errors
    /// If the stream is lost or makes no progress.
    pub async fn close(mut self) -> Result<(), BulkError> {
        let due = self.due();
        match &mut self.path {
            Path::Direct(writer) => writer.close().await,
            Path::Delayed(line) => {
                let (done, closed) = oneshot::channel();
                line.send(Delayed::Close(due, done)).await.map_err(|_| line_lost())?;
                closed.await.unwrap_or_else(|_| Err(line_lost()))
            }
        }
    }

    fn due(&self) -> Instant {
        Instant::now() + self.shared.test_latency.unwrap_or_default()
    }
}

fn line_lost() -> BulkError {
    BulkError::Lost("the delayed link has ended".to_owned())
}

/// A task that writes frames when they are due.
fn delay_line(mut writer: Writer, shared: &Shared) -> mpsc::Sender<Delayed> {
    let (sender, mut line) = mpsc::channel(DELAYED_FRAMES);
    let run = async move {
        while let Some(item) = line.recv().await {
            match item {
                Delayed::Frame(due, frame) => {
                    sleep_until(due).await;
                    if writer.put(&frame).await.is_err() {
                        return;
                    }
                }
                Delayed::Close(due, done) => {
                    sleep_until(due).await;
                    let _ = done.send(writer.close().await);
                    return;
                }
            }
        }
    };
    let stop = shared.stop.clone();
    shared.tasks.spawn(async move {
        stop.run_until_cancelled(run).await;
    });
    sender
}

/// Writes frames to the stream.
#[derive(Debug)]
struct Writer {
    // None once closed.
    io: Option<WriteHalf<Stream>>,
    pending: Vec<u8>,
    written: usize,
    failed: Option<BulkError>,
    shared: Arc<Shared>,
    activity: Arc<Activity>,
}

impl Writer {
    async fn put(&mut self, frame: &[u8]) -> Result<(), BulkError> {
        self.drain().await?;
        self.queue(frame.len() as u32, frame);
        self.drain().await
    }

    async fn close(&mut self) -> Result<(), BulkError> {
        self.drain().await?;
        self.queue(END_MARK, &[]);
        self.drain().await?;
        let mut io = self.io.take().ok_or(BulkError::Closed)?;
        in_time(self.shared.bulk_stall, io.close()).await
    }

    fn queue(&mut self, length: u32, body: &[u8]) {
        self.pending.clear();
        self.pending.extend_from_slice(&length.to_le_bytes());
        self.pending.extend_from_slice(body);
        self.written = 0;
    }

    /// Writes what is queued; may be cancelled and called again.
    async fn drain(&mut self) -> Result<(), BulkError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.written == self.pending.len() {
            return Ok(());
        }
        self.push_out().await.inspect_err(|error| self.failed = Some(error.clone()))
    }

    async fn push_out(&mut self) -> Result<(), BulkError> {
        let stall = self.shared.bulk_stall;
        let io = self.io.as_mut().ok_or(BulkError::Closed)?;
        while self.written < self.pending.len() {
            let count = in_time(stall, io.write(&self.pending[self.written..])).await?;
            if count == 0 {
                return Err(BulkError::Lost("the peer has closed the stream".to_owned()));
            }
            self.written += count;
            self.activity.touch();
            self.shared.counters.bulk_sent(count);
        }
        in_time(stall, io.flush()).await
    }
}

impl Drop for Writer {
    /// Tells the peer that nothing more comes, even while the other half lives on.
    fn drop(&mut self) {
        let (Some(mut io), Ok(runtime)) = (self.io.take(), Handle::try_current()) else { return };
        let stop = self.shared.stop.clone();
        let stall = self.shared.bulk_stall;
        let close = async move {
            let _ = timeout(stall, io.close()).await;
        };
        let close = async move {
            stop.run_until_cancelled(close).await;
        };
        self.shared.tasks.spawn_on(close, &runtime);
    }
}

async fn in_time<T>(
    limit: Duration,
    io: impl Future<Output = io::Result<T>>,
) -> Result<T, BulkError> {
    let outcome = timeout(limit, io).await.map_err(|_| BulkError::Timeout)?;
    outcome.map_err(|error| BulkError::Lost(error.to_string()))
}
