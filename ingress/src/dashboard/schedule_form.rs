//! A schedule as fields of a form: read from one, written to one, and what it comes to.

mod preview;

#[cfg(test)]
mod tests;

use chrono::{DateTime, NaiveDateTime};
use midwatch_commands::calendar::{Schedule, ScheduleError, Zone};
use midwatch_events::Micros;
use serde_json::{Map, Value, json};

use super::{
    days::{Choice, KINDS, WEEKDAYS, choices},
    fields::Fields,
    frame::capital,
};

pub(crate) use preview::{Previewing, a_week, preview, second_opinion};

/// A field that cannot be used, by its name, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) field: &'static str,
    pub(crate) sentence: String,
}

impl Wrong {
    pub(crate) fn new(field: &'static str, sentence: impl Into<String>) -> Self {
        Self { field, sentence: sentence.into() }
    }
}

/// What stands in the fields.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleFields {
    pub(crate) kinds: Vec<Choice>,
    pub(crate) days: Vec<Choice>,
    pub(crate) month_days: String,
    pub(crate) times: String,
    pub(crate) zone: String,
    pub(crate) minutes: String,
    pub(crate) from: String,
    pub(crate) to: String,
    /// These three as local times of the zone.
    pub(crate) at: String,
    pub(crate) starts_at: String,
    pub(crate) ends_at: String,
    pub(crate) expr: String,
    pub(crate) jitter_s: String,
    pub(crate) json: String,
}

impl ScheduleFields {
    /// What a new routine starts with, in the zone of whoever makes it.
    pub(crate) fn fresh(zone: &Zone) -> Self {
        Self {
            kinds: choices(&KINDS, &["weekly"]),
            days: choices(&WEEKDAYS, &["mon", "tue", "wed", "thu", "fri"]),
            month_days: "1".to_owned(),
            times: "08:00".to_owned(),
            zone: zone.name().to_owned(),
            minutes: "15".to_owned(),
            from: String::new(),
            to: String::new(),
            at: String::new(),
            starts_at: String::new(),
            ends_at: String::new(),
            expr: String::new(),
            jitter_s: String::new(),
            json: String::new(),
        }
    }

    /// What was typed.
    pub(crate) fn typed(fields: &Fields) -> Self {
        let typed = |name: &str| fields.get(name).to_owned();
        Self {
            kinds: choices(&KINDS, &[fields.filled("kind").unwrap_or("weekly")]),
            days: choices(&WEEKDAYS, &fields.all("days")),
            month_days: typed("month_days"),
            times: typed("times"),
            zone: typed("zone"),
            minutes: typed("minutes"),
            from: typed("from"),
            to: typed("to"),
            at: typed("at"),
            starts_at: typed("starts_at"),
            ends_at: typed("ends_at"),
            expr: typed("expr"),
            jitter_s: typed("jitter_s"),
            json: fields.text("schedule"),
        }
    }

    /// What a stored schedule says. What the fields cannot say stands as JSON.
    pub(crate) fn stored(text: &str, reader: &Zone) -> Self {
        let mut form = Self::fresh(reader);
        form.json = text.to_owned();
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let read = form.read(&value);
        // Only what comes back as it was is shown as fields: saving must change nothing that nobody touched.
        let same = |json: &str| {
            let (stored, written) = (Schedule::parse(text).ok(), Schedule::parse(json).ok());
            stored.is_some() && stored == written
        };
        let back = read.and_then(|kind| {
            form.kinds = choices(&KINDS, &[kind]);
            form.to_json().ok().filter(|json| same(json))
        });
        if back.is_none() {
            form.kinds = choices(&KINDS, &["json"]);
        }
        form
    }

