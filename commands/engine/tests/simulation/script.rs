//! What happens in a play besides what the engine does by itself: people, senders, and an adversary.

use std::collections::BTreeMap;

use midwatch_events::{
    engine::Role,
    routine::{Limits, Missed, Overlap, Retry},
    trigger::Intake,
};
use serde_json::json;

use crate::{chance::Chance, climate::Outage, machine::YEAR_US};

pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;
/// How long the adversary acts.
pub(crate) const DAYS: u64 = 30;

const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Vancouver",
    "Pacific/Chatham",
    "Asia/Kolkata",
    "UTC",
];
/// Days of 2026 from which the clocks of some of these zones change within a month.
const FIRST_DAYS: [i64; 5] = [58, 80, 266, 280, 170];

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Create(usize),
    Edit(usize, String),
    Limit(usize, Limits),
    Pause(usize),
    Resume(usize),
    Delete(usize),
    /// Under this request's number.
    RunNow(usize, u64),
    /// Somebody looks at a routine's windows, beside the clock.
    Tick(usize),
    CancelOne,
    /// For so long.
    Halt(u64),
    Lift,
    MakeTrigger(usize),
    PauseTrigger(usize),
    ResumeTrigger(usize),
    /// Under this sender's number.
    Post(usize, u64),
    Start(usize),
    Kill(usize),
    Stop(usize),
    Stall(usize, u64),
    /// Nothing reaches a process, and it reaches nothing.
    Isolate(usize, u64),
    /// A process' time of day is off by so many microseconds from now on.
    WallJump(usize, i64),
    StoreJump(i64),
    CrashStore,
    Outage(u64, Outage),
    LoseProjections,
    PowerCut(u64),
    /// When the next window is due.
    WhenDue(Box<Deed>),
    /// People ask again, if nobody answered.
    Again(u64),
}

/// A routine to make.
#[derive(Clone, Debug)]
pub(crate) struct Casting {
    pub(crate) schedule: String,
    pub(crate) limits: Limits,
}

/// A whole play.
#[derive(Debug)]
pub(crate) struct Script {
    /// The instant at which it begins, in microseconds.
    pub(crate) epoch_us: i64,
    pub(crate) machines: Vec<Vec<Role>>,
    pub(crate) routines: Vec<Casting>,
    /// Each trigger's routine, if it has one, and how it takes in deliveries.
    pub(crate) triggers: Vec<(Option<usize>, Intake)>,
    /// By true time.
    pub(crate) deeds: BTreeMap<(u64, u64), Deed>,
    pub(crate) to_the_edge: bool,
    next: u64,
}

impl Script {
    pub(crate) fn write(chance: &mut Chance) -> Self {
        let day = chance.pick(&FIRST_DAYS) + i64::try_from(chance.below(4)).unwrap_or_default();
        let epoch_us = YEAR_US + day * 86_400_000_000 + i64::try_from(chance.below(DAY)).unwrap_or_default();
        let mut script = Self {
            epoch_us,
            machines: machines(chance),
            routines: Vec::new(),
            triggers: Vec::new(),
            deeds: BTreeMap::new(),
            to_the_edge: chance.one_in(3),
            next: 0,
        };
        script.routines(chance);
        script.triggers(chance);
        script.people(chance);
        script.adversary(chance);
        script
    }

    /// Puts a deed in its place.
    pub(crate) fn at(&mut self, at: u64, deed: Deed) {
        self.next += 1;
        self.deeds.insert((at, self.next), deed);
    }

    /// So many of them, at any time, and half of them just when a window is due.
    fn sprinkle(&mut self, chance: &mut Chance, times: u64, mut deed: impl FnMut(&mut Chance) -> Deed) {
        for _ in 0..times {
            let at = chance.between(HOUR, DAYS * DAY);
            let deed = deed(chance);
            self.at(at, if chance.one_in(2) { Deed::WhenDue(Box::new(deed)) } else { deed });
        }
    }

    fn routines(&mut self, chance: &mut Chance) {
        let schedules = (0..chance.between(3, 4)).map(|n| self.schedule(chance, n)).collect::<Vec<_>>();
        for schedule in schedules {
            let limits = Limits {
                grace_s: chance.pick(&[0, 30, 600, 600, 3_600]),
                deadline_s: chance.pick(&[60, 300, 900]),
                missed: chance.pick(&[Missed::Record, Missed::RunOnceWithin(7_200), Missed::RunOnceWithin(86_400)]),
                overlap: chance.pick(&[Overlap::Skip, Overlap::QueueOne, Overlap::CancelLive]),
                retry: chance.pick(&[None, None, Some(Retry { times: 2, backoff_s: 5 })]),
                // Of the later ones only: the first two are due to the end.
                max_runs: (self.routines.len() > 1 && chance.one_in(4)).then(|| chance.between(1, 20)),
                ..Limits::default()
            };
            let at = if self.routines.len() < 2 { 20 * SECOND } else { chance.between(MINUTE, 5 * DAY) };
            self.at(at, Deed::Create(self.routines.len()));
            self.routines.push(Casting { schedule, limits });
        }
    }

