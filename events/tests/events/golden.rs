//! The bytes of one event of each kind, as they were when it was first written. Files are only ever added to
//! `golden/`: what was stored once is read for ever.
//!
//! `MIDWATCH_ACCEPT=1` writes what is missing; it never changes a file.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use ciborium::Value;
use midwatch_events::{
    Actor, AnyEvent, Recorded,
    codec::{Encoded, encode},
    leaf::{commitment, leaf, leaf_hash},
};

use crate::samples::{Draw, NOW, Sample, all};

/// The keys of the append that the events of the files were the first of.
const KEYS: [[u8; 32]; 2] = [[0xa1; 32], [0xa2; 32]];

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// CBOR for people: the diagnostic notation of RFC 8949.
fn diagnostic(bytes: &[u8]) -> String {
    fn show(value: &Value) -> String {
        match value {
            Value::Integer(integer) => i128::from(*integer).to_string(),
            Value::Bytes(bytes) => format!("h'{}'", hex(bytes)),
            Value::Text(text) => format!("{text:?}"),
            Value::Bool(flag) => flag.to_string(),
            Value::Null => "null".to_owned(),
            Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
            Value::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| format!("{}: {}", show(key), show(value)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
            }
            other => panic!("an event must not hold {other:?}"),
        }
    }
    show(&ciborium::from_reader(bytes).unwrap())
}

fn recorded(sample: &Sample) -> Recorded {
    let mut recorded = sample.recorded(7, 3, NOW, &Actor::Cli(0));
    recorded.leaf_hash = leaf_hash(&recorded, &KEYS);
    recorded
}

fn text(sample: &Sample) -> String {
    let recorded = recorded(sample);
    let or_none = |bytes: Option<&[u8]>, show: fn(&[u8]) -> String| bytes.map_or("-".to_owned(), show);
    let content = sample.content.as_deref();
    let lines = [
        ("wire", sample.wire()),
        ("facts", hex(&sample.facts)),
        ("content", or_none(content, hex)),
        ("facts shown", diagnostic(&sample.facts)),
        ("content shown", or_none(content, diagnostic)),
        ("position", recorded.position.to_string()),
        ("stream", recorded.stream.to_string()),
        ("version", recorded.version.to_string()),
        ("event id", recorded.event_id.to_string()),
        ("recorded at", recorded.recorded_at.0.to_string()),
        ("actor", recorded.actor.clone()),
        ("correlation", recorded.correlation_id.clone().unwrap()),
        ("causation", recorded.causation_id.unwrap().to_string()),
        ("key hashes", KEYS.map(|key| hex(&key)).join(" ")),
        ("salt", or_none(recorded.salt.as_ref().map(|salt| salt.as_slice()), hex)),
        ("commitment", or_none(recorded.commitment.as_ref().map(|hash| hash.as_slice()), hex)),
        ("leaf", hex(&leaf(&recorded, &KEYS))),
        ("leaf hash", hex(&recorded.leaf_hash)),
    ];
    lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

// A9 of docs/architecture.md.
#[test]
fn every_event_is_written_as_it_always_was() {
    let accept = env::var_os("MIDWATCH_ACCEPT").is_some_and(|value| value == "1");
    for sample in all(&mut Draw::fixed()) {
        let path = directory().join(format!("{}.txt", sample.wire().replace('/', ".")));
        let now = text(&sample);
        match fs::read_to_string(&path) {
            Ok(stored) => assert_eq!(
                now,
                stored,
                "{} is written otherwise than before. Stored events never change: give the change a version of its \
                 own ({}.{}) and keep reading this one.",
                sample.wire(),
                sample.event_type,
                sample.schema + 1
            ),
            Err(_) if accept => fs::write(&path, now).unwrap(),
            Err(error) => panic!("{}: {error}; MIDWATCH_ACCEPT=1 writes it", path.display()),
        }
    }
}

/// The lines of a golden file by name.
fn read(text: &str) -> BTreeMap<&str, &str> {
    text.lines().map(|line| line.split_once(": ").unwrap()).collect()
}

fn of_file(lines: &BTreeMap<&str, &str>) -> Recorded {
    let (event_type, schema) = midwatch_events::codec::split_wire(lines["wire"]).unwrap();
    let bytes = |name: &str| (lines[name] != "-").then(|| unhex(lines[name]));
    Recorded {
        position: lines["position"].parse().unwrap(),
        stream: midwatch_events::StreamName::stored(lines["stream"].to_owned()),
        version: lines["version"].parse().unwrap(),
        event_id: lines["event id"].parse().unwrap(),
        event_type: event_type.to_owned(),
        schema,
        recorded_at: midwatch_events::Micros(lines["recorded at"].parse().unwrap()),
        actor: lines["actor"].to_owned(),
        correlation_id: Some(lines["correlation"].to_owned()),
        causation_id: Some(lines["causation"].parse().unwrap()),
        facts: unhex(lines["facts"]),
        content: bytes("content"),
        salt: bytes("salt").map(|bytes| bytes.try_into().unwrap()),
        commitment: bytes("commitment").map(|bytes| bytes.try_into().unwrap()),
        leaf_hash: unhex(lines["leaf hash"]).try_into().unwrap(),
    }
}

fn encoded_again(event: &AnyEvent) -> Encoded {
    use midwatch_events::New;
    match event.clone() {
        AnyEvent::Bot(facts) => encode(&New { facts, content: None }),
        AnyEvent::Boundary(facts, content) => encode(&New { facts, content }),
        AnyEvent::Delivery(facts, content) => encode(&New { facts, content }),
        AnyEvent::Engine(facts, content) => encode(&New { facts, content }),
        AnyEvent::Repeat(facts, content) => encode(&New { facts, content }),
        AnyEvent::Routine(facts, content) => encode(&New { facts, content }),
        AnyEvent::Run(facts, content) => encode(&New { facts, content }),
        AnyEvent::Trigger(facts, content) => encode(&New { facts, content }),
        AnyEvent::User(facts, content) => encode(&New { facts, content }),
    }
    .unwrap()
}

#[test]
fn every_stored_event_is_still_read() {
    let mut count = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let lines = read(&text);
        let event = of_file(&lines);
        let named = format!("{}.txt", lines["wire"].replace('/', "."));
        assert_eq!(path.file_name().unwrap().to_string_lossy(), named);
        let decoded = AnyEvent::decode(&event).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let again = encoded_again(&decoded);
        assert_eq!(hex(&again.facts), lines["facts"], "{}", path.display());
        assert_eq!(again.content, event.content, "{}", path.display());
        assert_eq!(format!("{}/{}", again.event_type, again.schema), lines["wire"]);
        count += 1;
    }
    assert!(count >= all(&mut Draw::fixed()).len(), "{count} files");
}

#[test]
fn every_stored_leaf_is_still_computed() {
    for entry in fs::read_dir(directory()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines = read(&text);
        let event = of_file(&lines);
        let wire = lines["wire"];
        assert_eq!(hex(&leaf(&event, &KEYS)), lines["leaf"], "{wire}");
        assert_eq!(leaf_hash(&event, &KEYS), event.leaf_hash, "{wire}");
        let expected = event.content.as_ref().map(|content| commitment(&event.salt.unwrap(), content));
        assert_eq!(event.commitment, expected, "{wire}");
    }
}
