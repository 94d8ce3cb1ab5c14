//! `midwatch routine`: a Bot, some work and a schedule.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use midwatch_commands::{
    Refusal,
    calendar::{Schedule, Window},
    routine::{Edit, Routine as RoutineState},
};
use midwatch_engine::{Done, Engine, projector, routines::NewRoutine, world::World};
use midwatch_events::{
    Micros, StreamName,
    id::{BotId, RoutineId, UserId},
    routine::{Limits, Missed, Overlap, Retry, RoutineContent, RoutineEvent, Work},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::routines_list::{Ending, RoutineRow, RoutinesList};
use serde_json::{Value, json};

use super::{all, schedule};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, pairs, word},
    typed::{id, text_or_file},
};

/// Windows that are shown.
const WINDOWS: usize = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Routine {
    /// Make a routine
    Add(Add),
    /// All routines
    List,
    /// One routine, with its work and its next windows
    Show {
        #[arg(value_parser = id::<midwatch_events::id::Routine>)]
        routine: RoutineId,
    },
    /// Change what is given, and leave the rest
    Edit(Change),
    /// Switch it off; its windows do not exist until it is resumed
    Pause {
        #[arg(value_parser = id::<midwatch_events::id::Routine>)]
        routine: RoutineId,
        /// Why
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Switch it on again, also after a suspension
    Resume {
        #[arg(value_parser = id::<midwatch_events::id::Routine>)]
        routine: RoutineId,
    },
    /// Remove it from every list; its history stays
    Delete {
        #[arg(value_parser = id::<midwatch_events::id::Routine>)]
        routine: RoutineId,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    /// What people call it
    #[arg(long)]
    name: String,
    /// Who does the work
    #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Bot>)]
    bot: BotId,
    /// When, as JSON
    #[arg(long, value_name = "JSON|@FILE")]
    schedule: String,
    #[command(flatten)]
    work: NewWork,
    #[command(flatten)]
    limits: NewLimits,
    #[command(flatten)]
    windows: NewWindows,
    /// Whose it is; the first admin's, if nothing is said
    #[arg(long, value_name = "USER", value_parser = id::<midwatch_events::id::User>)]
    owner: Option<UserId>,
}

#[derive(Args, Debug)]
pub(crate) struct Change {
    #[arg(value_parser = id::<midwatch_events::id::Routine>)]
    routine: RoutineId,
    /// A new name
    #[arg(long)]
    name: Option<String>,
    /// A new schedule, as JSON
    #[arg(long, value_name = "JSON|@FILE")]
    schedule: Option<String>,
    #[command(flatten)]
    work: NewWork,
    #[command(flatten)]
    limits: NewLimits,
    #[command(flatten)]
    windows: NewWindows,
    /// Refuse when it is not at this version any more
    #[arg(long, value_name = "VERSION")]
    expect: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct NewWork {
    /// What the Bot is told
    #[arg(long, value_name = "TEXT|@FILE", conflicts_with = "recording")]
    instruction: Option<String>,
    /// Tool steps that are replayed without a model
    #[arg(long, value_name = "JSON|@FILE")]
    recording: Option<String>,
}

impl NewWork {
    fn read(&self) -> Result<Work, Failure> {
        Ok(Work {
            instruction: self.instruction.as_deref().map(text_or_file).transpose()?,
            recording: self.recording.as_deref().map(text_or_file).transpose()?,
        })
    }

    fn given(&self) -> bool {
        self.instruction.is_some() || self.recording.is_some()
    }
}

/// How runs run; what is not said stays as it is.
#[derive(Args, Debug)]
pub(crate) struct NewLimits {
    /// How late a window may still be claimed [default: 600]
    #[arg(long, value_name = "SECONDS")]
    grace_s: Option<u32>,
    /// How long a run may last [default: 900]
    #[arg(long, value_name = "SECONDS")]
    deadline_s: Option<u32>,
    /// How many turns a run may take [default: 20]
    #[arg(long, value_name = "N")]
    max_turns: Option<u32>,
    /// How often a run that failed before anything acted is tried again; 0 for never [default: 0]
    #[arg(long, value_name = "N")]
    retry_times: Option<u32>,
    /// How long before the first of these, doubled with each further one [default: 10]
    #[arg(long, value_name = "SECONDS")]
    retry_backoff_s: Option<u32>,
}

/// What becomes of its windows; what is not said stays as it is.
#[derive(Args, Debug)]
pub(crate) struct NewWindows {
    /// How many windows may be claimed in all; 0 for any number [default: 0]
    #[arg(long, value_name = "N")]
    max_runs: Option<u64>,
    /// Windows later than the grace: `record`, or a number of seconds, within which the newest runs once [default: record]
    #[arg(long, value_name = "record|SECONDS", value_parser = missed)]
    missed: Option<Missed>,
    /// A window that finds the previous run live: skip it, let one wait, or cancel that run [default: skip]
    #[arg(long, value_enum)]
    overlap: Option<WhenLive>,
    /// Spread its windows by up to this long
    #[arg(long, value_name = "SECONDS")]
    jitter_s: Option<u32>,
    /// No window before this instant
    #[arg(long, value_name = "RFC3339")]
    starts_at: Option<String>,
    /// No window after this instant
    #[arg(long, value_name = "RFC3339")]
    ends_at: Option<String>,
}

/// What becomes of a window that finds the previous run live.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WhenLive {
    /// It is skipped
    Skip,
    /// The first waits, later ones are skipped
    QueueOne,
    /// The run is cancelled
    CancelLive,
}

fn missed(text: &str) -> Result<Missed, String> {
    match (text, text.parse()) {
        ("record", _) => Ok(Missed::Record),
        (_, Ok(within_s)) => Ok(Missed::RunOnceWithin(within_s)),
        (_, Err(_)) => Err("write `record`, or a whole number of seconds".to_owned()),
    }
}

impl NewWindows {
    fn over(&self, limits: Limits) -> Limits {
        let overlap = self.overlap.map(|overlap| match overlap {
            WhenLive::Skip => Overlap::Skip,
            WhenLive::QueueOne => Overlap::QueueOne,
            WhenLive::CancelLive => Overlap::CancelLive,
        });
        Limits {
            max_runs: self.max_runs.map_or(limits.max_runs, |max| (max > 0).then_some(max)),
            missed: self.missed.unwrap_or(limits.missed),
            overlap: overlap.unwrap_or(limits.overlap),
            ..limits
        }
    }

    /// Whether it says anything of the schedule.
    fn reschedules(&self) -> bool {
        self.jitter_s.is_some() || self.starts_at.is_some() || self.ends_at.is_some()
    }

    /// The schedule with what is said of it here.
    fn schedule(&self, text: String) -> Result<String, Failure> {
        if !self.reschedules() {
            return Ok(text);
        }
        let schedule = serde_json::from_str::<Value>(&text);
        let Ok(Value::Object(mut members)) = schedule else { return Ok(text) };
        let said = [
            ("jitter_s", self.jitter_s.map(Value::from)),
            ("starts_at", self.starts_at.clone().map(Value::from)),
            ("ends_at", self.ends_at.clone().map(Value::from)),
        ];
        members.extend(said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Ok(Value::Object(members).to_string())
    }
}

impl NewLimits {
    pub(crate) fn over(&self, limits: &Limits) -> Limits {
        Limits {
            grace_s: self.grace_s.unwrap_or(limits.grace_s),
            deadline_s: self.deadline_s.unwrap_or(limits.deadline_s),
            max_turns: self.max_turns.unwrap_or(limits.max_turns),
            retry: self.retry(limits.retry),
            ..limits.clone()
        }
    }

    fn retry(&self, before: Option<Retry>) -> Option<Retry> {
        if self.retry_times.is_none() && self.retry_backoff_s.is_none() {
            return before;
        }
        let before = before.unwrap_or(Retry { times: 0, backoff_s: 10 });
        let times = self.retry_times.unwrap_or(before.times.max(1));
        let backoff_s = self.retry_backoff_s.unwrap_or(before.backoff_s);
        (times > 0).then_some(Retry { times, backoff_s })
    }
}

impl Routine {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Add(add) => add.run(globals).await,
            Self::List => list(globals).await,
            Self::Show { routine } => show(globals, routine).await,
            Self::Edit(change) => change.run(globals).await,
            Self::Pause { routine, reason } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.pause_routine(routine, &reason, origin, None).await?)
                });
                changed(globals, routine, "was paused", &done.await?)
            }
            Self::Resume { routine } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.resume_routine(routine, origin, None).await?)
                });
                changed(globals, routine, "was resumed", &done.await?)
            }
            Self::Delete { routine } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.delete_routine(routine, origin, None).await?)
                });
                changed(globals, routine, "was deleted; its history stays", &done.await?)
            }
        }
    }
}

