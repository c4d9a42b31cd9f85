//! The layout of the crate, checked on its text: which module may import which, and that the
//! decide half names no socket, file, clock or entropy.
//!
//! Comments and literals are blanked first, so prose may name anything.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What each top-level module may import from this crate. `wire` and `config` are one level: the
/// ledger begins with the manifest, and the manifest has canonical bytes.
const ALLOWED: &[(&str, &[&str])] = &[
    // decide
    ("base", &[]),
    ("identity", &["base"]),
    ("wire", &["base", "identity", "config"]),
    ("config", &["base", "identity", "wire"]),
    ("plan", &["base", "identity", "wire", "config"]),
    ("codec", &["base", "identity", "wire", "config"]),
    ("outer", &["base", "identity", "wire", "config", "codec"]),
    ("proto", &["base", "identity", "wire", "config", "plan", "codec", "outer"]),
    ("sim", &["base", "identity", "wire", "config", "plan", "codec", "outer", "proto"]),
    // do
    ("compute", &["base", "config"]),
    ("data", &["base", "config", "plan"]),
    ("model", &["base", "config", "compute"]),
    ("optim", &["base", "config", "compute", "model"]),
    ("pipeline", &["base", "config", "compute", "model", "optim"]),
    // The store keeps what the sync machine has on the disk: indices, leaves, partial snapshots.
    (
        "checkpoint",
        &[
            "base", "identity", "wire", "config", "codec", "outer", "proto", "compute", "model",
            "optim",
        ],
    ),
    (
        "train",
        &["base", "config", "plan", "compute", "data", "model", "optim", "pipeline", "checkpoint"],
    ),
    ("net", &["base", "identity", "wire", "config"]),
    ("observe", &["base", "identity", "config"]),
    (
        "node",
        &[
            "base",
            "identity",
            "wire",
            "config",
            "plan",
            "codec",
            "outer",
            "proto",
            "compute",
            "data",
            "model",
            "optim",
            "pipeline",
            "checkpoint",
            "train",
            "net",
            "observe",
        ],
    ),
    ("cli", &["base", "identity", "config", "observe", "node"]),
];

/// The half that decides.
const DECIDE: &[&str] =
    &["base", "identity", "wire", "config", "plan", "codec", "outer", "proto", "sim"];

/// Names that the decide half must not use, each with what it stands for.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::net", "a socket"),
    ("std::fs", "a file"),
    ("std::io", "a file"),
    ("std::env", "the environment"),
    ("std::process", "the process"),
    ("std::thread", "a thread"),
    ("std::time::Instant", "the clock"),
    ("std::time::SystemTime", "the clock"),
    ("Instant", "the clock"),
    ("SystemTime", "the clock"),
    ("RandomState", "entropy"),
    ("getrandom", "entropy"),
    ("rand", "entropy"),
    ("tokio", "the async runtime"),
    ("tokio_util", "the async runtime"),
    ("futures", "the async runtime"),
    ("async", "the async runtime"),
    ("libp2p", "a socket"),
    ("axum", "a socket"),
    ("candle_core", "a device"),
    ("candle_nn", "a device"),
    ("cudarc", "a device"),
    ("memmap2", "a file"),
    ("tempfile", "a file"),
    ("directories", "the environment"),
];

/// Crates that are named in one place.
const CONFINED: &[(&str, &[&str])] = &[
    ("bincode", &["src/wire/codec.rs"]),
    ("libp2p", &["src/net/"]),
    ("axum", &["src/observe/"]),
    ("indicatif", &["src/observe/", "src/cli/"]),
    ("clap", &["src/cli/", "src/bin/"]),
    ("directories", &["src/cli/", "src/checkpoint/"]),
];

