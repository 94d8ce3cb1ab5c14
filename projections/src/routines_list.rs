//! Which routines are there, when are they due, and how did they end?
//!
//! Key: the routine's id. Deleted ones stay, with the state `deleted`; lists leave them out.

use std::collections::{BTreeSet, VecDeque};

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{BotId, DeliveryId, RoutineId, RunId, UserId},
    routine::{Limits, MissedReason, RearmCause, RoutineContent, RoutineEvent, RunClaimed, RunSettled, SuspendCause},
    run::{Cause, Outcome, WorkKind},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key, word};

/// How many endings a routine's strip shows.
pub const RECENT: usize = 30;

/// The projection.
#[derive(Debug)]
pub enum RoutinesList {}

/// What a routine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutineState {
    /// It is due at its windows, or still works.
    Active,
    /// A person switched it off.
    Paused,
    /// The engine switched it off.
    Suspended,
    /// It is switched on, but has no further window and nothing left to do.
    Ended,
    /// It is gone.
    Deleted,
}

/// One routine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoutineRow {
    /// The routine.
    pub id: RoutineId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: UserId,
    /// Who does the work.
    pub bot: BotId,
    /// The schedule's JSON text.
    pub schedule: String,
    /// The instant its windows are counted from.
    #[serde(with = "rfc3339")]
    pub anchor: Micros,
    /// What kind of work it does; the work itself is content of its stream.
    pub work: WorkKind,
    /// How it runs.
    pub limits: Limits,
    /// What it is doing.
    pub state: RoutineState,
    /// Why it is paused or suspended, in words; absent also when the words were erased.
    pub reason: Option<String>,
    /// Why the engine switched it off.
    pub suspended: Option<SuspendCause>,
    /// The next window; none while it is switched off.
    #[serde(with = "rfc3339::option")]
    pub next_window: Option<Micros>,
    /// How it ended last: an outcome, `missed` or `skipped`.
    pub last_outcome: Option<String>,
    /// Why.
    pub last_reason: Option<String>,
    /// When that was recorded.
    #[serde(with = "rfc3339::option")]
    pub last_at: Option<Micros>,
    /// The live run.
    pub live_run: Option<RunId>,
    /// Why it runs.
    pub live_cause: Option<Cause>,
    /// The window it was claimed for.
    #[serde(with = "rfc3339::option")]
    pub live_window: Option<Micros>,
    /// When it was claimed.
    #[serde(with = "rfc3339::option")]
    pub live_since: Option<Micros>,
    /// Deliveries that wait for it.
    pub waiting: BTreeSet<DeliveryId>,
    /// The window that waits for the live run to end.
    #[serde(default, with = "rfc3339::option")]
    pub queued_window: Option<Micros>,
    /// The window that nobody can run at present.
    #[serde(default)]
    pub held: Option<Held>,
    /// What a person should look at, the gravest first; empty where all is well.
    #[serde(default)]
    pub attention: Vec<Attention>,
    /// The last [`RECENT`] endings, oldest first.
    pub recent: VecDeque<Ending>,
    /// How many windows were missed in all.
    pub missed_total: u64,
    /// How many windows were skipped in all.
    #[serde(default)]
    pub skipped_total: u64,
    /// How many windows were claimed in all: what `max_runs` counts.
    #[serde(default)]
    pub windows_claimed: u64,
    /// Endings in a row that were neither succeeded nor cancelled.
    pub failures: u32,
    /// When it was created.
    #[serde(with = "rfc3339")]
    pub created_at: Micros,
    /// The version of its stream.
    pub version: u64,
}

/// A window that nobody can run at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The window.
    #[serde(with = "rfc3339")]
    pub window: Micros,
    /// Why: `no_runner` or `bot_unreachable`.
    pub reason: MissedReason,
    /// When that was found.
    #[serde(with = "rfc3339")]
    pub since: Micros,
}

/// Why a person should look at a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// The engine switched it off; `suspended` says why.
    Suspended,
    /// Its last ending was neither succeeded nor cancelled.
    Failing,
    /// A window waits because nobody can run it.
    Held,
    /// The last thing that became of its windows is that they were missed.
    Missed,
}

/// How a run of the routine ended, or what its windows ended as without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// An outcome, `missed` or `skipped`.
    pub outcome: String,
    /// Why.
    pub reason: Option<String>,
    /// When it was recorded.
    #[serde(with = "rfc3339")]
    pub at: Micros,
    /// The run; of a skipped window, the one that was live.
    pub run: Option<RunId>,
    /// The window, by its own time; of several missed ones, the last.
    #[serde(with = "rfc3339::option")]
    pub window: Option<Micros>,
    /// How many windows ended so.
    pub count: u64,
}

