//! Runs: streams `run-{id}`. One execution from its claim to its ending.
//!
//! A decision is appended before anything acts, and the outcome after; both carry the same facts, so that neither
//! row needs the other to be read.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{ApprovalId, BlobId, BotId, CallId, DeliveryId, ProcessId, RoutineId, RunId, TriggerId, UserId},
    key::Digest,
    time::Micros,
};

pub use crate::routine::Work;

/// What can happen in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunEvent {
    /// A claim opened it; it waits for a runner.
    #[serde(rename = "run.opened/1")]
    Opened(Opened),
    /// A runner took it: lease, deadline and silence count from here.
    #[serde(rename = "run.taken/1")]
    Taken {
        /// Which take this is, from 1. A command that carries another take is refused.
        take: u32,
        /// The process that took it.
        worker: ProcessId,
        /// The store's time at which the run is out of time.
        deadline_us: Micros,
    },
    /// The Bot was asked to go on.
    #[serde(rename = "run.turn_started/1")]
    TurnStarted {
        /// Which turn, from 1.
        turn: u32,
    },
    /// The Bot answered, with words, calls or both.
    #[serde(rename = "run.turn_finished/1")]
    TurnFinished {
        /// Which turn, from 1.
        turn: u32,
        /// How many calls it asks for.
        calls: u32,
    },
    /// The gateway judged one tool call. Nothing has acted yet.
    #[serde(rename = "run.tool_call_decided/1")]
    ToolCallDecided(Decision),
    /// A tool call that was let through has an outcome.
    #[serde(rename = "run.tool_call_ended/1")]
    ToolCallEnded {
        /// The decision it followed from.
        decision: Decision,
        /// What became of it.
        result: CallResult,
        /// HMAC of the result or error text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result_digest: Option<Digest>,
        /// Length of the result or error text in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result_bytes: Option<u64>,
        /// How long the act took, in microseconds; absent when unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_us: Option<u64>,
    },
    /// It failed before anything acted, and is tried again.
    #[serde(rename = "run.attempt_failed/1")]
    AttemptFailed {
        /// Which attempt this was, from 1.
        n: u32,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// When the next one begins.
        retry_at_us: Micros,
    },
    /// A rule said to ask a person about one exact call, and it waits.
    #[serde(rename = "run.approval_requested/1")]
    ApprovalRequested(ApprovalRequested),
    /// An approval has its one answer. Who gave it is the event's actor: a person, the clock when time was up, the
    /// engine when nothing waits for it any more.
    #[serde(rename = "run.approval_answered/1")]
    ApprovalAnswered(ApprovalAnswered),
    /// The run is over.
    #[serde(rename = "run.ended/1")]
    Ended(Ended),
    /// The outcome of a call that had been marked as unknown arrived after the run was over. It changes nothing.
    #[serde(rename = "run.call_outcome_late/1")]
    CallOutcomeLate {
        /// The decision it followed from.
        decision: Decision,
        /// What became of it.
        result: CallResult,
        /// HMAC of the result or error text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result_digest: Option<Digest>,
        /// Length of the result or error text in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result_bytes: Option<u64>,
        /// How long the act took, in microseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_us: Option<u64>,
    },
    /// Its runner said how it went after the run had been ended by somebody else. It changes nothing.
    #[serde(rename = "run.reported_late/1")]
    ReportedLate {
        /// The process that reports.
        worker: ProcessId,
        /// How it went there.
        outcome: Outcome,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunContent {
    /// Beside [`RunEvent::Opened`].
    #[serde(rename = "run.opened/1")]
    Opened {
        /// What it is to do.
        work: Work,
    },
    /// Beside [`RunEvent::TurnFinished`].
    #[serde(rename = "run.turn_finished/1")]
    TurnFinished {
        /// The messages of this turn, as JSON text.
        messages: String,
    },
    /// Beside [`RunEvent::ToolCallDecided`].
    #[serde(rename = "run.tool_call_decided/1")]
    ToolCallDecided {
        /// The arguments as JSON text, secrets redacted.
        arguments: String,
        /// What the rules saw: what differs from neutral, as JSON text.
        context: String,
        /// The fingerprint for people.
        fingerprint: String,
    },
    /// Beside [`RunEvent::ToolCallEnded`].
    #[serde(rename = "run.tool_call_ended/1")]
    ToolCallEnded {
        /// The result or error text, redacted, where it is short enough.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        /// Where a longer one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobRef>,
    },
    /// Beside [`RunEvent::AttemptFailed`].
    #[serde(rename = "run.attempt_failed/1")]
    AttemptFailed {
        /// What went wrong.
        error: String,
    },
    /// Beside [`RunEvent::ApprovalRequested`].
    #[serde(rename = "run.approval_requested/1")]
    ApprovalRequested {
        /// What the call would act on, for people.
        fingerprint: String,
        /// Its arguments as JSON text, secrets redacted.
        arguments: String,
    },
    /// Beside [`RunEvent::Ended`].
    #[serde(rename = "run.ended/1")]
    Ended {
        /// One line that says how it went.
        headline: String,
        /// What went wrong, if anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Beside [`RunEvent::CallOutcomeLate`].
    #[serde(rename = "run.call_outcome_late/1")]
    CallOutcomeLate {
        /// The result or error text, redacted, where it is short enough.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<String>,
        /// Where a longer one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobRef>,
    },
    /// Beside [`RunEvent::ReportedLate`].
    #[serde(rename = "run.reported_late/1")]
    ReportedLate {
        /// One line that says how it went.
        headline: String,
        /// What went wrong, if anything.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

impl Family for RunEvent {
    type Content = RunContent;
    const NAME: &'static str = "run";
}

/// A claim opened a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The run.
    pub run: RunId,
    /// Who does the work.
    pub bot: BotId,
    /// Whose rights it has: the owner's, as a member.
    pub owner: UserId,
    /// The routine it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineId>,
    /// The trigger it came through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerId>,
    /// The delivery it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryId>,
    /// The delivery's event type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Why it runs.
    pub cause: Cause,
    /// The window, by its own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_us: Option<Micros>,
    /// What kind of work it is.
    pub work: WorkKind,
    /// How long it may last, in seconds from its take.
    pub deadline_s: u32,
    /// How many turns it may take.
    pub max_turns: u32,
    /// Whether nobody is watching as it opens.
    pub unattended: bool,
    /// Whether it is tried again when it fails before anything acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<crate::routine::Retry>,
}

/// The verdict on one tool call, with the rule and the inputs that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The call.
    pub call: CallId,
    /// Its place among the run's calls, from 1.
    pub ordinal: u32,
    /// The turn it was made in, from 1; 0 in a recording.
    pub turn: u32,
    /// The step of the recording, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The tool.
    pub tool: String,
    /// What the call is for, such as `write_file`.
    pub intent: String,
    /// What the boundary said.
    pub verdict: Verdict,
    /// What came of it.
    pub decision: DecisionKind,
    /// Why it was refused, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalCause>,
    /// Whether the verdict was enforced, or only noted (dry run).
    pub enforced: bool,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Every rule that matched, in the document's order, shadow rules too.
    pub matched: Vec<String>,
    /// Rules that could not be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<String>,
    /// Whether nobody was watching.
    pub unattended: bool,
    /// Why the run ran.
    pub cause: Cause,
    /// The run.
    pub run: RunId,
    /// The Bot.
    pub bot: BotId,
    /// The run's routine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineId>,
    /// The run's trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerId>,
    /// The boundary's version it was judged by.
    pub boundary: u64,
    /// HMAC over what makes two calls the same call.
    pub fingerprint: Digest,
    /// How often this Bot made this call inside the window, this attempt included.
    pub repeat_count: u32,
    /// How many of those ended with the same result.
    pub repeat_same_result: u32,
    /// How often a sequence of 2 to 5 calls has come round.
    pub repeat_cycle: u32,
    /// The approval it waits for, or that let it through: one that lets a call through is spent by this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
}

/// A rule said to ask a person about one exact call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// The approval.
    pub approval: ApprovalId,
    /// The call that asked first.
    pub call: CallId,
    /// HMAC over Bot, tool, the tool's definition, target, arguments and boundary version: what is answered.
    pub digest: Digest,
    /// The tool.
    pub tool: String,
    /// The rule that says to ask.
    pub rule: String,
    /// The boundary's version.
    pub boundary: u64,
    /// Who may answer.
    pub approvers: Approvers,
    /// Whose rights the run has.
    pub owner: UserId,
    /// Whether nobody was watching.
    pub unattended: bool,
    /// The run.
    pub run: RunId,
    /// The Bot.
    pub bot: BotId,
    /// The run's routine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineId>,
    /// The run's trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerId>,
    /// The store's time at which it expires.
    pub expires_us: Micros,
}

/// An approval has its one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAnswered {
    /// The approval.
    pub approval: ApprovalId,
    /// The call that asked first.
    pub call: CallId,
    /// What it says.
    pub answer: ApprovalAnswer,
    /// The digest that was answered.
    pub digest: Digest,
    /// The tool.
    pub tool: String,
    /// The rule that said to ask.
    pub rule: String,
    /// The run.
    pub run: RunId,
    /// The Bot.
    pub bot: BotId,
    /// The run's routine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineId>,
    /// The run's trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerId>,
}

