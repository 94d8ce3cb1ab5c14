//! A schedule, checked and ready to be asked.

use chrono::{DateTime, FixedOffset};
use midwatch_events::time::{Micros, SECOND_US};

use super::cron::{Cron, RealTime};
use super::error::ScheduleError;
use super::every::{Between, Every};
use super::fixed::{Days, Fixed};
use super::jitter;
use super::spec::{BetweenSpec, Limits, Spec, instant, month_days, time_of_day, times_of_day, weekdays};
use super::zone::Zone;
use super::{Dst, FIRST_S, LAST_S, Slot, Window};

/// The longest interval of `every`, in minutes: a year of 365 days.
const MAX_MINUTES: i64 = 525_600;

/// The most jitter, in seconds: a day.
const MAX_JITTER_S: u32 = 86_400;

/// When a routine is due.
///
/// Reading it resolves the zone, so that asking it costs no look-up. Two schedules are equal when their stored
/// forms are.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(super) spec: Spec,
    pub(super) rule: Rule,
    zone: Zone,
    /// Inclusive, in seconds.
    starts_s: Option<i64>,
    ends_s: Option<i64>,
    jitter_s: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Rule {
    Once(i64),
    Fixed(Fixed),
    RealTime(Box<RealTime>),
    Every(Every),
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for Schedule {}

impl Schedule {
    /// Reads a schedule from JSON.
    ///
    /// # Errors
    /// One sentence that says what is wrong and what to write instead.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let mut spec = Spec::read(text)?;
        let (rule, zone) = rule_of(&mut spec)?;
        let Limits { starts_at, ends_at, jitter_s } = spec.limits();
        let starts_s = optional_instant("starts_at", starts_at)?.map(|at| at.timestamp());
        let ends_s = optional_instant("ends_at", ends_at)?.map(|at| at.timestamp());
        if let (Some(starts_s), Some(ends_s)) = (starts_s, ends_s)
            && starts_s > ends_s
        {
            return Err(ScheduleError::value("ends_at", "lies before `starts_at`; write a later instant"));
        }
        let jitter = u32::try_from(jitter_s.unwrap_or(0)).ok().filter(|jitter_s| *jitter_s <= MAX_JITTER_S);
        let Some(jitter_s) = jitter else {
            return Err(ScheduleError::value("jitter_s", format!("must be 0 to {MAX_JITTER_S} seconds")));
        };
        Ok(Self { spec, rule, zone, starts_s, ends_s, jitter_s })
    }

    /// The canonical form, for storing: known members only, in a fixed order, lists sorted.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Maps with text keys and no floats: serde_json cannot fail on it.
        serde_json::to_string(&self.spec).unwrap_or_default()
    }

    /// The word of its kind: `once`, `weekly`, `monthly`, `every` or `cron`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.spec {
            Spec::Once { .. } => "once",
            Spec::Weekly { .. } => "weekly",
            Spec::Monthly { .. } => "monthly",
            Spec::Every { .. } => "every",
            Spec::Cron { .. } => "cron",
        }
    }

    /// The routine's zone; for `once` the fixed offset it was written with.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The only window of a `once`, for refusing a new one that has passed.
    #[must_use]
    pub fn once_at(&self) -> Option<Micros> {
        match &self.rule {
            Rule::Once(at_s) => Some(micros(*at_s)),
            Rule::Fixed(_) | Rule::RealTime(_) | Rule::Every(_) => None,
        }
    }

    /// The first window strictly later than `after`; `None` when there is none before the year 2500.
    ///
    /// `anchor` is the instant of the routine's creation, used by `every` without an anchor of its own.
    #[must_use]
    pub fn next_after(&self, after: Micros, anchor: Micros) -> Option<Window> {
        self.next_slot(after.seconds(), anchor.seconds()).map(|slot| self.window(slot))
    }

    /// When a window is acted on: its nominal time plus the routine's jitter, 0 to `jitter_s` seconds, always
    /// the same for one routine. Grace and lateness count from here.
    #[must_use]
    pub fn effective_at(&self, window: Micros, routine: &[u8; 16]) -> Micros {
        window.plus_s(jitter::delay_s(routine, self.jitter_s))
    }

    pub(super) fn window(&self, slot: Slot) -> Window {
        Window { at: slot.at(), local: self.zone.local(slot.at()), dst: slot.dst }
    }

    /// Windows are whole seconds, so "strictly later" holds for the instant rounded down as well.
    pub(super) fn next_slot(&self, after_s: i64, anchor_s: i64) -> Option<Slot> {
        let starts_s = self.starts_s.unwrap_or(FIRST_S);
        let after_s = after_s.max(FIRST_S - 1).max(starts_s - 1);
        let last_s = self.last_s();
        if after_s >= last_s {
            return None;
        }
        let slot = match &self.rule {
            Rule::Once(at_s) => (*at_s > after_s).then_some(Slot { at_s: *at_s, dst: Dst::None }),
            Rule::Fixed(fixed) => fixed.next(&self.zone, after_s),
            Rule::RealTime(cron) => cron.next(&self.zone, after_s),
            Rule::Every(every) => every.next(&self.zone, after_s, anchor_s.clamp(FIRST_S, LAST_S)),
        };
        slot.filter(|slot| slot.at_s <= last_s)
    }

    /// The last instant at which a window may be, in seconds.
    pub(super) fn last_s(&self) -> i64 {
        self.ends_s.unwrap_or(LAST_S)
    }
}