fn changed(globals: &Globals, routine: RoutineId, what: &str, done: &Done<()>) -> Result<ExitCode, Failure> {
    let answer = json!({ "id": routine, "position": done.position });
    globals.output().answer(&answer, || format!("Routine {routine} {what}"))?;
    Ok(ExitCode::SUCCESS)
}

impl Add {
    async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let new = NewRoutine {
            name: self.name,
            bot: self.bot,
            schedule: self.windows.schedule(text_or_file(&self.schedule)?)?,
            work: self.work.read()?,
            limits: self.windows.over(self.limits.over(&Limits::default())),
            owner: self.owner,
        };
        // A new ledger is not made for the sake of a schedule that cannot be read.
        let schedule = Schedule::parse(&new.schedule);
        let schedule = schedule.map_err(|error| Failure::bad_request(error.code(), error.to_string()))?;
        let made =
            joining::write(globals, async |engine, origin| Ok(engine.create_routine(&new, origin, None).await?));
        let id = made.await?.value;
        globals
            .output()
            .answer(&json!({ "id": id }), || format!("Routine {} is {id}: {}", new.name, schedule.in_words()))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Change {
    async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let edit = Edit {
            name: self.name.clone(),
            schedule: self.schedule.as_deref().map(text_or_file).transpose()?,
            work: if self.work.given() { Some(self.work.read()?) } else { None },
            limits: None,
            now: Micros::default(),
        };
        let done = joining::write(globals, async |engine, origin| {
            let state = engine.load::<RoutineState>(&StreamName::routine(self.routine)).await?.state;
            let limits = Some(self.windows.over(self.limits.over(&state.limits)));
            let schedule = match (edit.schedule, self.windows.reschedules()) {
                (Some(text), _) => Some(self.windows.schedule(text)?),
                (None, true) => Some(self.windows.schedule(state.schedule_text.clone())?),
                (None, false) => None,
            };
            let edit = Edit { limits, schedule, ..edit };
            Ok(engine.edit_routine(self.routine, edit, self.expect, origin, None).await?)
        });
        let done = done.await?;
        let what = if done.duplicate { "is so already" } else { "was changed" };
        changed(globals, self.routine, what, &done)
    }
}

