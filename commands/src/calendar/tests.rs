//! Example tables and properties of the calendar.

mod cases;
mod daylight;
mod every;
mod properties;
mod reading;
mod showing;

use chrono::DateTime;
use midwatch_events::time::Micros;

use super::{Schedule, Window};

/// An instant from RFC 3339.
fn at(text: &str) -> Micros {
    Micros(DateTime::parse_from_rfc3339(text).expect("an instant").timestamp_micros())
}

fn schedule(json: &str) -> Schedule {
    Schedule::parse(json).expect("a schedule")
}

fn cron(zone: &str, expr: &str) -> Schedule {
    schedule(&format!(r#"{{"kind":"cron","zone":"{zone}","expr":"{expr}"}}"#))
}

fn daily(zone: &str, times: &[&str]) -> Schedule {
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    schedule(&serde_json::json!({"kind": "weekly", "zone": zone, "days": days, "times": times}).to_string())
}

/// `2026-12-01T09:00:00+01:00`, and the word for daylight saving where there is one.
fn shown(window: &Window) -> String {
    match window.dst.as_str() {
        "none" => window.local.clone(),
        dst => format!("{} {dst}", window.local),
    }
}

/// The next `count` windows strictly after `after`, as they are shown; the creation is `after` too.
fn next(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
    schedule.preview(at(after), None, count).iter().map(shown).collect()
}

/// All windows in `(after, up_to]`, as they are shown.
fn between(schedule: &Schedule, after: &str, up_to: &str) -> Vec<String> {
    schedule.windows(at(after), at(after), at(up_to), 10_000).iter().map(shown).collect()
}
