//! The receiving half of a bulk stream.

use std::sync::Arc;

use futures::{AsyncReadExt, io::ReadHalf};
use libp2p::Stream;

use super::{END_MARK, LENGTH_BYTES};
use crate::{
    base::limits::MAX_FRAME_WIRE_BYTES,
    net::{
        BulkError,
        shared::{Activity, Shared},
    },
};

/// Receives frames.
#[derive(Debug)]
pub struct BulkReceiver {
    io: ReadHalf<Stream>,
    head: [u8; LENGTH_BYTES],
    head_filled: usize,
    body: Vec<u8>,
    body_filled: usize,
    // Whether the limit has been paid for the frame that is being read.
    paid: bool,
    end: Option<Result<(), BulkError>>,
    shared: Arc<Shared>,
    activity: Arc<Activity>,
}

impl BulkReceiver {
    pub(super) fn new(io: ReadHalf<Stream>, shared: Arc<Shared>, activity: Arc<Activity>) -> Self {
        Self {
            io,
            head: [0; LENGTH_BYTES],
            head_filled: 0,
            body: Vec::new(),
            body_filled: 0,
            paid: false,
            end: None,
            shared,
            activity,
        }
    }

    /// The next frame, of at most `max` bytes; `None` when the sender closed the stream.
    ///
    /// Waits as long as the connection lives: a dead one ends with an error within seconds, and how
    /// long a silent peer is waited for is the caller's decision. The future may be dropped and
    /// `recv` called again.
    ///
    /// # Errors
    /// If the stream is lost, or a frame is larger than `max`; it is not read and the stream ends.
    pub async fn recv(&mut self, max: usize) -> Result<Option<Vec<u8>>, BulkError> {
        if let Some(end) = &self.end {
            return end.clone().map(|()| None);
        }
        let outcome = self.next(max).await;
        match &outcome {
            Ok(Some(_)) => {}
            Ok(None) => self.end = Some(Ok(())),
            Err(error) => self.end = Some(Err(error.clone())),
        }
        outcome
    }

    async fn next(&mut self, max: usize) -> Result<Option<Vec<u8>>, BulkError> {
        while self.head_filled < LENGTH_BYTES {
            let count = self.io.read(&mut self.head[self.head_filled..]).await;
            self.head_filled += self.progress(count)?;
        }
        let length = u32::from_le_bytes(self.head);
        if length == END_MARK {
            return Ok(None);
        }
        self.prepare(length as usize, max.min(MAX_FRAME_WIRE_BYTES)).await?;
        while self.body_filled < self.body.len() {
            let count = self.io.read(&mut self.body[self.body_filled..]).await;
            self.body_filled += self.progress(count)?;
        }
        (self.head_filled, self.body_filled, self.paid) = (0, 0, false);
        Ok(Some(std::mem::take(&mut self.body)))
    }

    /// Checks the announced length before anything is allocated, then pays for it.
    async fn prepare(&mut self, len: usize, max: usize) -> Result<(), BulkError> {
        if self.paid {
            return Ok(());
        }
        if len > max {
            return Err(BulkError::TooLarge { len, max });
        }
        self.body.resize(len, 0);
        self.paid = true;
        self.shared.download.take(LENGTH_BYTES + len).await;
        Ok(())
    }

    fn progress(&self, count: std::io::Result<usize>) -> Result<usize, BulkError> {
        match count {
            Ok(0) => Err(BulkError::Lost("the stream ended without its closing mark".to_owned())),
            Ok(count) => {
                self.activity.touch();
                self.shared.counters.bulk_received(count);
                Ok(count)
            }
            Err(error) => Err(BulkError::Lost(error.to_string())),
        }
    }
}
