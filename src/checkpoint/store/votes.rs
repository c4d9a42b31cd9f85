//! What the node has promised and signed: on disk before it is said, so that after a crash it
//! never contradicts itself.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::{StoreError, disk::Disk, records::Records};
use crate::{
    base::{Attempt, Bounded, Digest, Round, limits::MAX_HEADER_BYTES},
    wire::codec,
};

/// Bytes of a record: a header and its envelope.
const MAX_RECORD: usize = MAX_HEADER_BYTES + 128;
/// The file is rewritten with what still counts when it is longer than this.
const COMPACT_AT: u64 = 1 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Record {
    Promised { round: Round, attempt: Attempt },
    Voted { round: Round, attempt: Attempt, digest: Digest, header: HeaderBytes },
}

type HeaderBytes = Bounded<u8, MAX_HEADER_BYTES>;

/// What was said in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VotesOfRound {
    /// The highest attempt promised, accepted or signed: nothing lower is signed any more.
    pub promised: Option<Attempt>,
    /// The header signed under the highest attempt: attempt, digest, canonical bytes.
    pub voted: Option<(Attempt, Digest, Vec<u8>)>,
}

/// What was said, by round.
pub type Votes = BTreeMap<Round, VotesOfRound>;

/// The file.
#[derive(Debug)]
pub(super) struct VoteFile {
    disk: Disk,
    records: Records,
    votes: Votes,
}

impl VoteFile {
    pub(super) fn open(disk: &Disk, path: &Path) -> Result<(Self, Option<String>), StoreError> {
        let mut votes = Votes::new();
        let (records, warning) = Records::open(disk, path, MAX_RECORD as u32, |_, bytes| {
            let record = codec::decode::<_, MAX_RECORD>(bytes).map_err(|e| e.to_string())?;
            note(&mut votes, record);
            Ok(())
        })?;
        Ok((Self { disk: disk.clone(), records, votes }, warning))
    }

    pub(super) fn votes(&self) -> &Votes {
        &self.votes
    }

    pub(super) fn promise(&mut self, round: Round, attempt: Attempt) -> Result<(), StoreError> {
        let said = self.votes.get(&round).and_then(|said| said.promised);
        if said.is_some_and(|promised| attempt < promised) {
            return Err(StoreError::Conflict { round, attempt, what: "promising" });
        }
        if said == Some(attempt) {
            return Ok(());
        }
        self.record(Record::Promised { round, attempt })
    }

    pub(super) fn vote(
        &mut self,
        round: Round,
        attempt: Attempt,
        digest: Digest,
        header: &[u8],
    ) -> Result<(), StoreError> {
        let conflict = || StoreError::Conflict { round, attempt, what: "signing" };
        let said = self.votes.get(&round).cloned().unwrap_or_default();
        if said.promised.is_some_and(|promised| attempt < promised) {
            return Err(conflict());
        }
        if let Some((voted, signed, _)) = said.voted
            && voted == attempt
        {
            return if signed == digest { Ok(()) } else { Err(conflict()) };
        }
        let header = HeaderBytes::try_from(header.to_vec()).map_err(|_| conflict())?;
        self.record(Record::Voted { round, attempt, digest, header })
    }

    fn record(&mut self, record: Record) -> Result<(), StoreError> {
        self.records.append(&codec::encode(&record))?;
        note(&mut self.votes, record);
        Ok(())
    }

    /// Forgets rounds that are committed and folded; the file is rewritten now and then.
    pub(super) fn forget_below(&mut self, round: Round) -> Result<(), StoreError> {
        self.votes = self.votes.split_off(&round);
        if self.records.len() < COMPACT_AT { Ok(()) } else { self.compact() }
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        let path = self.records.path().to_owned();
        let fresh = path.with_extension("new");
        self.disk.remove_file(&fresh)?;
        let (mut records, _) = Records::open(&self.disk, &fresh, MAX_RECORD as u32, |_, _| Ok(()))?;
        for (&round, said) in &self.votes {
            for record in records_of(round, said) {
                records.append(&codec::encode(&record))?;
            }
        }
        drop(records);
        self.disk.rename(&fresh, &path)?;
        (self.records, _) = Records::open(&self.disk, &path, MAX_RECORD as u32, |_, _| Ok(()))?;
        Ok(())
    }
}

fn records_of(round: Round, said: &VotesOfRound) -> Vec<Record> {
    let promised = said.promised.map(|attempt| Record::Promised { round, attempt });
    let voted = said.voted.clone().and_then(|(attempt, digest, header)| {
        let header = HeaderBytes::try_from(header).ok()?;
        Some(Record::Voted { round, attempt, digest, header })
    });
    promised.into_iter().chain(voted).collect()
}

fn note(votes: &mut Votes, record: Record) {
    match record {
        Record::Promised { round, attempt } => {
            let said = votes.entry(round).or_default();
            said.promised = said.promised.max(Some(attempt));
        }
        Record::Voted { round, attempt, digest, header } => {
            let said = votes.entry(round).or_default();
            said.promised = said.promised.max(Some(attempt));
            if said.voted.as_ref().is_none_or(|(voted, ..)| attempt >= *voted) {
                said.voted = Some((attempt, digest, header.into_vec()));
            }
        }
    }
}
