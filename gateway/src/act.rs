//! Acting on a decision that stands in the ledger, and recording what came of it.

use std::time::Duration;

use midwatch_commands::{
    Decider, Refusal,
    repeat::{Repeat, RepeatCommand},
    run::{Run, RunCommand},
};
use midwatch_engine::{
    EngineError, Origin,
    handle::{Plan, TRIES, handle},
    intake::CONTENT_BYTES_MAX,
    runner::Job,
};
use midwatch_events::{
    Actor, StreamName,
    run::{CallResult, RunContent},
};
use tokio::time::timeout;

use crate::{
    Gateway,
    decide::{Answer, AnswerKind, Call, Decided, Stop, pause},
    redact::{redact, redact_text},
    tools::{
        ToolResult, command,
        mcp::{Asked, parts},
    },
};

/// How long a tool may take, unless it says.
const ACT_MAX: Duration = Duration::from_secs(60);

/// Acts, and answers when the outcome is recorded.
#[tracing::instrument(name = "act", level = "debug", skip_all)]
pub(crate) async fn act(gateway: &Gateway, job: &Job, call: &Call, decided: Decided) -> Result<Answer, Stop> {
    let clock = &job.engine.world().clock;
    if !job.alive.may_act(clock.monotonic()) {
        return Err(Stop::Lease);
    }
    let started = clock.monotonic();
    // A tool has a limit of its own; the run is not silent meanwhile.
    let busy = job.progress.busy();
    let most = time_max(call);
    let result = match timeout(most, Box::pin(carry_out(gateway, job, call))).await {
        Ok(result) => result,
        Err(_) => ToolResult::failed(format!("The tool did not come back within {} s.", most.as_secs())),
    };
    let took = clock.monotonic().saturating_sub(started);
    record(job, &decided, &result, took).await?;
    drop(busy);
    job.progress.goes_on(clock.monotonic());
    let kind = if result.ok { AnswerKind::Done } else { AnswerKind::Failed };
    let sentence = (!result.ok).then(|| error_of(&result));
    Ok(Answer { kind, text: result.text, sentence, circles: false })
}

async fn carry_out(gateway: &Gateway, job: &Job, call: &Call) -> ToolResult {
    let arguments = match &call.arguments {
        Ok(arguments) => arguments,
        Err(sentence) => return ToolResult::failed(sentence.clone()),
    };
    let workspace = match gateway.workspace(job.opened.bot) {
        Ok(workspace) => workspace,
        Err(sentence) => return ToolResult::failed(format!("The workspace cannot be opened: {sentence}.")),
    };
    match (call.tool.as_str(), gateway.commands(), gateway.mcp()) {
        (command::RUN_COMMAND, Some(commands), _) => commands.call(&workspace, arguments).await,
        (name, _, Some(mcp)) if parts(name).is_some() => {
            match (job.engine.tool_servers().await, job.engine.secrets()) {
                (Ok(servers), Ok(secrets)) => {
                    mcp.call(
                        &servers.state,
                        secrets,
                        Asked { bot: job.opened.bot, name, workspace: &workspace },
                        arguments,
                    )
                    .await
                }
                (Err(error), _) | (_, Err(error)) => ToolResult::failed(error.to_string()),
            }
        }
        _ => workspace.call(&call.tool, arguments).await,
    }
}

/// How long a call may take. A command says it.
fn time_max(call: &Call) -> Duration {
    match (&call.arguments, call.tool.as_str()) {
        (Ok(arguments), command::RUN_COMMAND) => command::time_max(arguments),
        _ => ACT_MAX,
    }
}

fn error_of(result: &ToolResult) -> String {
    let value: serde_json::Value = serde_json::from_str(&result.text).unwrap_or_default();
    value["error"].as_str().unwrap_or("the tool failed").to_owned()
}

/// The run was ended while the tool acted: the outcome is recorded beside the "unknown" and changes nothing.
async fn late(job: &Job, stream: &StreamName, origin: &Origin, command: RunCommand) -> Result<(), Stop> {
    if let RunCommand::EndCall { take, call, result, result_digest, result_bytes, duration_us, content } = command {
        let late = RunCommand::EndCallLate { take, call, result, result_digest, result_bytes, duration_us, content };
        handle::<Run>(&job.engine, stream, origin, None, |_| Ok(late.clone())).await?;
    }
    Err(Stop::Lost(Refusal::RunEnded))
}

/// Appends the outcome, with all the facts of its decision, and settles the attempt with the result's digest.
pub(crate) async fn record(job: &Job, decided: &Decided, result: &ToolResult, took: Duration) -> Result<(), Stop> {
    let engine = &job.engine;
    // By its names where it is JSON, and so it stays JSON.
    let shown = match serde_json::from_str(&result.text) {
        Ok(value) => redact(&value).to_string(),
        Err(_) => redact_text(&result.text),
    };
    let content = if shown.len() <= CONTENT_BYTES_MAX {
        RunContent::ToolCallEnded { result: Some(shown), blob: None }
    } else {
        RunContent::ToolCallEnded { result: None, blob: Some(engine.keep(shown.as_bytes()).await?) }
    };
    let digest = engine.secrets()?.digest(result.text.as_bytes());
    let run_stream = StreamName::run(job.run);
    let repeat_stream = StreamName::repeat(job.opened.bot, &decided.resolved.fingerprint.0);
    let origin = Origin::of(Actor::Bot(job.opened.bot)).within(&run_stream).because(decided.event);
    for attempt in 0..TRIES {
        let run = engine.load::<Run>(&run_stream).await?;
        let command = RunCommand::EndCall {
            take: job.take,
            call: decided.decision.call,
            result: if result.ok { CallResult::Finished } else { CallResult::Failed },
            result_digest: digest,
            result_bytes: result.text.len() as u64,
            duration_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            content: content.clone(),
        };
        let ended = match run.state.decide(command.clone()) {
            Ok(ended) => ended,
            Err(Refusal::RunEnded) => return late(job, &run_stream, &origin, command).await,
            Err(refusal) => return Err(Stop::Lost(refusal)),
        };
        let turn = engine.enter::<Repeat>(&repeat_stream).await?;
        let settle = RepeatCommand::Settle { call: decided.decision.call, result: digest };
        let settled = turn.loaded().state.decide(settle).map_err(Stop::Lost)?;
        let mut plan = Plan::default();
        plan.add(engine.world(), &run_stream, run.version, &ended, &origin)?;
        plan.add(engine.world(), &repeat_stream, turn.expected(), &settled, &origin)?;
        if turn.submit(plan, &settled).await?.is_some() {
            return Ok(());
        }
        pause(job, attempt).await;
    }
    Err(Stop::Engine(EngineError::Fault(
        "too many processes make this call at once; its outcome is unknown".to_owned(),
    )))
}