/// Everything that is wrong with one file.
fn violations(path: &str, source: &str) -> Vec<String> {
    let code = blank(source);
    let paths = expand(&code);
    let module = path.trim_start_matches("src/").split('/').next().unwrap_or_default();
    let module = module.trim_end_matches(".rs");
    let mut found = confined(path, &paths);
    if module == "lib" || module == "bin" {
        return found;
    }
    found.extend(directions(path, module, &paths));
    if DECIDE.contains(&module) {
        found.extend(purity(path, &paths, &code));
    }
    found
}

fn directions(path: &str, module: &str, paths: &BTreeSet<String>) -> Vec<String> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{path}: module `{module}` is not in the table of directions")];
    };
    let imports: BTreeSet<&str> = paths
        .iter()
        .filter_map(|used| used.strip_prefix("crate::"))
        .map(|used| used.split("::").next().unwrap_or_default())
        .filter(|used| *used != module && !allowed.contains(used) && is_module(used))
        .filter(|used| !(is_test(path) && same_half(module, used)))
        .collect();
    let complaint = |used| format!("{path}: `{module}` must not import `{used}`");
    imports.into_iter().map(complaint).collect()
}

/// Test code may put neighbours of its own half together, and measure time.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn same_half(module: &str, other: &str) -> bool {
    DECIDE.contains(&module) == DECIDE.contains(&other)
}

/// Whether a name after `crate::` is a module of the table, not a macro or re-export.
fn is_module(name: &str) -> bool {
    ALLOWED.iter().any(|(module, _)| *module == name)
}

fn purity(path: &str, paths: &BTreeSet<String>, code: &str) -> Vec<String> {
    FORBIDDEN
        .iter()
        .filter(|(name, _)| !(is_test(path) && name.ends_with("Instant")))
        .filter(|(name, _)| {
            let inside = format!("{name}::");
            let in_path = paths.iter().any(|used| used == name || used.starts_with(&inside));
            in_path || (!name.contains("::") && words(code).any(|word| word == *name))
        })
        .map(|(name, what)| format!("{path}: the decide half must not name {what} (`{name}`)"))
        .collect()
}

fn confined(path: &str, paths: &BTreeSet<String>) -> Vec<String> {
    CONFINED
        .iter()
        .filter(|(_, homes)| !homes.iter().any(|home| path.starts_with(home)))
        .filter(|(name, _)| {
            let inside = format!("{name}::");
            paths.iter().any(|used| used == name || used.starts_with(&inside))
        })
        .map(|(name, homes)| format!("{path}: only {homes:?} may name `{name}`"))
        .collect()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The source with comments and literals replaced by spaces.
fn blank(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end > at {
            out.push(' ');
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match (chars[at], next) {
        ('/', Some('/')) => find(chars, at, "\n").unwrap_or(chars.len()),
        ('/', Some('*')) => find(chars, at + 2, "*/").map_or(chars.len(), |end| end + 2),
        ('"', _) => quoted_end(chars, at + 1, '"'),
        ('r', Some('"' | '#')) if !follows_a_word(chars, at) => raw_end(chars, at),
        ('\'', Some('\\')) => quoted_end(chars, at + 1, '\''),
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn follows_a_word(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    find(chars, at + 2 + hashes, &close).map_or(chars.len(), |end| end + close.len())
}

fn find(chars: &[char], from: usize, needle: &str) -> Option<usize> {
    let needle: Vec<char> = needle.chars().collect();
    (from..chars.len()).find(|&at| chars[at..].starts_with(&needle))
}

/// All paths of at least two segments in the code; use trees are written out.
fn expand(code: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let start = rest[..at]
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |before| before + 1);
        let head = rest[start..at].to_owned();
        let used = tree(&head, &rest[at + 2..], &mut paths);
        rest = &rest[at + 2 + used..];
    }
    paths
}

/// Adds what follows `head::`; returns how much of the text it took.
fn tree(head: &str, text: &str, paths: &mut BTreeSet<String>) -> usize {
    let lead = text.len() - text.trim_start().len();
    let text = &text[lead..];
    if !text.starts_with('{') {
        let name = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        let path = format!("{head}::{}", &text[..name]);
        paths.insert(path.clone());
        let more = text[name..].starts_with("::");
        return lead + name + if more { 2 + tree(&path, &text[name + 2..], paths) } else { 0 };
    }
    let mut at = 1;
    while at < text.len() && !text[at..].starts_with('}') {
        if text[at..].starts_with(|c: char| c == ',' || c.is_whitespace()) {
            at += 1;
            continue;
        }
        let taken = tree(head, &text[at..], paths);
        at += taken.max(text[at..].chars().next().map_or(1, char::len_utf8));
    }
    lead + at + 1
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn imports_run_one_way_and_the_decide_half_is_pure() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    files.sort();
    assert!(files.len() > 50, "{} files are too few to be all", files.len());
    let found: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            violations(&path, &fs::read_to_string(file).unwrap())
        })
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn files_are_split_by_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    for file in files {
        if is_test(&file.to_string_lossy().replace('\\', "/")) {
            continue;
        }
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 650, "{}: {lines} lines; split it by subject", file.display());
    }
}

