//! Asking peers for what they hold.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use crate::{
    base::{NodeId, RunId},
    config::FoundedManifest,
    net::Net,
    proto::sync::FetchFailure,
    wire::{
        VERSION,
        fetch::{Reply, Request, RunSummary},
    },
};

/// How long a small reply may take.
pub(crate) const SMALL: Duration = Duration::from_secs(10);
/// How long others are waited for when one peer has told its runs.
const OTHERS: Duration = Duration::from_secs(1);
/// How long one chunk of a megabyte may take: it fits a line of 150 kbit/s.
pub(crate) const CHUNK: Duration = Duration::from_secs(60);

/// Asks one peer.
///
/// # Errors
/// If it cannot be reached, does not reply in time, or replies with something else.
pub(crate) async fn ask(
    net: &Net,
    peer: NodeId,
    request: &Request,
    timeout: Duration,
) -> Result<Reply, FetchFailure> {
    use crate::net::RequestError;
    let bytes =
        net.request(peer, request.to_bytes(), timeout).await.map_err(|error| match error {
            RequestError::Timeout => FetchFailure::Timeout,
            RequestError::NoAddress(_)
            | RequestError::Unreachable(_)
            | RequestError::Lost(_)
            | RequestError::Stopped => FetchFailure::Gone,
            error => FetchFailure::Other(error.to_string()),
        })?;
    match Reply::from_bytes(&bytes) {
        Ok(Reply::Version(theirs)) => Err(FetchFailure::Other(format!(
            "the peer speaks wire version {theirs}, this node {VERSION}: upgrade the older one"
        ))),
        Ok(reply) => Ok(reply),
        Err(error) => Err(FetchFailure::Malformed(error.to_string())),
    }
}

/// The runs that any of `peers` knows, with who told of each; of several tellings the newest. When
/// one has answered, a peer that does not is not waited for.
pub(crate) async fn runs(
    net: &Net,
    peers: &[NodeId],
) -> BTreeMap<RunId, (RunSummary, Vec<NodeId>)> {
    let mut asked: FuturesUnordered<_> = peers
        .iter()
        .map(|&peer| async move { (peer, ask(net, peer, &Request::Runs, SMALL).await) })
        .collect();
    let mut until = Instant::now() + SMALL;
    let mut known: BTreeMap<RunId, (RunSummary, Vec<NodeId>)> = BTreeMap::new();
    while let Ok(Some((peer, reply))) = timeout_at(until, asked.next()).await {
        let runs = match reply {
            Ok(Reply::Runs(runs)) => runs.into_vec(),
            Ok(_) => continue,
            Err(error) => {
                tracing::debug!("{} did not tell its runs: {error}", peer.short());
                continue;
            }
        };
        if !runs.is_empty() {
            until = until.min(Instant::now() + OTHERS);
        }
        for run in runs {
            let entry = known.entry(run.run).or_insert_with(|| (run.clone(), Vec::new()));
            entry.1.push(peer);
            if (run.head.round, run.loss.is_some()) > (entry.0.head.round, entry.0.loss.is_some()) {
                entry.0 = run;
            }
        }
    }
    known
}

/// The manifest of a run, verified, from the first of `peers` that has it.
pub(crate) async fn manifest(net: &Net, peers: &[NodeId], run: RunId) -> Option<FoundedManifest> {
    for &peer in peers {
        match ask(net, peer, &Request::Manifest(run), CHUNK).await {
            Ok(Reply::Manifest(bytes)) => match FoundedManifest::from_bytes(&bytes, Some(run)) {
                Ok(manifest) => return Some(manifest),
                Err(error) => tracing::warn!("{} sent a bad manifest: {error}", peer.short()),
            },
            Ok(_) => {}
            Err(error) => tracing::debug!("{} did not send the manifest: {error}", peer.short()),
        }
    }
    None
}
