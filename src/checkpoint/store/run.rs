//! A run's folder, for its one writer.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    BlobStore, Retained, Server, SnapshotWriter, StoreError,
    bodies::Bodies,
    disk::{self, Disk},
    ledger::Ledger,
    retain,
    serve::{Catalog, Shared},
    snapshot_files::StoredSnapshot,
    snapshots::Snapshots,
    votes::VoteFile,
};
use crate::{
    base::{Digest, Round, RunId, limits::MAX_MANIFEST_BYTES},
    config::FoundedManifest,
    proto::sync::{Have, IndexReader},
    wire::{Certificate, Header},
};

/// Everything that is kept of one run.
#[derive(Debug)]
pub struct RunStore {
    run: RunId,
    genesis: Header,
    pub(super) disk: Disk,
    pub(super) dir: PathBuf,
    ledger: Ledger,
    pub(super) votes: VoteFile,
    bodies: Bodies,
    snapshots: Snapshots,
    shared: Shared,
    blobs: BlobStore,
    warnings: Vec<String>,
}

impl RunStore {
    pub(super) fn create(
        disk: &Disk,
        dir: &Path,
        manifest: &FoundedManifest,
        reader: IndexReader,
        blobs: BlobStore,
    ) -> Result<Self, StoreError> {
        let run = manifest.run_id();
        disk.create_dir(dir)?;
        if !dir.join("manifest").exists() {
            disk.replace(&dir.join("manifest"), &manifest.to_bytes())?;
        }
        Self::read_manifest(dir, run)?;
        let genesis = Header::genesis(manifest);
        let (ledger, cut) = Ledger::open(disk, &dir.join("ledger"), genesis.clone())?;
        let (votes, torn) = VoteFile::open(disk, &dir.join("votes"))?;
        let mut warnings: Vec<String> = cut.into_iter().chain(torn).collect();
        let (bodies, known) = Bodies::open(disk, &dir.join("bodies"), &mut warnings)?;
        let root_after =
            |round: Round| Some(ledger.certificate(round + 1).ok()?.header.root_before);
        let (snapshots, whole) =
            Snapshots::open(disk, &dir.join("snapshots"), reader, root_after, &mut warnings)?;
        let shared = Shared::new(Catalog {
            manifest: manifest.to_bytes(),
            ledger: ledger.index.clone(),
            bodies: known,
            snapshots: whole,
        });
        let (disk, dir) = (disk.clone(), dir.to_owned());
        let mut store = Self {
            run,
            genesis,
            disk,
            dir,
            ledger,
            votes,
            bodies,
            snapshots,
            shared,
            blobs,
            warnings,
        };
        store.drop_strays()?;
        store.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(store)
    }

    /// Reads a run's manifest and checks that it is the run's.
    pub(super) fn read_manifest(dir: &Path, run: RunId) -> Result<FoundedManifest, StoreError> {
        let path = dir.join("manifest");
        let bytes = disk::read(&path, MAX_MANIFEST_BYTES as u64)?;
        FoundedManifest::from_bytes(&bytes, Some(run)).map_err(|e| {
            StoreError::damaged(&path, e.to_string(), "remove it and join the run again")
        })
    }

    /// Removes what a crash or a cut ledger has left behind: bodies that no header can name any
    /// more, snapshots above the ledger.
    fn drop_strays(&mut self) -> Result<(), StoreError> {
        let head = self.head_round();
        let bodies: Vec<(Round, Digest)> =
            self.shared.lock().bodies.iter().map(|(&digest, body)| (body.round, digest)).collect();
        for (round, digest) in bodies {
            let open = round == head + 1;
            if !open && !self.header(round).is_ok_and(|header| header.body == digest) {
                self.remove_body(round, digest)?;
            }
        }
        for round in self.snapshot_rounds().into_iter().filter(|&round| round > head) {
            self.warnings.push(format!("the snapshot of round {round} lies above the ledger"));
            self.remove_snapshot(round)?;
        }
        Ok(())
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// What was repaired when the store was opened, for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Serves peers; clones go to other threads.
    pub fn server(&self) -> Server {
        Server { run: self.run, shared: self.shared.clone(), blobs: self.blobs.clone() }
    }

    /// The data files.
    pub fn blobs(&self) -> &BlobStore {
        &self.blobs
    }

    // --- the ledger ---

    /// The newest header.
    pub fn head(&self) -> &Header {
        self.ledger.tip()
    }

    fn head_round(&self) -> Round {
        self.ledger.tip().round
    }

    /// The header of a round; 0 is genesis.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn header(&self, round: Round) -> Result<Header, StoreError> {
        match round {
            0 => Ok(self.genesis.clone()),
            round if round == self.head_round() => Ok(self.ledger.tip().clone()),
            round => Ok(self.ledger.certificate(round)?.header),
        }
    }

