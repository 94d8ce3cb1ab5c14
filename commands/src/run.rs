//! Runs: one execution, fenced by its take.
//!
//! Every command of a runner carries its `take`, and any but the current one is refused, whatever was loaded: a
//! worker that was given up can change nothing any more. Holds promise 3 together with the gateway: a call is decided
//! before it acts, and whatever is still open when the run ends is recorded as unknown, never repeated.

mod approvals;

use std::collections::BTreeMap;

use midwatch_events::{
    Micros, New,
    id::{ApprovalId, CallId, ProcessId},
    key::Digest,
    run::{ApprovalRequested, CallResult, Decision, Ended, Opened, Outcome, Reason, RunContent, RunEvent, Work},
    time::SECOND_US,
};
use serde::{Deserialize, Serialize};

use crate::{
    Decider, Refusal,
    mutant::{Mutant, active},
};

pub use approvals::{APPROVAL_S, Answerer, Approval, Asking};

/// A run nobody took for this long is closed, in seconds.
pub const UNTAKEN_S: i64 = 900;
/// A run is closed this long after its deadline whoever holds it, in seconds.
pub const DEADLINE_SLACK_S: i64 = 60;

/// A run as its stream tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it is; none before it was opened.
    pub opened: Option<Opened>,
    /// When it was opened.
    pub opened_at: Micros,
    /// The current take, 0 before the first.
    pub take: u32,
    /// Who holds it.
    pub worker: Option<ProcessId>,
    /// When it was first taken.
    pub taken_at: Option<Micros>,
    /// When its time is over.
    pub deadline: Option<Micros>,
    /// The turn it is in.
    pub turn: u32,
    /// Calls decided.
    pub calls: u32,
    /// Calls refused.
    pub refused: u32,
    /// Fingerprints of its calls, oldest first; what a cycle is seen in.
    pub fingerprints: Vec<Digest>,
    /// Calls that were let through and have no outcome yet.
    pub open_calls: BTreeMap<CallId, Decision>,
    /// Calls that wait for a person, with their place: ordinal and turn.
    pub asked_calls: BTreeMap<CallId, (u32, u32)>,
    /// What persons were asked, oldest first.
    pub approvals: Vec<Approval>,
    /// How it ended.
    pub ended: Option<(Outcome, Option<Reason>)>,
    /// The Bot has answered a turn.
    pub answered: bool,
    /// Attempts that failed before anything acted.
    pub attempts_failed: u32,
    /// When the next attempt begins, while it waits for that.
    pub retry_at: Option<Micros>,
    /// Calls whose outcome nobody knows.
    pub unknown_calls: BTreeMap<CallId, Decision>,
    /// Its runner has said how it went, after it was over.
    pub reported_late: bool,
}

/// What can be asked of a run.
#[derive(Clone, Debug)]
pub enum RunCommand {
    /// A claim opens it.
    Open(Box<Opened>, Work),
    /// A runner takes it.
    Take {
        /// The process.
        worker: ProcessId,
        /// The store's time.
        now: Micros,
    },
    /// The Bot is asked to go on.
    StartTurn {
        /// The runner's take.
        take: u32,
    },
    /// The Bot answered.
    FinishTurn {
        /// The runner's take.
        take: u32,
        /// How many calls it asks for.
        calls: u32,
        /// The messages of this turn, as JSON text.
        messages: String,
    },
    /// The gateway judged a call.
    Decide {
        /// The runner's take.
        take: u32,
        /// The judgement; its ordinal and turn are set here.
        decision: Box<Decision>,
        /// Arguments, context and fingerprint for people.
        content: RunContent,
    },
    /// The gateway judged a call, a rule says to ask, and nobody was asked about this yet.
    Ask {
        /// The runner's take.
        take: u32,
        /// The judgement; its ordinal and turn are set here.
        decision: Box<Decision>,
        /// Arguments, context and fingerprint for people.
        content: RunContent,
        /// What is asked.
        asked: Box<ApprovalRequested>,
        /// Its words.
        words: RunContent,
    },
    /// Somebody answers an approval.
    AnswerApproval {
        /// The approval.
        approval: ApprovalId,
        /// The digest they were shown.
        digest: Digest,
        /// Yes or no.
        yes: bool,
        /// Who they are.
        by: Answerer,
        /// The store's time.
        now: Micros,
    },
    /// Nobody answered an approval in time.
    ExpireApproval {
        /// The approval.
        approval: ApprovalId,
        /// The store's time.
        now: Micros,
    },
    /// Whoever made a call waits no more: what was asked about it is withdrawn.
    WithdrawCall {
        /// The runner's take.
        take: u32,
        /// The call.
        call: CallId,
    },
    /// A call has an outcome.
    EndCall {
        /// The runner's take.
        take: u32,
        /// The call.
        call: CallId,
        /// What became of it.
        result: CallResult,
        /// HMAC of the result.
        result_digest: Digest,
        /// Its length in bytes.
        result_bytes: u64,
        /// How long it took, in microseconds.
        duration_us: u64,
        /// The result itself, or where it is.
        content: RunContent,
    },
    /// It failed before anything acted; it is tried again where its routine says so.
    FailAttempt {
        /// The runner's take.
        take: u32,
        /// Why it failed.
        reason: Option<Reason>,
        /// What went wrong.
        error: String,
        /// The store's time.
        now: Micros,
    },
    /// It is over.
    End(End),
    /// A call's outcome arrives after the run was ended by somebody else.
    EndCallLate {
        /// The take the call was made in.
        take: u32,
        /// The call.
        call: CallId,
        /// What became of it.
        result: CallResult,
        /// HMAC of the result.
        result_digest: Digest,
        /// Its length in bytes.
        result_bytes: u64,
        /// How long it took, in microseconds.
        duration_us: u64,
        /// The result itself, or where it is: as beside an outcome in time.
        content: RunContent,
    },
    /// Its runner says how it went, after the run was ended by somebody else.
    ReportLate {
        /// The process that reports.
        worker: ProcessId,
        /// How it went there.
        end: End,
    },
}

