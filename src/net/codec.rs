//! Requests and replies on a stream: a u32 little-endian length, then that many bytes.
//!
//! A reply's first byte is a status from the table below. The length is checked before a byte is
//! allocated for what it announces.

use std::{io, sync::Arc};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::{StreamProtocol, request_response};

use crate::net::shared::Shared;

/// The request was taken; the reply's bytes follow.
const TAKEN: u8 = 0;
/// The peer's queues are full.
const BUSY: u8 = 1;

/// What comes back for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The request was taken.
    Taken(Vec<u8>),
    /// The peer's queues are full.
    Busy,
}

/// Length-prefixed bytes with a bound on each direction.
#[derive(Clone)]
pub(super) struct BytesCodec {
    /// Most bytes of a request.
    pub(super) max_request: usize,
    /// Most bytes of a reply, without its status.
    pub(super) max_reply: usize,
    /// Counters and rate limits.
    pub(super) shared: Arc<Shared>,
}

impl request_response::Codec for BytesCodec {
    type Protocol = StreamProtocol;
    type Request = Vec<u8>;
    type Response = Reply;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Vec<u8>>
    where
        T: AsyncRead + Unpin + Send,
    {
        let bytes = read_bytes(io, self.max_request).await?;
        self.shared.counters.control_received(bytes.len());
        Ok(bytes)
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Reply>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut bytes = read_bytes(io, self.max_reply + 1).await?;
        self.shared.download.take(bytes.len()).await;
        self.shared.counters.control_received(bytes.len());
        match bytes.first() {
            Some(&TAKEN) => Ok(Reply::Taken(bytes.split_off(1))),
            Some(&BUSY) => Ok(Reply::Busy),
            _ => Err(invalid("a reply without a known status".to_owned())),
        }
    }

    async fn write_request<T>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        request: Vec<u8>,
    ) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        self.shared.counters.control_sent(request.len());
        write_bytes(io, &[], &request).await
    }

    async fn write_response<T>(
        &mut self,
        _: &StreamProtocol,
        io: &mut T,
        reply: Reply,
    ) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        let (status, bytes) = match reply {
            Reply::Taken(bytes) => (TAKEN, bytes),
            Reply::Busy => (BUSY, Vec::new()),
        };
        self.shared.upload.take(bytes.len() + 1).await;
        self.shared.counters.control_sent(bytes.len() + 1);
        write_bytes(io, &[status], &bytes).await
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads one length-prefixed piece of at most `max` bytes.
pub(super) async fn read_bytes<T>(io: &mut T, max: usize) -> io::Result<Vec<u8>>
where
    T: AsyncRead + Unpin + Send,
{
    let mut length = [0; 4];
    io.read_exact(&mut length).await?;
    let len = u32::from_le_bytes(length) as usize;
    if len > max {
        return Err(invalid(format!("{len} bytes are more than the {max} allowed")));
    }
    let mut bytes = vec![0; len];
    io.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Writes `head` and `body` as one length-prefixed piece and flushes.
pub(super) async fn write_bytes<T>(io: &mut T, head: &[u8], body: &[u8]) -> io::Result<()>
where
    T: AsyncWrite + Unpin + Send,
{
    let len = u32::try_from(head.len() + body.len()).map_err(|error| invalid(error.to_string()))?;
    let mut start = Vec::with_capacity(4 + head.len());
    start.extend_from_slice(&len.to_le_bytes());
    start.extend_from_slice(head);
    io.write_all(&start).await?;
    io.write_all(body).await?;
    io.flush().await
}

#[cfg(test)]
mod tests {
    use futures::{executor::block_on, io::Cursor};

    use super::*;

    #[test]
    fn golden_bytes() {
        let mut io = Cursor::new(Vec::new());
        block_on(write_bytes(&mut io, &[BUSY], b"ab")).unwrap();
        assert_eq!(io.into_inner(), [3, 0, 0, 0, 1, b'a', b'b']);
    }

    #[test]
    fn bytes_round_trip() {
        let mut io = Cursor::new(Vec::new());
        block_on(write_bytes(&mut io, &[], b"hello")).unwrap();
        io.set_position(0);
        assert_eq!(block_on(read_bytes(&mut io, 5)).unwrap(), b"hello");
    }

    #[test]
    fn a_hostile_length_is_refused_before_allocation() {
        let mut io = Cursor::new(vec![0xff; 8]);
        let error = block_on(read_bytes(&mut io, 1024)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut short = Cursor::new(vec![9, 0, 0, 0, 1]);
        assert!(block_on(read_bytes(&mut short, 1024)).is_err());
    }
}