async fn list(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let there = Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) };
        all::<RoutinesList>(engine, vec![there], Order { column: "name", descending: false }, None).await
    });
    let rows = rows.await?;
    let json: Vec<Value> = rows.iter().map(listed).collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["ID", "NAME", "STATE", "NEXT WINDOW", "LAST", "SCHEDULE", "LIVE RUN"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.name.clone(),
                word(row.state),
                next_window(row),
                last(row),
                Schedule::parse(&row.schedule).map_or_else(|error| error.to_string(), |schedule| schedule.in_words()),
                dash(row.live_run),
            ]);
        }
        table.or("There are no routines; `midwatch routine add` makes one.")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The members scripts may rely on.
fn listed(row: &RoutineRow) -> Value {
    json!({
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "next_window": row.next_window.map(|at| at.to_string()),
        "last_outcome": row.last_outcome,
        "last_reason": row.last_reason,
        "attention": row.attention,
        "live_run": row.live_run,
    })
}

/// In the routine's own zone, which its offset shows.
fn next_window(row: &RoutineRow) -> String {
    let schedule = Schedule::parse(&row.schedule);
    dash(row.next_window.map(|at| schedule.map_or_else(|_| at.to_string(), |schedule| schedule.zone().local(at))))
}

fn last(row: &RoutineRow) -> String {
    match (&row.last_outcome, &row.last_reason) {
        (Some(outcome), Some(reason)) => format!("{outcome} ({reason})"),
        (Some(outcome), None) => outcome.clone(),
        (None, _) => "-".to_owned(),
    }
}

