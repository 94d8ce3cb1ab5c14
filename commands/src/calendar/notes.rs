//! What a person should know about a schedule before saving it.

use super::cron::{FIELDS, Field};
use super::schedule::{Rule, Schedule};
use super::spec::Spec;

impl Schedule {
    /// Sentences for the preview: traps in what was written, none of them an error.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = match &self.spec {
            Spec::Cron { expr, .. } => cron(expr, matches!(self.rule, Rule::RealTime(_))),
            Spec::Monthly { days, .. } => monthly(days),
            Spec::Every { between: Some(between), minutes, anchor, .. } => {
                every(&between.from, &between.to, *minutes, anchor.is_some())
            }
            Spec::Once { .. } | Spec::Weekly { .. } | Spec::Every { between: None, .. } => Vec::new(),
        };
        let (name, canonical) = (self.zone().name(), self.zone().canonical());
        if self.once_at().is_none() && name != canonical {
            notes.push(format!("{name} is an alias; the zone's present name is {canonical}."));
        }
        notes
    }
}

fn monthly(days: &[serde_json::Value]) -> Vec<String> {
    let beyond = days.iter().filter_map(serde_json::Value::as_u64).filter(|day| *day > 28).min();
    match beyond {
        Some(day) if !days.iter().any(|day| day.as_str() == Some("last")) => {
            vec![format!("Months without a day {day} have no window on it; \"last\" is the last day of every month.")]
        }
        Some(_) | None => Vec::new(),
    }
}

fn every(from: &str, to: &str, minutes: i64, anchored: bool) -> Vec<String> {
    if anchored {
        return vec![format!("The steps are counted from the anchor; only those from {from} to {to} are windows.")];
    }
    vec![format!("The steps of {minutes} minutes begin anew each day at {from}; {to} itself is not a window.")]
}

fn cron(expr: &str, real_time: bool) -> Vec<String> {
    let texts: Vec<&str> = expr.split(' ').collect();
    let mut notes: Vec<String> = FIELDS
        .iter()
        .zip(&texts)
        .flat_map(|(field, text)| text.split(',').filter_map(move |item| uneven_step(field, item)))
        .collect();
    if let [_, hour, day, _, weekday] = texts.as_slice() {
        let restricted = |text: &str| text != "*" && text != "?";
        if restricted(day) && restricted(weekday) {
            notes.push(format!("Day of month {day} and day of week {weekday}: a day that is either is enough."));
        }
        if real_time && *hour != "*" {
            let change = "When the clocks change, hours that are skipped have no window and hours that are repeated \
                          have theirs twice.";
            notes.push(change.to_owned());
        }
    }
    notes
}

/// A step over a whole field that does not divide it: the last interval is shorter than the others.
fn uneven_step(field: &Field, item: &str) -> Option<String> {
    let (base, step) = item.split_once('/')?;
    let step: u32 = step.parse().ok()?;
    let whole = base == "*" || base == format!("{}-{}", field.min, field.max);
    let (size, values, each, instead) = match field.name {
        "minute" => {
            (60, "minutes", "hour", format!("for every {step} minutes use the kind `every` with `minutes` {step}"))
        }
        "hour" => {
            let minutes = step * 60;
            (24, "hours", "day", format!("for every {step} hours use the kind `every` with `minutes` {minutes}"))
        }
        // Months differ in length, so no step but 1 is even.
        "day of month" if step > 1 => {
            let minutes = step * 1_440;
            (
                0,
                "days of the month",
                "month",
                format!("for every {step} days use the kind `every` with `minutes` {minutes}"),
            )
        }
        "month" => (12, "months", "year", "the last interval of a year is shorter".to_owned()),
        "day of week" => (7, "days of the week", "week", "the last interval of a week is shorter".to_owned()),
        _ => return None,
    };
    if !whole || (size > 0 && size % step == 0) {
        return None;
    }
    let all: Vec<String> = (field.min..=field.max).step_by(step.max(1) as usize).map(|n| n.to_string()).collect();
    let shown = if all.len() > 6 {
        format!("{}, …, {}", all.get(..3).unwrap_or_default().join(", "), all.last().map_or("", String::as_str))
    } else {
        all.join(", ")
    };
    Some(format!("{item} means the {values} {shown} and begins anew each {each}; {instead}."))
}
