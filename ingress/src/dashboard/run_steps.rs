//! A run's steps as a waterfall: each with its place in time, each call with its decision and what came of it.

use std::collections::BTreeMap;

use midwatch_engine::Engine;
use midwatch_events::{
    Micros, StreamName,
    id::{CallId, RunId},
    run::{CallResult, Decision, RefusalCause, RunContent, RunEvent},
};
use midwatch_projections::run_timeline::{Detail, TimelineRow};

use super::{
    frame::Failure,
    status::Mark,
    text::{Shown, bytes, indented, spaced},
    time::{When, span},
};

/// One line of the waterfall.
pub(crate) struct Step {
    pub(crate) position: u64,
    pub(crate) at: When,
    /// Since the run was opened.
    pub(crate) offset: String,
    /// What kind of step it is, for its shape and colour: `run`, `turn`, `call`, `notice`.
    pub(crate) kind: &'static str,
    pub(crate) title: Shown,
    pub(crate) mark: Option<Mark>,
    /// Where its bar begins and how long it is, in thousandths of the run.
    pub(crate) bar: (u32, u32),
    pub(crate) call: Option<Call>,
    /// What was said or came back.
    pub(crate) words: Vec<Said>,
}

/// Words that belong to a step.
pub(crate) struct Said {
    pub(crate) what: &'static str,
    pub(crate) text: Shown,
}

/// A call with its decision.
pub(crate) struct Call {
    pub(crate) tool: Shown,
    pub(crate) intent: Shown,
    pub(crate) ordinal: u32,
    pub(crate) step: Option<u32>,
    pub(crate) verdict: String,
    pub(crate) rule: Option<Shown>,
    pub(crate) matched: Vec<Shown>,
    pub(crate) broken: Vec<Shown>,
    pub(crate) enforced: bool,
    pub(crate) unattended: bool,
    pub(crate) refusal: Option<&'static str>,
    pub(crate) boundary: u64,
    pub(crate) repeat_count: u32,
    pub(crate) repeat_same_result: u32,
    pub(crate) repeat_cycle: u32,
    pub(crate) result: Option<Mark>,
    pub(crate) took: Option<String>,
    pub(crate) size: Option<String>,
}

/// Why a call was refused, in words.
pub(crate) fn refusal(cause: RefusalCause) -> &'static str {
    match cause {
        RefusalCause::Rule => "a deny rule matched",
        RefusalCause::NoRule => "no rule matched, and what nothing allows is refused",
        RefusalCause::AskUnattended => "a rule says to ask, and nobody was there",
        RefusalCause::UnknownTool => "there is no such tool",
        RefusalCause::NotGranted => "the Bot is not granted this tool",
        RefusalCause::BadArguments => "the arguments are not what the tool takes",
        RefusalCause::Unjudged => "the rules could not be judged",
        RefusalCause::Declined => "a person was asked and said no",
        RefusalCause::Expired => "a person was asked and nobody answered in time",
        RefusalCause::DefinitionChanged => "the tool is not defined as it was accepted",
        RefusalCause::Contended => "too many processes made the same call at once",
    }
}

/// The time a run spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
}

impl Scale {
    /// In thousandths of the run, from 0 to 1000.
    fn place(self, at: Micros) -> u32 {
        let whole = self.to.since(self.from).max(1);
        let part = at.since(self.from).clamp(0, whole);
        u32::try_from(i128::from(part) * 1_000 / i128::from(whole)).unwrap_or(1_000)
    }

    /// A bar that can be seen, however short.
    fn bar(self, from: Micros, to: Micros) -> (u32, u32) {
        let start = self.place(from).min(994);
        (start, self.place(to).saturating_sub(start).max(6))
    }
}

