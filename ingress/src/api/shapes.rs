//! The shapes of rows, for the API's description alone. The rows themselves are the projections', which know nothing of an
//! API; a test holds these shapes against real rows.
#![expect(dead_code, reason = "they are described, never made")]

mod judged;
mod taken;
mod told;

use utoipa::ToSchema;

pub(crate) use judged::{Approval, BoundaryVersion, WhatIf};
pub(crate) use taken::{Delivery, Redelivery, Trigger};
pub(crate) use told::{Notice, Receiver};

/// A Bot.
#[derive(ToSchema)]
pub(crate) struct Bot {
    /// The Bot.
    #[schema(format = Uuid)]
    id: String,
    /// Its name.
    name: String,
    /// Where its AG-UI agent listens; null for one that only replays recordings.
    agui: Option<String>,
    /// The tools it may use.
    tools: Vec<String>,
    /// Whether it gets no more work.
    retired: bool,
    /// When it was registered.
    #[schema(format = DateTime)]
    registered_at: String,
    /// Since when its endpoint does not answer.
    #[schema(format = DateTime)]
    unreachable_since: Option<String>,
    /// The version of its stream.
    version: u64,
}

/// A routine.
#[derive(ToSchema)]
pub(crate) struct Routine {
    /// The routine.
    #[schema(format = Uuid)]
    id: String,
    /// Its name.
    name: String,
    /// Whose it is.
    #[schema(format = Uuid)]
    owner: String,
    /// Who does the work.
    #[schema(format = Uuid)]
    bot: String,
    /// The schedule's JSON text.
    schedule: String,
    /// The instant its windows are counted from.
    #[schema(format = DateTime)]
    anchor: String,
    /// `instruction` or `recording`.
    work: String,
    /// How it runs.
    limits: Limits,
    /// `active`, `paused`, `suspended` or `ended`.
    state: String,
    /// Why it is paused or suspended, in words.
    reason: Option<String>,
    /// Why the engine switched it off.
    suspended: Option<String>,
    /// The next window; null while it is switched off.
    #[schema(format = DateTime)]
    next_window: Option<String>,
    /// How it ended last: an outcome, `missed` or `skipped`.
    last_outcome: Option<String>,
    /// Why.
    last_reason: Option<String>,
    /// When that was recorded.
    #[schema(format = DateTime)]
    last_at: Option<String>,
    /// The live run.
    #[schema(format = Uuid)]
    live_run: Option<String>,
    /// Why it runs.
    live_cause: Option<String>,
    /// The window it was claimed for.
    #[schema(format = DateTime)]
    live_window: Option<String>,
    /// When it was claimed.
    #[schema(format = DateTime)]
    live_since: Option<String>,
    /// Deliveries that wait for it.
    waiting: Vec<String>,
    /// The window that waits for the live run to end.
    #[schema(format = DateTime)]
    queued_window: Option<String>,
    /// The window that nobody can run at present.
    held: Option<Held>,
    /// What a person should look at, the gravest first: `suspended`, `failing`, `held`, `missed`.
    attention: Vec<String>,
    /// Its last endings, oldest first.
    recent: Vec<Ending>,
    /// How many windows were missed in all.
    missed_total: u64,
    /// How many windows were skipped in all.
    skipped_total: u64,
    /// How many windows were claimed in all: what `max_runs` counts.
    windows_claimed: u64,
    /// Endings in a row that were neither succeeded nor cancelled.
    failures: u32,
    /// When it was created.
    #[schema(format = DateTime)]
    created_at: String,
    /// The version of its stream.
    version: u64,
}

/// How a run of a routine ended, or what its windows ended as without one.
#[derive(ToSchema)]
pub(crate) struct Ending {
    /// An outcome, `missed` or `skipped`.
    outcome: String,
    /// Why.
    reason: Option<String>,
    /// When that was recorded.
    #[schema(format = DateTime)]
    at: String,
    /// The run; of a skipped window, the one that was live.
    #[schema(format = Uuid)]
    run: Option<String>,
    /// The window; of several missed ones, the last.
    #[schema(format = DateTime)]
    window: Option<String>,
    /// How many windows ended so.
    count: u64,
}

