//! What a routine's limits may be.

use midwatch_events::routine::{Limits, Missed};

use crate::Refusal;

const DAY_S: u32 = 86_400;

pub(crate) fn check_limits(limits: &Limits) -> Result<(), Refusal> {
    let mut numbers = vec![
        ("grace_s", u64::from(limits.grace_s), 0, u64::from(7 * DAY_S)),
        ("deadline_s", u64::from(limits.deadline_s), 1, u64::from(7 * DAY_S)),
        ("max_turns", u64::from(limits.max_turns), 1, 1_000),
    ];
    numbers.extend(limits.max_runs.map(|max| ("max_runs", max, 1, 1_000_000_000)));
    if let Missed::RunOnceWithin(within_s) = limits.missed {
        numbers.push(("run_once_within_s", u64::from(within_s), 1, u64::from(31 * DAY_S)));
    }
    if let Some(retry) = &limits.retry {
        numbers.push(("retry.times", u64::from(retry.times), 1, 10));
        numbers.push(("retry.backoff_s", u64::from(retry.backoff_s), 1, 3_600));
    }
    match numbers.into_iter().find(|(_, value, least, most)| value < least || value > most) {
        None => Ok(()),
        Some((name, value, least, most)) => {
            Err(Refusal::Invalid(format!("{name} is {value}; it must be {least} to {most}")))
        }
    }
}
