//! An append-only file: `length u32 | first 16 bytes of blake3 | bytes`, one record after another.
//!
//! A crash while appending leaves a torn last record, which is cut off on open: it was never
//! reported as written. An append that fails leaves the records before it.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use super::{
    StoreError,
    disk::{self, Disk},
};
use crate::base::Digest;

const HEAD: usize = 4 + 16;

/// Where a record's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// An append-only file of records.
#[derive(Debug)]
pub(super) struct Records {
    disk: Disk,
    path: PathBuf,
    file: File,
    end: u64,
    max_record: u32,
}

impl Records {
    /// Opens or creates the file and gives its records to `visit`; at the first one that is torn,
    /// damaged or refused, the file is cut. The text, if any, says what was cut.
    pub(super) fn open(
        disk: &Disk,
        path: &Path,
        max_record: u32,
        mut visit: impl FnMut(Span, &[u8]) -> Result<(), String>,
    ) -> Result<(Self, Option<String>), StoreError> {
        let file = disk.open_rw(path)?;
        let length = disk::length(path).unwrap_or(0);
        let mut records =
            Self { disk: disk.clone(), path: path.to_owned(), file, end: 0, max_record };
        let mut problem = None;
        while records.end < length && problem.is_none() {
            match records.record_at(records.end, length) {
                Ok((span, bytes)) => match visit(span, &bytes) {
                    Ok(()) => records.end = span.offset + u64::from(span.len),
                    Err(refused) => problem = Some(refused),
                },
                Err(RecordError::Bad(bad)) => problem = Some(bad.to_owned()),
                Err(RecordError::Store(error)) => return Err(error),
            }
        }
        let warning = problem.map(|problem| {
            let cut = length - records.end;
            format!("{}: the last {cut} bytes are cut off: {problem}", path.display())
        });
        if warning.is_some() {
            records.cut(records.end)?;
        }
        Ok((records, warning))
    }

    fn record_at(&self, at: u64, length: u64) -> Result<(Span, Vec<u8>), RecordError> {
        let torn = RecordError::Bad("a record is torn");
        if length - at < HEAD as u64 {
            return Err(torn);
        }
        let head = disk::read_at(&self.path, at, HEAD)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let offset = at + HEAD as u64;
        if len > self.max_record || u64::from(len) > length - offset {
            return Err(torn);
        }
        let bytes = disk::read_at(&self.path, offset, len as usize)?;
        if Digest::of(&bytes).0[..16] != head[4..] {
            return Err(RecordError::Bad("a record's checksum differs"));
        }
        Ok((Span { offset, len }, bytes))
    }

    /// Appends a record; it is on disk when this returns.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<Span, StoreError> {
        assert!(bytes.len() <= self.max_record as usize, "a record of {} bytes", bytes.len());
        let mut record = Vec::with_capacity(HEAD + bytes.len());
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(&Digest::of(bytes).0[..16]);
        record.extend_from_slice(bytes);
        let written = self
            .disk
            .write_at(&mut self.file, &self.path, self.end, &record)
            .and_then(|()| self.disk.sync(&self.file, &self.path));
        if let Err(error) = written {
            // Best effort: the next append overwrites what is left, and opening cuts it.
            let _ = self.disk.set_len(&self.file, &self.path, self.end);
            return Err(error);
        }
        let span = Span { offset: self.end + HEAD as u64, len: bytes.len() as u32 };
        self.end = span.offset + u64::from(span.len);
        Ok(span)
    }

    /// Cuts the file at `end`, the end of a record.
    pub(super) fn cut(&mut self, end: u64) -> Result<(), StoreError> {
        self.disk.set_len(&self.file, &self.path, end)?;
        self.disk.sync(&self.file, &self.path)?;
        self.end = end;
        Ok(())
    }

    /// Length of the file.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

enum RecordError {
    Bad(&'static str),
    Store(StoreError),
}

impl From<StoreError> for RecordError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