    /// The first two are due often, so that no play is empty.
    fn schedule(&self, chance: &mut Chance, n: u64) -> String {
        let zone = chance.pick(&ZONES);
        let kind = match n {
            0 => chance.pick(&[0, 1]),
            1 => chance.pick(&[2, 3]),
            _ => chance.below(7),
        };
        let mut schedule = match kind {
            0 => json!({"kind": "every", "zone": zone, "minutes": chance.between(270, 390)}),
            1 => {
                let between = json!({"from": "22:00", "to": "06:00"});
                json!({"kind": "every", "zone": zone, "minutes": chance.between(100, 140), "between": between})
            }
            2 => {
                let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
                let times = [chance.pick(&["02:30", "01:45", "03:00"]), chance.pick(&["08:00", "23:59", "00:00"])];
                json!({"kind": "weekly", "zone": zone, "days": days, "times": times})
            }
            3 => {
                let expr = chance.pick(&["30 2,14 * * *", "15 */8 * * *", "0 9,17 * * *", "45 1,2 * * *"]);
                json!({"kind": "cron", "zone": zone, "expr": expr})
            }
            4 => json!({"kind": "monthly", "zone": zone, "days": [1, 15, "last"], "times": ["02:30", "12:00"]}),
            5 => {
                let at = self.epoch_us + i64::try_from(chance.between(6 * DAY, 25 * DAY)).unwrap_or_default();
                return json!({"kind": "once", "at": midwatch_events::Micros(at / 1_000_000 * 1_000_000).to_string()})
                    .to_string();
            }
            _ => {
                let from = self.epoch_us + i64::try_from(chance.between(6 * DAY, 25 * DAY)).unwrap_or_default();
                let instant = |at: i64| midwatch_events::Micros(at / 1_000_000 * 1_000_000).to_string();
                json!({"kind": "every", "zone": zone, "minutes": chance.between(1, 4), "anchor": instant(from),
                    "starts_at": instant(from), "ends_at": instant(from + 3_600_000_000)})
            }
        };
        if chance.one_in(3) {
            schedule["jitter_s"] = json!(chance.between(1, 300));
        }
        schedule.to_string()
    }

    fn triggers(&mut self, chance: &mut Chance) {
        for routine in [None, Some(0)] {
            let trigger = self.triggers.len();
            let age = u32::try_from(chance.between(600, 7_200)).unwrap_or_default();
            let intake = Intake { queue_max: chance.pick(&[1, 3, 100]), queue_age_s: age, ..Intake::default() };
            self.triggers.push((routine, intake));
            self.at(chance.between(HOUR, 2 * DAY), Deed::MakeTrigger(trigger));
            for burst in 0..5 {
                let at = chance.between(3 * DAY, DAYS * DAY);
                for n in 0..chance.between(1, 4) {
                    // Each may be sent more than once, also at the same moment.
                    for _ in 0..chance.pick(&[1, 1, 2]) {
                        let later = chance.pick(&[0, 0, 10 * SECOND, MINUTE]);
                        self.at(at + later, Deed::Post(trigger, burst * 10 + n));
                    }
                }
            }
            if chance.one_in(2) {
                let at = chance.between(3 * DAY, DAYS * DAY - DAY);
                self.at(at, Deed::PauseTrigger(trigger));
                self.at(at, Deed::Post(trigger, 2_000));
                self.at(at, Deed::Post(trigger, 2_001));
                self.at(at + chance.between(MINUTE, DAY), Deed::ResumeTrigger(trigger));
            }
        }
    }