/// What became of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalAnswer {
    /// A person said yes.
    Approved,
    /// A person said no.
    Declined,
    /// Nobody answered in time.
    Expired,
    /// Nothing waits for it any more: its run ended, or the call was judged anew.
    Withdrawn,
}

/// Who may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approvers {
    /// Admins and the owner.
    Any,
    /// Admins who are not the owner.
    NotOwner,
}

/// The run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The run.
    pub run: RunId,
    /// The Bot.
    pub bot: BotId,
    /// The run's routine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineId>,
    /// The run's trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerId>,
    /// Why it ran.
    pub cause: Cause,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Whether nobody was watching as it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<bool>,
    /// Turns taken.
    pub turns: u32,
    /// Tool calls decided.
    pub tool_calls: u32,
    /// Of those, how many were refused.
    pub refused_calls: u32,
    /// From its take to here, in microseconds; absent when nobody took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
}

/// Bytes that are too long for an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// Where they are.
    pub blob: BlobId,
    /// How many bytes.
    pub length: u64,
    /// Hashed before the bytes.
    pub salt: crate::key::Bytes,
    /// SHA-256 over salt and bytes.
    pub digest: Digest,
}

/// What kind of work a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// A Bot is told what to do.
    Instruction,
    /// Tool steps are replayed without a model.
    Recording,
    /// An agent that runs elsewhere makes calls; nothing is done here by itself.
    Session,
}

