//! Inputs that broke other schedulers, by the number of the case.

use super::{at, cron, daily, next, schedule};

#[test]
fn s12_a_minute_stays_a_minute_however_late_it_is_asked() {
    let every = schedule(r#"{"kind":"every","zone":"UTC","minutes":1}"#);
    let created = at("2026-12-01T00:00:07Z");
    let mut after = created;
    for k in 1..=1_000 {
        let window = every.next_after(after, created).unwrap();
        assert_eq!(window.at, created.plus_s(k * 60));
        // The run takes three seconds; the next window is computed from the last one, not from its end.
        assert_eq!(every.next_after(window.at.plus_s(3), created).unwrap().at, created.plus_s((k + 1) * 60));
        after = window.at;
    }
}

#[test]
fn s14_half_past_two_happens_once_on_the_spring_day_and_says_that_it_moved() {
    let expected = ["2026-03-07T02:30:00-05:00", "2026-03-08T03:30:00-04:00 moved", "2026-03-09T02:30:00-04:00"];
    for schedule in [cron("America/New_York", "30 2 * * *"), daily("America/New_York", &["02:30"])] {
        assert_eq!(next(&schedule, "2026-03-07T00:00:00Z", 3), expected);
    }
}

#[test]
fn s16_a_quarter_to_two_on_lord_howe_happens_once_when_half_an_hour_is_repeated() {
    let expected = ["2026-04-04T01:45:00+11:00", "2026-04-05T01:45:00+11:00 first_of_two", "2026-04-06T01:45:00+10:30"];
    for schedule in [cron("Australia/Lord_Howe", "45 1 * * *"), daily("Australia/Lord_Howe", &["01:45"])] {
        assert_eq!(next(&schedule, "2026-04-03T00:00:00Z", 3), expected);
        // Asked in the second 01:45, and between the two.
        assert_eq!(next(&schedule, "2026-04-04T15:15:00Z", 1), expected[2..]);
        assert_eq!(next(&schedule, "2026-04-04T15:00:00Z", 1), expected[2..]);
    }
}

#[test]
fn s17_the_day_after_the_spring_day_is_at_half_past_two_again() {
    let schedule = cron("America/New_York", "30 2 * * *");
    // Before the gap, in the moved hour, at the moved window, after it.
    for (after, expected) in [
        ("2026-03-08T06:59:59Z", "2026-03-08T03:30:00-04:00 moved"),
        ("2026-03-08T07:00:00Z", "2026-03-08T03:30:00-04:00 moved"),
        ("2026-03-08T07:29:59Z", "2026-03-08T03:30:00-04:00 moved"),
        ("2026-03-08T07:30:00Z", "2026-03-09T02:30:00-04:00"),
        ("2026-03-08T20:00:00Z", "2026-03-09T02:30:00-04:00"),
    ] {
        assert_eq!(next(&schedule, after, 1), [expected], "after {after}");
    }
}

#[test]
fn s19_the_weekday_is_the_zones_own() {
    let expected = [
        "2026-12-04T04:10:00+08:00", // a Friday; Thursday in UTC
        "2026-12-07T04:10:00+08:00", // a Monday; Sunday in UTC
    ];
    let weekly = r#"{"kind":"weekly","zone":"Asia/Shanghai","days":["mon","tue","wed","thu","fri"],"times":["04:10"]}"#;
    for schedule in [schedule(weekly), cron("Asia/Shanghai", "10 4 * * mon-fri")] {
        assert_eq!(next(&schedule, "2026-12-03T00:00:00Z", 2), expected);
    }
}

#[test]
fn s21_an_alias_is_accepted_and_kept() {
    for kind in [
        r#"{"kind":"weekly","zone":"Europe/Kiev","days":["mon"],"times":["08:00"]}"#,
        r#"{"kind":"monthly","zone":"Europe/Kiev","days":[1],"times":["08:00"]}"#,
        r#"{"kind":"every","zone":"Europe/Kiev","minutes":15}"#,
        r#"{"kind":"cron","zone":"Europe/Kiev","expr":"0 8 * * *"}"#,
    ] {
        let schedule = schedule(kind);
        assert_eq!(schedule.to_json(), kind);
        assert_eq!(schedule.zone().name(), "Europe/Kiev");
        assert_eq!(schedule.zone().canonical(), "Europe/Kyiv");
        assert!(schedule.notes().contains(&"Europe/Kiev is an alias; the zone's present name is Europe/Kyiv.".into()));
    }
    assert_eq!(next(&cron("Europe/Kiev", "0 8 * * *"), "2026-12-01T00:00:00Z", 1), ["2026-12-01T08:00:00+02:00"]);
}

#[test]
fn s24_a_weekend_of_minutes_is_one_answer() {
    let (friday, monday) = (at("2026-12-04T18:00:00Z"), at("2026-12-07T08:00:00Z"));
    let minutes = 62 * 60;
    for schedule in [schedule(r#"{"kind":"every","zone":"UTC","minutes":1}"#), cron("Europe/Berlin", "* * * * *")] {
        let missed = schedule.stretch(friday, friday, monday).unwrap();
        assert_eq!((missed.first.at, missed.last.at, missed.count), (friday.plus_s(60), monday, minutes));
        assert_eq!(schedule.next_after(missed.last.at, friday).unwrap().at, monday.plus_s(60));
    }
}

#[test]
fn s26_sunday_is_0_and_7_and_its_name() {
    for day in ["0", "7", "sun", "SUN"] {
        let sundays = ["2026-12-06T00:00:00+01:00", "2026-12-13T00:00:00+01:00"];
        assert_eq!(next(&cron("Europe/Berlin", &format!("0 0 * * {day}")), "2026-12-01T00:00:00Z", 2), sundays);
    }
    for (days, expected) in [
        ("sat-sun", ["2026-12-05", "2026-12-06", "2026-12-12"]),
        ("5-7", ["2026-12-04", "2026-12-05", "2026-12-06"]),
        ("0-1", ["2026-12-06", "2026-12-07", "2026-12-13"]),
        ("sun-mon", ["2026-12-06", "2026-12-07", "2026-12-13"]),
        ("1,0", ["2026-12-06", "2026-12-07", "2026-12-13"]),
    ] {
        let found = next(&cron("UTC", &format!("0 0 * * {days}")), "2026-12-01T12:00:00Z", 3);
        assert_eq!(found, expected.map(|date| format!("{date}T00:00:00+00:00")), "{days}");
    }
}

#[test]
fn s28_thirteen_hours_are_thirteen_hours() {
    let every = schedule(r#"{"kind":"every","zone":"UTC","minutes":780,"anchor":"2026-12-01T00:00:00Z"}"#);
    let expected = ["2026-12-01T13:00:00+00:00", "2026-12-02T02:00:00+00:00", "2026-12-02T15:00:00+00:00"];
    assert_eq!(next(&every, "2026-12-01T00:00:00Z", 3), expected);
    assert_eq!(
        cron("UTC", "0 */13 * * *").notes()[0],
        "*/13 means the hours 0, 13 and begins anew each day; \
         for every 13 hours use the kind `every` with `minutes` 780."
    );
}

#[test]
fn s31_the_rules_of_2026_are_known() {
    for (zone, utc) in [("America/Vancouver", "16:00"), ("Africa/Casablanca", "09:00")] {
        for schedule in [daily(zone, &["09:00"]), cron(zone, "0 9 * * *"), cron(zone, "0-0/1 9 * * *")] {
            let window = schedule.next_after(at("2026-12-01T00:00:00Z"), at("2026-12-01T00:00:00Z")).unwrap();
            assert_eq!(window.at, at(&format!("2026-12-01T{utc}:00Z")), "{zone}");
        }
    }
}

#[test]
fn s32_a_span_over_midnight_begins_again_the_same_evening() {
    let every =
        schedule(r#"{"kind":"every","zone":"Europe/Berlin","minutes":60,"between":{"from":"22:00","to":"06:00"}}"#);
    assert_eq!(
        next(&every, "2026-12-01T05:30:00+01:00", 3),
        ["2026-12-01T22:00:00+01:00", "2026-12-01T23:00:00+01:00", "2026-12-02T00:00:00+01:00"]
    );
    assert_eq!(
        next(&every, "2026-12-02T04:00:00+01:00", 2),
        ["2026-12-02T05:00:00+01:00", "2026-12-02T22:00:00+01:00"]
    );
}
