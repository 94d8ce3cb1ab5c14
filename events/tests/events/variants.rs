//! The wire names a family's derived code knows, so that no kind of event is forgotten by the samples.

use midwatch_events::{
    Family, bot::BotEvent, boundary::BoundaryEvent, delivery::DeliveryEvent, engine::EngineEvent, repeat::RepeatEvent,
    routine::RoutineEvent, run::RunEvent, trigger::TriggerEvent, user::UserEvent,
};
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor, value::Error},
};

/// Reads nothing; answers with the names of the enum it was asked for.
struct Names<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("not an enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.0.extend(variants);
        Err(de::Error::custom("only its names were wanted"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

fn names<T: for<'de> Deserialize<'de>>() -> Vec<&'static str> {
    let mut names = Vec::new();
    assert!(T::deserialize(Names(&mut names)).is_err());
    names
}

/// Wire names of a family's facts and of its content.
pub(crate) fn of<F: Family>() -> (Vec<&'static str>, Vec<&'static str>) {
    (names::<F>(), names::<F::Content>())
}

/// Wire names of the facts and of the content of all families.
pub(crate) fn all() -> (Vec<&'static str>, Vec<&'static str>) {
    let families = [
        of::<BotEvent>(),
        of::<BoundaryEvent>(),
        of::<DeliveryEvent>(),
        of::<EngineEvent>(),
        of::<RepeatEvent>(),
        of::<RoutineEvent>(),
        of::<RunEvent>(),
        of::<TriggerEvent>(),
        of::<UserEvent>(),
    ];
    let (facts, content): (Vec<_>, Vec<_>) = families.into_iter().unzip();
    (facts.concat(), content.concat())
}

#[test]
fn every_kind_of_event_and_of_content_has_a_sample() {
    let samples = crate::samples::all(&mut crate::samples::Draw::fixed());
    let (facts, content) = all();
    let named: Vec<String> = samples.iter().map(crate::samples::Sample::wire).collect();
    let mut sorted = named.clone();
    let mut wanted = facts.clone();
    sorted.sort();
    wanted.sort_unstable();
    assert_eq!(sorted, wanted, "add the new kind to samples.rs");
    let with_content = samples.iter().filter(|sample| sample.content.is_some());
    let mut with_content: Vec<String> = with_content.map(crate::samples::Sample::wire).collect();
    let mut wanted = content;
    with_content.sort();
    wanted.sort_unstable();
    assert_eq!(with_content, wanted, "add the new content to samples.rs");
}

#[test]
fn wire_names_are_the_familys_own_and_versioned() {
    fn check<F: Family>() {
        let (facts, content) = of::<F>();
        for wire in facts.iter().chain(&content) {
            let (event_type, schema) = midwatch_events::codec::split_wire(wire).unwrap();
            assert!(event_type.starts_with(&format!("{}.", F::NAME)) && schema >= 1, "{wire}");
        }
        for wire in content {
            assert!(facts.contains(&wire), "{wire} has content but no facts");
        }
    }
    check::<BotEvent>();
    check::<BoundaryEvent>();
    check::<DeliveryEvent>();
    check::<EngineEvent>();
    check::<RepeatEvent>();
    check::<RoutineEvent>();
    check::<RunEvent>();
    check::<TriggerEvent>();
    check::<UserEvent>();
}
