//! One caller, one append.

use midwatch_events::{Micros, leaf};

use super::support::{Backend, all, append, event, key, new_id, one, stream, to, worded, write};
use crate::{Append, AppendError, Appended, Expected, Log, NewEvent, Open};

pub(super) async fn an_append_gets_the_next_positions_and_versions(backend: Backend) {
    let log = backend.open().await;
    assert_eq!(log.head().await.unwrap(), 0);
    let first = write(&log, "run-a", 2).await;
    assert_eq!((first.first, first.count, first.last(), first.duplicate), (1, 2, 2, false));
    let second = write(&log, "run-b", 1).await;
    assert_eq!((second.first, second.count), (3, 1));
    write(&log, "run-a", 1).await;
    let seen: Vec<_> = all(&log).await.into_iter().map(|e| (e.position, e.stream.to_string(), e.version)).collect();
    let run = |position, name: &str, version| (position, name.to_owned(), version);
    assert_eq!(seen, [run(1, "run-a", 1), run(2, "run-a", 2), run(3, "run-b", 1), run(4, "run-a", 3)]);
    assert_eq!(log.version(&stream("run-a")).await.unwrap(), 3);
    assert_eq!(log.version(&stream("run-none")).await.unwrap(), 0);
    assert_eq!(log.head().await.unwrap(), 4);
}

pub(super) async fn every_column_comes_back_as_it_was_given(backend: Backend) {
    let log = backend.open().await;
    let full = NewEvent {
        event_id: new_id(),
        event_type: "run.tool_call_decided".to_owned(),
        schema: 65_535,
        actor: "bot:ä".to_owned(),
        correlation_id: Some("run-ü".to_owned()),
        causation_id: Some(new_id()),
        facts: (0..=255).collect(),
        content: Some(vec![0, 255, 0]),
    };
    let (first, second) = (key("k1", "asked"), key("k2", "asked"));
    let asked = Append {
        entries: vec![to("run-ü", Expected::NoStream, vec![full.clone(), event("run.ended")])],
        keys: vec![first, second],
        ..Append::default()
    };
    let before = log.store_time().await.unwrap();
    let appended = log.append(asked).await.unwrap();
    let events = all(&log).await;
    let stored = &events[0];
    assert_eq!(stored.stream.as_str(), "run-ü");
    assert_eq!(stored.event_id, full.event_id);
    assert_eq!((stored.event_type.as_str(), stored.schema), ("run.tool_call_decided", 65_535));
    assert_eq!(stored.actor, full.actor);
    assert_eq!((&stored.correlation_id, stored.causation_id), (&full.correlation_id, full.causation_id));
    assert_eq!((&stored.facts, &stored.content), (&full.facts, &full.content));
    assert_eq!(stored.recorded_at, appended.recorded_at);
    assert!(stored.recorded_at >= before && stored.recorded_at <= before.plus_s(20), "{}", stored.recorded_at);
    let sealed = leaf::commitment(&stored.salt.unwrap(), stored.content.as_ref().unwrap());
    assert_eq!(stored.commitment, Some(sealed));
    assert_eq!(stored.leaf_hash, leaf::leaf_hash(stored, &[first.hash, second.hash]));
    assert_eq!((events[1].salt, events[1].commitment, &events[1].content), (None, None, &None));
    assert_eq!(events[1].leaf_hash, leaf::leaf_hash(&events[1], &[]), "keys belong to the first event only");
}

pub(super) async fn a_wrong_version_writes_nothing_and_consumes_no_position(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-a", 2).await;
    for expected in [Expected::NoStream, Expected::Exact(0), Expected::Exact(1), Expected::Exact(3)] {
        let refused = log.append(append(vec![to("run-a", expected, vec![event("run.opened")])])).await;
        match refused {
            Err(AppendError::Conflict { stream, expected: believed, actual }) => {
                assert_eq!((stream.as_str(), believed, actual), ("run-a", expected, 2));
            }
            other => panic!("{other:?}"),
        }
    }
    let next = log.append(append(vec![to("run-a", Expected::Exact(2), vec![event("run.opened")])])).await.unwrap();
    assert_eq!(next.first, 3);
    let new = log.append(append(vec![to("run-b", Expected::Exact(0), vec![event("run.opened")])])).await.unwrap();
    assert_eq!(new.first, 4);
}

