//! What is accepted, in which form it is stored, and the sentence for what is not.

use super::super::{Schedule, Zone, zone_names};
use super::{at, cron, next, schedule};

#[test]
fn the_stored_form_is_stable() {
    for (given, stored) in [
        (
            r#"{"at":"2026-12-01T08:00:00.000+01:00","kind":"once"}"#,
            r#"{"kind":"once","at":"2026-12-01T08:00:00+01:00"}"#,
        ),
        (r#"{"at":"2026-12-01T08:00:00+00:00","kind":"once"}"#, r#"{"kind":"once","at":"2026-12-01T08:00:00Z"}"#),
        (
            r#"{ "kind":"weekly", "times":["17:30","08:00"], "days":["fri","mon"], "zone":"Europe/Berlin" }"#,
            r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","fri"],"times":["08:00","17:30"]}"#,
        ),
        (
            r#"{"kind":"monthly","zone":"UTC","days":["last",15,1],"times":["08:00"],"jitter_s":60}"#,
            r#"{"kind":"monthly","zone":"UTC","days":[1,15,"last"],"times":["08:00"],"jitter_s":60}"#,
        ),
        (
            r#"{"kind":"every","zone":"UTC","minutes":15,"between":{"to":"17:00","from":"09:00"},"anchor":"2026-12-01T00:00:00Z","starts_at":null}"#,
            r#"{"kind":"every","zone":"UTC","minutes":15,"between":{"from":"09:00","to":"17:00"},"anchor":"2026-12-01T00:00:00Z"}"#,
        ),
        (
            r#"{"kind":"cron","zone":"UTC","expr":" 30  2 * * mon-FRI ","ends_at":"2027-01-01T00:00:00Z"}"#,
            r#"{"kind":"cron","zone":"UTC","expr":"30 2 * * mon-FRI","ends_at":"2027-01-01T00:00:00Z"}"#,
        ),
    ] {
        let read = schedule(given);
        assert_eq!(read.to_json(), stored);
        assert_eq!(schedule(stored), read);
        assert_eq!(schedule(stored).to_json(), stored);
    }
}

/// Each text with a part of the sentence it is refused with: what was wrong, and what to write.
fn refused(cases: &[(String, &str)]) {
    for (json, expected) in cases {
        let error = Schedule::parse(json).expect_err(json).to_string();
        assert!(error.contains(expected), "{json}\n gave: {error}\n not: {expected}");
    }
}

#[test]
fn every_error_of_shape_says_what_to_do() {
    let weekly = |rest: &str| format!(r#"{{"kind":"weekly","zone":"Europe/Berlin",{rest}}}"#);
    refused(&[
        (String::new(), "the schedule cannot be read: write a JSON object, such as {\"kind\":\"once\",\"at\":…}"),
        (r#"["once","2026-12-01T08:00:00Z"]"#.into(), "write a JSON object"),
        ("{}".into(), "missing field `kind`; it is once, weekly, monthly, every or cron"),
        (
            r#"{"kind":"daily"}"#.into(),
            "unknown variant `daily`, expected one of `once`, `weekly`, `monthly`, `every`, `cron`",
        ),
        (
            weekly(r#""days":["mon"],"times":["08:00"],"tz":1"#),
            "unknown field `tz`, expected one of `zone`, `days`, `times`",
        ),
        (weekly(r#""days":["mon"]"#), "missing field `times`; add it"),
        (weekly(r#""days":["mon"],"days":["mon"],"times":["08:00"]"#), "duplicate field `days`; write it once"),
    ]);
}

#[test]
fn every_error_of_days_and_times_says_what_to_do() {
    let weekly = |rest: &str| format!(r#"{{"kind":"weekly","zone":"Europe/Berlin",{rest}}}"#);
    refused(&[
        (weekly(r#""days":[],"times":["08:00"]"#), "`days` is empty; write at least one weekday, such as \"mon\""),
        (
            weekly(r#""days":["monday"],"times":["08:00"]"#),
            "`days` has \"monday\"; write mon, tue, wed, thu, fri, sat or sun",
        ),
        (weekly(r#""days":["mon","mon"],"times":["08:00"]"#), "`days` has \"mon\" twice; write it once"),
        (weekly(r#""days":["mon"],"times":[]"#), "`times` is empty; write at least one time, such as \"08:00\""),
        (
            weekly(r#""days":["mon"],"times":["25:00"]"#),
            "`times` has \"25:00\"; write a time from 00:00 to 23:59 with two digits each",
        ),
        (weekly(r#""days":["mon"],"times":["8:00"]"#), "`times` has \"8:00\"; write a time"),
        (weekly(r#""days":["mon"],"times":["08:60"]"#), "`times` has \"08:60\"; write a time"),
        (weekly(r#""days":["mon"],"times":["+8:00"]"#), "`times` has \"+8:00\"; write a time"),
        (weekly(r#""days":["mon"],"times":["08:00:00"]"#), "`times` has \"08:00:00\"; write a time"),
        (weekly(r#""days":["mon"],"times":["08:00","08:00"]"#), "`times` has \"08:00\" twice; write it once"),
        (weekly(r#""days":["mon"],"times":["08:00"],"jitter_s":-1"#), "`jitter_s` must be 0 to 86400 seconds"),
        (weekly(r#""days":["mon"],"times":["08:00"],"jitter_s":"x""#), "`jitter_s` must be a whole number of seconds"),
        (
            weekly(
                r#""days":["mon"],"times":["08:00"],"starts_at":"2026-12-01T00:00:00Z","ends_at":"2026-11-01T00:00:00Z""#,
            ),
            "`ends_at` lies before `starts_at`; write a later instant",
        ),
        (
            r#"{"kind":"monthly","zone":"UTC","days":[32],"times":["08:00"]}"#.into(),
            "`days` has \"32\"; write numbers from 1 to 31, or \"last\"",
        ),
        (
            r#"{"kind":"monthly","zone":"UTC","days":["first"],"times":["08:00"]}"#.into(),
            "`days` has \"first\"; write numbers",
        ),
        (
            r#"{"kind":"monthly","zone":"UTC","days":["last","last"],"times":["08:00"]}"#.into(),
            "`days` has \"last\" twice; write it once",
        ),
        (r#"{"kind":"monthly","zone":"UTC","days":[],"times":["08:00"]}"#.into(), "`days` is empty"),
    ]);
}

#[test]
fn every_error_of_intervals_and_instants_says_what_to_do() {
    let every = |rest: &str| format!(r#"{{"kind":"every","zone":"UTC",{rest}}}"#);
    let once = |at: &str| format!(r#"{{"kind":"once","at":"{at}"}}"#);
    refused(&[
        (every(r#""minutes":0"#), "`minutes` is 0; write 1 to 525600 (a year)"),
        (every(r#""minutes":525601"#), "`minutes` is 525601; write 1 to 525600"),
        (every(r#""minutes":1.5"#), "`minutes` must be a whole number"),
        (
            every(r#""minutes":5,"between":{"from":"09:00","to":"09:00"}"#),
            "`between` has the same `from` and `to`; leave `between` out for the whole day",
        ),
        (every(r#""minutes":5,"between":{"from":"09:00","to":"24:00"}"#), "`to` has \"24:00\"; write a time"),
        (every(r#""minutes":5,"between":{"from":"09:00"}"#), "missing field `to`; add it"),
        (
            every(r#""minutes":1440,"between":{"from":"09:00","to":"17:00"},"anchor":"2026-12-01T00:00:00Z""#),
            "`anchor` never meets `between`",
        ),
        (
            once("2026-12-01T08:00:00"),
            "`at` \"2026-12-01T08:00:00\" is not an instant; write it with its offset, such as 2026-12-01T08:00:00+01:00",
        ),
        (once("2026-12-01"), "`at` \"2026-12-01\" is not an instant"),
        (once("2026-12-01T08:00:00.5Z"), "`at` \"2026-12-01T08:00:00.5Z\" is not a whole second"),
        (once("9026-12-01T08:00:00Z"), "`at` must lie between the years 1900 and 2500"),
    ]);
}

#[test]
fn an_unknown_zone_is_named_and_the_nearest_offered() {
    for (zone, nearest) in [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("America/NewYork", "did you mean America/New_York?"),
        ("utc", "did you mean UTC?"),
        ("Middle Earth/Bree", "write a name such as Europe/Berlin or UTC"),
        ("", "write a name such as Europe/Berlin or UTC"),
        ("Factory", "is not a time zone"),
    ] {
        let error = Zone::named(zone).unwrap_err();
        assert_eq!(error.code(), "unknown_zone");
        assert!(error.to_string().contains(nearest), "{zone}: {error}");
        assert!(error.to_string().starts_with(&format!("`zone` {zone:?} is not")), "{zone}: {error}");
    }
    assert!(Zone::named(&"x".repeat(100_000)).unwrap_err().to_string().len() < 200);
}

#[test]
fn every_known_zone_can_be_asked() {
    let names = zone_names();
    assert!(names.len() > 590);
    for name in names {
        let zone = Zone::named(name).unwrap();
        assert_eq!(zone.name(), name);
        assert!(Zone::named(zone.canonical()).is_ok(), "{name} → {}", zone.canonical());
        let schedule = cron(name, "30 2 * * *");
        assert!(schedule.next_after(at("2026-03-01T00:00:00Z"), at("2026-03-01T00:00:00Z")).is_some());
    }
}

#[test]
fn cron_errors_name_the_item() {
    for (expr, expected) in [
        ("* * * *", "`expr` must have five fields"),
        ("0 0 8 * * 1", "`expr` must have five fields"),
        ("@daily", "`expr` must have five fields"),
        ("60 * * * *", "`expr` has \"60\" in its minute field; write a number from 0 to 59"),
        ("0 24 * * *", "`expr` has \"24\" in its hour field; write a number from 0 to 23"),
        ("0 0 0 * *", "`expr` has \"0\" in its day of month field; write a number from 1 to 31"),
        ("0 0 * 13 *", "in its month field; write a number from 1 to 12 or a name, jan to dec"),
        ("0 0 * * 8", "in its day of week field; write a number from 0 to 7 or a name, sun to sat"),
        ("0 0 * * fri-mon", "`expr` has \"fri-mon\" in its day of week field; it runs backwards"),
        ("0 17-9 * * *", "`expr` has \"17-9\" in its hour field; it runs backwards"),
        ("5/15 * * * *", "put a range before the step, such as `*/5` or `5-59/5`"),
        ("*/0 * * * *", "the step must be 1 to 59; use the kind `every` for longer intervals"),
        ("*/90 * * * *", "the step must be 1 to 59; use the kind `every` for longer intervals"),
        ("1,,2 * * * *", "`expr` has \"\" in its minute field"),
        ("jan * * * *", "`expr` has \"jan\" in its minute field"),
        ("mon2 * * * *", "`expr` has \"mon2\" in its minute field"),
        ("0 0 30 2 *", "`expr` names a date that never comes"),
        ("0 0 31 4,6,9,11 *", "`expr` names a date that never comes"),
        ("0 0 * * mon#6", "after # write which one in the month, 1 to 5"),
        ("0 0 * * +1", "`expr` has \"+1\" in its day of week field"),
        ("0 0 * * l", "`expr` has \"l\" in its day of week field"),
        ("0 ? * * *", "`expr` has \"?\" in its hour field"),
    ] {
        let json = format!(r#"{{"kind":"cron","zone":"UTC","expr":"{expr}"}}"#);
        let error = Schedule::parse(&json).expect_err(expr).to_string();
        assert!(error.contains(expected), "{expr}\n gave: {error}\n not: {expected}");
    }
}

#[test]
fn cron_days() {
    for (expr, expected) in [
        // Both restricted: either is enough.
        ("0 0 13 * fri", ["2026-12-04", "2026-12-11", "2026-12-13"]),
        ("0 0 1 * *", ["2027-01-01", "2027-02-01", "2027-03-01"]),
        ("0 0 * jan *", ["2027-01-01", "2027-01-02", "2027-01-03"]),
        ("0 0 1 JAN,dec *", ["2027-01-01", "2027-12-01", "2028-01-01"]),
        ("0 0 L * *", ["2026-12-31", "2027-01-31", "2027-02-28"]),
        ("0 0 LW * *", ["2026-12-31", "2027-01-29", "2027-02-26"]),
        ("0 0 15W * ?", ["2026-12-15", "2027-01-15", "2027-02-15"]),
        ("0 0 ? * mon#2", ["2026-12-14", "2027-01-11", "2027-02-08"]),
        ("0 0 * * friL", ["2026-12-25", "2027-01-29", "2027-02-26"]),
        ("0 0 */10 * *", ["2026-12-11", "2026-12-21", "2026-12-31"]),
        ("0 0 1-31/10 * *", ["2026-12-11", "2026-12-21", "2026-12-31"]),
    ] {
        let found = next(&cron("UTC", expr), "2026-12-01T12:00:00Z", 3);
        assert_eq!(found, expected.map(|date| format!("{date}T00:00:00+00:00")), "{expr}");
    }
}