    /// Fills the fields; the kind, where there is a form for it.
    fn read(&mut self, value: &Value) -> Option<&'static str> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let list = |name: &str| -> Vec<String> {
            let items = value.get(name).and_then(Value::as_array);
            let shown = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            items.into_iter().flatten().map(shown).collect()
        };
        if let Some(zone) = Some(text("zone")).filter(|zone| !zone.is_empty()) {
            self.zone = zone;
        }
        let zone = Zone::named(&self.zone).ok()?;
        let local = |name: &str| value.get(name).and_then(Value::as_str).and_then(|at| wall_clock(at, &zone));
        self.starts_at = local("starts_at").unwrap_or_default();
        self.ends_at = local("ends_at").unwrap_or_default();
        self.jitter_s = value.get("jitter_s").map(Value::to_string).unwrap_or_default();
        match text("kind").as_str() {
            "weekly" => {
                let days = list("days");
                self.days = choices(&WEEKDAYS, &days.iter().map(String::as_str).collect::<Vec<_>>());
                self.times = list("times").join(", ");
                Some("weekly")
            }
            "monthly" => {
                self.month_days = list("days").join(", ");
                self.times = list("times").join(", ");
                Some("monthly")
            }
            "every" => {
                self.minutes = value.get("minutes").map(Value::to_string).unwrap_or_default();
                let between = |end: &str| {
                    let between = value.get("between").and_then(|between| between.get(end));
                    between.and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                (self.from, self.to) = (between("from"), between("to"));
                Some("every")
            }
            "once" => {
                self.at = local("at")?;
                Some("once")
            }
            "cron" => {
                self.expr = text("expr");
                Some("cron")
            }
            _ => None,
        }
    }

    /// The kind that is chosen.
    pub(crate) fn kind(&self) -> &'static str {
        self.kinds.iter().find(|kind| kind.chosen).map_or("", |kind| kind.value)
    }

    /// The schedule's JSON text.
    ///
    /// # Errors
    /// The field that cannot become part of one; what they become is still to be read by the calendar.
    pub(crate) fn to_json(&self) -> Result<String, Wrong> {
        let mut json = Map::new();
        let mut put = |name: &str, value: Value| json.insert(name.to_owned(), value);
        let kind = self.kind();
        put("kind", kind.into());
        match kind {
            "json" => return Ok(self.json.clone()),
            "once" => drop(put("at", once("at", &self.at, &self.zone)?.into())),
            _ => drop(put("zone", self.zone.clone().into())),
        }
        match kind {
            "weekly" => {
                let days: Vec<&str> = self.days.iter().filter(|day| day.chosen).map(|day| day.value).collect();
                put("days", json!(days));
                put("times", json!(parts(&self.times)));
            }
            "monthly" => {
                let number =
                    |day: &str| day.parse::<u32>().map_or_else(|_| json!(day.to_lowercase()), |day| json!(day));
                put("days", parts(&self.month_days).into_iter().map(number).collect());
                put("times", json!(parts(&self.times)));
            }
            "every" => {
                let minutes: u32 = self
                    .minutes
                    .parse()
                    .map_err(|_| Wrong::new("minutes", "Every how many minutes? Write a whole number."))?;
                put("minutes", minutes.into());
                if !self.from.is_empty() || !self.to.is_empty() {
                    put("between", json!({ "from": self.from, "to": self.to }));
                }
            }
            "cron" => drop(put("expr", self.expr.clone().into())),
            "once" => {}
            _ => return Err(Wrong::new("kind", "Choose when it runs.")),
        }
        for (name, local) in [("starts_at", &self.starts_at), ("ends_at", &self.ends_at)] {
            if !local.is_empty() {
                put(name, once(name, local, &self.zone)?.into());
            }
        }
        if !self.jitter_s.is_empty() {
            let jitter: u32 = self
                .jitter_s
                .parse()
                .map_err(|_| Wrong::new("jitter_s", "How many seconds? Write a whole number, or leave it empty."))?;
            put("jitter_s", jitter.into());
        }
        Ok(Value::Object(json).to_string())
    }

    /// The schedule, as the calendar reads it.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(crate) fn schedule(&self) -> Result<Schedule, Wrong> {
        Schedule::parse(&self.to_json()?).map_err(|error| self.wrong(&error))
    }

    /// Which field an error of the calendar is about.
    pub(crate) fn wrong(&self, error: &ScheduleError) -> Wrong {
        let kind = self.kind();
        let field = match error {
            _ if kind == "json" => "json",
            ScheduleError::UnknownZone { .. } => "zone",
            ScheduleError::Shape(_) => "kind",
            ScheduleError::Value { member, .. } => match *member {
                "days" if kind == "monthly" => "month_days",
                "between" => "from",
                member => member,
            },
        };
        Wrong::new(field, capital(&error.to_string()))
    }
}

/// What stands between commas, spaces and semicolons.
fn parts(text: &str) -> Vec<&str> {
    text.split([',', ' ', ';']).filter(|part| !part.is_empty()).collect()
}

/// An instant as a browser's field for date and time takes it, in a zone.
fn wall_clock(at: &str, zone: &Zone) -> Option<String> {
    let at = DateTime::parse_from_rfc3339(at).ok()?;
    let local = zone.local(Micros(at.timestamp_micros()));
    let whole_minute = at.timestamp() % 60 == 0;
    local.get(..if whole_minute { 16 } else { 19 }).map(str::to_owned)
}

/// The instant of a local time, as RFC 3339 with the zone's offset then; of a time that comes twice, the first.
fn once(field: &'static str, local: &str, zone: &str) -> Result<String, Wrong> {
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"];
    let read = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(local, format).ok());
    let read = read.ok_or_else(|| Wrong::new(field, "When? Write date and time, such as 2026-12-01 08:00."))?;
    let zone = Zone::named(zone).map_err(|error| Wrong::new("zone", capital(&error.to_string())))?;
    let as_utc = read.and_utc().timestamp();
    let shown = |at_s: i64| DateTime::parse_from_rfc3339(&zone.local(Micros(at_s.saturating_mul(1_000_000)))).ok();
    // Offsets a day before and a day after: between them lies every change that could touch this time.
    let offsets = [-86_400, 86_400].map(|near| shown(as_utc + near).map(|at| i64::from(at.offset().local_minus_utc())));
    let instants = offsets.into_iter().flatten().filter_map(|offset| shown(as_utc - offset));
    let at = instants.filter(|at| at.naive_local() == read).min();
    let missing = || {
        let sentence = format!("On that day there is no such time in {}: the clocks skip it.", zone.name());
        Wrong::new(field, sentence)
    };
    at.map(|at| at.to_rfc3339()).ok_or_else(missing)
}
