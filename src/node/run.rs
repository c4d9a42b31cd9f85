//! What the command line calls beside the node and the bootstrap peer.

use std::{sync::Arc, time::Duration};

use super::{
    NodeError, RunRow, ask, found, join,
    options::{GenerateOptions, RunsOptions},
    start::{Base, NetOptions, network, newest_state, specs},
    store::Store,
};
use crate::{
    codec::Bits,
    compute::DeviceChoice,
    config::FoundedManifest,
    data::Dataset,
    identity::Identity,
    node::options::Listen,
    outer::{Exchange, State},
    train::{Trainer, TrainerConfig},
};

/// Asks peers for the runs that can be joined.
///
/// # Errors
/// If an address is wrong or nobody answers.
pub async fn runs(options: RunsOptions) -> Result<Vec<RunRow>, NodeError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| NodeError::Failed {
        what: format!("the operating system gives no entropy: {error}"),
        help: "try again".to_owned(),
    })?;
    let identity = Identity::from_bytes(&secret);
    let net_options = NetOptions {
        listen: &Listen::Explicit(Vec::new()),
        external: &[],
        bootstrap: &options.bootstrap,
        upload: None,
        download: None,
    };
    let (net, _events) = network(&identity, &net_options).await?;
    let asked = tokio::time::timeout(options.timeout, async {
        loop {
            let peers = net.connected();
            if !peers.is_empty() {
                return ask::runs(&net, &peers).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let runs = asked.await.map_err(|_| NodeError::Failed {
        what: format!("no peer answered within {} s", options.timeout.as_secs()),
        help: "check the addresses given with --bootstrap and that those peers run".to_owned(),
    });
    net.shutdown().await;
    Ok(join::rows(runs?.into_values()))
}

/// Text that the newest anchor of a data directory writes, and the anchor's round.
///
/// # Errors
/// If the directory holds no run.
pub fn generate(options: &GenerateOptions) -> Result<(u64, String), NodeError> {
    let base = Base::open(&options.data_dir, None)?;
    let run = match base.dir.runs()?.as_slice() {
        [run, ..] => *run,
        [] => return Err(NodeError::NoRun { path: options.data_dir.clone() }),
    };
    let founded = base.dir.manifest(run)?;
    let store = base.store(&founded)?;
    let state = head_state(&store, &founded)?;
    let manifest = founded.founding.manifest.clone();
    let failed = |error: &dyn std::fmt::Display| NodeError::Failed {
        what: format!("the model cannot write: {error}"),
        help: "look at the data directory, or use fewer --threads".to_owned(),
    };
    let dataset = Dataset::open(&manifest, &found::files(&base.blobs, &founded)?)
        .map_err(|error| failed(&error))?;
    let config =
        TrainerConfig { manifest, device: DeviceChoice::Cpu, threads: options.threads.get() };
    let mut trainer = Trainer::new(config, Arc::new(dataset)).map_err(|error| failed(&error))?;
    let anchor: Vec<Vec<f32>> = state.fragments.iter().map(|f| f.anchor.clone()).collect();
    trainer.set_parameters(&anchor).map_err(|error| failed(&error))?;
    let text = trainer
        .generate(&options.prompt, options.tokens, options.temperature, options.seed)
        .map_err(|error| failed(&error))?;
    Ok((state.round, text))
}

/// The state after the newest round whose body is stored.
fn head_state(store: &Store, founded: &FoundedManifest) -> Result<State, NodeError> {
    let (mut state, _) = newest_state(store, founded)?;
    let specs = specs(&founded.founding.manifest);
    for round in state.round + 1..=store.head_round().min(founded.founding.manifest.run.rounds) {
        let Some(header) = store.header(round) else { break };
        let Ok(bytes) = store.body(&header) else { break };
        let folded = super::books::check_body(&specs, &header, &bytes).and_then(|body| {
            let omegas: Vec<u16> = header.members.iter().map(|member| member.omega).collect();
            let exchange = Exchange {
                round,
                bits: Bits::try_from(header.bits).map_err(|error| error.to_string())?,
                omegas: &omegas,
                buckets: &specs,
                body: &body,
                outer: founded.founding.manifest.outer,
                cursor: header.cursor_after(),
            };
            state.fold(&exchange).map_err(|error| error.to_string())
        });
        folded.map_err(|error| NodeError::Failed {
            what: format!("round {round} cannot be folded: {error}"),
            help: "start the node once: it fetches what is missing".to_owned(),
        })?;
    }
    Ok(state)
}