/// How a run ends.
#[derive(Clone, Debug)]
pub struct End {
    /// The runner's take; none when somebody else ends it.
    pub take: Option<u32>,
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Reason>,
    /// One line that says how it went.
    pub headline: String,
    /// What went wrong.
    pub error: Option<String>,
    /// The store's time.
    pub now: Micros,
}

/// Why a run must be closed by whoever notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// Nobody took it in time.
    Untaken,
    /// Its deadline is long over.
    Deadline,
}

impl Run {
    /// What it is, if it is live.
    ///
    /// # Errors
    /// Not opened, or over.
    pub fn live(&self) -> Result<&Opened, Refusal> {
        match (&self.opened, self.ended) {
            (None, _) => Err(Refusal::NotFound("run")),
            (Some(_), Some(_)) => Err(Refusal::RunEnded),
            (Some(opened), None) => Ok(opened),
        }
    }

    /// Whether any process must close it now, lease or not.
    #[must_use]
    pub fn overdue(&self, now: Micros) -> Option<Overdue> {
        self.live().ok()?;
        match self.deadline {
            None => (now.since(self.opened_at) >= UNTAKEN_S * SECOND_US).then_some(Overdue::Untaken),
            Some(deadline) => (now >= deadline.plus_s(DEADLINE_SLACK_S)).then_some(Overdue::Deadline),
        }
    }

    fn held(&self, take: u32) -> Result<&Opened, Refusal> {
        let opened = self.live()?;
        if take == self.take && take != 0 { Ok(opened) } else { Err(Refusal::Stale) }
    }

    /// Whether nothing has acted yet: another attempt then repeats nothing.
    #[must_use]
    pub fn untouched(&self) -> bool {
        self.calls == 0 && self.turn <= 1 && !self.answered
    }

    fn fail_attempt(
        &self,
        take: u32,
        reason: Option<Reason>,
        error: String,
        now: Micros,
    ) -> Result<Vec<New<RunEvent>>, Refusal> {
        let retry = self.held(take)?.retry;
        let safe = self.untouched() && (self.turn == 0 || reason == Some(Reason::BotUnreachable));
        let Some(retry) = retry.filter(|retry| safe && self.attempts_failed < retry.times) else {
            return Ok(vec![]);
        };
        let wait_s = i64::from(retry.backoff_s) << self.attempts_failed.min(16);
        let retry_at_us = now.plus_s(wait_s);
        if self.deadline.is_some_and(|deadline| retry_at_us >= deadline) {
            return Ok(vec![]);
        }
        let facts = RunEvent::AttemptFailed { n: self.attempts_failed + 1, reason, retry_at_us };
        Ok(vec![New::with(facts, RunContent::AttemptFailed { error })])
    }

