//! The codec on anything that can be written, and on bytes that were not written by it.

use midwatch_events::{
    AnyEvent, Family, New,
    boundary::BoundaryEvent,
    codec::{CodecError, decode_content, decode_facts, encode},
    routine::{RoutineContent, RoutineEvent, Work},
    run::RunEvent,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::samples::{Draw, all, any};

proptest! {
    #[test]
    fn what_is_written_is_read_back(seed: u64) {
        let sample = any(seed);
        let recorded = sample.at(1);
        prop_assert_eq!(AnyEvent::decode(&recorded).unwrap(), sample.event);
    }

    #[test]
    fn erased_content_leaves_the_facts(seed: u64) {
        let mut recorded = any(seed).at(1);
        let whole = AnyEvent::decode(&recorded).unwrap();
        recorded.content = None;
        recorded.salt = None;
        let erased = AnyEvent::decode(&recorded).unwrap();
        prop_assert_eq!(std::mem::discriminant(&whole), std::mem::discriminant(&erased));
    }

    #[test]
    fn damaged_bytes_are_an_error_or_an_event_and_never_a_panic(seed: u64, at: prop::sample::Index, to: u8) {
        let mut recorded = any(seed).at(1);
        let at = at.index(recorded.facts.len());
        recorded.facts[at] = to;
        let _ = AnyEvent::decode(&recorded);
    }

    #[test]
    fn any_bytes_are_an_error_or_an_event_and_never_a_panic(facts: Vec<u8>) {
        let _ = decode_facts::<RunEvent>("run.ended", 1, &facts);
        let _ = decode_facts::<RoutineEvent>("routine.paused", 1, &facts);
    }
}

fn paused() -> (String, u16, Vec<u8>) {
    let encoded = encode(&New::from(RoutineEvent::Paused {})).unwrap();
    (encoded.event_type, encoded.schema, encoded.facts)
}

#[test]
fn fields_are_stored_without_the_name() {
    assert_eq!(paused(), ("routine.paused".to_owned(), 1, vec![0xa0]));
}

#[test]
fn a_name_or_version_of_a_newer_binary_is_unknown() {
    let unknown = |event_type: &str, schema| {
        let wire = format!("{event_type}/{schema}");
        assert_eq!(
            decode_facts::<RoutineEvent>(event_type, schema, &[0xa0]),
            Err(CodecError::Unknown { wire: wire.clone() })
        );
        let mut recorded = all(&mut Draw::fixed()).pop().unwrap().at(1);
        (recorded.event_type, recorded.schema) = (event_type.to_owned(), schema);
        assert_eq!(AnyEvent::decode(&recorded), Err(CodecError::Unknown { wire }));
    };
    unknown("routine.paused", 2);
    unknown("routine.forgotten", 1);
    unknown("routine.paused", u16::MAX);
    unknown(&format!("routine.{}", "very_".repeat(200)), 1);
    let mut recorded = all(&mut Draw::fixed()).pop().unwrap().at(1);
    recorded.event_type = "quota.exceeded".to_owned();
    assert_eq!(AnyEvent::decode(&recorded), Err(CodecError::Unknown { wire: "quota.exceeded/1".to_owned() }));
}

#[test]
fn every_truncation_is_an_error() {
    for sample in all(&mut Draw::fixed()) {
        for end in 0..sample.facts.len() {
            let mut recorded = sample.at(1);
            recorded.facts.truncate(end);
            let read = AnyEvent::decode(&recorded);
            assert!(matches!(read, Err(CodecError::Decode { .. })), "{} cut at {end}: {read:?}", sample.wire());
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    for sample in all(&mut Draw::fixed()) {
        let mut recorded = sample.at(1);
        recorded.facts.push(0xa0);
        let wire = sample.wire();
        assert_eq!(
            AnyEvent::decode(&recorded),
            Err(CodecError::Decode { wire, reason: "bytes after the end of the map".to_owned() })
        );
    }
}

#[test]
fn an_absent_fact_that_is_needed_is_an_error() {
    assert!(matches!(decode_facts::<RoutineEvent>("routine.renamed", 1, &[0xa0]), Err(CodecError::Decode { .. })));
}

#[test]
fn a_fact_of_another_kind_is_an_error() {
    // {"name": 1}
    let facts = [0xa1, 0x64, b'n', b'a', b'm', b'e', 0x01];
    assert!(matches!(decode_facts::<RoutineEvent>("routine.renamed", 1, &facts), Err(CodecError::Decode { .. })));
}

#[test]
fn content_of_another_event_is_not_written() {
    let mixed = New::with(RoutineEvent::Paused {}, RoutineContent::WorkReplaced(Work::default()));
    let error = encode(&mixed).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot encode a routine event: content of routine.work_replaced/1 beside facts of routine.paused/1"
    );
}

#[test]
fn content_of_another_event_is_not_read() {
    // {"note": "x"}
    let note = [0xa1, 0x64, b'n', b'o', b't', b'e', 0x61, b'x'];
    assert!(decode_content::<BoundaryEvent>("boundary.published", 1, &note).is_ok());
    assert!(decode_content::<RoutineEvent>("routine.paused", 1, &note).is_err());
}

/// A family that breaks the rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Careless {
    #[serde(rename = "careless.unit/1")]
    Unit,
    #[serde(rename = "careless.number/1")]
    Number(u32),
    Derived {},
    #[serde(rename = "careless.versionless")]
    Versionless {},
}

impl Family for Careless {
    type Content = Self;
    const NAME: &'static str = "careless";
}

#[test]
fn types_that_break_the_rules_are_not_written() {
    for careless in [Careless::Unit, Careless::Number(1), Careless::Derived {}, Careless::Versionless {}] {
        assert!(matches!(encode(&New::from(careless)), Err(CodecError::Encode { family: "careless", .. })));
    }
}