/// How a run is bounded.
#[derive(ToSchema)]
#[schema(as = LimitsInForce)]
pub(crate) struct Limits {
    /// How late a window may still be claimed, in seconds.
    grace_s: u32,
    /// How long a run may last, in seconds from its take.
    deadline_s: u32,
    /// How many turns a run may take.
    max_turns: u32,
    /// How many windows may be claimed in all; absent for any number.
    #[schema(required = false)]
    max_runs: Option<u64>,
    /// What becomes of windows later than the grace; absent where they are recorded, else `{"run_once_within_s": …}`.
    #[schema(value_type = Option<Object>, required = false)]
    missed: Option<String>,
    /// `queue_one` or `cancel_live`; absent where a window that finds the previous run live is skipped.
    #[schema(required = false)]
    overlap: Option<String>,
    /// How a run that failed before anything acted is tried again; absent where it is not.
    #[schema(required = false)]
    retry: Option<Retry>,
}

/// How a run that failed before anything acted is tried again.
#[derive(ToSchema)]
pub(crate) struct Retry {
    /// How many more times.
    times: u32,
    /// How long before the first of them, in seconds; each further wait is twice as long.
    backoff_s: u32,
}

/// A window that nobody can run at present.
#[derive(ToSchema)]
pub(crate) struct Held {
    /// The window.
    #[schema(format = DateTime)]
    window: String,
    /// `no_runner` or `bot_unreachable`.
    reason: String,
    /// When that was found.
    #[schema(format = DateTime)]
    since: String,
}

/// How a run went for its runner, which said so after the run had been ended by somebody else.
#[derive(ToSchema)]
pub(crate) struct LateReport {
    /// How.
    outcome: String,
    /// Why.
    reason: Option<String>,
    /// One line that says how it went.
    headline: Option<String>,
    /// When that was recorded.
    #[schema(format = DateTime)]
    at: String,
}

/// A run.
#[derive(ToSchema)]
pub(crate) struct Run {
    /// The run.
    #[schema(format = Uuid)]
    id: String,
    /// The routine it belongs to.
    #[schema(format = Uuid)]
    routine: Option<String>,
    /// The trigger it came through.
    #[schema(format = Uuid)]
    trigger: Option<String>,
    /// The delivery it answers.
    #[schema(format = Uuid)]
    delivery: Option<String>,
    /// The delivery's event type.
    event_type: Option<String>,
    /// Who does the work.
    #[schema(format = Uuid)]
    bot: String,
    /// Whose rights it has.
    #[schema(format = Uuid)]
    owner: String,
    /// `schedule`, `catch_up`, `person`, `delivery` or `session`.
    cause: String,
    /// The window, by its own time.
    #[schema(format = DateTime)]
    window: Option<String>,
    /// `instruction` or `recording`.
    work: String,
    /// `waiting`, `running` or `ended`.
    state: String,
    /// How it ended.
    outcome: Option<String>,
    /// Why.
    reason: Option<String>,
    /// When it was claimed.
    #[schema(format = DateTime)]
    opened_at: String,
    /// When a runner took it, the last time.
    #[schema(format = DateTime)]
    taken_at: Option<String>,
    /// When it ended.
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// Which take it is in, from 1; 0 while it waits.
    take: u32,
    /// The process that took it.
    #[schema(format = Uuid)]
    worker: Option<String>,
    /// The instant at which it is out of time.
    #[schema(format = DateTime)]
    deadline: Option<String>,
    /// How long it may last, in seconds from its take.
    deadline_s: u32,
    /// How many turns it may take.
    max_turns: u32,
    /// Turns started.
    turns: u32,
    /// Calls decided.
    tool_calls: u32,
    /// Of those, how many were refused.
    refused_calls: u32,
    /// From its take to its ending, in microseconds.
    duration_us: Option<u64>,
    /// Attempts that failed before anything acted.
    attempts_failed: u32,
    /// When the next attempt begins, while it waits for that.
    #[schema(format = DateTime)]
    retry_at: Option<String>,
    /// What its runner said after the run had been ended by somebody else.
    late: Option<LateReport>,
    /// One line that says how it went.
    headline: Option<String>,
    /// Whether nobody was watching as it opened.
    unattended: bool,
    /// The version of its stream.
    version: u64,
    /// The position of its last event.
    position: u64,
}