    /// Of a run that was given up, its last holder may still say what it saw, once.
    fn given_up(&self, take: u32) -> Result<(), Refusal> {
        if self.opened.is_none() {
            return Err(Refusal::NotFound("run"));
        }
        if self.ended.is_none() || take == 0 || take != self.take { Err(Refusal::Stale) } else { Ok(()) }
    }

    /// What arrives after the run was given up.
    fn late(&self, command: RunCommand) -> Result<Vec<New<RunEvent>>, Refusal> {
        Ok(match command {
            RunCommand::EndCallLate { take, call, result, result_digest, result_bytes, duration_us, content } => {
                self.given_up(take)?;
                let decision = self.unknown_calls.get(&call).ok_or(Refusal::NotFound("call without an outcome"))?;
                let facts = RunEvent::CallOutcomeLate {
                    decision: decision.clone(),
                    result,
                    result_digest: Some(result_digest),
                    result_bytes: Some(result_bytes),
                    duration_us: Some(duration_us),
                };
                let content = if let RunContent::ToolCallEnded { result, blob } = content {
                    Some(RunContent::CallOutcomeLate { result, blob })
                } else {
                    None
                };
                vec![New { facts, content }]
            }
            RunCommand::ReportLate { worker, end } => {
                self.given_up(end.take.unwrap_or(0))?;
                if self.reported_late || self.worker != Some(worker) {
                    return Err(Refusal::Stale);
                }
                let facts = RunEvent::ReportedLate { worker, outcome: end.outcome, reason: end.reason };
                let content = RunContent::ReportedLate { headline: end.headline, error: end.error };
                vec![New::with(facts, content)]
            }
            RunCommand::Open(..)
            | RunCommand::Take { .. }
            | RunCommand::StartTurn { .. }
            | RunCommand::FinishTurn { .. }
            | RunCommand::Decide { .. }
            | RunCommand::Ask { .. }
            | RunCommand::AnswerApproval { .. }
            | RunCommand::ExpireApproval { .. }
            | RunCommand::WithdrawCall { .. }
            | RunCommand::EndCall { .. }
            | RunCommand::FailAttempt { .. }
            | RunCommand::End(_) => vec![],
        })
    }

    fn end(&self, end: End) -> Result<Vec<New<RunEvent>>, Refusal> {
        let opened = match end.take {
            Some(take) => self.held(take)?,
            None => self.live()?,
        };
        let mut events = self.withdraw_all();
        let open = self.open_calls.values().filter(|_| !active(Mutant::OpenCallsAreForgotten));
        events.extend(open.map(|decision| {
            let decision = decision.clone();
            let unknown = RunEvent::ToolCallEnded {
                decision,
                result: CallResult::Unknown,
                result_digest: None,
                result_bytes: None,
                duration_us: None,
            };
            New::from(unknown)
        }));
        let ended = Ended {
            unattended: Some(opened.unattended),
            run: opened.run,
            bot: opened.bot,
            routine: opened.routine,
            trigger: opened.trigger,
            cause: opened.cause,
            outcome: end.outcome,
            reason: end.reason,
            turns: self.turn,
            tool_calls: self.calls,
            refused_calls: self.refused,
            duration_us: self.taken_at.map(|taken| end.now.since(taken).max(0).cast_unsigned()),
        };
        let content = RunContent::Ended { headline: end.headline, error: end.error };
        events.push(New::with(RunEvent::Ended(ended), content));
        Ok(events)
    }
}

impl Decider for Run {
    type Event = RunEvent;
    type Command = RunCommand;

    const FOLD_VERSION: u32 = 3;

    fn rests_on_instant(event: &RunEvent) -> bool {
        matches!(event, RunEvent::Opened(_) | RunEvent::Taken { .. })
    }