/// The steps of these rows. A call's outcome joins its decision where both are here.
pub(crate) fn steps(
    rows: &[TimelineRow],
    contents: &mut Contents,
    scale: Scale,
    now: Micros,
    words: bool,
) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::with_capacity(rows.len());
    let mut calls: BTreeMap<CallId, usize> = BTreeMap::new();
    let mut turns: BTreeMap<u32, usize> = BTreeMap::new();
    for row in rows {
        let content = contents.0.remove(&row.position);
        let said = said(content, words);
        match &row.detail {
            Detail::CallEnded { decision, result, result_bytes, duration_us } => {
                if let Some(step) = calls.get(&decision.call).and_then(|at| steps.get_mut(*at)) {
                    step.ended(*result, *result_bytes, *duration_us, scale.bar(started(row, *duration_us), row.at));
                    step.words.extend(said);
                    continue;
                }
            }
            Detail::TurnFinished { .. } => {
                if let Some((at, turn)) = row.turn.and_then(|turn| Some((*turns.get(&turn)?, turn)))
                    && let Some(step) = steps.get_mut(at)
                {
                    let start = step.bar.0;
                    step.bar = (start, scale.place(row.at).saturating_sub(start).max(6));
                    step.title =
                        Shown::line(&row.title.replacen(&format!("Turn {turn} finished"), &format!("Turn {turn}"), 1));
                    step.words.extend(said);
                    continue;
                }
            }
            Detail::Decided(decision) => {
                calls.insert(decision.call, steps.len());
            }
            Detail::TurnStarted {} => {
                turns.extend(row.turn.map(|turn| (turn, steps.len())));
            }
            Detail::Opened(_)
            | Detail::Taken { .. }
            | Detail::Repeated { .. }
            | Detail::Asked(_)
            | Detail::Answered(_)
            | Detail::Ended(_)
            | Detail::AttemptFailed { .. }
            | Detail::CallLate { .. }
            | Detail::ReportedLate { .. } => {}
        }
        let mut step = step(row, scale, now);
        step.words = said;
        steps.push(step);
    }
    steps
}

/// When a call that ended began to act.
fn started(row: &TimelineRow, duration_us: Option<u64>) -> Micros {
    let span = duration_us.and_then(|us| i64::try_from(us).ok()).unwrap_or(0);
    Micros(row.at.0.saturating_sub(span))
}

fn step(row: &TimelineRow, scale: Scale, now: Micros) -> Step {
    let (kind, mark, call) = match &row.detail {
        Detail::Opened(_) | Detail::Taken { .. } => ("run", None, None),
        Detail::TurnStarted {} | Detail::TurnFinished { .. } => ("turn", None, None),
        Detail::Decided(decision) => ("call", Some(Mark::decision(decision.decision)), Some(call(decision))),
        Detail::CallEnded { decision, result, .. } => ("call", Some(Mark::call(*result)), Some(call(decision))),
        Detail::Repeated { .. } => ("notice", Some(Mark::warn("going in circles")), None),
        Detail::Asked(_) => ("notice", Some(Mark { shape: "?", ..Mark::warn("asked") }), None),
        Detail::Answered(answered) => ("notice", Some(Mark::answer(answered.answer)), None),
        Detail::Ended(ended) => ("run", Some(Mark::outcome(ended.outcome)), None),
        Detail::AttemptFailed { .. } => ("notice", Some(Mark::warn("tried again")), None),
        Detail::CallLate { result, .. } => ("notice", Some(Mark::call(*result)), None),
        Detail::ReportedLate { outcome, .. } => ("notice", Some(Mark::outcome(*outcome)), None),
    };
    let mut step = Step {
        position: row.position,
        at: When::utc(row.at, now),
        offset: format!("+{}", span(u64::try_from(row.at.since(scale.from)).unwrap_or(0))),
        kind,
        title: Shown::line(&title(row)),
        mark,
        bar: scale.bar(row.at, row.at),
        call,
        words: Vec::new(),
    };
    if let Detail::CallEnded { result, result_bytes, duration_us, .. } = &row.detail {
        step.ended(*result, *result_bytes, *duration_us, scale.bar(started(row, *duration_us), row.at));
    }
    step
}