    /// The certificate of a round from 1 on.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn certificate(&self, round: Round) -> Result<Certificate, StoreError> {
        self.ledger.certificate(round)
    }

    /// Appends the next certificate, already verified. One that is there already is no error.
    ///
    /// # Errors
    /// If it does not follow the newest one, or cannot be written.
    pub fn append_certificate(&mut self, certificate: &Certificate) -> Result<(), StoreError> {
        let header = &certificate.header;
        let round = header.round;
        if round == self.head_round() && header.digest() == self.ledger.tip_digest() {
            return Ok(());
        }
        let span = self.ledger.append(certificate)?;
        self.shared.lock().ledger.push(span);
        let losers: Vec<Digest> = {
            let catalog = self.shared.lock();
            let of_round = catalog.bodies.iter().filter(|(_, body)| body.round == round);
            of_round.map(|(&digest, _)| digest).filter(|&digest| digest != header.body).collect()
        };
        losers.into_iter().try_for_each(|digest| self.remove_body(round, digest))
    }

    /// Goes back to `round`: later certificates, bodies and snapshots are removed.
    ///
    /// # Errors
    /// If the header is not there, or files cannot be changed.
    pub fn roll_back(&mut self, round: Round) -> Result<(), StoreError> {
        let tip = self.header(round)?;
        for later in self.snapshot_rounds().into_iter().filter(|&later| later > round) {
            self.remove_snapshot(later)?;
        }
        self.snapshots.drop_partials(None)?;
        self.ledger.cut_after(round, tip)?;
        self.shared.lock().ledger = self.ledger.index.clone();
        let later: Vec<(Round, Digest)> = {
            let catalog = self.shared.lock();
            let bodies = catalog.bodies.iter().map(|(&digest, body)| (body.round, digest));
            bodies.filter(|&(of, _)| of > round).collect()
        };
        later.into_iter().try_for_each(|(of, digest)| self.remove_body(of, digest))
    }

    // --- bodies ---

    /// Stores the body of a round, committed or about to be; gives its digest as a blob.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_body(&mut self, round: Round, bytes: &[u8]) -> Result<Digest, StoreError> {
        let body = self.bodies.store(round, bytes)?;
        let digest = body.index.digest();
        self.shared.lock().bodies.insert(digest, body);
        Ok(digest)
    }

    /// Whether the body of a header is there.
    pub fn has_body(&self, header: &Header) -> bool {
        header.body_bytes == 0 || self.shared.lock().bodies.contains_key(&header.body)
    }

    /// The body of a header, every chunk checked.
    ///
    /// # Errors
    /// If it is not there or damaged; a damaged one is removed, so that it is fetched again.
    pub fn body(&mut self, header: &Header) -> Result<Vec<u8>, StoreError> {
        if header.body_bytes == 0 {
            return Ok(Vec::new());
        }
        let missing =
            || StoreError::Missing { what: format!("the body of round {}", header.round) };
        let body = self.shared.lock().bodies.get(&header.body).cloned().ok_or_else(missing)?;
        let mut bytes = Vec::with_capacity(body.index.bytes as usize);
        for chunk in 0..body.index.chunks.len() as u32 {
            match body.chunk(chunk) {
                Ok(part) => bytes.extend(part),
                Err(error) => {
                    self.remove_body(body.round, header.body)?;
                    return Err(error);
                }
            }
        }
        Ok(bytes)
    }

    fn remove_body(&mut self, round: Round, digest: Digest) -> Result<(), StoreError> {
        self.shared.lock().bodies.remove(&digest);
        self.bodies.remove(round, digest)
    }

    // --- snapshots ---

    /// Rounds of the whole snapshots.
    pub fn snapshot_rounds(&self) -> BTreeSet<Round> {
        self.shared.lock().snapshots.keys().copied().collect()
    }

    /// Starts writing the state after `round`; the writer may go to another thread.
    ///
    /// # Errors
    /// If its folder cannot be made.
    pub fn begin_snapshot(&self, round: Round) -> Result<SnapshotWriter, StoreError> {
        self.snapshots.writer(round)
    }

    /// Makes a written snapshot known and applies the rule of retention.
    ///
    /// # Errors
    /// If it is not what the chain names, or files cannot be removed.
    pub fn adopt_snapshot(&mut self, round: Round) -> Result<Retained, StoreError> {
        let snapshot = self.snapshots.look(round, self.root_after(round))?;
        self.shared.lock().snapshots.insert(round, snapshot);
        self.prune()
    }

    fn root_after(&self, round: Round) -> Option<Digest> {
        Some(self.header(round + 1).ok()?.root_before)
    }

    fn snapshot(&self, round: Round) -> Result<StoredSnapshot, StoreError> {
        let missing = || StoreError::Missing { what: format!("the snapshot of round {round}") };
        self.shared.lock().snapshots.get(&round).cloned().ok_or_else(missing)
    }

    /// The index of a snapshot and then its leaves, in order, each checked against its digest.
    /// A damaged snapshot is discarded: ask for an older one of
    /// [`snapshot_rounds`](Self::snapshot_rounds).
    ///
    /// # Errors
    /// If it is not there or damaged, or `visit` refuses a leaf.
    pub fn load_snapshot(
        &mut self,
        round: Round,
        visit: impl FnMut(u32, &[u8]) -> Result<(), String>,
    ) -> Result<(), StoreError> {
        let read = self.snapshot(round)?.read(visit);
        if let Err(error) = &read {
            self.warnings.push(format!("the snapshot of round {round} is discarded: {error}"));
            tracing::warn!("the snapshot of round {round} is discarded: {error}");
            self.remove_snapshot(round)?;
        }
        read
    }

    /// The bytes of a snapshot's index.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn snapshot_index(&self, round: Round) -> Result<Vec<u8>, StoreError> {
        let snapshot = self.snapshot(round)?;
        disk::read(&super::snapshot_files::index_path(&snapshot.dir), snapshot.blob.bytes)
    }

    /// The newest snapshot whose every leaf has its digest, at or below `at_most`; damaged ones
    /// are discarded on the way.
    ///
    /// # Errors
    /// If damaged ones cannot be removed.
    pub fn newest_snapshot(&mut self, at_most: Round) -> Result<Option<Round>, StoreError> {
        let rounds: Vec<Round> = self.snapshot_rounds().range(..=at_most).rev().copied().collect();
        for round in rounds {
            match self.load_snapshot(round, |_, _| Ok(())) {
                Ok(()) => return Ok(Some(round)),
                Err(StoreError::Damaged { .. } | StoreError::Missing { .. }) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Carries out [`Effect::StoreIndex`](crate::proto::sync::Effect::StoreIndex).
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_partial_index(&mut self, round: Round, bytes: &[u8]) -> Result<(), StoreError> {
        self.snapshots.store_index(round, bytes)
    }

    /// Carries out [`Effect::StoreLeaf`](crate::proto::sync::Effect::StoreLeaf).
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_partial_leaf(
        &mut self,
        round: Round,
        leaf: u32,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.snapshots.store_leaf(round, leaf, bytes)
    }

    /// Carries out [`Effect::DropPartial`](crate::proto::sync::Effect::DropPartial).
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn drop_partial(&mut self, round: Round) -> Result<(), StoreError> {
        self.snapshots.drop_partial(round)
    }

    /// First half of [`Effect::InstallSnapshot`](crate::proto::sync::Effect::InstallSnapshot): the
    /// fetched leaves become a whole snapshot; other unfinished ones go. Then
    /// [`load_snapshot`](Self::load_snapshot) gives the leaves.
    ///
    /// # Errors
    /// If leaves are missing or files cannot be renamed.
    pub fn finish_partial(&mut self, round: Round) -> Result<Retained, StoreError> {
        self.snapshots.finish(round, self.root_after(round))?;
        self.snapshots.drop_partials(None)?;
        self.adopt_snapshot(round)
    }

    /// Removes all snapshots, because what is in them is not trusted any more.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn drop_snapshots(&mut self) -> Result<(), StoreError> {
        self.snapshot_rounds().into_iter().try_for_each(|round| self.remove_snapshot(round))
    }

    fn remove_snapshot(&mut self, round: Round) -> Result<(), StoreError> {
        self.shared.lock().snapshots.remove(&round);
        self.snapshots.remove(round)
    }

    /// Applies the rule of retention.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn prune(&mut self) -> Result<Retained, StoreError> {
        let rounds = self.snapshot_rounds();
        let keep = retain(&rounds);
        for &round in rounds.difference(&keep.snapshots) {
            self.remove_snapshot(round)?;
        }
        let old: Vec<(Round, Digest)> = {
            let catalog = self.shared.lock();
            let bodies = catalog.bodies.iter().map(|(&digest, body)| (body.round, digest));
            bodies.filter(|&(round, _)| round <= keep.bodies_after).collect()
        };
        old.into_iter().try_for_each(|(round, digest)| self.remove_body(round, digest))?;
        Ok(keep)
    }

    /// What sync starts from, for a state folded up to `state_round`.
    ///
    /// # Errors
    /// If the ledger or an unfinished snapshot cannot be read.
    pub fn have(&self, state_round: Round, state_root: Option<Digest>) -> Result<Have, StoreError> {
        let rounds = state_round..=self.head_round();
        let headers: Vec<Header> =
            rounds.map(|round| self.header(round)).collect::<Result<_, _>>()?;
        let ahead = headers.iter().filter(|header| header.round > state_round);
        let bodies = ahead.filter(|h| self.has_body(h)).map(|h| h.round).collect();
        let partial = self.snapshots.partial()?;
        Ok(Have { headers, state_round, state_root, partial, bodies })
    }
}