async fn show(globals: &Globals, id: RoutineId) -> Result<ExitCode, Failure> {
    let (row, work) = joining::read(globals, async |engine| {
        let row = projector::get::<RoutinesList>(engine, &id.to_string()).await?;
        let row = row.ok_or(Refusal::NotFound("routine"))?;
        Ok((row, work(engine, id).await?))
    })
    .await?;
    let mut json = serde_json::to_value(&row).unwrap_or_default();
    if let (Value::Object(members), Some(work)) = (&mut json, &work) {
        let recording = work.recording.as_deref().map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
        members.insert("instruction".to_owned(), json!(work.instruction));
        members.insert("recording".to_owned(), json!(recording));
    }
    let now = World::system().clock.now();
    let (windows, zone_data) = comes(&row, now);
    if let Value::Object(members) = &mut json {
        members.insert("windows".to_owned(), windows.iter().map(|(window, at)| due(window, *at)).collect());
        members.insert("zone_data".to_owned(), json!(zone_data));
    }
    globals.output().answer(&json, || {
        let mut text = shown(&row, work.unwrap_or_default());
        if !windows.is_empty() {
            let windows: Vec<Window> = windows.iter().map(|(window, _)| window.clone()).collect();
            text.push_str(&format!("\n{}", schedule::table(&windows, None)));
        }
        if let Some(sentence) = zone_data {
            text.push_str(&format!("Note: {sentence}\n"));
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Its next windows with the instants at which they start, and where two copies of the zone data differ.
fn comes(row: &RoutineRow, now: Micros) -> (Vec<(Window, Micros)>, Option<String>) {
    let Ok(schedule) = Schedule::parse(&row.schedule) else { return (Vec::new(), None) };
    let windows = row.next_window.map(|next| schedule.preview(next.plus_s(-1), Some(row.anchor), WINDOWS));
    let start = |window: Window| {
        let at = schedule.effective_at(window.at, row.id.uuid().as_bytes());
        (window, at)
    };
    (windows.unwrap_or_default().into_iter().map(start).collect(), schedule::zone_data(&schedule, now))
}

fn due(window: &Window, effective: Micros) -> Value {
    json!({
        "utc": window.at.to_string(),
        "local": window.local,
        "dst": window.dst.as_str(),
        "effective": effective.to_string(),
    })
}

fn shown(row: &RoutineRow, work: Work) -> String {
    let schedule = Schedule::parse(&row.schedule).ok();
    let limits = &row.limits;
    pairs(&[
        ("id", Some(row.id.to_string())),
        ("name", Some(row.name.clone())),
        ("state", Some(word(row.state))),
        ("reason", row.reason.clone()),
        ("schedule", schedule.map(|schedule| schedule.in_words())),
        ("next window", row.next_window.map(|_| next_window(row))),
        ("last", row.last_outcome.as_ref().map(|_| last(row))),
        ("live run", row.live_run.map(|run| run.to_string())),
        ("recent endings", Some(recent(row)).filter(|recent| !recent.is_empty())),
        ("waits for it", row.queued_window.map(|window| format!("the window {window}"))),
        (
            "held",
            row.held.map(|held| format!("the window {}, since {} ({})", held.window, held.since, word(held.reason))),
        ),
        ("attention", (!row.attention.is_empty()).then(|| attention(row))),
        ("windows", Some(windows(row))),
        ("Bot", Some(row.bot.to_string())),
        ("owner", Some(row.owner.to_string())),
        ("instruction", work.instruction),
        ("recording", work.recording),
        ("limits", Some(limits_in_words(limits))),
        ("created", Some(row.created_at.to_string())),
        ("version", Some(row.version.to_string())),
    ])
}

fn attention(row: &RoutineRow) -> String {
    row.attention.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn windows(row: &RoutineRow) -> String {
    let claimed = match row.limits.max_runs {
        Some(max) => format!("{} of at most {max} claimed", row.windows_claimed),
        None => format!("{} claimed", row.windows_claimed),
    };
    format!("{claimed}, {} missed, {} skipped", row.missed_total, row.skipped_total)
}

fn limits_in_words(limits: &Limits) -> String {
    let mut words = format!("grace {} s, deadline {} s, {} turns", limits.grace_s, limits.deadline_s, limits.max_turns);
    if let Missed::RunOnceWithin(within_s) = limits.missed {
        words.push_str(&format!("; a missed window runs once within {within_s} s"));
    }
    match limits.overlap {
        Overlap::Skip => {}
        Overlap::QueueOne => words.push_str("; one window waits for a live run"),
        Overlap::CancelLive => words.push_str("; a window cancels a live run"),
    }
    if let Some(Retry { times, backoff_s }) = limits.retry {
        words.push_str(&format!("; tried {times} more times, first after {backoff_s} s"));
    }
    words
}

/// The last endings, the oldest first: `succeeded, missed ×3, succeeded`.
fn recent(row: &RoutineRow) -> String {
    let ending = |ending: &Ending| match ending.count {
        0 | 1 => ending.outcome.clone(),
        count => format!("{} ×{count}", ending.outcome),
    };
    row.recent.iter().map(ending).collect::<Vec<_>>().join(", ")
}

/// The work in force; none where it was erased.
async fn work(engine: &Engine, id: RoutineId) -> Result<Option<Work>, Failure> {
    let stream = StreamName::routine(id);
    let state = engine.load::<RoutineState>(&stream).await?.state;
    let events = engine.log().read_stream(&stream, state.work_at, 1).await?;
    let Some(event) = events.first() else { return Ok(None) };
    let content = event.content::<RoutineEvent>().map_err(midwatch_engine::EngineError::from)?;
    Ok(match content {
        Some(RoutineContent::Created(work) | RoutineContent::WorkReplaced(work)) => Some(work),
        Some(RoutineContent::Paused { .. } | RoutineContent::Suspended { .. }) | None => None,
    })
}
