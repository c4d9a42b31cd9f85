//! Founding a run: manifest, data files, signature.

use std::path::{Path, PathBuf};

use super::{NodeError, options::NodeOptions, start::Base};
use crate::{
    base::Bounded,
    checkpoint::store::BlobStore,
    config::{EMBEDDED_RUN, FoundedManifest, Founding, Manifest, manifest::BlobRef},
};

/// Founds the run that the options name, or the embedded one, and checks its data.
///
/// # Errors
/// If the manifest or a data file cannot be used.
pub(crate) fn found(options: &NodeOptions, base: &Base) -> Result<FoundedManifest, NodeError> {
    let (mut manifest, folder) = template(options.run.as_deref())?;
    if let Some(rounds) = options.rounds {
        manifest.run.rounds = rounds;
    }
    let data = manifest
        .data
        .files
        .iter()
        .map(|file| import(&base.blobs, &folder.join(file)))
        .collect::<Result<Vec<BlobRef>, NodeError>>()?;
    let data = Bounded::try_from(data).map_err(|error| NodeError::Data {
        what: "data.files".to_owned(),
        problem: error.to_string(),
    })?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| NodeError::Failed {
        what: format!("the operating system gives no entropy: {error}"),
        help: "start the node again".to_owned(),
    })?;
    let created = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let founder = base.identity.node_id();
    let founding = Founding { manifest, founder, created, nonce, data };
    let founded = FoundedManifest::found(founding, &base.identity);
    founded.verify(None).map_err(|source| NodeError::Manifest {
        path: options.run.clone().unwrap_or_else(|| PathBuf::from("the embedded run")),
        source,
    })?;
    // Too little text is said before anybody is asked to join.
    crate::data::Dataset::open(&founded.founding.manifest, &files(&base.blobs, &founded)?)
        .map_err(|error| NodeError::Data { what: source(&founded), problem: error.to_string() })?;
    Ok(founded)
}

/// What the run is trained on, for people.
fn source(founded: &FoundedManifest) -> String {
    let names: Vec<&str> = founded.founding.data.iter().map(|blob| blob.name.as_str()).collect();
    if names.is_empty() { "of this run".to_owned() } else { names.join(", ") }
}

/// A template and the folder that its file names are relative to.
fn template(path: Option<&Path>) -> Result<(Manifest, PathBuf), NodeError> {
    let Some(path) = path else {
        let embedded = Manifest::from_toml(EMBEDDED_RUN).map_err(|source| NodeError::Manifest {
            path: PathBuf::from("the embedded run"),
            source,
        })?;
        return Ok((embedded, PathBuf::new()));
    };
    let text = std::fs::read_to_string(path).map_err(|source| NodeError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let manifest = Manifest::from_toml(&text)
        .map_err(|source| NodeError::Manifest { path: path.to_owned(), source })?;
    Ok((manifest, path.parent().map(Path::to_owned).unwrap_or_default()))
}

fn import(blobs: &BlobStore, path: &Path) -> Result<BlobRef, NodeError> {
    let unusable = |problem: String| NodeError::Data { what: path.display().to_string(), problem };
    let found = std::fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
    if !found.is_file() {
        return Err(unusable("it is no file".to_owned()));
    }
    if found.len() == 0 {
        return Err(unusable("it is empty".to_owned()));
    }
    blobs.import_file(path).map_err(|error| unusable(error.to_string()))
}

/// Where the data files of a run lie, in the manifest's order.
///
/// # Errors
/// If one is not complete here.
pub(crate) fn files(
    blobs: &BlobStore,
    founded: &FoundedManifest,
) -> Result<Vec<PathBuf>, NodeError> {
    let path = |blob: &BlobRef| {
        blobs.path(blob.digest).ok_or_else(|| NodeError::Data {
            what: blob.name.clone(),
            problem: "it is not complete in the data directory".to_owned(),
        })
    };
    founded.founding.data.iter().map(path).collect()
}
