//! Flags, configuration files and their page held together.

use std::{collections::BTreeMap, path::Path};

use clap::{CommandFactory, Parser};

use super::{
    args::{BootstrapArgs, NodeArgs},
    settings::{BootstrapSettings, NodeSettings, from_file},
};
use crate::{
    config::Manifest,
    node::options::{Device, Http, Listen},
};

const PAGE: &str = include_str!("../../configs/README.md");

/// A manifest of nothing but the required keys.
const MINIMAL: &str = r#"
[run]
name = "x"
rounds = 1
[model]
architecture = "llama"
vocab_size = 257
hidden_size = 8
intermediate_size = 8
layers = 1
heads = 1
kv_heads = 1
sequence_length = 8
[tokenizer]
kind = "byte"
[data]
source = "stories"
[inner]
learning_rate = 1e-3
batch = 1
micro_batch = 1
[outer]
[rounds]
local_steps = 1
[compression]
strategy = "dilocox"
"#;

/// Keys and defaults of the page's tables, under their headings.
fn page() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut sections = BTreeMap::new();
    let mut section = String::new();
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("### `") {
            section = title.trim_end_matches('`').trim_matches(['[', ']']).to_owned();
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if let ([key, default, _], true) = (&cells[..], line.starts_with("| `")) {
            let keys: &mut BTreeMap<_, _> = sections.entry(section.clone()).or_default();
            keys.insert(key.trim_matches('`').to_owned(), default.trim_matches('`').to_owned());
        }
    }
    sections
}

#[test]
fn the_page_names_every_key_of_a_manifest_with_its_default() {
    let manifest = Manifest::from_toml(MINIMAL).unwrap();
    let full: toml::Table = manifest.to_toml().parse().unwrap();
    let given: toml::Table = MINIMAL.parse().unwrap();
    let mut page = page();
    for (section, keys) in &full {
        let mut documented = page.remove(section).unwrap_or_default();
        for (key, value) in keys.as_table().unwrap() {
            let default = documented.remove(key);
            let default = default.unwrap_or_else(|| panic!("{section}.{key} is not on the page"));
            let required = given.get(section).and_then(|keys| keys.get(key)).is_some();
            if required {
                assert_eq!(default, "required", "{section}.{key}");
            } else {
                assert!(same(&default, value), "{section}.{key}: {default} is {value}");
            }
        }
        assert!(documented.is_empty(), "{section} has no {documented:?}");
    }
}

/// Whether a default is written as it is; floats of the manifest may be singles.
fn same(written: &str, value: &toml::Value) -> bool {
    match (written.parse::<f64>(), value) {
        (Ok(number), toml::Value::Float(value)) => (number - value).abs() <= 1e-6 * number.abs(),
        _ => written == value.to_string(),
    }
}

#[test]
fn the_page_names_every_flag_of_a_node_configuration() {
    for (program, command) in
        [("dilocox-node", NodeArgs::command()), ("dilocox-bootstrap", BootstrapArgs::command())]
    {
        let start = ["config", "json", "exit-with-parent", "help", "version"];
        let flags: Vec<String> = command
            .get_arguments()
            .filter_map(|argument| argument.get_long().map(str::to_owned))
            .filter(|flag| !start.contains(&flag.as_str()))
            .collect();
        let documented: Vec<String> = page()[program].keys().cloned().collect();
        let mut sorted = flags.clone();
        sorted.sort();
        assert_eq!(documented, sorted, "{program}");
    }
}

#[test]
fn every_documented_key_can_be_set_in_a_file() {
    let values = |key: &str| match key {
        "bootstrap" => r#"["/ip4/127.0.0.1/tcp/1/p2p/12D3KooWx"]"#.to_owned(),
        "listen" | "external" => r#"["/ip4/127.0.0.1/tcp/1"]"#.to_owned(),
        "threads" | "rounds" | "grace" => "3".to_owned(),
        "keep-serving" | "archive" => "true".to_owned(),
        "http" => r#""off""#.to_owned(),
        "device" => r#""cpu""#.to_owned(),
        "upload-limit" | "download-limit" => r#""1mbit""#.to_owned(),
        "disk-limit" => r#""1gib""#.to_owned(),
        "run-id" => format!("\"{}\"", "ab".repeat(32)),
        _ => r#""some/path""#.to_owned(),
    };
    let text = |program: &str| {
        page()[program].keys().map(|key| format!("{key} = {}\n", values(key))).collect::<String>()
    };
    let node: NodeSettings = toml::from_str(&text("dilocox-node")).unwrap();
    assert!(node.keep_serving && node.grace.is_some() && node.disk_limit.is_some());
    let bootstrap: BootstrapSettings = toml::from_str(&text("dilocox-bootstrap")).unwrap();
    assert!(bootstrap.archive && !bootstrap.external.is_empty());
}