pub(super) fn micros(at_s: i64) -> Micros {
    Micros(at_s.saturating_mul(SECOND_US))
}

fn optional_instant(
    member: &'static str,
    text: &mut Option<String>,
) -> Result<Option<DateTime<FixedOffset>>, ScheduleError> {
    text.as_mut().map(|text| instant(member, text)).transpose()
}

/// Checks every value of a kind and puts its texts into canonical form.
fn rule_of(spec: &mut Spec) -> Result<(Rule, Zone), ScheduleError> {
    match spec {
        Spec::Once { at, .. } => {
            let instant = instant("at", at)?;
            let zone = Zone::fixed(instant.offset().local_minus_utc());
            let zone = zone.ok_or_else(|| ScheduleError::value("at", "has an offset that no place on earth has"))?;
            Ok((Rule::Once(instant.timestamp()), zone))
        }
        Spec::Weekly { zone, days, times, .. } => {
            let days = Days::Week(weekdays(days)?);
            Ok((Rule::Fixed(Fixed { days, times_s: times_of_day(times)? }), Zone::named(zone)?))
        }
        Spec::Monthly { zone, days, times, .. } => {
            let (days, last) = month_days(days)?;
            let fixed = Fixed { days: Days::Month { days, last }, times_s: times_of_day(times)? };
            Ok((Rule::Fixed(fixed), Zone::named(zone)?))
        }
        Spec::Every { zone, minutes, between, anchor, .. } => {
            let zone = Zone::named(zone)?;
            if !(1..=MAX_MINUTES).contains(minutes) {
                let problem = format!("is {minutes}; write 1 to {MAX_MINUTES} (a year)");
                return Err(ScheduleError::value("minutes", problem));
            }
            let every = Every {
                step_s: *minutes * 60,
                between: between.as_ref().map(between_of).transpose()?,
                anchor_s: optional_instant("anchor", anchor)?.map(|at| at.timestamp()),
            };
            if let Some(anchor_s) = every.anchor_s
                && every.next(&zone, anchor_s - 1, anchor_s).is_none()
            {
                let problem = "never meets `between` in these steps; move it, or leave it out";
                return Err(ScheduleError::value("anchor", problem));
            }
            Ok((Rule::Every(every), zone))
        }
        Spec::Cron { zone, expr, .. } => {
            *expr = expr.split_whitespace().collect::<Vec<&str>>().join(" ");
            let rule = match Cron::parse(expr)? {
                Cron::Fixed(fixed) => Rule::Fixed(fixed),
                Cron::RealTime(real_time) => Rule::RealTime(real_time),
            };
            Ok((rule, Zone::named(zone)?))
        }
    }
}

fn between_of(spec: &BetweenSpec) -> Result<Between, ScheduleError> {
    let between = Between { from_s: time_of_day("from", &spec.from)?, to_s: time_of_day("to", &spec.to)? };
    if between.from_s == between.to_s {
        let problem = "has the same `from` and `to`; leave `between` out for the whole day";
        return Err(ScheduleError::value("between", problem));
    }
    Ok(between)
}
