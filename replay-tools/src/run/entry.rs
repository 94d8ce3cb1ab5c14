//! What a timeline is made of.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{ApprovalId, CallId, ProcessId},
    key::Digest,
    repeat::{RepeatContent, RepeatEvent},
    run::{
        ApprovalAnswer, ApprovalRequested, Approvers, CallResult, Decision, DecisionKind, Ended, Outcome, Reason,
        RefusalCause, RunContent, RunEvent, Verdict,
    },
};
use midwatch_projections::projection::rfc3339;
use serde::Serialize;

use super::opening::{Opening, opening};
use crate::{Words, titles::title};

/// One step of a run: `{position, at, event, actor, title, kind, …}`, with the members of its kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Where it stands in the ledger.
    pub position: u64,
    /// When it was recorded.
    #[serde(with = "rfc3339")]
    pub at: Micros,
    /// The event's wire name, such as `run.tool_call_decided/1`.
    pub event: String,
    /// Who did it.
    pub actor: String,
    /// One line for people.
    pub title: String,
    /// What it is.
    #[serde(flatten)]
    pub what: What,
}

/// What a step is; in JSON the member `kind` says which.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// A claim opened the run.
    Opened(Box<Opening>),
    /// A runner took it.
    Taken {
        /// Which take, from 1.
        take: u32,
        /// The process.
        worker: ProcessId,
        /// The instant at which the run is out of time.
        #[serde(with = "rfc3339")]
        deadline: Micros,
    },
    /// The Bot was asked to go on.
    TurnStarted {
        /// Which turn, from 1.
        turn: u32,
    },
    /// The Bot answered.
    TurnFinished {
        /// Which turn, from 1.
        turn: u32,
        /// How many calls it asks for.
        calls: u32,
        /// The messages of the turn, as JSON text.
        messages: Option<Words>,
    },
    /// A call was judged; nothing has acted yet.
    Decided(Box<Decided>),
    /// A call that was let through has an outcome.
    CallEnded(CallEnded),
    /// Equal calls reached a threshold.
    Repeated(Repeated),
    /// A person was asked about one exact call.
    Asked(Box<Asked>),
    /// And that came of it.
    Answered {
        /// The approval.
        approval: ApprovalId,
        /// The call that asked first.
        call: CallId,
        /// The tool.
        tool: String,
        /// The rule that said to ask.
        rule: String,
        /// What came of it.
        answer: ApprovalAnswer,
        /// The digest that was answered.
        digest: Digest,
    },
    /// The run is over.
    Ended(Ending),
    /// It failed before anything acted, and is tried again.
    AttemptFailed {
        /// Which attempt, from 1.
        n: u32,
        /// Why.
        reason: Option<Reason>,
        /// When the next one begins.
        #[serde(with = "rfc3339")]
        retry_at: Micros,
        /// What went wrong.
        error: Option<Words>,
    },
    /// The outcome of a call arrived after the run was over. It changed nothing.
    CallLate(CallEnded),
    /// Its runner said how it went after the run had been ended by somebody else. It changed nothing.
    ReportedLate {
        /// The process that reports.
        worker: ProcessId,
        /// How it went there.
        outcome: Outcome,
        /// Why.
        reason: Option<Reason>,
        /// One line that says how it went.
        headline: Option<Words>,
        /// What went wrong, if anything.
        error: Option<Words>,
    },
    /// A newer version of Midwatch wrote it; only its place is known here.
    Unknown {},
}