    fn people(&mut self, chance: &mut Chance) {
        let routines = self.routines.len() as u64;
        let any = move |chance: &mut Chance| usize::try_from(chance.below(routines)).unwrap_or_default();
        let (mut request, runs) = (0, chance.between(4, 12));
        self.sprinkle(chance, runs, |chance| {
            // Every third request is one that was sent before.
            request += u64::from(!chance.one_in(3));
            Deed::RunNow(any(chance), request)
        });
        self.sprinkle(chance, 30, |chance| Deed::Tick(any(chance)));
        self.sprinkle(chance, 6, |_| Deed::CancelOne);
        let pauses = chance.between(1, 5);
        for _ in 0..pauses {
            let (at, routine) = (chance.between(DAY, DAYS * DAY - 2 * DAY), any(chance));
            self.at(at, Deed::Pause(routine));
            self.at(at + chance.between(SECOND, 2 * DAY), Deed::Resume(routine));
        }
        // What the engine suspends, somebody resumes some day.
        for day in 1..DAYS / 3 {
            for routine in 0..self.routines.len() {
                self.at(day * 3 * DAY + chance.below(DAY), Deed::Resume(routine));
            }
        }
        for _ in 0..chance.below(4) {
            let routine = any(chance);
            // Those that are due often stay so.
            let schedule = self.schedule(chance, routine as u64);
            self.at(chance.between(DAY, DAYS * DAY), Deed::Edit(routine, schedule));
            let overlap = chance.pick(&[Overlap::Skip, Overlap::QueueOne, Overlap::CancelLive]);
            let limits = Limits { grace_s: chance.pick(&[0, 60, 600]), overlap, ..Limits::default() };
            if self.routines[routine].limits.max_runs.is_none() {
                self.at(chance.between(DAY, DAYS * DAY), Deed::Limit(routine, limits));
            }
        }
        if chance.one_in(3) && routines > 3 {
            self.at(chance.between(10 * DAY, DAYS * DAY), Deed::Delete(3));
        }
        for _ in 0..chance.between(1, 3) {
            let at = chance.between(DAY, DAYS * DAY - 2 * DAY);
            let span = if chance.one_in(4) { chance.between(HOUR, DAY) } else { chance.between(SECOND, HOUR) };
            self.at(at, if chance.one_in(4) { Deed::Halt(span) } else { Deed::WhenDue(Box::new(Deed::Halt(span))) });
            let at = chance.between(DAY, DAYS * DAY - 2 * DAY);
            self.at(at, Deed::Halt(span));
            // Somebody sends just then.
            self.at(at, Deed::Post(0, 1_000 + at % 1_000));
            self.at(at, Deed::Post(1, 1_000 + at % 1_000));
        }
    }

    fn adversary(&mut self, chance: &mut Chance) {
        let machines = self.machines.len();
        for machine in 0..machines {
            self.at(chance.below(20 * SECOND), Deed::Start(machine));
        }
        let any = move |chance: &mut Chance| usize::try_from(chance.below(machines as u64)).unwrap_or_default();
        self.sprinkle(chance, 8, |chance| Deed::Kill(any(chance)));
        self.sprinkle(chance, 3, |chance| Deed::Stop(any(chance)));
        self.sprinkle(chance, 6, |chance| Deed::Stall(any(chance), chance.clone().between(SECOND, 10 * MINUTE)));
        self.sprinkle(chance, 12, |chance| {
            let most = chance.pick(&[HOUR, DAY, 4 * DAY]);
            let span = i64::try_from(chance.below(most)).unwrap_or_default();
            Deed::WallJump(any(chance), if chance.one_in(2) { span } else { -span })
        });
        if chance.one_in(3) {
            for _ in 0..4 {
                let (at, most) = (chance.between(DAY, DAYS * DAY), chance.pick(&[MINUTE, HOUR, 2 * DAY]));
                let span = i64::try_from(chance.below(most)).unwrap_or_default();
                self.at(at, Deed::StoreJump(if chance.one_in(2) { span } else { -span }));
                // What counts from now counts from another now.
                let routine = usize::try_from(chance.below(self.routines.len() as u64)).unwrap_or_default();
                self.at(at + MINUTE, Deed::Pause(routine));
                self.at(at + 2 * MINUTE, Deed::Resume(routine));
            }
        }
        let isolate = |chance: &mut Chance| Deed::Isolate(any(chance), chance.between(30 * SECOND, 5 * MINUTE));
        for _ in 0..8 {
            let at = chance.between(HOUR, DAYS * DAY);
            let deed = isolate(chance);
            self.at(at, Deed::WhenDue(Box::new(deed)));
        }
        self.sprinkle(chance, 6, |_| Deed::CrashStore);
        self.sprinkle(chance, 8, |chance| {
            let which = chance.pick(&[Outage::All, Outage::Beside, Outage::Appends]);
            Deed::Outage(chance.between(SECOND, 4 * MINUTE), which)
        });
        let cuts = chance.below(3);
        self.sprinkle(chance, cuts, |chance| {
            let most = chance.pick(&[HOUR, 3 * DAY]);
            Deed::PowerCut(chance.between(MINUTE, most))
        });
        if chance.one_in(2) {
            self.sprinkle(chance, 1, |_| Deed::LoseProjections);
        }
    }
}

/// Two to five processes; the first does everything, as one process alone would.
fn machines(chance: &mut Chance) -> Vec<Vec<Role>> {
    let all = [Role::Clock, Role::Runner, Role::Projector];
    let mut machines = vec![all.to_vec()];
    for _ in 0..chance.pick(&[1, 1, 2, 2, 3, 4]) {
        let roles: Vec<Role> = all.into_iter().filter(|_| chance.one_in(2)).collect();
        machines.push(if roles.is_empty() { vec![chance.pick(&all)] } else { roles });
    }
    machines
}