/// Why a run runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A window was due.
    Schedule,
    /// A window was missed, and this is the one catch-up for it.
    CatchUp,
    /// A person asked for it: Run now.
    Person,
    /// A sender's delivery.
    Delivery,
    /// An agent that runs elsewhere.
    Session,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The Bot or recording finished.
    Succeeded,
    /// It could not be done.
    Failed,
    /// A step of a recording was refused.
    Refused,
    /// A limit stopped it.
    Stopped,
    /// It took too long.
    TimedOut,
    /// Somebody or something called it off.
    Cancelled,
    /// Nobody works on it any more.
    Abandoned,
}

/// Why a run ended as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Failed: something went wrong; the content says what.
    Error,
    /// Failed: the Bot's endpoint did not answer.
    BotUnreachable,
    /// Failed: a recording failed and the Bot could not take over.
    HandOverFailed,
    /// Stopped: the turn limit.
    Turns,
    /// Stopped: the token limit.
    Tokens,
    /// Stopped: the money limit.
    Money,
    /// Stopped: going in circles.
    Repeat,
    /// Timed out: the deadline.
    Deadline,
    /// Timed out: no progress.
    Silence,
    /// Cancelled: by a person.
    Person,
    /// Cancelled: a newer window replaced it.
    Replaced,
    /// Cancelled: by a scheduling halt.
    Halt,
    /// Cancelled: its Bot was stopped.
    BotStopped,
    /// Abandoned: its runner's lease ran out.
    Lease,
    /// Abandoned: no runner took it in time.
    NoRunner,
}

/// What a boundary says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Let it through.
    Allow,
    /// Ask a person.
    Ask,
    /// Refuse it.
    Deny,
}

/// What came of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// It may act.
    Allowed,
    /// It never acts.
    Refused,
    /// It waits for a person.
    Asked,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCause {
    /// A deny rule.
    Rule,
    /// No rule matched.
    NoRule,
    /// A rule says to ask, and nobody is there.
    AskUnattended,
    /// There is no such tool.
    UnknownTool,
    /// The Bot is not granted this tool.
    NotGranted,
    /// The arguments are not what the tool takes.
    BadArguments,
    /// The rules could not be judged in time, or at all.
    Unjudged,
    /// Too many processes made the same call at once.
    Contended,
    /// A person was asked and said no.
    Declined,
    /// A person was asked and nobody answered in time.
    Expired,
    /// The tool is not defined any more as it was when a person accepted it.
    DefinitionChanged,
}

/// What became of a call that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    /// It came back with a result.
    Finished,
    /// It came back with an error.
    Failed,
    /// Nobody knows whether it acted.
    Unknown,
}
