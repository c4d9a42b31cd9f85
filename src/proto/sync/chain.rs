//! The verified chain: the newest header in full, of those ahead of the state only what folding
//! and choosing need.

use std::collections::BTreeMap;

use crate::{
    base::{Digest, Round, RunId},
    wire::{Certificate, CertificateError, Head, Header},
};

/// What is kept of a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) digest: Digest,
    pub(super) root_before: Digest,
    pub(super) body: Digest,
    pub(super) body_bytes: u64,
}

impl Link {
    fn of(header: &Header) -> Self {
        Self {
            digest: header.digest(),
            root_before: header.root_before,
            body: header.body,
            body_bytes: header.body_bytes,
        }
    }
}

/// The chain from the state's round to the newest header known.
#[derive(Debug)]
pub(super) struct Chain {
    run: RunId,
    tip: Header,
    links: BTreeMap<Round, Link>,
}

impl Chain {
    /// A chain that starts with `headers`, which are trusted and consecutive.
    pub(super) fn new(run: RunId, genesis: Header, headers: &[Header]) -> Self {
        let tip = headers.last().cloned().unwrap_or(genesis);
        let mut links: BTreeMap<_, _> =
            headers.iter().map(|header| (header.round, Link::of(header))).collect();
        links.insert(tip.round, Link::of(&tip));
        Self { run, tip, links }
    }

    /// The newest header known.
    pub(super) fn tip(&self) -> &Header {
        &self.tip
    }

    /// What is known of header `round`.
    pub(super) fn link(&self, round: Round) -> Option<&Link> {
        self.links.get(&round)
    }

    /// Links kept.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Appends a certificate that commits the next header.
    pub(super) fn extend(&mut self, certificate: &Certificate) -> Result<(), CertificateError> {
        certificate.verify(self.run, &self.tip)?;
        self.tip = certificate.header.clone();
        self.links.insert(self.tip.round, Link::of(&self.tip));
        Ok(())
    }

    /// Whether `head` is known to be on another branch.
    pub(super) fn contradicts(&self, head: &Head) -> bool {
        self.links.get(&head.round).is_some_and(|link| link.digest != head.digest)
    }

    /// Forgets what lies below the state.
    pub(super) fn forget_below(&mut self, round: Round) {
        self.links = self.links.split_off(&round.min(self.tip.round));
    }
}
