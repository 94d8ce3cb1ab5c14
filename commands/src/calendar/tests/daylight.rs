//! What a change of the clocks does to each kind.

use super::super::{Dst, Schedule, disagreements, second_opinion_version, tzdb_released, tzdb_version};
use super::{at, between, cron, daily, next, schedule};

fn count(schedule: &Schedule, after: &str, up_to: &str) -> u64 {
    schedule.stretch(at(after), at(after), at(up_to)).map_or(0, |stretch| stretch.count)
}

#[test]
fn a_time_in_the_gap_may_come_after_a_time_that_follows_it_on_the_clock() {
    let schedule = daily("America/New_York", &["02:30", "03:00", "04:00"]);
    assert_eq!(
        next(&schedule, "2026-03-08T06:00:00Z", 4),
        [
            "2026-03-08T03:00:00-04:00",
            "2026-03-08T03:30:00-04:00 moved",
            "2026-03-08T04:00:00-04:00",
            "2026-03-09T02:30:00-04:00"
        ]
    );
}

#[test]
fn two_times_at_one_instant_are_one_window() {
    for schedule in [daily("America/New_York", &["02:30", "03:30"]), cron("America/New_York", "30 2,3 * * *")] {
        assert_eq!(
            next(&schedule, "2026-03-08T06:00:00Z", 2),
            ["2026-03-08T03:30:00-04:00 moved", "2026-03-09T02:30:00-04:00"]
        );
    }
    let last = schedule(r#"{"kind":"monthly","zone":"UTC","days":[31,"last"],"times":["08:00"]}"#);
    assert_eq!(
        next(&last, "2026-01-01T00:00:00Z", 3),
        ["2026-01-31T08:00:00+00:00", "2026-02-28T08:00:00+00:00", "2026-03-31T08:00:00+00:00"]
    );
}

#[test]
fn a_time_that_happens_twice_is_the_first() {
    let expected = ["2026-10-25T02:30:00+02:00 first_of_two", "2026-10-26T02:30:00+01:00"];
    for schedule in [daily("Europe/Berlin", &["02:30"]), cron("Europe/Berlin", "30 2 * * *")] {
        assert_eq!(next(&schedule, "2026-10-25T00:00:00Z", 2), expected);
        // Between the two, and at the second.
        assert_eq!(next(&schedule, "2026-10-25T01:00:00Z", 1), expected[1..]);
        assert_eq!(next(&schedule, "2026-10-25T01:30:00Z", 1), expected[1..]);
    }
}

#[test]
fn days_have_23_and_25_hours() {
    let spring = ("2026-03-28T22:59:59Z", "2026-03-29T21:59:59Z");
    let autumn = ("2026-10-24T21:59:59Z", "2026-10-25T22:59:59Z");
    let hourly = cron("Europe/Berlin", "0 * * * *");
    assert_eq!(count(&hourly, spring.0, spring.1), 23);
    assert_eq!(count(&hourly, autumn.0, autumn.1), 25);
    // Fixed times: 02:00 and 03:00 are one window in spring, 02:00 is due once in autumn.
    let fixed = cron("Europe/Berlin", "0 0-23 * * *");
    assert_eq!(count(&fixed, spring.0, spring.1), 23);
    assert_eq!(count(&fixed, autumn.0, autumn.1), 24);
    let every = schedule(r#"{"kind":"every","zone":"Europe/Berlin","minutes":60,"anchor":"2026-01-01T00:00:00Z"}"#);
    assert_eq!(count(&every, spring.0, spring.1), 23);
    assert_eq!(count(&every, autumn.0, autumn.1), 25);
}

#[test]
fn a_cron_with_wildcard_or_step_keeps_real_time() {
    let half_hours = cron("America/New_York", "*/30 * * * *");
    assert_eq!(
        between(&half_hours, "2026-03-08T06:00:00Z", "2026-03-08T07:30:00Z"),
        ["2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"]
    );
    assert_eq!(
        between(&half_hours, "2026-11-01T05:00:00Z", "2026-11-01T07:00:00Z"),
        [
            "2026-11-01T01:30:00-04:00",
            "2026-11-01T01:00:00-05:00",
            "2026-11-01T01:30:00-05:00",
            "2026-11-01T02:00:00-05:00"
        ]
    );
    // The fixed hour 2 does not exist on the spring day, and the minute has a step: no window that day.
    let stepped = cron("America/New_York", "*/30 2 * * *");
    assert_eq!(next(&stepped, "2026-03-07T07:00:00Z", 2), ["2026-03-07T02:30:00-05:00", "2026-03-09T02:00:00-04:00"]);
    // A range is neither wildcard nor step: fixed.
    let range = cron("America/New_York", "30 1-2 * * *");
    assert_eq!(
        next(&range, "2026-03-08T00:00:00-05:00", 3),
        ["2026-03-08T01:30:00-05:00", "2026-03-08T03:30:00-04:00 moved", "2026-03-09T01:30:00-04:00"]
    );
}

#[test]
fn half_an_hour_is_skipped_on_lord_howe() {
    assert_eq!(
        next(&daily("Australia/Lord_Howe", &["02:15"]), "2026-10-03T00:00:00Z", 2),
        ["2026-10-04T02:45:00+11:00 moved", "2026-10-05T02:15:00+11:00"]
    );
}

#[test]
fn apia_had_no_30_december_2011() {
    // The 30th's nine o'clock moved by a day, onto the 31st's: one window.
    let nine = daily("Pacific/Apia", &["09:00"]);
    assert_eq!(
        next(&nine, "2011-12-29T00:00:00-10:00", 3),
        ["2011-12-29T09:00:00-10:00", "2011-12-31T09:00:00+14:00 moved", "2012-01-01T09:00:00+14:00"]
    );
    // A Friday alone still happens, on what the clocks called Saturday.
    let friday = schedule(r#"{"kind":"weekly","zone":"Pacific/Apia","days":["fri"],"times":["00:00","23:30"]}"#);
    assert_eq!(
        next(&friday, "2011-12-29T00:00:00-10:00", 3),
        ["2011-12-31T00:00:00+14:00 moved", "2011-12-31T23:30:00+14:00 moved", "2012-01-06T00:00:00+14:00"]
    );
    // Asked inside of the moved day.
    assert_eq!(next(&friday, "2011-12-31T12:00:00+14:00", 1), ["2011-12-31T23:30:00+14:00 moved"]);
    let nights =
        schedule(r#"{"kind":"every","zone":"Pacific/Apia","minutes":240,"between":{"from":"22:00","to":"06:00"}}"#);
    assert_eq!(
        next(&nights, "2011-12-29T12:00:00-10:00", 4),
        [
            "2011-12-29T22:00:00-10:00",
            "2011-12-31T02:00:00+14:00",
            "2011-12-31T22:00:00+14:00",
            "2012-01-01T02:00:00+14:00"
        ]
    );
    // Asked in the night that began on the 29th and, by the clocks, ends on the 31st.
    let nights =
        schedule(r#"{"kind":"every","zone":"Pacific/Apia","minutes":60,"between":{"from":"22:00","to":"06:00"}}"#);
    assert_eq!(next(&nights, "2011-12-31T02:00:00+14:00", 1), ["2011-12-31T03:00:00+14:00"]);
}

#[test]
fn zones_whose_rules_changed() {
    for (zone, time, after, expected) in [
        // Moscow went back an hour for good in 2014.
        ("Europe/Moscow", "01:30", "2014-10-25T12:00:00Z", "2014-10-26T01:30:00+04:00 first_of_two"),
        ("Europe/Moscow", "08:00", "2014-10-26T12:00:00Z", "2014-10-27T08:00:00+03:00"),
        // Pyongyang moved by half an hour at half past eleven in the evening.
        ("Asia/Pyongyang", "23:45", "2018-05-04T12:00:00Z", "2018-05-05T00:15:00+09:00 moved"),
        // Havana changes at midnight: the day begins at one.
        ("America/Havana", "00:00", "2026-03-07T12:00:00-05:00", "2026-03-08T01:00:00-04:00 moved"),
        // Kathmandu is a quarter of an hour off.
        ("Asia/Kathmandu", "08:00", "2026-12-01T00:00:00Z", "2026-12-01T08:00:00+05:45"),
        // Troll moves by two hours.
        ("Antarctica/Troll", "01:30", "2026-03-28T12:00:00Z", "2026-03-29T03:30:00+02:00 moved"),
        // Nuuk did not go back in October 2023, although the rule of the years after would have.
        ("America/Nuuk", "23:52", "2023-10-28T12:00:00Z", "2023-10-28T23:52:00-02:00"),
        ("America/Nuuk", "23:30", "2024-10-26T12:00:00Z", "2024-10-26T23:30:00-01:00 first_of_two"),
        // British Columbia stays on summer time from 2026 on.
        ("America/Vancouver", "08:00", "2027-01-15T12:00:00Z", "2027-01-15T08:00:00-07:00"),
    ] {
        assert_eq!(next(&daily(zone, &[time]), after, 1), [expected], "{zone} {time}");
    }
}

#[test]
fn dates_to_2400_are_right() {
    let berlin = daily("Europe/Berlin", &["08:00"]);
    assert_eq!(next(&berlin, "2400-01-15T00:00:00Z", 1), ["2400-01-15T08:00:00+01:00"]);
    assert_eq!(next(&berlin, "2400-07-01T00:00:00Z", 1), ["2400-07-01T08:00:00+02:00"]);
    let leap = cron("Europe/Berlin", "0 8 29 2 *");
    assert_eq!(next(&leap, "2096-03-01T00:00:00Z", 1), ["2104-02-29T08:00:00+01:00"]);
    assert_eq!(next(&leap, "2396-03-01T00:00:00Z", 1), ["2400-02-29T08:00:00+01:00"]);
    let leap = cron("Europe/Berlin", "*/30 8 29 2 *");
    assert_eq!(next(&leap, "2096-03-01T00:00:00Z", 1), ["2104-02-29T08:00:00+01:00"]);
}

#[test]
fn no_instant_makes_it_panic() {
    let schedules = [
        daily("America/New_York", &["02:30"]),
        cron("America/New_York", "*/7 * 29 2 *"),
        schedule(r#"{"kind":"every","zone":"UTC","minutes":525600,"between":{"from":"22:00","to":"06:00"}}"#),
        schedule(r#"{"kind":"every","zone":"UTC","minutes":7}"#),
        schedule(r#"{"kind":"once","at":"2026-12-01T08:00:00Z"}"#),
    ];
    for schedule in schedules {
        for after in [i64::MIN, i64::MIN / 2, -1, 0, i64::MAX / 2, i64::MAX].map(midwatch_events::time::Micros) {
            for anchor in [i64::MIN, 0, i64::MAX].map(midwatch_events::time::Micros) {
                let next = schedule.next_after(after, anchor);
                assert!(next.is_none_or(|window| window.at > after));
                assert!(schedule.runs_per_week(after, Some(anchor)).is_finite());
            }
        }
    }
}

#[test]
fn the_second_opinion_is_older_and_says_where_it_differs() {
    // Who changes the one changes the other: the release's NEWS says its day.
    assert_eq!((tzdb_version(), tzdb_released()), ("2026f", "2026-10-28"));
    assert!(second_opinion_version() < tzdb_version());
    let year = |zone| disagreements(zone, at("2026-06-01T00:00:00Z"), at("2027-06-01T00:00:00Z")).unwrap();
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"] {
        assert_eq!(year(zone), [], "{zone}");
    }
    let vancouver = year("America/Vancouver");
    assert_eq!(vancouver.len(), 1);
    // The old rule would have gone back at 02:00 on 1 November and forward again on 14 March.
    assert_eq!((vancouver[0].from, vancouver[0].until), (at("2026-11-01T09:00:00Z"), at("2027-03-14T10:00:00Z")));
    assert_eq!((vancouver[0].used_s, vancouver[0].other_s), (-7 * 3_600, -8 * 3_600));
    let said = vancouver[0].in_words("America/Vancouver");
    assert!(said.starts_with("From 2026-11-01T09:00:00") && said.contains("is at UTC-07:00 by"), "{said}");
    assert!(said.contains("and at UTC-08:00 by an older copy (IANA 2025b): check the hour."), "{said}");
    assert!(!year("Africa/Casablanca").is_empty());
    assert!(disagreements("Nowhere/Else", at("2026-06-01T00:00:00Z"), at("2027-06-01T00:00:00Z")).is_err());
}

#[test]
fn dst_words_are_stable() {
    for (dst, word) in [(Dst::None, "none"), (Dst::Moved, "moved"), (Dst::FirstOfTwo, "first_of_two")] {
        assert_eq!(dst.as_str(), word);
        assert_eq!(serde_json::to_string(&dst).unwrap(), format!("\"{word}\""));
    }
}
