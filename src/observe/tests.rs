//! Holds `EVENTS.md` and the code together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Stamped, samples::samples};

const DOCUMENT: &str = include_str!("EVENTS.md");
const SOURCE: &str = include_str!("event.rs");

type Fields = BTreeMap<String, BTreeSet<String>>;

/// Events and their fields, as the document's headings and tables name them.
fn documented(document: &str) -> Fields {
    let mut events = Fields::new();
    let mut event = None;
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("## `") {
            event = Some(name.trim_end_matches('`').to_owned());
        }
        let Some(event) = &event else { continue };
        let fields = events.entry(event.clone()).or_default();
        if let Some((field, _)) = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')) {
            fields.insert(field.to_owned());
        }
    }
    events
}

/// Events and their fields, as they are written.
fn written() -> Fields {
    let mut events = Fields::new();
    for event in samples() {
        let json: serde_json::Value = serde_json::from_str(&Stamped::now(event).to_json()).unwrap();
        let object = json.as_object().unwrap();
        let keys = object.keys().filter(|key| *key != "event" && *key != "time").cloned();
        let name = object["event"].as_str().unwrap().to_owned();
        assert!(object["time"].is_f64());
        assert!(events.insert(name, keys.collect()).is_none(), "two samples of one event");
    }
    events
}

/// The number of variants of `Event`, from its source.
fn variants() -> usize {
    let start = SOURCE.find("pub enum Event {").unwrap();
    let length = SOURCE[start..].find("\n}").unwrap();
    SOURCE[start..start + length]
        .lines()
        .filter(|line| {
            let name = line.strip_prefix("    ").unwrap_or_default();
            name.starts_with(|first: char| first.is_ascii_uppercase())
        })
        .count()
}

#[test]
fn the_document_names_every_field_and_no_other() {
    assert_eq!(documented(DOCUMENT), written());
}

#[test]
fn there_is_a_sample_of_every_event() {
    assert_eq!(samples().len(), variants());
}

#[test]
fn a_missing_field_would_be_seen() {
    let shortened = DOCUMENT.replacen("| `state_root` |", "| state_root |", 1);
    assert_ne!(documented(&shortened), written());
}

#[test]
fn events_survive_json() {
    for event in samples() {
        let line = Stamped::now(event.clone()).to_json();
        assert_eq!(serde_json::from_str::<Stamped>(&line).unwrap().event, event);
    }
}
