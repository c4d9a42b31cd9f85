//! From a bootstrap address to a run: which one, its manifest, its data.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    NodeError, RunRow,
    ask::{self, CHUNK, SMALL},
};
use crate::{
    base::{NodeId, RunId},
    checkpoint::store::BlobStore,
    config::{FoundedManifest, manifest::BlobRef},
    net::Net,
    observe::{Emitter, Event},
    wire::{
        blob::BlobIndex,
        fetch::{Reply, Request, RunSummary},
    },
};

/// Between two looks for a run that is not there yet.
const RETRY: Duration = Duration::from_secs(2);
/// Between two words about waiting.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Chunks of data files in flight.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Waits until exactly one run, or the one asked for, can be joined, and fetches its manifest.
///
/// # Errors
/// If several runs are there and none was chosen.
pub(crate) async fn choose(
    net: &Net,
    wanted: Option<RunId>,
    emitter: &Emitter,
) -> Result<(FoundedManifest, Vec<NodeId>), NodeError> {
    let since = Instant::now();
    let mut said: Option<Instant> = None;
    loop {
        let peers = net.connected();
        let runs = ask::runs(net, &peers).await;
        if wanted.is_none() && runs.len() > 1 {
            return Err(NodeError::SeveralRuns { runs: rows(runs.into_values()) });
        }
        let run = wanted.or_else(|| runs.keys().next().copied());
        let mut tellers: Vec<NodeId> =
            run.and_then(|run| runs.get(&run)).map(|(_, peers)| peers.clone()).unwrap_or_default();
        if let Some(run) = run {
            if tellers.is_empty() {
                tellers = net.find_providers(run.0, SMALL).await.unwrap_or_default();
            }
            if let Some(manifest) = ask::manifest(net, &tellers, run).await {
                return Ok((manifest, tellers));
            }
        }
        let waited = since.elapsed();
        if waited > RETRY && said.is_none_or(|at| at.elapsed() > SAY_EVERY) {
            said = Some(Instant::now());
            emitter.emit(waiting(&peers, wanted, waited));
        }
        tokio::time::sleep(RETRY.min(Duration::from_millis(300) + waited)).await;
    }
}

fn waiting(peers: &[NodeId], wanted: Option<RunId>, waited: Duration) -> Event {
    let (what, remedy) = match (peers.is_empty(), wanted) {
        (true, _) => (
            "a bootstrap peer that answers".to_owned(),
            "check the address given with --bootstrap and that its port is open".to_owned(),
        ),
        (false, Some(run)) => (
            format!("a peer that knows run {run}"),
            "check --run-id, or wait until a node of that run is there".to_owned(),
        ),
        (false, None) => (
            "a run: the peers there know none".to_owned(),
            "found one there with --run FILE, or wait until somebody does".to_owned(),
        ),
    };
    Event::Waiting { what, seconds: waited.as_secs_f64(), remedy }
}

/// Runs as people see them.
pub(crate) fn rows(runs: impl IntoIterator<Item = (RunSummary, Vec<NodeId>)>) -> Vec<RunRow> {
    runs.into_iter()
        .map(|(run, _)| RunRow {
            run_id: run.run,
            name: String::from_utf8_lossy(&run.name).into_owned(),
            parameters: run.parameters,
            members: usize::from(run.members),
            round: run.head.round,
            rounds: run.rounds,
            loss: run.loss,
            memory_bytes: memory_bytes(run.parameters),
        })
        .collect()
}

/// Memory that training a model of so many f32 parameters takes on the processor, activations
/// aside: parameters, gradients, two moments, start, error, frozen pseudo-gradient, two anchors,
/// outer momentum.
pub(crate) fn memory_bytes(parameters: u64) -> u64 {
    parameters.saturating_mul(4 * 10)
}

/// Fetches the data files of a run that are not complete here, from whoever has them.
///
/// # Errors
/// If a file cannot be written.
pub(crate) async fn fetch_data(
    net: &Net,
    blobs: &BlobStore,
    founded: &FoundedManifest,
    tellers: &[NodeId],
    emitter: &Emitter,
) -> Result<(), NodeError> {
    for blob in &founded.founding.data {
        if blobs.is_complete(blob.digest) {
            continue;
        }
        fetch_blob(net, blobs, founded.run_id(), blob, tellers, emitter).await?;
    }
    Ok(())
}

async fn fetch_blob(
    net: &Net,
    blobs: &BlobStore,
    run: RunId,
    blob: &BlobRef,
    tellers: &[NodeId],
    emitter: &Emitter,
) -> Result<(), NodeError> {
    let failed = |error: &dyn std::fmt::Display| NodeError::Data {
        what: blob.name.clone(),
        problem: error.to_string(),
    };
    let since = Instant::now();
    loop {
        let donors = donors(net, run, tellers).await;
        if let Some(index) = blob_index(net, &donors, blob).await {
            blobs.begin(blob.digest, index.clone()).map_err(|error| failed(&error))?;
            let missing = blobs.missing(blob.digest).unwrap_or_default();
            fetch_chunks(net, blobs, blob, &index, &donors, missing)
                .await
                .map_err(|error| failed(&error))?;
            if blobs.complete(blob.digest).map_err(|error| failed(&error))? {
                return Ok(());
            }
        }
        let waited = since.elapsed();
        if waited > RETRY {
            emitter.emit(Event::Waiting {
                what: format!("data file {} ({} bytes)", blob.name, blob.bytes),
                seconds: waited.as_secs_f64(),
                remedy: "wait until a node that has it is there".to_owned(),
            });
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn donors(net: &Net, run: RunId, tellers: &[NodeId]) -> Vec<NodeId> {
    let mut donors = tellers.to_vec();
    donors.extend(net.connected());
    donors.extend(net.find_providers(run.0, SMALL).await.unwrap_or_default());
    donors.sort_unstable();
    donors.dedup();
    donors.retain(|donor| *donor != net.node_id());
    donors
}

async fn blob_index(net: &Net, donors: &[NodeId], blob: &BlobRef) -> Option<BlobIndex> {
    for &donor in donors {
        if let Ok(Reply::BlobIndex(index)) =
            ask::ask(net, donor, &Request::BlobIndex(blob.digest), CHUNK).await
        {
            match index.verify(blob.digest) {
                Ok(()) if index.bytes == blob.bytes => return Some(index),
                _ => tracing::warn!("{} sent a wrong index of {}", donor.short(), blob.name),
            }
        }
    }
    None
}

/// Fetches chunks from all donors at once; what a donor does not give is asked of the next one.
async fn fetch_chunks(
    net: &Net,
    blobs: &BlobStore,
    blob: &BlobRef,
    index: &BlobIndex,
    donors: &[NodeId],
    missing: BTreeSet<u32>,
) -> Result<(), String> {
    use futures::StreamExt;
    let fetched = futures::stream::iter(missing).map(|chunk| async move {
        for turn in 0..donors.len() {
            let donor = donors[(chunk as usize + turn) % donors.len()];
            let request = Request::BlobChunk { blob: blob.digest, chunk };
            if let Ok(Reply::Bytes(bytes)) = ask::ask(net, donor, &request, CHUNK).await
                && index.chunks.get(chunk as usize) == Some(&crate::base::Digest::of(&bytes))
            {
                return Some((chunk, bytes));
            }
        }
        None
    });
    let mut fetched = fetched.buffer_unordered(CHUNKS_IN_FLIGHT);
    while let Some(found) = fetched.next().await {
        if let Some((chunk, bytes)) = found {
            blobs.put_chunk(blob.digest, chunk, &bytes).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
