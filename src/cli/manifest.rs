//! `run new`, `run check`, `run show`: manifests before they are founded.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    cli::{
        args::{RunCommand, RunFileArgs, RunNewArgs},
        failure::Failure,
        print,
    },
    config::{EMBEDDED_RUN, Manifest, manifest::DataSource, units::bytes_text},
};

/// Carries a `run` subcommand out.
pub(super) fn dispatch(command: RunCommand) -> Result<(), Failure> {
    match command {
        RunCommand::New(args) => new(&args),
        RunCommand::Check(args) => check(&args),
        RunCommand::Show(args) => show(&args),
    }
}

fn new(args: &RunNewArgs) -> Result<(), Failure> {
    let stem = args.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or(stem).unwrap_or_default();
    let text = template(&name, &args.data, args.rounds)?;
    write_new(&args.file, &text)?;
    let file = args.file.display().to_string();
    print::result(args.json, &json!({ "file": file }), || {
        format!("wrote {file}\nedit it, then found the run with:\n  dilocox-node --run {file}")
    });
    Ok(())
}

/// The embedded manifest with another name, data and length; comments stay.
pub(super) fn template(
    name: &str,
    data: &[PathBuf],
    rounds: Option<u64>,
) -> Result<String, Failure> {
    let mut text = EMBEDDED_RUN.to_owned();
    set(&mut text, "name", &quoted(name));
    if let Some(rounds) = rounds {
        set(&mut text, "rounds", &rounds.to_string());
    }
    if !data.is_empty() {
        let paths: Result<Vec<String>, Failure> = data.iter().map(|path| absolute(path)).collect();
        let files: Vec<String> = paths?.iter().map(|path| quoted(path)).collect();
        set(&mut text, "source", &format!("\"files\"\nfiles = [{}]", files.join(", ")));
        text = text
            .lines()
            .filter(|line| !line.starts_with("story_bytes"))
            .fold(String::new(), |text, line| text + line + "\n");
    }
    Manifest::from_toml(&text)
        .map_err(|error| Failure::usage(error, "choose other values for the flags"))?;
    Ok(text)
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn absolute(path: &Path) -> Result<String, Failure> {
    let unusable = |reason: String| {
        Failure::usage(
            format!("cannot use the data file {}: {reason}", path.display()),
            "name a readable text file",
        )
    };
    let full = fs::canonicalize(path).map_err(|error| unusable(error.to_string()))?;
    full.to_str().map(str::to_owned).ok_or_else(|| unusable("its path is no UTF-8".into()))
}

/// Replaces the value of the first line `key = ...`.
fn set(text: &mut String, key: &str, value: &str) {
    let mut done = false;
    let lines = text.lines().map(|line| {
        let hit = !done && line.split('=').next().is_some_and(|left| left.trim() == key);
        done |= hit;
        if hit { format!("{key} = {value}\n") } else { format!("{line}\n") }
    });
    *text = lines.collect();
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let mut options = fs::OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::usage(
            format!("{} exists already", path.display()),
            "choose another name, or remove it first",
        ),
        _ => Failure::failed(
            format!("cannot write {}: {error}", path.display()),
            "check the path and its permissions",
        ),
    })
}

/// The manifest of a file, or the embedded one, and what to call it.
fn read(file: Option<&Path>) -> Result<(Manifest, String), Failure> {
    let (text, name) = match file {
        None => (EMBEDDED_RUN.to_owned(), "the embedded run".to_owned()),
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|error| {
                Failure::usage(
                    format!("cannot read the manifest {}: {error}", path.display()),
                    "check the path; `dilocox-node run new FILE` writes a template",
                )
            })?;
            (text, path.display().to_string())
        }
    };
    let manifest = Manifest::from_toml(&text).map_err(|error| {
        Failure::usage(format!("{name}: {error}"), "configs/README.md describes every key")
    })?;
    Ok((manifest, name))
}

