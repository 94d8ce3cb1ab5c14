//! What holds for any events, in any order.

use std::collections::{BTreeMap, BTreeSet};

use midwatch_events::{Actor, AnyEvent, Recorded};
use midwatch_projections::{Cell, Kind, Poison, View};
use proptest::prelude::*;

use crate::{
    samples::{self, Draw, NOW, all},
    story::{Store, project},
};

/// Events that most rows begin with.
const FIRST: [&str; 7] = [
    "bot.registered/1",
    "delivery.received/1",
    "engine.ledger_created/1",
    "routine.created/1",
    "run.opened/1",
    "trigger.created/1",
    "user.invited/1",
];

/// Events as they are read back from a ledger, in any order. Most of them meet nothing unless something is `there`
/// before them.
fn ledger(there: bool, seeds: &[u64]) -> Vec<(AnyEvent, Recorded)> {
    let mut versions = BTreeMap::<String, u64>::new();
    let first = (0..if there { 6 } else { 0 }).flat_map(|seed| all(&mut Draw::from_seed(seed)));
    let first = first.filter(|sample| FIRST.contains(&sample.wire().as_str()));
    let events = first.chain(seeds.iter().map(|seed| samples::any(*seed)));
    let recorded = events.zip(1..).map(|(sample, position)| {
        let version = versions.entry(sample.stream.to_string()).or_default();
        *version += 1;
        sample.recorded(position, *version, NOW.plus_s(i64::try_from(position).unwrap()), &Actor::Engine)
    });
    recorded.map(|recorded| (AnyEvent::decode(&recorded).unwrap(), recorded)).collect()
}

fn one_by_one(view: View, events: &[(AnyEvent, Recorded)]) -> Store {
    let mut store = Store::new();
    events.iter().for_each(|(event, recorded)| project(view, &mut store, event, recorded));
    store
}

/// As a projector does with many events at once: all rows are loaded first, the writes are stored at the end.
fn as_batch(view: View, store: &mut Store, events: &[(AnyEvent, Recorded)]) {
    let keys: BTreeSet<_> = events.iter().flat_map(|(event, recorded)| view.keys(event, recorded)).collect();
    let mut rows = keys.into_iter().map(|key| (key.clone(), store.get(&key).map(|row| row.0.clone()))).collect();
    let mut last = BTreeMap::new();
    for (event, recorded) in events {
        for write in view.apply(&mut rows, event, recorded).unwrap() {
            last.insert(write.key, write.row);
        }
    }
    for (key, row) in last {
        match row {
            Some(row) => store.insert(key, row),
            None => store.remove(&key),
        };
    }
}

fn erased(events: &[(AnyEvent, Recorded)]) -> Vec<(AnyEvent, Recorded)> {
    let erase = |(_, recorded): &(AnyEvent, Recorded)| {
        let recorded = Recorded { content: None, salt: None, ..recorded.clone() };
        (AnyEvent::decode(&recorded).unwrap(), recorded)
    };
    events.iter().map(erase).collect()
}

/// The columns that hold words of people or senders.
/// And the one that says that they went.
const WORDS: [(View, &str); 3] =
    [(View::Deliveries, "sender_id"), (View::Deliveries, "erased"), (View::People, "name")];

fn cells_without_words(view: View, store: &Store) -> BTreeMap<String, Vec<Cell>> {
    let facts = |cells: &Vec<Cell>| {
        let named = view.table().columns.iter().zip(cells);
        let facts = named.filter(|((name, _), _)| !WORDS.contains(&(view, name)));
        facts.map(|(_, cell)| cell.clone()).collect()
    };
    store.iter().map(|(key, (_, cells))| (key.clone(), facts(cells))).collect()
}

fn seeds() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..60)
}

proptest! {
    // Each case is a whole ledger in all projections.
    #![proptest_config(ProptestConfig::with_cases(48))]

    // A7 of docs/architecture.md.
    #[test]
    fn any_events_in_any_order_give_rows_that_fit_their_table(there: bool, seeds in seeds()) {
        let events = ledger(there, &seeds);
        for view in View::ALL {
            for (key, (_, cells)) in one_by_one(view, &events) {
                let columns = view.table().columns;
                prop_assert_eq!(cells.len(), columns.len(), "{:?} {}", view, key);
                for ((name, kind), cell) in columns.iter().zip(&cells) {
                    let fits = match (kind, cell) {
                        (_, Cell::Null) | (Kind::Int, Cell::Int(_)) => true,
                        (Kind::Text, Cell::Text(text)) => !text.contains('\0'),
                        (Kind::Int, Cell::Text(_)) | (Kind::Text, Cell::Int(_)) => false,
                    };
                    prop_assert!(fits, "{:?} {} {}", view, key, name);
                }
            }
        }
    }

    // A18 of docs/architecture.md.
    #[test]
    fn all_at_once_is_a_part_and_then_the_rest(there: bool, seeds in seeds(), at: prop::sample::Index) {
        let events = ledger(there, &seeds);
        let (part, rest) = events.split_at(at.index(events.len() + 1));
        for view in View::ALL {
            let mut store = Store::new();
            as_batch(view, &mut store, part);
            as_batch(view, &mut store, rest);
            prop_assert_eq!(&store, &one_by_one(view, &events), "{:?}", view);
        }
    }

    // A8 of docs/architecture.md.
    #[test]
    fn what_was_erased_takes_no_claim_count_or_verdict_with_it(there: bool, seeds in seeds()) {
        let events = ledger(there, &seeds);
        let without = erased(&events);
        for view in View::ALL {
            let (whole, erased) = (one_by_one(view, &events), one_by_one(view, &without));
            prop_assert_eq!(cells_without_words(view, &whole), cells_without_words(view, &erased), "{:?}", view);
        }
    }
}

#[test]
fn every_event_is_taken_in_by_some_view_or_belongs_to_none() {
    let none = ["repeat.attempted/1", "repeat.settled/1"];
    for sample in all(&mut Draw::fixed()) {
        let recorded = sample.at(1);
        let somewhere = View::ALL.iter().any(|view| !view.keys(&sample.event, &recorded).is_empty());
        assert_eq!(somewhere, !none.contains(&sample.wire().as_str()), "{}", sample.wire());
    }
}

#[test]
fn a_row_that_cannot_be_read_is_an_error() {
    let mut failed = BTreeSet::new();
    for sample in all(&mut Draw::fixed()) {
        let recorded = sample.at(1);
        for view in View::ALL {
            let keys = view.keys(&sample.event, &recorded);
            if keys.is_empty() {
                continue;
            }
            let mut rows: BTreeMap<_, _> = keys.into_iter().map(|key| (key, Some(b"{".to_vec()))).collect();
            let before = rows.clone();
            let error = view.apply(&mut rows, &sample.event, &recorded).unwrap_err();
            assert!(matches!(error, Poison::Undecodable { .. }), "{error}");
            assert!(error.to_string().contains(view.name()), "{error}");
            assert_eq!(rows, before);
            failed.insert(view);
        }
    }
    assert_eq!(failed.len(), View::ALL.len());
}

#[test]
fn a_row_that_was_not_loaded_is_an_error() {
    for sample in all(&mut Draw::fixed()) {
        let recorded = sample.at(1);
        for view in View::ALL {
            let applied = view.apply(&mut BTreeMap::new(), &sample.event, &recorded);
            let touched = !view.keys(&sample.event, &recorded).is_empty();
            assert_eq!(matches!(applied, Err(Poison::NotLoaded { .. })), touched, "{applied:?}");
        }
    }
}