/// One step of a run.
#[derive(ToSchema)]
pub(crate) struct Step {
    /// The run.
    #[schema(format = Uuid)]
    run: String,
    /// Where it stands in the ledger.
    position: u64,
    /// When it was recorded.
    #[schema(format = DateTime)]
    at: String,
    /// The event's type, such as `run.tool_call_decided`.
    event: String,
    /// Who did it.
    actor: String,
    /// The turn, from 1; 0 in a recording.
    turn: Option<u32>,
    /// One line for people.
    title: String,
    /// What else is known, under the name of what happened: `opened`, `taken`, `decided`, `call_ended`, `ended` …
    #[schema(value_type = Object)]
    detail: String,
}

/// One row of the audit view. An event that is no decision has no decision.
#[derive(ToSchema)]
pub(crate) struct AuditRow {
    /// Where it stands in the ledger.
    position: u64,
    /// When it was recorded.
    #[schema(format = DateTime)]
    at: String,
    /// The event's type.
    event: String,
    /// Who did it.
    actor: String,
    /// The Bot.
    #[schema(format = Uuid)]
    bot: Option<String>,
    /// The routine.
    #[schema(format = Uuid)]
    routine: Option<String>,
    /// The run.
    #[schema(format = Uuid)]
    run: Option<String>,
    /// The trigger.
    #[schema(format = Uuid)]
    trigger: Option<String>,
    /// The delivery.
    #[schema(format = Uuid)]
    delivery: Option<String>,
    /// The tool.
    tool: Option<String>,
    /// What the boundary said: `allow`, `ask` or `deny`.
    verdict: Option<String>,
    /// What came of it: `allowed`, `refused` or `asked`.
    decision: Option<String>,
    /// The rule that decided.
    rule: Option<String>,
    /// Every rule that matched, in the document's order.
    matched: Vec<String>,
    /// Whether the verdict was enforced.
    enforced: Option<bool>,
    /// The boundary's version.
    boundary: Option<u64>,
    /// Whether nobody was watching; null where the event does not say.
    unattended: Option<bool>,
    /// Why the run runs.
    cause: Option<String>,
    /// How often the Bot made this call inside the window.
    repeat_count: Option<u32>,
    /// How it ended.
    outcome: Option<String>,
    /// Why.
    reason: Option<String>,
    /// What it is about, in a few words.
    subject: Option<String>,
    /// What the call acted on.
    fingerprint: Option<String>,
}

/// Where a projection stands.
#[derive(ToSchema)]
pub(crate) struct ProjectionStatus {
    /// The projection.
    name: String,
    /// The position its rows are as of.
    position: u64,
    /// Events that are not in it yet.
    behind: u64,
    /// How long ago the first of them was recorded, in milliseconds; 0 where there is none.
    lag_ms: u64,
    /// The position and the reason, if an event stopped it.
    #[schema(value_type = Option<Vec<Object>>)]
    stopped: Option<String>,
}

/// What went wrong (RFC 9457).
#[derive(ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the code says which problem it is.
    r#type: String,
    /// The status in words.
    title: String,
    /// The status.
    status: u16,
    /// One sentence for a person.
    detail: String,
    /// Which of the four kinds it is.
    kind: crate::error::Kind,
    /// A word for programs; stable.
    code: String,
    /// What exactly is wrong with a document, and where.
    findings: Option<Vec<crate::error::Finding>>,
}

/// What somebody may do.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Access {
    /// Everything.
    Admin,
    /// Sees and changes their own routines.
    Member,
    /// Reads everything, changes nothing.
    Auditor,
}

/// What daylight saving did to a fixed local time.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum Dst {
    /// Nothing.
    None,
    /// The local time did not exist on that day and was moved forward by the gap.
    Moved,
    /// The local time happened twice on that day; this is the first.
    FirstOfTwo,
}
