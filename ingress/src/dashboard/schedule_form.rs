//! A schedule as fields of a form: read from one, written to one, and what it comes to.

use askama::Template;
use axum::extract::State;
use chrono::{DateTime, NaiveDateTime};
use midwatch_commands::calendar::{Schedule, Zone, tzdb_version};
use midwatch_events::Micros;
use serde_json::{Value, json};

use super::{
    days::{Choice, KINDS, WEEKDAYS, choices},
    fields::Fields,
    frame::{Page, capital, ok},
    text::Shown,
    time::Previewed,
    visitor::Visitor,
};
use crate::app::App;

/// Windows a preview shows.
const PREVIEWED: usize = 6;

/// What stands in the fields.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleFields {
    pub(crate) kinds: Vec<Choice>,
    pub(crate) days: Vec<Choice>,
    pub(crate) times: String,
    pub(crate) zone: String,
    pub(crate) minutes: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) at: String,
    pub(crate) json: String,
}

impl ScheduleFields {
    /// What a new routine starts with.
    pub(crate) fn fresh() -> Self {
        Self {
            kinds: choices(&KINDS, &["weekly"]),
            days: choices(&WEEKDAYS, &["mon", "tue", "wed", "thu", "fri"]),
            times: "08:00".to_owned(),
            zone: "UTC".to_owned(),
            minutes: "15".to_owned(),
            from: String::new(),
            to: String::new(),
            at: String::new(),
            json: String::new(),
        }
    }

    /// What was typed.
    pub(crate) fn typed(fields: &Fields) -> Self {
        Self {
            kinds: choices(&KINDS, &[fields.filled("kind").unwrap_or("weekly")]),
            days: choices(&WEEKDAYS, &fields.all("days")),
            times: fields.get("times").to_owned(),
            zone: fields.get("zone").to_owned(),
            minutes: fields.get("minutes").to_owned(),
            from: fields.get("from").to_owned(),
            to: fields.get("to").to_owned(),
            at: fields.get("at").to_owned(),
            json: fields.text("schedule"),
        }
    }

