//! How a routine runs, as fields of a form.

use midwatch_events::routine::{Limits, Missed, Overlap, Retry};

use super::{
    days::{Choice, choices},
    fields::Fields,
    schedule_form::Wrong,
};

/// What becomes of a window that finds the previous run live: the word on the wire, and what it is called.
const OVERLAPS: [(&str, &str); 3] =
    [("skip", "Skip it"), ("queue_one", "Let one wait"), ("cancel_live", "Cancel the run")];

/// What becomes of windows later than the grace.
const MISSED: [(&str, &str); 2] = [("record", "Record them"), ("run_once", "Run the newest once")];

/// The fields, in the order of the form.
const FIELDS: [&str; 9] = [
    "grace_s",
    "missed",
    "within_s",
    "overlap",
    "max_runs",
    "deadline_s",
    "max_turns",
    "retry_times",
    "retry_backoff_s",
];

/// What stands in the fields.
#[derive(Clone, Debug)]
pub(crate) struct LimitFields {
    pub(crate) grace_s: String,
    pub(crate) missed: Vec<Choice>,
    pub(crate) within_s: String,
    pub(crate) overlaps: Vec<Choice>,
    pub(crate) max_runs: String,
    pub(crate) deadline_s: String,
    pub(crate) max_turns: String,
    pub(crate) retry_times: String,
    pub(crate) retry_backoff_s: String,
}

impl LimitFields {
    pub(crate) fn stored(limits: &Limits) -> Self {
        let overlap = match limits.overlap {
            Overlap::Skip => "skip",
            Overlap::QueueOne => "queue_one",
            Overlap::CancelLive => "cancel_live",
        };
        let (missed, within_s) = match limits.missed {
            Missed::Record => ("record", String::new()),
            Missed::RunOnceWithin(within_s) => ("run_once", within_s.to_string()),
        };
        let retry = |part: fn(&Retry) -> u32| limits.retry.as_ref().map(|retry| part(retry).to_string());
        Self {
            grace_s: limits.grace_s.to_string(),
            missed: choices(&MISSED, &[missed]),
            within_s,
            overlaps: choices(&OVERLAPS, &[overlap]),
            max_runs: limits.max_runs.map(|max| max.to_string()).unwrap_or_default(),
            deadline_s: limits.deadline_s.to_string(),
            max_turns: limits.max_turns.to_string(),
            retry_times: retry(|retry| retry.times).unwrap_or_default(),
            retry_backoff_s: retry(|retry| retry.backoff_s).unwrap_or_default(),
        }
    }

    pub(crate) fn typed(fields: &Fields) -> Self {
        let typed = |name: &str| fields.get(name).to_owned();
        Self {
            grace_s: typed("grace_s"),
            missed: choices(&MISSED, &[fields.filled("missed").unwrap_or("record")]),
            within_s: typed("within_s"),
            overlaps: choices(&OVERLAPS, &[fields.filled("overlap").unwrap_or("skip")]),
            max_runs: typed("max_runs"),
            deadline_s: typed("deadline_s"),
            max_turns: typed("max_turns"),
            retry_times: typed("retry_times"),
            retry_backoff_s: typed("retry_backoff_s"),
        }
    }

    /// # Errors
    /// The field that is no whole number.
    pub(crate) fn read(&self) -> Result<Limits, Wrong> {
        let number = |field: &'static str, text: &str| {
            text.parse::<u32>().map_err(|_| Wrong::new(field, "Write a whole number."))
        };
        let chosen = |all: &[Choice]| all.iter().find(|one| one.chosen).map_or("", |one| one.value);
        let missed = match chosen(&self.missed) {
            "run_once" => Missed::RunOnceWithin(number("within_s", &self.within_s)?),
            _ => Missed::Record,
        };
        let overlap = match chosen(&self.overlaps) {
            "queue_one" => Overlap::QueueOne,
            "cancel_live" => Overlap::CancelLive,
            _ => Overlap::Skip,
        };
        let max_runs = Some(self.max_runs.as_str()).filter(|text| !text.is_empty());
        let max_runs = max_runs.map(str::parse::<u64>).transpose();
        let retry = match self.retry_times.as_str() {
            "" | "0" => None,
            times => Some(Retry {
                times: number("retry_times", times)?,
                backoff_s: number("retry_backoff_s", &self.retry_backoff_s)?,
            }),
        };
        Ok(Limits {
            grace_s: number("grace_s", &self.grace_s)?,
            deadline_s: number("deadline_s", &self.deadline_s)?,
            max_turns: number("max_turns", &self.max_turns)?,
            max_runs: max_runs.map_err(|_| Wrong::new("max_runs", "Write a whole number, or leave it empty."))?,
            missed,
            overlap,
            retry,
        })
    }

    /// Whether they are not what a new routine has, or one of them is wrong: they are then shown.
    pub(crate) fn shown(&self, wrong: &Option<Wrong>) -> bool {
        let usual = self.read().is_ok_and(|limits| limits == Limits::default());
        !usual || wrong.as_ref().is_some_and(|wrong| FIELDS.contains(&wrong.field))
    }
}

/// What differs from a new routine's limits, in words.
pub(crate) fn in_words(limits: &Limits) -> Vec<String> {
    let mut words = Vec::new();
    if let Missed::RunOnceWithin(within_s) = limits.missed {
        let within = super::time::span(u64::from(within_s) * 1_000_000);
        words.push(format!("of missed windows the newest runs once, up to {within} late"));
    }
    match limits.overlap {
        Overlap::Skip => {}
        Overlap::QueueOne => words.push("one window waits for a live run to end".to_owned()),
        Overlap::CancelLive => words.push("a window cancels a live run and runs in its place".to_owned()),
    }
    if let Some(Retry { times, backoff_s }) = limits.retry {
        words.push(format!("before its first turn tried {times} times more, the first time after {backoff_s} s"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pairs: &[(&str, &str)]) -> LimitFields {
        let numbers = [("grace_s", "600"), ("deadline_s", "900"), ("max_turns", "20")];
        // The first of a name counts.
        let pairs = pairs.iter().chain(&numbers).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LimitFields::typed(&Fields::new(pairs.collect()))
    }

    #[test]
    fn every_option_has_a_field_and_comes_back() {
        let all = Limits {
            grace_s: 60,
            deadline_s: 120,
            max_turns: 3,
            max_runs: Some(12),
            missed: Missed::RunOnceWithin(21_600),
            overlap: Overlap::QueueOne,
            retry: Some(Retry { times: 2, backoff_s: 30 }),
        };
        for limits in [all.clone(), Limits::default(), Limits { overlap: Overlap::CancelLive, ..Limits::default() }] {
            let fields = LimitFields::stored(&limits);
            assert_eq!(fields.read().as_ref(), Ok(&limits));
            assert_eq!(fields.shown(&None), limits != Limits::default());
        }
        assert_eq!(in_words(&all).len(), 3);
        assert_eq!(typed(&[]).read(), Ok(Limits::default()));
    }

    #[test]
    fn a_mistake_is_said_beside_its_field() {
        for (fields, field) in [
            (vec![("grace_s", "soon")], "grace_s"),
            (vec![("missed", "run_once")], "within_s"),
            (vec![("max_runs", "many")], "max_runs"),
            (vec![("retry_times", "2")], "retry_backoff_s"),
        ] {
            let fields = typed(&fields);
            let wrong = fields.read().expect_err("a mistake");
            assert_eq!(wrong.field, field);
            assert!(fields.shown(&Some(wrong)));
        }
    }
}