#[test]
fn every_flag_says_its_default() {
    fn check(command: &clap::Command) {
        for argument in command.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let builtin = ["help", "version"].contains(&argument.get_id().as_str());
            let says = help.contains("Default:")
                || !argument.get_default_values().is_empty()
                || argument.is_required_set();
            let hidden = argument.is_hide_set();
            let name = argument.get_id();
            assert!(builtin || hidden || says, "{}: {name}: {help}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&NodeArgs::command());
    check(&BootstrapArgs::command());
}

#[test]
fn the_definitions_are_sound() {
    NodeArgs::command().debug_assert();
    BootstrapArgs::command().debug_assert();
}

#[test]
fn the_example_configurations_can_be_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["home", "server"] {
        let path = root.join(format!("configs/nodes/{name}.toml"));
        from_file::<NodeSettings>(Some(&path)).unwrap().resolve().unwrap();
    }
    let path = root.join("bootstrap/bootstrap.toml");
    let options = from_file::<BootstrapSettings>(Some(&path)).unwrap().resolve().unwrap();
    assert!(options.archive && options.data_dir == Path::new("/var/lib/dilocox"));
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.toml");
    let text = "threads = 2\ngrace = 1.5\nrun = \"run.toml\"\nhttp = \"off\"\n";
    std::fs::write(&path, text).unwrap();
    let args = NodeArgs::parse_from(["dilocox-node", "--threads", "5", "--data-dir", "/d"]);
    let options = args.settings.or(from_file(Some(&path)).unwrap()).resolve().unwrap();
    assert_eq!(options.threads.get(), 5);
    assert_eq!(options.grace.as_millis(), 1500);
    assert_eq!(options.run.unwrap(), dir.path().join("run.toml"));
    assert_eq!((options.http, options.device), (Http::Off, Device::Auto));
    assert_eq!(options.listen, Listen::Default);
}

#[test]
fn bad_configurations_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.toml");
    for (text, needle) in [
        ("colour = 1", "unknown field `colour`"),
        ("threads = 0", "nonzero"),
        ("http = \"everywhere\"", "127.0.0.1:7550"),
        ("bootstrap = [\"/ip4/127.0.0.1/tcp/1\"]", "lacks the peer id"),
        ("upload-limit = \"fast\"", "100mbit"),
        ("device = \"cuda:0\"", "processors only"),
        ("grace = -1", "0 to 86400"),
    ] {
        std::fs::write(&path, text).unwrap();
        let failure = from_file::<NodeSettings>(Some(&path)).unwrap_err();
        assert!(failure.usage && failure.what.contains(needle), "{text}: {failure}");
        assert!(failure.what.contains("node.toml"), "{failure}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(from_file::<NodeSettings>(Some(&path)).unwrap_err().usage);
}

#[test]
fn bad_flags_are_refused() {
    for line in [
        "dilocox-node --bootstrap /ip4/127.0.0.1/tcp/7450",
        "dilocox-node --bootstrap 127.0.0.1:7450",
        "dilocox-node --rounds 0",
        "dilocox-node --run-id xyz",
        "dilocox-node --http localhost",
        "dilocox-node --upload-limit fast",
        "dilocox-node --json demo",
        "dilocox-node demo --nodes 0",
        "dilocox-node demo --nodes 17",
        "dilocox-node bench codec --bits 5",
        "dilocox-node train",
    ] {
        let error = NodeArgs::try_parse_from(line.split(' ')).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
    let contradiction = ["dilocox-node", "--run", "a", "--run-id", &"ab".repeat(32)];
    assert!(NodeArgs::parse_from(contradiction).settings.resolve().unwrap_err().usage);
    let nobody = ["dilocox-node", "--run-id", &"ab".repeat(32)];
    assert!(NodeArgs::parse_from(nobody).settings.resolve().unwrap_err().usage);
}