    /// What a stored schedule says. What the fields cannot say stands as JSON.
    pub(crate) fn stored(text: &str) -> Self {
        let mut form = Self::fresh();
        form.json = text.to_owned();
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = |name: &str| -> Vec<String> {
            let items = value.get(name).and_then(Value::as_array);
            items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let only = |known: &[&str]| value.as_object().is_some_and(|map| map.keys().all(|key| known.contains(&&**key)));
        let kind = match member("kind").as_str() {
            "weekly" if only(&["kind", "zone", "days", "times"]) => {
                let days = list("days");
                form.days = choices(&WEEKDAYS, &days.iter().map(String::as_str).collect::<Vec<_>>());
                form.times = list("times").join(", ");
                "weekly"
            }
            "every" if only(&["kind", "zone", "minutes", "between"]) => {
                form.minutes = value.get("minutes").map(Value::to_string).unwrap_or_default();
                let between = |end: &str| {
                    let between = value.get("between").and_then(|between| between.get(end));
                    between.and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                (form.from, form.to) = (between("from"), between("to"));
                "every"
            }
            _ => "json",
        };
        form.zone = Some(member("zone")).filter(|zone| !zone.is_empty()).unwrap_or(form.zone);
        form.kinds = choices(&KINDS, &[kind]);
        form
    }

    /// The schedule's JSON text.
    ///
    /// # Errors
    /// One sentence, where the fields cannot become one; what they become is still to be read by the calendar.
    pub(crate) fn to_json(&self) -> Result<String, String> {
        let kind = self.kinds.iter().find(|kind| kind.chosen).map_or("", |kind| kind.value);
        let zone = &self.zone;
        match kind {
            "weekly" => {
                let days: Vec<&str> = self.days.iter().filter(|day| day.chosen).map(|day| day.value).collect();
                let times = self.times.split([',', ' ', ';']).filter(|time| !time.is_empty()).collect::<Vec<_>>();
                Ok(json!({ "kind": "weekly", "zone": zone, "days": days, "times": times }).to_string())
            }
            "every" => {
                let minutes: u32 = self.minutes.parse().map_err(|_| "Every how many minutes? Write a whole number.")?;
                if self.from.is_empty() && self.to.is_empty() {
                    return Ok(json!({ "kind": "every", "zone": zone, "minutes": minutes }).to_string());
                }
                let between = json!({ "from": self.from, "to": self.to });
                Ok(json!({ "kind": "every", "zone": zone, "minutes": minutes, "between": between }).to_string())
            }
            "once" => Ok(json!({ "kind": "once", "at": once(&self.at, zone)? }).to_string()),
            "json" => Ok(self.json.clone()),
            _ => Err("Choose when it runs.".to_owned()),
        }
    }
}

/// The instant of a local time, as RFC 3339 with the zone's offset then; of a time that comes twice, the first.
fn once(local: &str, zone: &str) -> Result<String, String> {
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"];
    let read = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(local, format).ok());
    let read = read.ok_or("When? Write date and time, such as 2026-12-01 08:00.")?;
    let zone = Zone::named(zone).map_err(|error| capital(&error.to_string()))?;
    let as_utc = read.and_utc().timestamp();
    let shown = |at_s: i64| DateTime::parse_from_rfc3339(&zone.local(Micros(at_s.saturating_mul(1_000_000)))).ok();
    // Offsets a day before and a day after: between them lies every change that could touch this time.
    let offsets = [-86_400, 86_400].map(|near| shown(as_utc + near).map(|at| i64::from(at.offset().local_minus_utc())));
    let instants = offsets.into_iter().flatten().filter_map(|offset| shown(as_utc - offset));
    let at = instants.filter(|at| at.naive_local() == read).min();
    let missing = || format!("On that day there is no such time in {}: the clocks skip it.", zone.name());
    at.map(|at| at.to_rfc3339()).ok_or_else(missing)
}

/// What a schedule comes to.
#[derive(Debug)]
pub(crate) struct Preview {
    pub(crate) words: String,
    pub(crate) windows: Vec<Previewed>,
    pub(crate) per_week: String,
    pub(crate) per_week_agent: String,
    pub(crate) notes: Vec<String>,
    pub(crate) tzdb: &'static str,
}

impl Preview {
    /// # Errors
    /// One sentence that says what is wrong with the schedule.
    pub(crate) fn new(form: &ScheduleFields, recording: bool, now: Micros) -> Result<Self, String> {
        let schedule = Schedule::parse(&form.to_json()?).map_err(|error| capital(&error.to_string()))?;
        let windows = schedule.preview(now, None, PREVIEWED);
        let per_week = schedule.runs_per_week(now, None);
        Ok(Self {
            words: schedule.in_words(),
            windows: windows.iter().map(|window| Previewed::new(window, schedule.zone(), now)).collect(),
            per_week: a_week(per_week),
            per_week_agent: a_week(if recording { 0.0 } else { per_week }),
            notes: schedule.notes(),
            tzdb: tzdb_version(),
        })
    }
}

/// A mean over four weeks, so quarters.
fn a_week(runs: f64) -> String {
    let text = format!("{runs:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A preview, or why there is none.
#[derive(Debug)]
pub(crate) struct Previewing {
    pub(crate) preview: Option<Preview>,
    pub(crate) wrong: Option<Shown>,
}

impl Previewing {
    pub(crate) fn of(form: &ScheduleFields, recording: bool, now: Micros) -> Self {
        match Preview::new(form, recording, now) {
            Ok(preview) => Self { preview: Some(preview), wrong: None },
            Err(sentence) => Self { preview: None, wrong: Some(Shown::line(&sentence)) },
        }
    }
}

#[derive(Template)]
#[template(path = "preview.html")]
struct PreviewFragment {
    previewing: Previewing,
}

/// `GET /routines/preview`: the fragment that the form shows while somebody types.
pub(super) async fn preview(State(app): State<App>, _: Visitor, query: Fields) -> Page {
    let now = app.engine.world().clock.now();
    let form = ScheduleFields::typed(&query);
    ok(&PreviewFragment { previewing: Previewing::of(&form, query.get("work") == "recording", now) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pairs: &[(&str, &str)]) -> ScheduleFields {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ScheduleFields::typed(&Fields::new(pairs))
    }

    #[test]
    fn fields_become_a_schedule_and_come_back() {
        let weekly = typed(&[
            ("kind", "weekly"),
            ("days", "mon"),
            ("days", "fri"),
            ("times", "08:00, 17:30"),
            ("zone", "Europe/Berlin"),
        ]);
        let json = weekly.to_json().expect("a schedule");
        let stored = Schedule::parse(&json).expect("a schedule").to_json();
        let back = ScheduleFields::stored(&stored);
        assert_eq!(back.to_json().map(|json| Schedule::parse(&json)), Ok(Schedule::parse(&json)));
        assert_eq!(back.days.iter().filter(|day| day.chosen).map(|day| day.value).collect::<Vec<_>>(), ["mon", "fri"]);
        let every = typed(&[("kind", "every"), ("minutes", "15"), ("from", "09:00"), ("to", "17:00"), ("zone", "UTC")]);
        let every = Schedule::parse(&every.to_json().expect("JSON")).expect("a schedule").to_json();
        assert_eq!(ScheduleFields::stored(&every).from, "09:00");
        let cron = r#"{"kind":"cron","zone":"UTC","expr":"30 2 * * mon-fri"}"#;
        assert_eq!(ScheduleFields::stored(cron).to_json().as_deref(), Ok(cron));
    }

    #[test]
    fn once_takes_the_zones_offset_of_that_day() {
        assert_eq!(once("2026-12-01T08:00", "Europe/Berlin").as_deref(), Ok("2026-12-01T08:00:00+01:00"));
        assert_eq!(once("2026-07-01T08:00", "Europe/Berlin").as_deref(), Ok("2026-07-01T08:00:00+02:00"));
        // It comes twice: the first is the one of summer time.
        assert_eq!(once("2026-10-25T02:30", "Europe/Berlin").as_deref(), Ok("2026-10-25T02:30:00+02:00"));
        let skipped = once("2026-03-29T02:30", "Europe/Berlin").expect_err("the clocks skip it");
        assert!(skipped.contains("no such time"), "{skipped}");
        assert!(once("2026-12-01T08:00", "Europe/Berlim").expect_err("no zone").contains("Europe/Berlin"));
        assert!(once("tomorrow", "UTC").is_err());
    }

    #[test]
    fn means_are_quarters() {
        assert_eq!(a_week(5.0), "5");
        assert_eq!(a_week(0.25), "0.25");
        assert_eq!(a_week(10_080.0), "10080");
    }
}