/// A decision, with the rule and the inputs that gave it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// The call.
    pub call: CallId,
    /// Its place among the run's calls, from 1.
    pub ordinal: u32,
    /// The turn, from 1; 0 in a recording.
    pub turn: u32,
    /// The step of the recording, from 1.
    pub step: Option<u32>,
    /// The tool.
    pub tool: String,
    /// What the call is for.
    pub intent: String,
    /// The arguments as JSON text, secrets redacted.
    pub arguments: Option<Words>,
    /// What the rules saw, where it differs from neutral, as JSON text.
    pub context: Option<Words>,
    /// What makes two calls the same call, for people.
    pub same_as: Option<Words>,
    /// And as it was counted.
    pub fingerprint: Digest,
    /// What the boundary said.
    pub verdict: Verdict,
    /// What came of it.
    pub decision: DecisionKind,
    /// Why it was refused, where it was.
    pub refusal: Option<RefusalCause>,
    /// Whether the verdict was enforced, or only noted.
    pub enforced: bool,
    /// The rule that decided.
    pub rule: Option<String>,
    /// Every rule that matched, in the document's order.
    pub matched: Vec<String>,
    /// Rules that could not be evaluated.
    pub broken: Vec<String>,
    /// The boundary's version.
    pub boundary: u64,
    /// Whether nobody was watching.
    pub unattended: bool,
    /// How often the Bot made this call inside the window, this attempt included.
    pub repeat_count: u32,
    /// How many of those ended with the same result.
    pub repeat_same_result: u32,
    /// How often a sequence of 2 to 5 calls has come round.
    pub repeat_cycle: u32,
    /// The approval it waits for, or that let it through.
    pub approval: Option<ApprovalId>,
}

/// What a person was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Asked {
    /// The approval.
    pub approval: ApprovalId,
    /// The call that asked first.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// The rule that says to ask.
    pub rule: String,
    /// The boundary's version.
    pub boundary: u64,
    /// Who may answer.
    pub approvers: Approvers,
    /// What is answered.
    pub digest: Digest,
    /// Whether nobody was watching.
    pub unattended: bool,
    /// When it expires.
    #[serde(with = "rfc3339")]
    pub expires: Micros,
    /// What the call would act on.
    pub target: Option<Words>,
    /// Its arguments as JSON text, secrets redacted.
    pub arguments: Option<Words>,
}

/// What became of a call that was let through.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallEnded {
    /// The call.
    pub call: CallId,
    /// Its place among the run's calls, from 1.
    pub ordinal: u32,
    /// The tool.
    pub tool: String,
    /// What became of it; `unknown` where nobody knows whether it acted.
    pub result: CallResult,
    /// The result or error text, redacted.
    pub text: Option<Words>,
    /// Its length in bytes.
    pub result_bytes: Option<u64>,
    /// How long the act took, in microseconds.
    pub duration_us: Option<u64>,
}

/// Equal calls reached a threshold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeated {
    /// The call that reached it.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What makes the calls the same, for people.
    pub same_as: Option<Words>,
    /// The threshold.
    pub threshold: u32,
    /// How many there were inside the window.
    pub count: u32,
    /// Whether nobody was watching.
    pub unattended: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ending {
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Reason>,
    /// One line that says how it went.
    pub headline: Option<Words>,
    /// What went wrong, if anything.
    pub error: Option<Words>,
    /// Turns taken.
    pub turns: u32,
    /// Calls decided.
    pub tool_calls: u32,
    /// Of those, how many were refused.
    pub refused_calls: u32,
    /// From its take to here, in microseconds; null when nobody took it.
    pub duration_us: Option<u64>,
    /// Whether nobody was watching as it ended; null where the event does not say.
    pub unattended: Option<bool>,
}

/// The step an event is. What else an opening says is looked up later.
pub(super) fn of(event: &AnyEvent, recorded: &Recorded) -> Entry {
    let what = match event {
        AnyEvent::Run(event, content) => of_run(event, content.as_ref(), recorded),
        AnyEvent::Repeat(event, content) => of_repeat(event, content.as_ref(), recorded),
        AnyEvent::Bot(_)
        | AnyEvent::Boundary(..)
        | AnyEvent::Delivery(..)
        | AnyEvent::Engine(..)
        | AnyEvent::Routine(..)
        | AnyEvent::Trigger(..)
        | AnyEvent::User(..) => What::Unknown {},
    };
    entry(recorded, title(event, recorded), what)
}

