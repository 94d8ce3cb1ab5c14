//! Words and notes.

use super::{cron, schedule};

#[test]
fn in_words() {
    for (json, expected) in [
        (r#"{"kind":"once","at":"2026-12-01T08:00:00+01:00"}"#, "Once at 2026-12-01 08:00 +01:00"),
        (r#"{"kind":"once","at":"2026-12-01T08:00:30Z"}"#, "Once at 2026-12-01 08:00:30 UTC"),
        (
            r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","tue","wed","thu","fri"],"times":["08:00"]}"#,
            "Weekdays at 08:00, Europe/Berlin",
        ),
        (
            r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","fri"],"times":["08:00","17:30"]}"#,
            "Mondays and Fridays at 08:00 and 17:30, Europe/Berlin",
        ),
        (r#"{"kind":"weekly","zone":"UTC","days":["sun","sat"],"times":["08:00"]}"#, "Weekends at 08:00, UTC"),
        (
            r#"{"kind":"weekly","zone":"UTC","days":["mon","tue","wed","thu","fri","sat"],"times":["08:00"]}"#,
            "Mondays to Saturdays at 08:00, UTC",
        ),
        (
            r#"{"kind":"weekly","zone":"UTC","days":["mon","tue","thu"],"times":["08:00"]}"#,
            "Mondays, Tuesdays and Thursdays at 08:00, UTC",
        ),
        (
            r#"{"kind":"weekly","zone":"UTC","days":["mon","tue","wed","thu","fri","sat","sun"],"times":["08:00","09:00","10:00"]}"#,
            "Every day at 08:00, 09:00 and 10:00, UTC",
        ),
        (
            r#"{"kind":"monthly","zone":"UTC","days":[1,2,3,11,22,"last"],"times":["08:00"]}"#,
            "On the 1st, the 2nd, the 3rd, the 11th, the 22nd and the last day of the month at 08:00, UTC",
        ),
        (
            r#"{"kind":"every","zone":"Europe/Berlin","minutes":15,"between":{"from":"09:00","to":"17:00"}}"#,
            "Every 15 minutes from 09:00 to 17:00, Europe/Berlin",
        ),
        (r#"{"kind":"every","zone":"UTC","minutes":1}"#, "Every minute"),
        (r#"{"kind":"every","zone":"UTC","minutes":60}"#, "Every hour"),
        (
            r#"{"kind":"every","zone":"UTC","minutes":780,"anchor":"2026-12-01T00:00:00Z"}"#,
            "Every 13 hours, counted from 2026-12-01 00:00 UTC",
        ),
        (r#"{"kind":"cron","zone":"Europe/Berlin","expr":"30 2 * * mon-fri"}"#, "Cron 30 2 * * mon-fri, Europe/Berlin"),
        (
            r#"{"kind":"every","zone":"UTC","minutes":90,"starts_at":"2026-12-01T00:00:00Z","ends_at":"2027-01-01T00:00:00+01:00","jitter_s":60}"#,
            "Every 90 minutes, from 2026-12-01 00:00 UTC, until 2027-01-01 00:00 +01:00, up to 60 seconds later",
        ),
    ] {
        assert_eq!(schedule(json).in_words(), expected);
    }
}

#[test]
fn notes_explain_what_is_not_obvious() {
    for (expr, expected) in [
        ("0 8 * * *", vec![]),
        ("*/15 */6 * * *", vec!["When the clocks change"]),
        ("*/15 * * * *", vec![]),
        (
            "*/7 * * * *",
            vec!["*/7 means the minutes 0, 7, 14, …, 56 and begins anew each hour; for every 7 minutes use"],
        ),
        ("0-59/7 * * * *", vec!["0-59/7 means the minutes 0, 7, 14, …, 56 and begins anew"]),
        ("0 8-18/3 * * *", vec!["When the clocks change"]),
        (
            "0 */5 * * *",
            vec!["*/5 means the hours 0, 5, 10, 15, 20 and begins anew each day", "When the clocks change"],
        ),
        ("0 8 */2 * *", vec!["*/2 means the days of the month 1, 3, 5, …, 31 and begins anew each month"]),
        ("0 8 13 * fri", vec!["Day of month 13 and day of week fri: a day that is either is enough."]),
    ] {
        let notes = cron("Europe/Berlin", expr).notes();
        assert_eq!(notes.len(), expected.len(), "{expr}: {notes:?}");
        for (note, expected) in notes.iter().zip(expected) {
            assert!(note.starts_with(expected), "{expr}: {note}");
        }
    }
    let monthly =
        |days: &str| schedule(&format!(r#"{{"kind":"monthly","zone":"UTC","days":{days},"times":["08:00"]}}"#)).notes();
    assert_eq!(
        monthly("[30]")[0],
        "Months without a day 30 have no window on it; \"last\" is the last day of every month."
    );
    assert_eq!(monthly("[1,28]"), Vec::<String>::new());
}