#[test]
fn planted_violations_are_caught() {
    let cases = [
        ("src/proto/x.rs", "use std::net::TcpStream;", "a socket"),
        ("src/proto/x.rs", "use std::{fmt, fs};", "a file"),
        ("src/proto/x.rs", "use std::{time::{Duration, Instant}};", "the clock"),
        ("src/proto/x.rs", "fn now() { std::time::SystemTime::now(); }", "the clock"),
        ("src/codec/x.rs", "fn roll() -> u8 { rand::random() }", "entropy"),
        ("src/outer/x.rs", "use std :: fs :: File; async fn f() {}", "the async runtime"),
        ("src/wire/x.rs", "fn f() { std::env::var(\"X\"); }", "the environment"),
        ("src/wire/x.rs", "fn f() { bincode::encode(); }", "may name `bincode`"),
        ("src/node/x.rs", "use libp2p::{Swarm};", "may name `libp2p`"),
        ("src/base/x.rs", "use crate::{wire::Frame};", "must not import `wire`"),
        ("src/net/mod.rs", "use crate::{\n base::Time,\n proto::Node,\n};", "import `proto`"),
        ("src/train/x.rs", "fn f() { crate::net::dial(); }", "import `net`"),
        ("src/cli/x.rs", "use crate::proto::node::Node;", "import `proto`"),
        ("src/novel.rs", "", "not in the table"),
        ("src/sim/world.rs", "use std::fs;", "a file"),
        ("src/proto/tests.rs", "use std::fs; use crate::net::Handle;", "a file"),
        ("src/proto/tests.rs", "use crate::net::Handle;", "import `net`"),
    ];
    for (path, source, needle) in cases {
        let found = violations(path, source);
        assert!(found.iter().any(|text| text.contains(needle)), "{path} {source}: {found:?}");
    }
}

#[test]
fn what_is_allowed_is_not_complained_about() {
    let cases = [
        ("src/proto/x.rs", "use std::time::Duration; // not std::fs, nor Instant"),
        ("src/proto/x.rs", "const TEXT: &str = \"std::net tokio\"; /* libp2p::x */"),
        ("src/proto/x.rs", "const RAW: &str = r#\"use \"std::fs\";\"#; const Q: char = '\"';"),
        ("src/proto/x.rs", "use crate::{base::{Time, id}, wire::Frame}; fn f<'a>(x: &'a str) {}"),
        ("src/bin/dilocox-sim.rs", "use std::{fs, process::ExitCode}; use clap::Parser;"),
        ("src/net/x.rs", "use libp2p::Swarm; use tokio::time::Instant;"),
        ("src/wire/codec.rs", "use bincode::config;"),
        ("src/model/tests.rs", "use crate::optim::AdamW;"),
        ("src/proto/ring/tests/speed.rs", "use std::time::Instant;"),
    ];
    for (path, source) in cases {
        assert_eq!(violations(path, source), Vec::<String>::new(), "{source}");
    }
}