/// A step that a newer version wrote.
pub(super) fn unknown(recorded: &Recorded, wire: String) -> Entry {
    entry(recorded, format!("{wire}, which a newer version of Midwatch wrote"), What::Unknown {})
}

fn entry(recorded: &Recorded, title: String, what: What) -> Entry {
    Entry {
        position: recorded.position,
        at: recorded.recorded_at,
        event: recorded.wire(),
        actor: recorded.actor.clone(),
        title,
        what,
    }
}

fn of_run(event: &RunEvent, content: Option<&RunContent>, recorded: &Recorded) -> What {
    match event {
        RunEvent::Opened(opened) => What::Opened(Box::new(opening(opened, content, recorded))),
        RunEvent::Taken { take, worker, deadline_us } => {
            What::Taken { take: *take, worker: *worker, deadline: *deadline_us }
        }
        RunEvent::TurnStarted { turn } => What::TurnStarted { turn: *turn },
        RunEvent::TurnFinished { turn, calls } => {
            let messages = Words::of(recorded, content, |content| match content {
                RunContent::TurnFinished { messages } => Some(Words::text(messages)),
                _ => None,
            });
            What::TurnFinished { turn: *turn, calls: *calls, messages }
        }
        RunEvent::ToolCallDecided(decision) => What::Decided(Box::new(decided(decision, content, recorded))),
        RunEvent::ToolCallEnded { decision, result, result_digest: _, result_bytes, duration_us } => {
            let text = Words::of(recorded, content, |content| match content {
                RunContent::ToolCallEnded { blob: Some(blob), .. } => Some(Words::blob(blob)),
                RunContent::ToolCallEnded { result: Some(result), .. } => Some(Words::text(result)),
                _ => None,
            });
            What::CallEnded(call_ended(decision, *result, text, *result_bytes, *duration_us))
        }
        RunEvent::ApprovalRequested(requested) => What::Asked(Box::new(asked(requested, content, recorded))),
        RunEvent::ApprovalAnswered(answered) => What::Answered {
            approval: answered.approval,
            call: answered.call,
            tool: answered.tool.clone(),
            rule: answered.rule.clone(),
            answer: answered.answer,
            digest: answered.digest,
        },
        RunEvent::Ended(ended) => What::Ended(ending(ended, content, recorded)),
        RunEvent::AttemptFailed { n, reason, retry_at_us } => {
            let error = Words::of(recorded, content, |content| match content {
                RunContent::AttemptFailed { error } => Some(Words::text(error)),
                _ => None,
            });
            What::AttemptFailed { n: *n, reason: *reason, retry_at: *retry_at_us, error }
        }
        RunEvent::CallOutcomeLate { decision, result, result_digest: _, result_bytes, duration_us } => {
            let text = Words::of(recorded, content, |content| match content {
                RunContent::CallOutcomeLate { blob: Some(blob), .. } => Some(Words::blob(blob)),
                RunContent::CallOutcomeLate { result: Some(result), .. } => Some(Words::text(result)),
                _ => None,
            });
            What::CallLate(call_ended(decision, *result, text, *result_bytes, *duration_us))
        }
        RunEvent::ReportedLate { worker, outcome, reason } => {
            let headline = Words::of(recorded, content, |content| match content {
                RunContent::ReportedLate { headline, .. } => Some(Words::text(headline)),
                _ => None,
            });
            let error = Words::of(recorded, content, |content| match content {
                RunContent::ReportedLate { error: Some(error), .. } => Some(Words::text(error)),
                _ => None,
            });
            What::ReportedLate { worker: *worker, outcome: *outcome, reason: *reason, headline, error }
        }
    }
}

