//! An instruction: the Bot's own loop over AG-UI. Each call it asks for is decided, carried out and answered; then it
//! is asked to go on, with the whole history, until it has nothing more to ask for.

use midwatch_commands::{
    bot::Bot,
    run::{Run, RunCommand},
};
use midwatch_engine::{
    EngineError, Origin,
    handle::handle,
    projector,
    runner::{Ending, Job},
};
use midwatch_events::{
    Actor, StreamName,
    run::{Outcome, Reason},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::runs::Runs;
use serde_json::Value;

use super::{failed, headline};
use crate::{
    Gateway,
    bots::agui::{AguiClient, AguiOptions, Ending as BotEnding, History, Message, Produced, RunFailure, RunInput},
    brief::Brief,
    decide::{AnswerKind, Call, Stop},
    redact::redact_text,
    tools::ToolDefinition,
};

/// Messages of one turn are recorded up to this many bytes; an event has a limit.
const MESSAGES_BYTES_MAX: usize = 40 << 10;

pub(super) async fn run(gateway: &Gateway, job: &Job) -> Result<Ending, Stop> {
    let bot = job.engine.load::<Bot>(&StreamName::bot(job.opened.bot)).await?.state;
    let Some(url) = &bot.agui else {
        let sentence = "This Bot has no AG-UI endpoint; it can only replay recordings.".to_owned();
        return Ok(failed(Reason::Error, sentence));
    };
    let client = match AguiClient::new(url, AguiOptions::default()) {
        Ok(client) => client,
        Err(error) => return Ok(failed(Reason::Error, error.to_string())),
    };
    let tools: Vec<ToolDefinition> =
        gateway.tools().iter().filter(|tool| bot.tools.contains(&tool.name)).cloned().collect();
    let mut history = History::new();
    history.say(brief(job).await?);
    let thread = job.run.to_string();
    for turn in 1.. {
        command(job, RunCommand::StartTurn { take: job.take }).await?;
        let run_id = format!("{thread}-{turn}");
        let input = RunInput { thread_id: &thread, run_id: &run_id, history: &history, tools: &tools };
        // The client watches itself: an answer may take long as long as pieces of it come.
        let busy = job.progress.busy();
        let answered = client.run(input).await;
        drop(busy);
        let outcome = match answered {
            Ok(outcome) => outcome,
            Err(failure) => return broken(job, turn, failure).await,
        };
        finish_turn(job, &outcome.produced).await?;
        match &outcome.ending {
            BotEnding::Finished => {}
            BotEnding::Interrupted(_) => {
                let sentence = "The Bot asked for an approval, and nobody is there to give it.".to_owned();
                return Ok(failed(Reason::Error, sentence));
            }
            BotEnding::Cancelled => {
                return Ok(failed(Reason::Error, "The Bot says that it was cancelled.".to_owned()));
            }
        }
        history.extend(&outcome.produced.messages);
        let pending: Vec<_> = outcome.produced.pending().cloned().collect();
        if pending.is_empty() {
            return Ok(finished(&outcome.produced));
        }
        for call in pending {
            let arguments = serde_json::from_str::<Value>(&call.arguments)
                .map_err(|error| format!("The arguments are not JSON: {error}."));
            let asked = Call { tool: call.name.clone(), arguments, step: None };
            let answer = gateway.call(job, asked).await?;
            let error = (answer.kind != AnswerKind::Done).then(|| answer.sentence.unwrap_or_default());
            history.answer(&call.id, answer.text, error);
        }
    }
    Ok(failed(Reason::Error, "The Bot never finished.".to_owned()))
}

fn finished(produced: &Produced) -> Ending {
    let said = produced.last_text().map(redact_text).unwrap_or_default();
    let headline = match headline(&said) {
        line if line.is_empty() => "The Bot finished without a word".to_owned(),
        line => line,
    };
    Ending { outcome: Outcome::Succeeded, reason: None, headline, error: None }
}

/// A turn that did not end properly; what came of it until then is recorded all the same.
async fn broken(job: &Job, turn: u32, failure: RunFailure) -> Result<Ending, Stop> {
    let sentence = redact_text(&failure.to_string());
    Ok(match failure {
        RunFailure::Unreachable { .. } if turn == 1 => failed(Reason::BotUnreachable, sentence),
        RunFailure::Unreachable { .. } | RunFailure::Rejected { .. } => failed(Reason::Error, sentence),
        RunFailure::Silent { produced, .. } => {
            finish_turn(job, &produced).await?;
            let headline = "The Bot was silent for too long".to_owned();
            Ending { outcome: Outcome::TimedOut, reason: Some(Reason::Silence), headline, error: Some(sentence) }
        }
        RunFailure::Broken { produced, .. } | RunFailure::BotError { produced, .. } => {
            finish_turn(job, &produced).await?;
            failed(Reason::Error, sentence)
        }
    })
}

async fn finish_turn(job: &Job, produced: &Produced) -> Result<(), Stop> {
    let calls = u32::try_from(produced.pending().count()).unwrap_or(u32::MAX);
    let messages = messages(&produced.messages);
    command(job, RunCommand::FinishTurn { take: job.take, calls, messages }).await
}

/// The messages as they are recorded: redacted, and cut where an event could not hold them.
fn messages(produced: &[Message]) -> String {
    let text = serde_json::to_value(produced).map(|value| crate::redact::redact(&value).to_string());
    let text = redact_text(&text.unwrap_or_default());
    if text.len() <= MESSAGES_BYTES_MAX {
        return text;
    }
    let mut end = MESSAGES_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    serde_json::json!({"cut": true, "bytes": text.len(), "start": &text[..end / 2]}).to_string()
}

async fn command(job: &Job, command: RunCommand) -> Result<(), Stop> {
    let stream = StreamName::run(job.run);
    let origin = Origin::of(Actor::Bot(job.opened.bot)).within(&stream);
    handle::<Run>(&job.engine, &stream, &origin, None, |_| Ok(command.clone())).await?;
    job.progress.goes_on(job.engine.world().clock.monotonic());
    Ok(())
}

async fn brief(job: &Job) -> Result<String, Stop> {
    let payload = match job.opened.delivery {
        None => None,
        Some(delivery) => job.engine.reading(delivery).await?,
    };
    let previous = previous(job).await?;
    let tag = format!("data-{}", uuid::Uuid::from_bytes(job.engine.world().random::<16>()).simple());
    let brief = Brief {
        instruction: job.work.instruction.as_deref().unwrap_or("(the instruction was erased)"),
        unattended: job.opened.unattended,
        previous: previous.as_deref(),
        payload: payload.as_deref(),
        tag: &tag,
    };
    Ok(brief.text())
}

/// The last ended run's one line.
async fn previous(job: &Job) -> Result<Option<String>, EngineError> {
    let Some(routine) = job.opened.routine else { return Ok(None) };
    let filters = vec![
        Condition { column: "routine", is: Test::Eq(Cell::Text(routine.to_string())) },
        Condition { column: "state", is: Test::Eq(Cell::Text("ended".to_owned())) },
    ];
    let order = Order { column: "opened_at", descending: true };
    let page = projector::page::<Runs>(&job.engine, filters, order, 1, None).await?;
    Ok(page.into_iter().next().and_then(|(row, _)| row.headline))
}
