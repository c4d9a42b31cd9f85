//! Offering a bulk stream, and accepting or refusing one.

use std::{io, sync::Arc, time::Duration};

use futures::AsyncWriteExt;
use libp2p::Stream;
use tokio::time::timeout;

use super::{BulkStream, MAX_HELLO_BYTES};
use crate::{
    base::NodeId,
    net::{
        BulkError,
        codec::{read_bytes, write_bytes},
        shared::Shared,
    },
};

/// The stream is accepted; frames follow.
const ACCEPTED: u8 = 0;
/// The stream is refused; a reason in UTF-8 follows.
const REFUSED: u8 = 1;
/// Bytes of a refusal's reason.
const MAX_REASON_BYTES: usize = 256;
/// How long the peer may take to send its hello or to take the answer.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the hello and waits for the answer; the caller sets the time limit.
pub(in crate::net) async fn offer(stream: &mut Stream, hello: &[u8]) -> Result<(), BulkError> {
    write_bytes(stream, &[], hello).await.map_err(lost)?;
    let answer = read_bytes(stream, 1 + MAX_REASON_BYTES).await.map_err(lost)?;
    match answer.split_first() {
        Some((&ACCEPTED, [])) => Ok(()),
        Some((&REFUSED, reason)) => {
            Err(BulkError::Refused(String::from_utf8_lossy(reason).into_owned()))
        }
        _ => Err(BulkError::Lost("the answer to the hello is malformed".to_owned())),
    }
}

/// Reads the hello of an inbound stream.
pub(in crate::net) async fn read_hello(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let hello = timeout(STEP_TIMEOUT, read_bytes(stream, MAX_HELLO_BYTES)).await;
    hello.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn lost(error: io::Error) -> BulkError {
    BulkError::Lost(error.to_string())
}

/// A bulk stream that a peer offers. Dropping it resets the stream.
#[derive(Debug)]
pub struct IncomingBulk {
    from: NodeId,
    hello: Vec<u8>,
    stream: Stream,
    shared: Arc<Shared>,
}

impl IncomingBulk {
    pub(in crate::net) fn new(
        from: NodeId,
        hello: Vec<u8>,
        stream: Stream,
        shared: Arc<Shared>,
    ) -> Self {
        Self { from, hello, stream, shared }
    }

    /// Who offers it.
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// What the peer says it is for.
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Accepts the stream; frames may flow both ways.
    ///
    /// # Errors
    /// If the peer is gone or does not take the answer within ten seconds.
    pub async fn accept(mut self) -> Result<BulkStream, BulkError> {
        self.answer(ACCEPTED, &[]).await?;
        Ok(BulkStream::new(self.from, self.stream, &self.shared))
    }

    /// Refuses the stream with a reason, of which at most 256 bytes are sent.
    ///
    /// # Errors
    /// If the peer is gone or does not take the answer within ten seconds.
    pub async fn refuse(mut self, reason: &str) -> Result<(), BulkError> {
        self.answer(REFUSED, shortened(reason)).await?;
        match timeout(STEP_TIMEOUT, self.stream.close()).await {
            Ok(closed) => closed.map_err(lost),
            Err(_) => Err(BulkError::Timeout),
        }
    }

    async fn answer(&mut self, status: u8, reason: &[u8]) -> Result<(), BulkError> {
        let status = [status];
        let write = write_bytes(&mut self.stream, &status, reason);
        timeout(STEP_TIMEOUT, write).await.map_err(|_| BulkError::Timeout)?.map_err(lost)
    }
}

fn shortened(reason: &str) -> &[u8] {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason.as_bytes()[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(shortened("no"), b"no");
        assert_eq!(shortened(&"x".repeat(300)).len(), 256);
        assert_eq!(shortened(&"\u{20ac}".repeat(100)).len(), 255);
    }
}
