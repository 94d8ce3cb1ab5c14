//! Fields and schedules, both ways.

use super::*;

fn utc() -> Zone {
    Zone::named("UTC").expect("a zone")
}

fn typed(pairs: &[(&str, &str)]) -> ScheduleFields {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ScheduleFields::typed(&Fields::new(pairs))
}

#[test]
fn every_kind_of_schedule_has_fields_and_comes_back_as_it_was() {
    for (stored, kind) in [
        (r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","fri"],"times":["08:00","17:30"]}"#, "weekly"),
        (
            r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon"],"times":["08:00"],"starts_at":"2026-12-01T00:00:00+01:00","ends_at":"2027-07-01T12:30:00+02:00","jitter_s":300}"#,
            "weekly",
        ),
        (r#"{"kind":"monthly","zone":"UTC","days":[1,15,"last"],"times":["08:00"]}"#, "monthly"),
        (r#"{"kind":"every","zone":"UTC","minutes":15,"between":{"from":"09:00","to":"17:00"}}"#, "every"),
        (r#"{"kind":"every","zone":"UTC","minutes":90}"#, "every"),
        (r#"{"kind":"cron","zone":"UTC","expr":"30 2 * * mon-fri"}"#, "cron"),
        // A one-off keeps its offset: the reader's zone says the same time of another one.
        (r#"{"kind":"once","at":"2026-12-01T08:00:00Z"}"#, "once"),
        (r#"{"kind":"once","at":"2026-12-01T08:00:00+01:00"}"#, "json"),
        // The fields have no anchor, and no second of a time that comes twice.
        (r#"{"kind":"every","zone":"UTC","minutes":90,"anchor":"2026-12-01T00:00:00Z"}"#, "json"),
        (r#"{"kind":"cron","zone":"Europe/Berlin","expr":"0 8 * * *","ends_at":"2026-10-25T02:30:00+01:00"}"#, "json"),
    ] {
        let form = ScheduleFields::stored(stored, &utc());
        assert_eq!(form.kind(), kind, "{stored}");
        let back = form.schedule().expect("a schedule");
        assert_eq!(Some(back), Schedule::parse(stored).ok(), "{stored}");
    }
    let berlin = Zone::named("Europe/Berlin").expect("a zone");
    let own = ScheduleFields::stored(r#"{"kind":"once","at":"2026-12-01T08:00:00+01:00"}"#, &berlin);
    assert_eq!((own.kind(), own.at.as_str(), own.zone.as_str()), ("once", "2026-12-01T08:00", "Europe/Berlin"));
}

#[test]
fn a_mistake_is_said_beside_its_field() {
    for (fields, field, said) in [
        (vec![("kind", "weekly"), ("times", "08:00"), ("zone", "UTC")], "days", "at least one weekday"),
        (vec![("kind", "weekly"), ("days", "mon"), ("times", "8"), ("zone", "UTC")], "times", "write a time"),
        (vec![("kind", "monthly"), ("month_days", "32"), ("times", "08:00"), ("zone", "UTC")], "month_days", "1 to 31"),
        (vec![("kind", "every"), ("minutes", "soon")], "minutes", "Write a whole number"),
        (vec![("kind", "every"), ("minutes", "0"), ("zone", "UTC")], "minutes", "write 1 to 525600"),
        (vec![("kind", "every"), ("minutes", "5"), ("from", "09:00"), ("zone", "UTC")], "to", "write a time"),
        (vec![("kind", "cron"), ("expr", "* * *"), ("zone", "UTC")], "expr", "five fields"),
        (vec![("kind", "cron"), ("expr", "0 8 * * *"), ("zone", "Mars")], "zone", "not a time zone"),
        (vec![("kind", "once"), ("at", "soon"), ("zone", "UTC")], "at", "Write date and time"),
        (vec![("kind", "every"), ("minutes", "5"), ("zone", "UTC"), ("jitter_s", "-1")], "jitter_s", "whole number"),
        (vec![("kind", "every"), ("minutes", "5"), ("zone", "UTC"), ("ends_at", "x")], "ends_at", "Write date"),
        (
            vec![
                ("kind", "every"),
                ("minutes", "5"),
                ("zone", "UTC"),
                ("starts_at", "2026-12-02T00:00"),
                ("ends_at", "2026-12-01T00:00"),
            ],
            "ends_at",
            "lies before",
        ),
        (vec![("kind", "json"), ("schedule", "{")], "json", "cannot be read"),
    ] {
        let wrong = typed(&fields).schedule().expect_err("a mistake");
        assert_eq!(wrong.field, field, "{wrong:?}");
        assert!(wrong.sentence.contains(said), "{wrong:?}");
    }
}

#[test]
fn once_takes_the_zones_offset_of_that_day() {
    let once = |local, zone| once("at", local, zone);
    assert_eq!(once("2026-12-01T08:00", "Europe/Berlin").as_deref(), Ok("2026-12-01T08:00:00+01:00"));
    assert_eq!(once("2026-07-01T08:00", "Europe/Berlin").as_deref(), Ok("2026-07-01T08:00:00+02:00"));
    // It comes twice: the first is the one of summer time.
    assert_eq!(once("2026-10-25T02:30", "Europe/Berlin").as_deref(), Ok("2026-10-25T02:30:00+02:00"));
    let skipped = once("2026-03-29T02:30", "Europe/Berlin").expect_err("the clocks skip it");
    assert!(skipped.sentence.contains("no such time"), "{skipped:?}");
    let unknown = once("2026-12-01T08:00", "Europe/Berlim").expect_err("no zone");
    assert!(unknown.field == "zone" && unknown.sentence.contains("Europe/Berlin"), "{unknown:?}");
    assert!(once("tomorrow", "UTC").is_err());
}

#[test]
fn means_are_quarters() {
    assert_eq!(a_week(5.0), "5");
    assert_eq!(a_week(0.25), "0.25");
    assert_eq!(a_week(10_080.0), "10080");
}
