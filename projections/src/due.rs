//! What is to be looked at, and when? The clock reads the rows with `at <= now`, in the order of `at`.
//!
//! Keys: `routine-<id>` and, for a trigger with an instruction of its own, `trigger-<id>`: the names of their streams.
//! A row stands for each that exists; `at` is null where there is nothing to do.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{DeliveryId, RunId},
    routine::{DeliveryQueued, RearmCause, RoutineEvent},
    trigger::TriggerEvent,
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339};

/// The projection.
#[derive(Debug)]
pub enum Due {}

/// One thing that runs are claimed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DueRow {
    /// Its stream: `routine-<id>` or `trigger-<id>`.
    pub stream: String,
    /// The first instant at which there is something to do.
    #[serde(with = "rfc3339::option")]
    pub at: Option<Micros>,
    /// The next window.
    #[serde(with = "rfc3339::option")]
    pub next_window: Option<Micros>,
    /// Whether windows and waiting deliveries may start a run: it is neither paused nor suspended.
    pub may_start: bool,
    /// The window that waits for the live run to end.
    #[serde(default)]
    pub queued_window: Option<QueuedWindow>,
    /// The live run.
    pub live: Option<RunId>,
    /// Deliveries that wait, oldest first.
    pub queue: Vec<Waiting>,
}

/// A window that waits for the live run to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedWindow {
    /// The window.
    #[serde(with = "rfc3339")]
    pub window: Micros,
}

/// A delivery that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The delivery.
    pub delivery: DeliveryId,
    /// Since when.
    #[serde(with = "rfc3339")]
    pub since: Micros,
    /// Until when.
    #[serde(with = "rfc3339")]
    pub expires: Micros,
}

impl Projection for Due {
    type Row = DueRow;

    const TABLE: Table = Table { name: "due", version: 2, columns: &[("at", Kind::Int)], indexes: &[&["at"]] };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Routine(..) | AnyEvent::Trigger(..) => vec![recorded.stream.to_string()],
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Run(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<DueRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Routine(event, _) => routine(rows, event, recorded),
            AnyEvent::Trigger(event, _) => trigger(rows, event, recorded),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Run(..)
            | AnyEvent::User(..) => return,
        }
        rows.change(recorded.stream.as_str(), |row| row.at = row.first());
    }

    fn cells(row: &DueRow) -> Vec<Cell> {
        vec![Cell::at(row.at)]
    }
}

fn routine(rows: &mut Rows<DueRow>, event: &RoutineEvent, recorded: &Recorded) {
    let key = recorded.stream.as_str();
    match event {
        RoutineEvent::Created { next_us, .. } => rows.put(key, DueRow::new(recorded, *next_us)),
        RoutineEvent::Rearmed { next_us, cause: RearmCause::ZoneData, .. }
        | RoutineEvent::WindowSkipped { next_us, .. } => rows.change(key, |row| row.next_window = *next_us),
        RoutineEvent::Rescheduled { next_us, .. }
        | RoutineEvent::Rearmed { next_us, cause: RearmCause::Lifted | RearmCause::MaxRuns, .. } => {
            rows.change(key, |row| {
                row.next_window = *next_us;
                row.queued_window = None;
            });
        }
        RoutineEvent::WindowsMissed { last_us, next_us, .. } => rows.change(key, |row| {
            row.next_window = *next_us;
            row.window_left(*last_us);
        }),
        RoutineEvent::WindowQueued { window_us, next_us, .. } => rows.change(key, |row| {
            row.next_window = *next_us;
            row.queued_window = Some(QueuedWindow { window: *window_us });
        }),
        RoutineEvent::Resumed { next_us } => rows.change(key, |row| {
            row.may_start = true;
            row.next_window = *next_us;
            row.queued_window = None;
        }),
        RoutineEvent::Paused {} | RoutineEvent::Suspended { .. } => rows.change(key, |row| {
            row.may_start = false;
            row.queued_window = None;
        }),
        RoutineEvent::Deleted {} => rows.remove(key),
        RoutineEvent::RunClaimed(claim) => rows.change(key, |row| {
            row.live = Some(claim.run);
            row.next_window = claim.next_us;
            claim.window_us.into_iter().for_each(|window| row.window_left(window));
        }),
        RoutineEvent::RunSettled(settled) => rows.change(key, |row| row.settled(settled.run)),
        RoutineEvent::DeliveryQueued(queued) => rows.change(key, |row| row.queued(queued, recorded.recorded_at)),
        RoutineEvent::DeliveryTaken { delivery, .. } | RoutineEvent::DeliveryDropped { delivery, .. } => {
            rows.change(key, |row| row.left(*delivery));
        }
        RoutineEvent::Renamed { .. }
        | RoutineEvent::WorkReplaced { .. }
        | RoutineEvent::LimitsReplaced { .. }
        | RoutineEvent::WindowHeld { .. } => {}
    }
}