fn check(args: &RunFileArgs) -> Result<(), Failure> {
    let (manifest, name) = read(args.file.as_deref())?;
    let base = args.file.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new(""));
    let data_bytes = data_bytes(&manifest, base)?;
    let facts = facts(&manifest, data_bytes);
    print::result(args.json, &facts, || format!("{name} can be founded: {}", summary(&facts)));
    Ok(())
}

fn show(args: &RunFileArgs) -> Result<(), Failure> {
    let (manifest, name) = read(args.file.as_deref())?;
    print::result(args.json, &manifest, || {
        let bytes = manifest.data.story_bytes;
        format!("# {name}: {}\n\n{}", summary(&facts(&manifest, bytes)), manifest.to_toml())
    });
    Ok(())
}

/// Bytes of training text; every file must be there and hold something.
fn data_bytes(manifest: &Manifest, base: &Path) -> Result<u64, Failure> {
    if manifest.data.source == DataSource::Stories {
        return Ok(manifest.data.story_bytes);
    }
    let mut total = 0;
    for file in &manifest.data.files {
        let path = base.join(file);
        let problem = match fs::metadata(&path) {
            Err(error) => error.to_string(),
            Ok(found) if !found.is_file() => "it is no file".to_owned(),
            Ok(found) if found.len() == 0 => "it is empty".to_owned(),
            Ok(found) => {
                total += found.len();
                continue;
            }
        };
        return Err(Failure::usage(
            format!("manifest key `data.files`: {}: {problem}", path.display()),
            "name readable, non-empty text files, relative to the manifest",
        ));
    }
    Ok(total)
}

fn facts(manifest: &Manifest, data_bytes: u64) -> Value {
    json!({
        "name": manifest.run.name,
        "parameters": manifest.layout().elements(),
        "fragments": manifest.layout().fragments.len(),
        "rounds": manifest.run.rounds,
        "local_steps": manifest.rounds.local_steps,
        "tokens_per_round": u64::from(manifest.rounds.local_steps)
            * (manifest.inner.batch * manifest.model.sequence_length) as u64,
        "data_bytes": data_bytes,
    })
}

fn summary(facts: &Value) -> String {
    let number = |key: &str| facts[key].as_u64().unwrap_or_default();
    format!(
        "{} parameters in {} fragments, {} rounds of {} steps, {} tokens a node and round, {} of text",
        number("parameters"),
        number("fragments"),
        number("rounds"),
        number("local_steps"),
        number("tokens_per_round"),
        bytes_text(number("data_bytes")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_holds_what_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("my \"text\".txt");
        fs::write(&text, "hello").unwrap();
        let made = template("a run", &[text], Some(12)).unwrap();
        let manifest = Manifest::from_toml(&made).unwrap();
        assert_eq!((manifest.run.name.as_str(), manifest.run.rounds), ("a run", 12));
        assert_eq!(data_bytes(&manifest, Path::new("/nowhere")).unwrap(), 5);
    }

    #[test]
    fn without_wishes_the_template_is_the_embedded_run() {
        let embedded = Manifest::from_toml(EMBEDDED_RUN).unwrap();
        let made = template(&embedded.run.name, &[], None).unwrap();
        assert_eq!(Manifest::from_toml(&made).unwrap(), embedded);
    }

    #[test]
    fn bad_data_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.txt");
        fs::write(&empty, "").unwrap();
        let manifest = Manifest::from_toml(&template("x", &[empty], None).unwrap()).unwrap();
        let failure = data_bytes(&manifest, dir.path()).unwrap_err();
        assert!(failure.what.contains("empty.txt: it is empty") && failure.usage, "{failure}");
        let gone = template("x", &[dir.path().join("gone.txt")], None).unwrap_err();
        assert!(gone.what.contains("gone.txt"), "{gone}");
    }

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.toml");
        write_new(&path, "a").unwrap();
        assert!(write_new(&path, "b").unwrap_err().usage);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a");
    }
}