    fn decide(&self, command: RunCommand) -> Result<Vec<New<RunEvent>>, Refusal> {
        Ok(match command {
            RunCommand::Open(opened, work) => {
                if self.opened.is_some() {
                    return Err(Refusal::Exists("run"));
                }
                vec![New::with(RunEvent::Opened(*opened), RunContent::Opened { work })]
            }
            RunCommand::Take { worker, now } => {
                let opened = self.live()?;
                // Nothing a previous runner began is carried on: a run that was taken is closed as abandoned.
                if self.take != 0 && !active(Mutant::TakeIsNotChecked) {
                    return Err(Refusal::Stale);
                }
                let deadline_us = now.plus_s(i64::from(opened.deadline_s));
                vec![RunEvent::Taken { take: 1, worker, deadline_us }.into()]
            }
            RunCommand::StartTurn { take } => {
                let max = self.held(take)?.max_turns;
                if self.turn >= max {
                    return Err(Refusal::TurnLimit { max });
                }
                vec![RunEvent::TurnStarted { turn: self.turn + 1 }.into()]
            }
            RunCommand::FinishTurn { take, calls, messages } => {
                self.held(take)?;
                let facts = RunEvent::TurnFinished { turn: self.turn, calls };
                vec![New::with(facts, RunContent::TurnFinished { messages })]
            }
            RunCommand::Decide { take, decision, content } => {
                self.held(take)?;
                self.judged(*decision, content, None)?
            }
            RunCommand::Ask { take, decision, content, asked, words } => {
                self.held(take)?;
                self.judged(*decision, content, Some(New::with(RunEvent::ApprovalRequested(*asked), words)))?
            }
            RunCommand::AnswerApproval { approval, digest, yes, by, now } => {
                self.live()?;
                self.answer(approval, &digest, yes, by, now)?
            }
            RunCommand::ExpireApproval { approval, now } => {
                self.live()?;
                self.expire(approval, now)?
            }
            RunCommand::WithdrawCall { take, call } => {
                self.held(take)?;
                self.withdraw_call(call)
            }
            RunCommand::EndCall { take, call, result, result_digest, result_bytes, duration_us, content } => {
                self.held(take)?;
                let decision = self.open_calls.get(&call).ok_or(Refusal::NotFound("open call"))?.clone();
                let facts = RunEvent::ToolCallEnded {
                    decision,
                    result,
                    result_digest: Some(result_digest),
                    result_bytes: Some(result_bytes),
                    duration_us: Some(duration_us),
                };
                vec![New::with(facts, content)]
            }
            RunCommand::FailAttempt { take, reason, error, now } => {
                return self.fail_attempt(take, reason, error, now);
            }
            RunCommand::End(end) => return self.end(end),
            late @ (RunCommand::EndCallLate { .. } | RunCommand::ReportLate { .. }) => return self.late(late),
        })
    }

    fn evolve(&mut self, event: &RunEvent, at: Micros) {
        match event {
            RunEvent::Opened(_) if self.opened.is_some() => {}
            RunEvent::Opened(opened) => {
                self.opened = Some(opened.clone());
                self.opened_at = at;
            }
            RunEvent::Taken { take, worker, deadline_us } => {
                self.take = *take;
                self.worker = Some(*worker);
                self.taken_at.get_or_insert(at);
                self.deadline = Some(*deadline_us);
            }
            RunEvent::TurnStarted { turn } => {
                self.turn = *turn;
                self.retry_at = None;
            }
            RunEvent::TurnFinished { .. } => self.answered = true,
            RunEvent::ToolCallDecided(decision) => self.decided(decision),
            RunEvent::ApprovalRequested(asked) => self.requested(asked),
            RunEvent::ApprovalAnswered(answered) => self.answered_by(answered),
            RunEvent::ToolCallEnded { decision, result, .. } => {
                self.open_calls.remove(&decision.call);
                if *result == CallResult::Unknown {
                    self.unknown_calls.insert(decision.call, decision.clone());
                }
            }
            RunEvent::AttemptFailed { retry_at_us, .. } => {
                self.attempts_failed = self.attempts_failed.saturating_add(1);
                self.retry_at = Some(*retry_at_us);
                // The next attempt begins with its first turn again.
                self.turn = 0;
            }
            RunEvent::CallOutcomeLate { decision, .. } => {
                self.unknown_calls.remove(&decision.call);
            }
            RunEvent::ReportedLate { .. } => self.reported_late = true,
            RunEvent::Ended(ended) => {
                // The first ending stands.
                self.ended.get_or_insert((ended.outcome, ended.reason));
            }
        }
    }
}

/// How often a sequence of 2 to 5 calls has come round at the end of `calls`, the newest included: the largest number
/// of whole repetitions, for the best length; a sequence of equal calls is no cycle (that is a repeat).
#[must_use]
pub fn cycles(calls: &[Digest]) -> u32 {
    let rounds = |length: usize| {
        let Some(last) = calls.len().checked_sub(length).map(|at| &calls[at..]) else { return 0 };
        if last.iter().all(|call| Some(call) == last.first()) {
            return 0;
        }
        calls.rchunks_exact(length).take_while(|chunk| *chunk == last).count()
    };
    let most = (2..=5).map(rounds).max().unwrap_or(0);
    u32::try_from(most).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
