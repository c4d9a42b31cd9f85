//! Manifests and data that cannot be trained on: one clear error, and nothing is founded.

use std::{fs, path::Path};

use crate::harness::{Ended, NODE, Recipe, run};

/// Tries to found; the flags beside `--run`.
fn found(name: &str, recipe: &Recipe, folder: &Path) -> Ended {
    let manifest = recipe.write(folder);
    let data_dir = folder.join("data-dir");
    let arguments = ["--run", text(&manifest), "--data-dir", text(&data_dir)];
    let quiet = ["--listen", "/ip4/127.0.0.1/tcp/0", "--http", "off", "--threads", "1", "--json"];
    let arguments: Vec<String> =
        arguments.iter().chain(&quiet).map(|&argument| argument.to_owned()).collect();
    let ended = run(name, NODE, &arguments);
    let runs = fs::read_dir(data_dir.join("runs")).map_or(0, Iterator::count);
    assert_eq!(runs, 0, "a run that cannot be founded leaves nothing");
    assert!(ended.printed.is_empty(), "nothing is started: {:?}", ended.printed);
    ended
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn impossible_values_are_named_with_key_and_remedy() {
    let tiny = Recipe::tiny();
    let key_unknown = tiny.replace("local_steps = ", "local_stepz = 3\nlocal_steps = ");
    let cases = [
        ("unknown-key", key_unknown, ["unknown field", "local_stepz"]),
        ("no-steps", tiny.set("local_steps", 0), ["`rounds.local_steps`", "from 1"]),
        ("rank", tiny.set("rank", 33), ["`compression.rank`", "smaller"]),
        ("vocabulary", tiny.set("vocab_size", 256), ["`model.vocab_size`", "257"]),
        ("heads", tiny.set("heads", 3), ["`model.heads`", "even"]),
        ("too-little-text", tiny.set("story_bytes", 100), ["`data.story_bytes`", "from 65536"]),
        ("syntax", tiny.replace("[run]", "[run"), ["cannot be read", "TOML"]),
    ];
    for (name, recipe, words) in cases {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let ended = found(name, &recipe, folder.path());
        ended.assert_error(2, &words);
        ended.assert_error(2, &["tiny.toml"]);
    }
}

#[test]
fn unusable_data_files_are_named() {
    // What is wrong with the file, how it is made, and a word of the error.
    type Case = (&'static str, fn(&Path), &'static str);
    let cases: [Case; 4] = [
        ("missing", |_| {}, "text.txt"),
        ("empty", |path| fs::write(path, "").expect("written"), "empty"),
        ("folder", |path| fs::create_dir(path).expect("made"), "text.txt"),
        ("short", |path| fs::write(path, "Once there was").expect("written"), "14 bytes"),
    ];
    for (name, make, word) in cases {
        let folder = tempfile::tempdir().expect("a temporary directory");
        make(&folder.path().join("text.txt"));
        let recipe = Recipe::tiny()
            .replace("source = \"stories\"", "source = \"files\"\nfiles = [\"text.txt\"]")
            .replace("story_bytes = 262144\n", "");
        let ended = found(name, &recipe, folder.path());
        ended.assert_error(1, &["text.txt", word]);
    }
}

#[test]
fn a_manifest_that_is_not_there_is_named() {
    let arguments = ["--run", "/nowhere/run.toml", "--data-dir"];
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
    arguments.push(text(folder.path()).to_owned());
    run("missing-manifest", NODE, &arguments)
        .assert_error(1, &["/nowhere/run.toml", "No such file"]);
}
