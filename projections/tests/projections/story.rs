//! A ledger in memory, and all projections of it.

use std::collections::BTreeMap;

use midwatch_events::{
    Actor, AnyEvent, Family, Micros, New, Recorded, StreamName, bot::BotEvent, boundary::BoundaryEvent,
    delivery::DeliveryEvent, engine::EngineEvent, repeat::RepeatEvent, routine::RoutineEvent, run::RunEvent,
    trigger::TriggerEvent, user::UserEvent,
};
use midwatch_projections::{Cell, View};
use serde::de::DeserializeOwned;

use crate::samples::{NOW, Sample};

/// A family, for the story's events.
pub(crate) trait Told: Family {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent;
}
impl Told for BotEvent {
    fn any(facts: Self, _: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Bot(facts)
    }
}
impl Told for BoundaryEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Boundary(facts, content)
    }
}
impl Told for DeliveryEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Delivery(facts, content)
    }
}
impl Told for EngineEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Engine(facts, content)
    }
}
impl Told for RepeatEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Repeat(facts, content)
    }
}
impl Told for RoutineEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Routine(facts, content)
    }
}
impl Told for RunEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Run(facts, content)
    }
}
impl Told for TriggerEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::Trigger(facts, content)
    }
}
impl Told for UserEvent {
    fn any(facts: Self, content: Option<Self::Content>) -> AnyEvent {
        AnyEvent::User(facts, content)
    }
}

/// What a store keeps of each projection: documents and cells by key.
pub(crate) type Store = BTreeMap<String, (Vec<u8>, Vec<Cell>)>;

/// A ledger and its projections.
#[derive(Clone, Default)]
pub(crate) struct Story {
    pub(crate) stores: BTreeMap<View, Store>,
    position: u64,
    versions: BTreeMap<String, u64>,
    now: i64,
}

/// Takes one event into a store, as the projector does.
pub(crate) fn project(view: View, store: &mut Store, event: &AnyEvent, recorded: &Recorded) {
    let keys = view.keys(event, recorded);
    let mut rows = keys.into_iter().map(|key| (key.clone(), store.get(&key).map(|row| row.0.clone()))).collect();
    for write in view.apply(&mut rows, event, recorded).unwrap() {
        match write.row {
            Some(row) => store.insert(write.key, row),
            None => store.remove(&write.key),
        };
    }
}

impl Story {
    /// The instant of the next event, `seconds` after the story's beginning.
    pub(crate) fn at(&mut self, seconds: i64) -> &mut Self {
        self.now = seconds;
        self
    }

    pub(crate) fn is<F: Told>(&mut self, stream: &StreamName, new: impl Into<New<F>>) -> &mut Self {
        self.by(&Actor::Cli(0), stream, new)
    }

    pub(crate) fn by<F: Told>(&mut self, actor: &Actor, stream: &StreamName, new: impl Into<New<F>>) -> &mut Self {
        let version = self.versions.entry(stream.to_string()).or_default();
        *version += 1;
        self.position += 1;
        let sample = Sample::of(stream.clone(), new.into(), F::any);
        let recorded = sample.recorded(self.position, *version, NOW.plus_s(self.now), actor);
        let event = AnyEvent::decode(&recorded).unwrap();
        for view in View::ALL {
            project(view, self.stores.entry(view).or_default(), &event, &recorded);
        }
        self
    }

    pub(crate) fn row<R: DeserializeOwned>(&self, view: View, key: impl ToString) -> R {
        self.find(view, key).unwrap()
    }

    pub(crate) fn find<R: DeserializeOwned>(&self, view: View, key: impl ToString) -> Option<R> {
        let (doc, _) = self.stores.get(&view)?.get(&key.to_string())?;
        Some(serde_json::from_slice(doc).unwrap())
    }

    pub(crate) fn rows<R: DeserializeOwned>(&self, view: View) -> Vec<R> {
        let rows = self.stores.get(&view).into_iter().flat_map(BTreeMap::values);
        rows.map(|(doc, _)| serde_json::from_slice(doc).unwrap()).collect()
    }

    pub(crate) fn cells(&self, view: View, key: impl ToString) -> Vec<Cell> {
        self.stores[&view][&key.to_string()].1.clone()
    }
}

/// The instant `seconds` after the story's beginning.
pub(crate) fn after(seconds: i64) -> Micros {
    NOW.plus_s(seconds)
}
