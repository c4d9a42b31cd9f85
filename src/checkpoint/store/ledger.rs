//! The ledger on disk: certificates of rounds 1, 2, ... as records.

use std::path::{Path, PathBuf};

use super::{
    StoreError,
    disk::{self, Disk},
    records::{Records, Span},
};
use crate::{
    base::{Digest, Round, limits::MAX_CONTROL_BYTES},
    wire::{Certificate, Header, codec},
};

/// Where certificates lie; shared with those who serve them.
#[derive(Clone, Debug)]
pub(super) struct LedgerIndex {
    path: PathBuf,
    spans: Vec<Span>,
}

impl LedgerIndex {
    /// A certificate has been appended.
    pub(super) fn push(&mut self, span: Span) {
        self.spans.push(span);
    }

    /// Where the certificates of `count` rounds from `from` on lie.
    pub(super) fn locate(&self, from: Round, count: usize) -> (PathBuf, Vec<Span>) {
        let first = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let known = if from == 0 { &[] } else { self.spans.get(first..).unwrap_or_default() };
        (self.path.clone(), known.iter().take(count).copied().collect())
    }
}

/// Reads a certificate that has been located.
pub(super) fn read(path: &Path, span: Span) -> Result<Certificate, StoreError> {
    let bytes = disk::read_at(path, span.offset, span.len as usize)?;
    codec::decode::<_, MAX_CONTROL_BYTES>(&bytes)
        .map_err(|e| StoreError::damaged(path, e.to_string(), "remove it: it is fetched again"))
}

/// The ledger, for its one writer.
#[derive(Debug)]
pub(super) struct Ledger {
    records: Records,
    pub(super) index: LedgerIndex,
    tip: Header,
}

impl Ledger {
    /// Opens or creates the ledger; each certificate must follow the one before.
    pub(super) fn open(
        disk: &Disk,
        path: &Path,
        genesis: Header,
    ) -> Result<(Self, Option<String>), StoreError> {
        let (mut tip, mut digest, mut spans) = (genesis.clone(), genesis.digest(), Vec::new());
        let visit = |span: Span, bytes: &[u8]| {
            let certificate: Certificate =
                codec::decode::<_, MAX_CONTROL_BYTES>(bytes).map_err(|e| e.to_string())?;
            let header = certificate.header;
            if header.round != tip.round + 1 || header.parent != digest {
                return Err(format!("header {} does not follow {}", header.round, tip.round));
            }
            digest = header.digest();
            tip = header;
            spans.push(span);
            Ok(())
        };
        let (records, warning) = Records::open(disk, path, MAX_CONTROL_BYTES as u32, visit)?;
        let index = LedgerIndex { path: path.to_owned(), spans };
        Ok((Self { records, index, tip }, warning))
    }

    /// The newest header.
    pub(super) fn tip(&self) -> &Header {
        &self.tip
    }

    /// Appends the next certificate.
    pub(super) fn append(&mut self, certificate: &Certificate) -> Result<Span, StoreError> {
        let header = &certificate.header;
        if header.round != self.tip.round + 1 || header.parent != self.tip.digest() {
            return Err(StoreError::NotNext { found: header.round, head: self.tip.round });
        }
        let span = self.records.append(&codec::encode(certificate))?;
        self.index.push(span);
        self.tip = header.clone();
        Ok(span)
    }

    /// The certificate of a round from 1 on.
    pub(super) fn certificate(&self, round: Round) -> Result<Certificate, StoreError> {
        let (path, spans) = self.index.locate(round, 1);
        let what = || StoreError::Missing { what: format!("the certificate of round {round}") };
        read(&path, *spans.first().ok_or_else(what)?)
    }

    /// Forgets the rounds after `round`; `tip` is the header of `round`.
    pub(super) fn cut_after(&mut self, round: Round, tip: Header) -> Result<(), StoreError> {
        let keep = usize::try_from(round).unwrap_or(usize::MAX).min(self.index.spans.len());
        let end = keep.checked_sub(1).map_or(0, |last| {
            let span = self.index.spans[last];
            span.offset + u64::from(span.len)
        });
        self.records.cut(end)?;
        self.index.spans.truncate(keep);
        self.tip = tip;
        Ok(())
    }

    /// Digest of the newest header.
    pub(super) fn tip_digest(&self) -> Digest {
        self.tip.digest()
    }
}