fn call_ended(
    decision: &Decision,
    result: CallResult,
    text: Option<Words>,
    result_bytes: Option<u64>,
    duration_us: Option<u64>,
) -> CallEnded {
    let (call, ordinal, tool) = (decision.call, decision.ordinal, decision.tool.clone());
    CallEnded { call, ordinal, tool, result, text, result_bytes, duration_us }
}

fn asked(asked: &ApprovalRequested, content: Option<&RunContent>, recorded: &Recorded) -> Asked {
    let word = |pick: fn(&(&String, &String)) -> String| {
        Words::of(recorded, content, |content| match content {
            RunContent::ApprovalRequested { fingerprint, arguments } => {
                Some(Words::text(pick(&(fingerprint, arguments))))
            }
            _ => None,
        })
    };
    Asked {
        approval: asked.approval,
        call: asked.call,
        tool: asked.tool.clone(),
        rule: asked.rule.clone(),
        boundary: asked.boundary,
        approvers: asked.approvers,
        digest: asked.digest,
        unattended: asked.unattended,
        expires: asked.expires_us,
        target: word(|(fingerprint, _)| (*fingerprint).clone()),
        arguments: word(|(_, arguments)| (*arguments).clone()),
    }
}

fn decided(decision: &Decision, content: Option<&RunContent>, recorded: &Recorded) -> Decided {
    let word = |pick: fn(&(&String, &String, &String)) -> String| {
        Words::of(recorded, content, |content| match content {
            RunContent::ToolCallDecided { arguments, context, fingerprint } => {
                Some(Words::text(pick(&(arguments, context, fingerprint))))
            }
            _ => None,
        })
    };
    let decision = decision.clone();
    Decided {
        call: decision.call,
        ordinal: decision.ordinal,
        turn: decision.turn,
        step: decision.step,
        tool: decision.tool,
        intent: decision.intent,
        arguments: word(|(arguments, _, _)| (*arguments).clone()),
        context: word(|(_, context, _)| (*context).clone()),
        same_as: word(|(_, _, fingerprint)| (*fingerprint).clone()),
        fingerprint: decision.fingerprint,
        verdict: decision.verdict,
        decision: decision.decision,
        refusal: decision.refusal,
        enforced: decision.enforced,
        rule: decision.rule,
        matched: decision.matched,
        broken: decision.broken,
        boundary: decision.boundary,
        unattended: decision.unattended,
        repeat_count: decision.repeat_count,
        repeat_same_result: decision.repeat_same_result,
        repeat_cycle: decision.repeat_cycle,
        approval: decision.approval,
    }
}

fn ending(ended: &Ended, content: Option<&RunContent>, recorded: &Recorded) -> Ending {
    let headline = Words::of(recorded, content, |content| match content {
        RunContent::Ended { headline, .. } => Some(Words::text(headline)),
        _ => None,
    });
    let error = Words::of(recorded, content, |content| match content {
        RunContent::Ended { error: Some(error), .. } => Some(Words::text(error)),
        _ => None,
    });
    Ending {
        outcome: ended.outcome,
        reason: ended.reason,
        headline,
        error,
        turns: ended.turns,
        tool_calls: ended.tool_calls,
        refused_calls: ended.refused_calls,
        duration_us: ended.duration_us,
        unattended: ended.unattended,
    }
}

fn of_repeat(event: &RepeatEvent, content: Option<&RepeatContent>, recorded: &Recorded) -> What {
    match event {
        RepeatEvent::ThresholdCrossed { threshold, count, call, tool, unattended, .. } => {
            let same_as = Words::of(recorded, content, |content| match content {
                RepeatContent::ThresholdCrossed { fingerprint } => Some(Words::text(fingerprint)),
                RepeatContent::Attempted { .. } => None,
            });
            What::Repeated(Repeated {
                call: *call,
                tool: tool.clone(),
                same_as,
                threshold: *threshold,
                count: *count,
                unattended: *unattended,
            })
        }
        RepeatEvent::Attempted { .. } | RepeatEvent::Settled { .. } => What::Unknown {},
    }
}