/// The row's own line; of a call its tool, since its mark says the rest.
fn title(row: &TimelineRow) -> String {
    match &row.detail {
        Detail::Decided(decision) | Detail::CallEnded { decision, .. } => decision.tool.clone(),
        Detail::Taken { take, .. } => format!("Taken by a runner (take {take})"),
        Detail::Opened(_)
        | Detail::TurnStarted {}
        | Detail::TurnFinished { .. }
        | Detail::Repeated { .. }
        | Detail::Asked(_)
        | Detail::Answered(_)
        | Detail::Ended(_)
        | Detail::AttemptFailed { .. }
        | Detail::CallLate { .. }
        | Detail::ReportedLate { .. } => row.title.clone(),
    }
}

fn call(decision: &Decision) -> Call {
    let lines = |texts: &[String]| texts.iter().map(|text| Shown::line(text)).collect();
    Call {
        tool: Shown::line(&decision.tool),
        intent: Shown::line(&decision.intent.replace('_', " ")),
        ordinal: decision.ordinal,
        step: decision.step,
        verdict: spaced(decision.verdict),
        rule: decision.rule.as_deref().map(Shown::line),
        matched: lines(&decision.matched),
        broken: lines(&decision.broken),
        enforced: decision.enforced,
        unattended: decision.unattended,
        refusal: decision.refusal.map(refusal),
        boundary: decision.boundary,
        repeat_count: decision.repeat_count,
        repeat_same_result: decision.repeat_same_result,
        repeat_cycle: decision.repeat_cycle,
        result: None,
        took: None,
        size: None,
    }
}

impl Step {
    fn ended(&mut self, result: CallResult, size: Option<u64>, duration_us: Option<u64>, bar: (u32, u32)) {
        self.bar = bar;
        if let Some(call) = &mut self.call {
            call.result = Some(Mark::call(result));
            call.took = duration_us.map(span);
            call.size = size.map(bytes);
        }
    }
}

/// The words that a page of steps may show, by position.
#[derive(Debug, Default)]
pub(crate) struct Contents(BTreeMap<u64, RunContent>);

impl Contents {
    /// Those of the run's events between two positions.
    pub(crate) async fn read(engine: &Engine, run: RunId, rows: &[TimelineRow]) -> Result<Self, Failure> {
        let first = rows.iter().find(|row| row.event.starts_with("run."));
        let (Some(first), Some(last)) = (first, rows.last()) else { return Ok(Self::default()) };
        let Some(from) = engine.log().read_at(first.position).await? else { return Ok(Self::default()) };
        let limit = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let events = engine.log().read_stream(&StreamName::run(run), from.version, limit).await?;
        let mut found = BTreeMap::new();
        for event in events.iter().filter(|event| event.position <= last.position) {
            found.extend(event.content::<RunEvent>()?.map(|content| (event.position, content)));
        }
        Ok(Self(found))
    }

    /// Takes out what the run was told to do, if it is here.
    pub(crate) fn work(&mut self, position: u64) -> Option<midwatch_events::run::Work> {
        match self.0.remove(&position) {
            Some(RunContent::Opened { work }) => Some(work),
            Some(other) => {
                self.0.insert(position, other);
                None
            }
            None => None,
        }
    }
}

/// What of an event's words is shown. What the rules saw always is: without it no decision can be understood.
fn said(content: Option<RunContent>, words: bool) -> Vec<Said> {
    let line = |what, text: &str| Said { what, text: Shown::lines(text) };
    match content {
        Some(RunContent::TurnFinished { messages }) if words => vec![line("Messages", &indented(&messages))],
        Some(RunContent::ToolCallDecided { arguments, context, fingerprint }) => {
            let mut said = vec![line("Same call when", &fingerprint)];
            if words {
                said.push(line("Arguments", &indented(&arguments)));
            }
            said.push(line("What the rules saw", &indented(&context)));
            said
        }
        Some(RunContent::ToolCallEnded { result: Some(result), .. }) if words => {
            vec![line("Result", &indented(&result))]
        }
        Some(RunContent::ToolCallEnded { blob: Some(blob), .. }) if words => {
            vec![line("Result", &format!("kept apart, {}", bytes(blob.length)))]
        }
        Some(RunContent::Ended { headline, error }) if words => {
            let mut said = vec![line("How it went", &headline)];
            said.extend(error.map(|error| line("What went wrong", &error)));
            said
        }
        Some(_) | None => Vec::new(),
    }
}