fn trigger(rows: &mut Rows<DueRow>, event: &TriggerEvent, recorded: &Recorded) {
    let key = recorded.stream.as_str();
    match event {
        // One that hands work to a routine claims nothing itself.
        TriggerEvent::Created { routine: None, .. } => rows.put(key, DueRow::new(recorded, None)),
        TriggerEvent::Resumed {} => rows.change(key, |row| row.may_start = true),
        TriggerEvent::Paused {} => rows.change(key, |row| row.may_start = false),
        TriggerEvent::Deleted {} => rows.remove(key),
        TriggerEvent::RunClaimed(claim) => rows.change(key, |row| row.live = Some(claim.run)),
        TriggerEvent::RunSettled(settled) => rows.change(key, |row| row.settled(settled.run)),
        TriggerEvent::DeliveryQueued(queued) => rows.change(key, |row| row.queued(queued, recorded.recorded_at)),
        TriggerEvent::DeliveryTaken { delivery, .. } | TriggerEvent::DeliveryDropped { delivery, .. } => {
            rows.change(key, |row| row.left(*delivery));
        }
        TriggerEvent::Created { routine: Some(_), .. }
        | TriggerEvent::SecretRotated { .. }
        | TriggerEvent::IntakeReplaced { .. }
        | TriggerEvent::SenderReplaced { .. }
        | TriggerEvent::SampleCaptured { .. }
        | TriggerEvent::Confirmed { .. } => {}
    }
}

impl DueRow {
    fn new(recorded: &Recorded, next_window: Option<Micros>) -> Self {
        let stream = recorded.stream.to_string();
        Self { stream, at: None, next_window, may_start: true, queued_window: None, live: None, queue: Vec::new() }
    }

    /// A window counts while a run is live too, because it then ends as skipped. A delivery starts as soon as nothing
    /// is live, and its age counts whatever else holds.
    fn first(&self) -> Option<Micros> {
        let window = self.next_window.filter(|_| self.may_start);
        let start = self.queue.first().map(|waiting| waiting.since).filter(|_| self.may_start && self.live.is_none());
        let expiry = self.queue.iter().map(|waiting| waiting.expires).min();
        let queued = self.queued_window.map(|queued| queued.window).filter(|_| self.may_start && self.live.is_none());
        [window, queued, start, expiry].into_iter().flatten().min()
    }

    /// A window has ended; perhaps the one that waited.
    fn window_left(&mut self, window: Micros) {
        self.queued_window = self.queued_window.filter(|queued| queued.window != window);
    }

    /// A late settle of an older run does not free what is busy with another.
    fn settled(&mut self, run: RunId) {
        self.live = self.live.filter(|live| *live != run);
    }

    fn queued(&mut self, queued: &DeliveryQueued, since: Micros) {
        if self.queue.iter().all(|waiting| waiting.delivery != queued.delivery) {
            self.queue.push(Waiting { delivery: queued.delivery, since, expires: queued.expires_us });
        }
    }

    fn left(&mut self, delivery: DeliveryId) {
        self.queue.retain(|waiting| waiting.delivery != delivery);
    }
}