impl Projection for RoutinesList {
    type Row = RoutineRow;

    const TABLE: Table = Table {
        name: "routines_list",
        version: 2,
        columns: &[
            ("name", Kind::Text),
            ("state", Kind::Text),
            ("owner", Kind::Text),
            ("bot", Kind::Text),
            ("next_window", Kind::Int),
            ("live_run", Kind::Text),
            ("attention", Kind::Int),
        ],
        indexes: &[
            &["attention", "name"],
            &["name"],
            &["state", "name"],
            &["owner", "name"],
            &["bot"],
            &["next_window"],
            &["live_run"],
        ],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Routine(..) => stream_key(recorded),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<RoutineRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Routine(event, content) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                if let Some(row) = created(event, recorded) {
                    rows.put(&key, row);
                }
                rows.change(&key, |row| {
                    evolve(row, event, content.as_ref(), recorded.recorded_at);
                    row.version = recorded.version;
                });
            }
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &RoutineRow) -> Vec<Cell> {
        vec![
            Cell::text(&row.name),
            Cell::Text(word(row.state)),
            Cell::shown(Some(row.owner)),
            Cell::shown(Some(row.bot)),
            Cell::at(row.next_window),
            Cell::shown(row.live_run),
            Cell::Int(i64::from(!row.attention.is_empty())),
        ]
    }
}

fn created(event: &RoutineEvent, recorded: &Recorded) -> Option<RoutineRow> {
    let RoutineEvent::Created { routine, name, owner, bot, schedule, work, limits, anchor_us, next_us: _ } = event
    else {
        return None;
    };
    Some(RoutineRow {
        id: *routine,
        name: name.clone(),
        owner: *owner,
        bot: *bot,
        schedule: schedule.clone(),
        anchor: *anchor_us,
        work: *work,
        limits: limits.clone(),
        state: RoutineState::Active,
        reason: None,
        suspended: None,
        next_window: None,
        last_outcome: None,
        last_reason: None,
        last_at: None,
        live_run: None,
        live_cause: None,
        live_window: None,
        live_since: None,
        waiting: BTreeSet::new(),
        queued_window: None,
        held: None,
        attention: Vec::new(),
        recent: VecDeque::new(),
        missed_total: 0,
        skipped_total: 0,
        windows_claimed: 0,
        failures: 0,
        created_at: recorded.recorded_at,
        version: recorded.version,
    })
}

fn evolve(row: &mut RoutineRow, event: &RoutineEvent, content: Option<&RoutineContent>, at: Micros) {
    match event {
        RoutineEvent::Created { next_us, .. } => row.due(*next_us),
        RoutineEvent::Rearmed { next_us, cause, .. } => {
            row.held = None;
            if *cause != RearmCause::ZoneData {
                row.queued_window = None;
            }
            row.due(*next_us);
        }
        RoutineEvent::Renamed { name } => row.name.clone_from(name),
        RoutineEvent::Rescheduled { schedule, anchor_us, next_us } => {
            row.schedule.clone_from(schedule);
            row.anchor = *anchor_us;
            row.undone();
            row.due(*next_us);
        }
        RoutineEvent::WorkReplaced { work } => row.work = *work,
        RoutineEvent::LimitsReplaced { limits } => row.limits = limits.clone(),
        RoutineEvent::Paused {} => row.off(RoutineState::Paused, None, content),
        RoutineEvent::Suspended { cause } => row.off(RoutineState::Suspended, Some(*cause), content),
        RoutineEvent::Deleted {} => row.off(RoutineState::Deleted, None, None),
        RoutineEvent::Resumed { next_us } => {
            row.state = RoutineState::Active;
            row.undone();
            row.reason = None;
            row.suspended = None;
            row.failures = 0;
            row.due(*next_us);
        }
        RoutineEvent::RunClaimed(claim) => row.claimed(claim, at),
        RoutineEvent::RunSettled(settled) => row.settled(settled, at),
        RoutineEvent::WindowsMissed { last_us, count, reason, next_us, .. } => {
            row.missed_total = row.missed_total.saturating_add(*count);
            row.window_left(*last_us);
            row.due(*next_us);
            let (reason, window) = (Some(word(reason)), Some(*last_us));
            row.ended(Ending { outcome: "missed".to_owned(), reason, at, run: None, window, count: *count });
        }
        RoutineEvent::WindowSkipped { window_us, reason, live, next_us, .. } => {
            row.skipped_total = row.skipped_total.saturating_add(1);
            row.due(*next_us);
            let (reason, window) = (Some(word(reason)), Some(*window_us));
            row.ended(Ending { outcome: "skipped".to_owned(), reason, at, run: Some(*live), window, count: 1 });
        }
        RoutineEvent::WindowQueued { window_us, next_us, .. } => {
            row.queued_window = Some(*window_us);
            row.due(*next_us);
        }
        RoutineEvent::WindowHeld { window_us, reason, .. } => {
            row.held = Some(Held { window: *window_us, reason: *reason, since: at });
        }
        RoutineEvent::DeliveryQueued(queued) => {
            row.waiting.insert(queued.delivery);
        }
        RoutineEvent::DeliveryTaken { delivery, .. } | RoutineEvent::DeliveryDropped { delivery, .. } => {
            row.waiting.remove(delivery);
        }
    }
    row.rest();
}