pub(super) async fn a_stale_append_of_three_writes_none_of_them(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-b", 1).await;
    let asked = append(vec![
        to("run-a", Expected::NoStream, vec![event("run.opened"), event("run.taken")]),
        to("run-b", Expected::NoStream, vec![event("run.opened")]),
    ]);
    assert!(matches!(log.append(asked).await, Err(AppendError::Conflict { .. })));
    assert_eq!(log.head().await.unwrap(), 1);
}

pub(super) async fn one_append_spans_streams_and_sees_its_own_events(backend: Backend) {
    let log = backend.open().await;
    let asked = append(vec![
        to("run-a", Expected::NoStream, vec![event("run.opened")]),
        to("run-b", Expected::NoStream, vec![event("run.opened")]),
        to("run-a", Expected::Exact(1), vec![event("run.taken")]),
    ]);
    assert_eq!(log.append(asked).await.unwrap().count, 3);
    let versions: Vec<_> = all(&log).await.iter().map(|e| (e.stream.to_string(), e.version)).collect();
    assert_eq!(versions, [("run-a".into(), 1), ("run-b".into(), 1), ("run-a".into(), 2)]);
    let twice = append(vec![
        to("run-c", Expected::NoStream, vec![event("run.opened")]),
        to("run-c", Expected::NoStream, vec![event("run.opened")]),
    ]);
    assert!(matches!(log.append(twice).await, Err(AppendError::Conflict { actual: 1, .. })));
}

pub(super) async fn a_condition_is_checked_and_writes_nothing(backend: Backend) {
    let log = backend.open().await;
    write(&log, "halt", 1).await;
    let guarded = |version| {
        append(vec![
            to("halt", Expected::Exact(version), Vec::new()),
            to("run-a", Expected::Any, vec![event("run.opened")]),
        ])
    };
    assert_eq!(log.append(guarded(1)).await.unwrap().first, 2);
    assert_eq!(log.version(&stream("halt")).await.unwrap(), 1);
    write(&log, "halt", 1).await;
    match log.append(guarded(1)).await {
        Err(AppendError::Conflict { stream, actual: 2, .. }) => assert_eq!(stream.as_str(), "halt"),
        other => panic!("{other:?}"),
    }
    assert_eq!(log.head().await.unwrap(), 3);
}

pub(super) async fn conditions_alone_are_answered_with_the_head(backend: Backend) {
    let log = backend.open().await;
    let none = append(vec![to("halt", Expected::NoStream, Vec::new())]);
    let answer = log.append(none.clone()).await.unwrap();
    assert_eq!((answer.first, answer.count, answer.duplicate), (0, 0, false));
    write(&log, "run-a", 3).await;
    let answer = log.append(none).await.unwrap();
    assert_eq!((answer.first, answer.count, answer.last()), (3, 0, 3));
    let wrong = append(vec![to("run-a", Expected::NoStream, Vec::new())]);
    assert!(matches!(log.append(wrong).await, Err(AppendError::Conflict { actual: 3, .. })));
    assert_eq!(log.head().await.unwrap(), 3);
}

