//! Elapsed time, all day and between two local times; and the limits that every kind has.

use super::{at, between, cron, next, schedule};

#[test]
fn without_anchor_the_grid_starts_at_the_creation() {
    let every = schedule(r#"{"kind":"every","zone":"Europe/Berlin","minutes":15}"#);
    let created = at("2026-12-01T10:07:30.9Z");
    let first = every.next_after(created, created).unwrap();
    assert_eq!(first.local, "2026-12-01T11:22:30+01:00");
    // Long before the creation it is still the first, and never the creation itself.
    assert_eq!(every.next_after(at("2026-11-01T00:00:00Z"), created).unwrap(), first);
    // In a preview the creation is the instant the preview starts from.
    assert_eq!(every.preview(created, None, 1), [first]);
}

#[test]
fn the_grid_starts_at_the_anchor() {
    let every = schedule(r#"{"kind":"every","zone":"UTC","minutes":90,"anchor":"2026-12-01T00:00:00Z"}"#);
    assert_eq!(next(&every, "2026-11-01T00:00:00Z", 2), ["2026-12-01T00:00:00+00:00", "2026-12-01T01:30:00+00:00"]);
    assert_eq!(next(&every, "2026-12-02T00:00:00Z", 1), ["2026-12-02T01:30:00+00:00"]);
}

#[test]
fn between_is_from_inclusive_to_exclusive() {
    let every =
        schedule(r#"{"kind":"every","zone":"Europe/Berlin","minutes":15,"between":{"from":"09:00","to":"17:00"}}"#);
    let day = between(&every, "2026-12-01T00:00:00+01:00", "2026-12-02T00:00:00+01:00");
    assert_eq!(day.len(), 32);
    assert_eq!(day.first().unwrap(), "2026-12-01T09:00:00+01:00");
    assert_eq!(day.last().unwrap(), "2026-12-01T16:45:00+01:00");
}

#[test]
fn without_anchor_the_grid_begins_anew_at_each_from() {
    let every = schedule(r#"{"kind":"every","zone":"UTC","minutes":50,"between":{"from":"09:00","to":"11:00"}}"#);
    assert_eq!(
        next(&every, "2026-12-01T00:00:00Z", 4),
        [
            "2026-12-01T09:00:00+00:00",
            "2026-12-01T09:50:00+00:00",
            "2026-12-01T10:40:00+00:00",
            "2026-12-02T09:00:00+00:00"
        ]
    );
    // An interval longer than the span: once a day, at `from`.
    let long = schedule(r#"{"kind":"every","zone":"UTC","minutes":600,"between":{"from":"09:00","to":"11:00"}}"#);
    assert_eq!(next(&long, "2026-12-01T09:00:00Z", 2), ["2026-12-02T09:00:00+00:00", "2026-12-03T09:00:00+00:00"]);
}

#[test]
fn with_anchor_the_grid_goes_on_and_between_only_lets_through() {
    let every = schedule(
        r#"{"kind":"every","zone":"UTC","minutes":780,"between":{"from":"09:00","to":"17:00"},"anchor":"2026-12-01T00:00:00Z"}"#,
    );
    // 13:00, 02:00, 15:00, 04:00, 17:00, 06:00, 19:00, 08:00, 21:00, 10:00
    assert_eq!(
        next(&every, "2026-12-01T00:00:00Z", 3),
        ["2026-12-01T13:00:00+00:00", "2026-12-02T15:00:00+00:00", "2026-12-06T10:00:00+00:00"]
    );
}

#[test]
fn a_span_over_midnight_is_an_hour_shorter_or_longer_when_the_clocks_change() {
    let nights =
        schedule(r#"{"kind":"every","zone":"Europe/Berlin","minutes":60,"between":{"from":"22:00","to":"06:00"}}"#);
    assert_eq!(between(&nights, "2026-03-28T20:00:00+01:00", "2026-03-29T20:00:00+02:00").len(), 7);
    assert_eq!(between(&nights, "2026-10-24T20:00:00+02:00", "2026-10-25T20:00:00+01:00").len(), 9);
}

#[test]
fn a_grid_ends_where_the_next_one_begins() {
    // 02:30 moves to 03:30 on the spring day, past the next 03:00: the old grid (06:55Z, 07:20Z) stops at 03:00.
    let schedule =
        schedule(r#"{"kind":"every","zone":"America/New_York","minutes":25,"between":{"from":"03:00","to":"02:30"}}"#);
    assert_eq!(
        next(&schedule, "2026-03-08T06:30:00Z", 3),
        ["2026-03-08T01:55:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T03:25:00-04:00"]
    );
}

#[test]
fn starts_and_ends_are_inclusive() {
    for (kind, expected) in [
        (
            r#""kind":"every","zone":"UTC","minutes":60,"anchor":"2026-01-01T00:00:00Z""#,
            vec!["2026-12-01T08:00:00+00:00", "2026-12-01T09:00:00+00:00", "2026-12-01T10:00:00+00:00"],
        ),
        (
            r#""kind":"cron","zone":"UTC","expr":"0 * * * *""#,
            vec!["2026-12-01T08:00:00+00:00", "2026-12-01T09:00:00+00:00", "2026-12-01T10:00:00+00:00"],
        ),
        (
            r#""kind":"weekly","zone":"UTC","days":["tue"],"times":["07:59","08:00","10:00","10:01"]"#,
            vec!["2026-12-01T08:00:00+00:00", "2026-12-01T10:00:00+00:00"],
        ),
        (r#""kind":"once","at":"2026-12-01T10:00:00Z""#, vec!["2026-12-01T10:00:00+00:00"]),
        (r#""kind":"once","at":"2026-12-01T10:00:01Z""#, vec![]),
    ] {
        let schedule =
            schedule(&format!(r#"{{{kind},"starts_at":"2026-12-01T08:00:00Z","ends_at":"2026-12-01T10:00:00Z"}}"#));
        assert_eq!(next(&schedule, "2026-11-01T00:00:00Z", 10), expected, "{kind}");
        let missed =
            schedule.stretch(at("2026-11-01T00:00:00Z"), at("2026-11-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        assert_eq!(missed.map_or(0, |missed| missed.count), expected.len() as u64, "{kind}");
    }
}

#[test]
fn once_is_due_once_in_its_own_offset() {
    let once = schedule(r#"{"kind":"once","at":"2026-12-01T08:00:00+01:00"}"#);
    assert_eq!(next(&once, "2026-12-01T06:59:59Z", 5), ["2026-12-01T08:00:00+01:00"]);
    assert_eq!(next(&once, "2026-12-01T07:00:00Z", 5), Vec::<String>::new());
    assert_eq!(once.once_at(), Some(at("2026-12-01T07:00:00Z")));
}

#[test]
fn a_stretch_has_its_ends_and_its_number() {
    let hourly = cron("UTC", "0 * * * *");
    let from = at("2026-12-01T00:00:00Z");
    let stretch = hourly.stretch(from, from, at("2026-12-01T03:00:00Z")).unwrap();
    assert_eq!((stretch.first.at, stretch.last.at, stretch.count), (from.plus_s(3_600), from.plus_s(10_800), 3));
    let one = hourly.stretch(from, from, at("2026-12-01T01:00:00Z")).unwrap();
    assert_eq!((one.first == one.last, one.count), (true, 1));
    assert_eq!(hourly.stretch(from, from, at("2026-12-01T00:59:59Z")), None);
    assert_eq!(hourly.windows(from, from, at("2027-12-01T03:00:00Z"), 2).len(), 2);
}

#[test]
fn runs_per_week_is_the_mean_of_four_weeks() {
    let from = at("2026-12-01T00:00:00Z");
    for (json, expected) in [
        (r#"{"kind":"every","zone":"UTC","minutes":1}"#, 10_080.0),
        (r#"{"kind":"weekly","zone":"UTC","days":["mon","fri"],"times":["08:00","17:30"]}"#, 4.0),
        (r#"{"kind":"cron","zone":"UTC","expr":"*/15 9-17 * * mon-fri"}"#, 180.0),
        (r#"{"kind":"once","at":"2026-12-02T08:00:00Z"}"#, 0.25),
        (r#"{"kind":"once","at":"2026-11-02T08:00:00Z"}"#, 0.0),
    ] {
        assert!((schedule(json).runs_per_week(from, None) - expected).abs() < 1e-9, "{json}");
    }
}

#[test]
fn jitter_is_the_routines_own_and_never_changes() {
    let jittered = schedule(r#"{"kind":"every","zone":"UTC","minutes":60,"jitter_s":300}"#);
    let plain = schedule(r#"{"kind":"every","zone":"UTC","minutes":60}"#);
    let window = at("2026-12-01T08:00:00Z");
    let delay = |routine: u8| jittered.effective_at(window, &[routine; 16]).since(window) / 1_000_000;
    // Pinned: another value would move windows that are recorded.
    assert_eq!([delay(0), delay(1), delay(2)], [172, 8, 19]);
    assert_eq!(plain.effective_at(window, &[1; 16]), window);
    let delays: Vec<i64> = (0..=255).map(delay).collect();
    assert!(delays.iter().all(|delay| (0..=300).contains(delay)));
    assert!(delays.iter().filter(|delay| **delay < 100).count() > 50);
    assert!(delays.iter().filter(|delay| **delay > 200).count() > 50);
    // The same for every window of a routine, so that the distance stays.
    assert_eq!(
        jittered.effective_at(window.plus_s(3_600), &[9; 16]),
        jittered.effective_at(window, &[9; 16]).plus_s(3_600)
    );
}