impl RoutineRow {
    fn switched_on(&self) -> bool {
        matches!(self.state, RoutineState::Active | RoutineState::Ended)
    }

    fn due(&mut self, next: Option<Micros>) {
        self.next_window = next.filter(|_| self.switched_on());
    }

    /// What waited or was held does not exist any more.
    fn undone(&mut self) {
        self.queued_window = None;
        self.held = None;
    }

    /// A window has ended; perhaps the one that waited or was held.
    fn window_left(&mut self, window: Micros) {
        self.queued_window = self.queued_window.filter(|queued| *queued != window);
        self.held = self.held.filter(|held| held.window != window);
    }

    fn off(&mut self, state: RoutineState, cause: Option<SuspendCause>, content: Option<&RoutineContent>) {
        self.undone();
        self.state = state;
        self.suspended = cause;
        self.next_window = None;
        self.reason = match content {
            Some(RoutineContent::Paused { reason }) => Some(reason.clone()),
            Some(RoutineContent::Suspended { error }) => Some(error.clone()),
            Some(RoutineContent::Created(_) | RoutineContent::WorkReplaced(_)) | None => None,
        };
    }

    fn claimed(&mut self, claim: &RunClaimed, at: Micros) {
        self.live_run = Some(claim.run);
        self.live_cause = Some(claim.cause);
        self.live_window = claim.window_us;
        self.live_since = Some(at);
        if let Some(window) = claim.window_us {
            self.window_left(window);
            self.windows_claimed = self.windows_claimed.saturating_add(1);
        }
        // Every claim says the next window, also one that does not move it.
        self.due(claim.next_us);
    }

    fn settled(&mut self, settled: &RunSettled, at: Micros) {
        let live = self.live_run == Some(settled.run);
        let window = self.live_window.filter(|_| live);
        let (outcome, reason) = (word(settled.outcome), settled.reason.map(word));
        self.ended(Ending { outcome, reason, at, run: Some(settled.run), window, count: 1 });
        if !live {
            return;
        }
        self.live_run = None;
        self.live_cause = None;
        self.live_window = None;
        self.live_since = None;
        match settled.outcome {
            Outcome::Succeeded => self.failures = 0,
            Outcome::Cancelled => {}
            Outcome::Failed | Outcome::Refused | Outcome::Stopped | Outcome::TimedOut | Outcome::Abandoned => {
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    fn ended(&mut self, ending: Ending) {
        self.last_outcome = Some(ending.outcome.clone());
        self.last_reason.clone_from(&ending.reason);
        self.last_at = Some(ending.at);
        self.recent.push_back(ending);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    fn rest(&mut self) {
        if self.switched_on() {
            let waits = self.queued_window.is_some() || !self.waiting.is_empty();
            let idle = self.next_window.is_none() && self.live_run.is_none() && !waits;
            self.state = if idle { RoutineState::Ended } else { RoutineState::Active };
        }
        let missed = self.last_outcome.as_deref() == Some("missed");
        let found = [
            (self.state == RoutineState::Suspended, Attention::Suspended),
            (self.failures > 0, Attention::Failing),
            (self.held.is_some(), Attention::Held),
            (missed, Attention::Missed),
        ];
        let there = self.state != RoutineState::Deleted;
        self.attention = found.into_iter().filter(|(so, _)| *so && there).map(|(_, what)| what).collect();
    }
}