pub(super) async fn what_the_ledger_never_takes_is_refused(backend: Backend) {
    let log = backend.open().await;
    let changed = |change: fn(&mut NewEvent)| {
        let mut event = event("run.opened");
        change(&mut event);
        append(vec![to("run-a", Expected::Any, vec![event])])
    };
    let id = new_id();
    let twice = (0..2).map(|_| NewEvent { event_id: id, ..event("run.opened") }).collect();
    let keyed = |keys| Append { keys, ..one("run-a", "run.opened") };
    for (what, asked) in [
        ("nothing", Append::default()),
        ("NUL in a stream", one("run-\0", "run.opened")),
        ("NUL in a type", one("run-a", "run\0")),
        ("NUL in an actor", changed(|event| event.actor = "\0".to_owned())),
        ("NUL in a correlation", changed(|event| event.correlation_id = Some("\0".to_owned()))),
        ("no stream", one("", "run.opened")),
        ("no type", one("run-a", "")),
        ("a long name", one(&"a".repeat(1_025), "run.opened")),
        ("facts over 64 KiB", changed(|event| event.facts = vec![0; 65_536])),
        ("content over 64 KiB", changed(|event| event.content = Some(vec![0; 65_536]))),
        ("over 1,024 events", append(vec![to("run-a", Expected::Any, (0..1_025).map(|_| event("e")).collect())])),
        ("one id twice", append(vec![to("run-a", Expected::Any, twice)])),
        ("one key twice", keyed(vec![key("k", "a"), key("k", "a")])),
        (
            "a key without events",
            Append { keys: vec![key("k", "a")], ..append(vec![to("run-a", Expected::Any, Vec::new())]) },
        ),
    ] {
        assert!(matches!(log.append(asked).await, Err(AppendError::Invalid(_))), "{what}");
    }
    assert_eq!(log.head().await.unwrap(), 0);
}

pub(super) async fn the_largest_event_and_the_largest_append_fit(backend: Backend) {
    let log = backend.open().await;
    let mut large = worded("run.opened", &"x".repeat(60_000));
    large.facts = vec![7; 65_536 - 60_000 - "run-a".len() - "run.opened".len() - "engine".len()];
    log.append(append(vec![to("run-a", Expected::Any, vec![large.clone()])])).await.unwrap();
    assert_eq!(all(&log).await[0].content, large.content);
    assert_eq!(write(&log, &"s".repeat(1_024), 1_024).await.count, 1_024);
    // 3.9 MiB in one append.
    let events = (0..64).map(|_| worded("run.opened", &"y".repeat(64_000))).collect();
    let bulky = log.append(append(vec![to("run-b", Expected::Any, events)])).await.unwrap();
    assert_eq!((bulky.first, bulky.count), (1_026, 64));
}

pub(super) async fn an_event_id_stands_once(backend: Backend) {
    let log = backend.open().await;
    let asked = append(vec![to("run-a", Expected::Any, vec![event("run.opened"), worded("run.taken", "words")])]);
    let first = log.append(asked.clone()).await.unwrap();
    write(&log, "run-b", 1).await;
    // The same append again, without a key: it stands already.
    let again = log.append(asked.clone()).await.unwrap();
    assert_eq!(again, Appended { duplicate: true, ..first });
    let mut exact = asked.clone();
    exact.entries[0].expected = Expected::NoStream;
    assert!(matches!(log.append(exact).await, Err(AppendError::Conflict { actual: 2, .. })));
    // The same id for something else.
    let mut other = asked.clone();
    other.entries[0].events[1].content = Some(b"other words".to_vec());
    assert!(matches!(log.append(other).await, Err(AppendError::Invalid(_))));
    let mut elsewhere = asked;
    elsewhere.entries[0].stream = stream("run-c");
    assert!(matches!(log.append(elsewhere).await, Err(AppendError::Invalid(_))));
    assert_eq!(write(&log, "run-b", 1).await.first, 4, "nothing was written, no position consumed");
}

pub(super) async fn a_reader_appends_nothing(backend: Backend) {
    backend.open().await.close().await;
    let log = Log::open(&backend.url, Open::ReadOnly).await.unwrap();
    let refused = log.append(one("run-a", "run.opened")).await;
    assert!(matches!(refused, Err(AppendError::Log(_))), "{refused:?}");
    assert_eq!(log.head().await.unwrap(), 0);
    assert!(log.store_time().await.unwrap() > Micros(0));
}
