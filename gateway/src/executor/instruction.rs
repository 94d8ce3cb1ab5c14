//! An instruction: the Bot's own loop over AG-UI. Each call it asks for is decided, carried out and answered; then it
//! is asked to go on, with the whole history, until it has nothing more to ask for.

use std::{collections::BTreeSet, time::Duration};

use midwatch_commands::{
    bot::Bot,
    boundary::ToolServers,
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
use serde_json::{Value, json};

use super::{circling, failed, headline};
use crate::{
    Gateway, act,
    bots::agui::{
        AguiClient, AguiOptions, Ending as BotEnding, History, Interrupt, Message, Produced, Resume, ResumeStatus,
        RunFailure, RunInput, RunOutcome, ToolCall, UnusableEndpoint,
    },
    brief::Brief,
    decide::{AnswerKind, Call, Decided, Passed, Stop, Whose},
    redact::redact_text,
    tools::{ToolDefinition, ToolResult, granted},
};

/// Messages of one turn are recorded up to this many bytes; an event has a limit.
const MESSAGES_BYTES_MAX: usize = 40 << 10;

/// A conversation of more than this many bytes is sent with its oldest results cut; about what a model of 128,000
/// tokens can read.
const HISTORY_BYTES_MAX: usize = 384 << 10;

/// Does an instruction: the brief, then turn by turn.
pub(super) async fn run(gateway: &Gateway, job: &Job) -> Result<Ending, Stop> {
    let bot = job.engine.load::<Bot>(&StreamName::bot(job.opened.bot)).await?.state;
    let Some(url) = &bot.agui else {
        let sentence = "This Bot has no AG-UI endpoint; it can only replay recordings.".to_owned();
        return Ok(failed(Reason::Error, sentence));
    };
    let instruction = job.work.instruction.as_deref().unwrap_or("(the instruction was erased)");
    let brief = brief(job, instruction).await?;
    let servers = job.engine.tool_servers().await?.state;
    match Conversation::new(gateway, job, &bot, &servers, url, brief) {
        Ok(conversation) => Box::pin(conversation.hold()).await,
        Err(error) => Ok(failed(Reason::Error, error.to_string())),
    }
}

/// Goes on where a recording failed. What it did is done, so nothing here may be retried from the start.
pub(super) async fn take_over(gateway: &Gateway, job: &Job, over: &str) -> Result<Ending, Stop> {
    let bot = job.engine.load::<Bot>(&StreamName::bot(job.opened.bot)).await?.state;
    let lost = |why: &str| failed(Reason::HandOverFailed, format!("{over}\n\n{why}"));
    let Some(url) = &bot.agui else {
        return Ok(lost("The Bot cannot take over: it has no AG-UI endpoint."));
    };
    let brief = brief(job, over).await?;
    let servers = job.engine.tool_servers().await?.state;
    let ending = match Conversation::new(gateway, job, &bot, &servers, url, brief) {
        Ok(conversation) => Box::pin(conversation.hold()).await?,
        Err(error) => return Ok(lost(&error.to_string())),
    };
    Ok(match ending.outcome {
        Outcome::Failed => lost(&format!("The Bot took over, and failed: {}", ending.error.unwrap_or(ending.headline))),
        _ => ending,
    })
}

/// A Bot's own call that was allowed, and is under way there.
struct UnderWay {
    call: String,
    decided: Box<Decided>,
    since: Duration,
}

/// One run's conversation with a Bot.
struct Conversation<'j> {
    gateway: &'j Gateway,
    job: &'j Job,
    client: AguiClient,
    tools: Vec<ToolDefinition>,
    history: History,
    state: Value,
    resume: Vec<Resume>,
    under_way: Vec<UnderWay>,
    /// What its last call was refused for, where that was repetition.
    circles: Option<String>,
}

impl<'j> Conversation<'j> {
    fn new(
        gateway: &'j Gateway,
        job: &'j Job,
        bot: &Bot,
        servers: &ToolServers,
        url: &str,
        brief: String,
    ) -> Result<Self, UnusableEndpoint> {
        let client = AguiClient::new(url, AguiOptions::default())?;
        let granted = |tool: &ToolDefinition| granted(&bot.tools, &tool.name, job.opened.unattended);
        let tools = gateway.tools(servers).into_iter().filter(granted).collect();
        let mut history = History::new();
        history.say(brief);
        let state = Value::Object(serde_json::Map::new());
        Ok(Self {
            gateway,
            job,
            client,
            tools,
            history,
            state,
            resume: Vec::new(),
            under_way: Vec::new(),
            circles: None,
        })
    }

    /// Turn by turn, until the Bot has nothing more to ask for.
    async fn hold(mut self) -> Result<Ending, Stop> {
        let job = self.job;
        for turn in 1.. {
            command(job, RunCommand::StartTurn { take: job.take }).await?;
            let outcome = match self.turn(turn).await {
                Ok(outcome) => outcome,
                Err(failure) => return broken(job, turn, failure).await,
            };
            let RunOutcome { produced, ending } = outcome;
            finish_turn(job, &produced).await?;
            self.settle(&produced).await?;
            self.history.extend(&produced.messages);
            self.state.clone_from(&produced.state);
            let interrupts = match ending {
                BotEnding::Finished => Vec::new(),
                BotEnding::Interrupted(interrupts) => interrupts,
                BotEnding::Cancelled => {
                    return Ok(failed(Reason::Error, "The Bot says that it was cancelled.".to_owned()));
                }
            };
            let about: BTreeSet<&str> = interrupts.iter().filter_map(|one| one.tool_call_id.as_deref()).collect();
            let pending: Vec<ToolCall> =
                produced.pending().filter(|call| !about.contains(call.id.as_str())).cloned().collect();
            if pending.is_empty() && interrupts.is_empty() {
                return Ok(self.circles.map_or_else(|| finished(&produced), circling));
            }
            for call in pending {
                let asked =
                    Call { tool: call.name, arguments: arguments(&call.arguments), step: None, whose: Whose::Ours };
                let answer = self.gateway.call(job, asked).await?;
                self.circles = answer.circles.then(|| redact_text(answer.sentence.as_deref().unwrap_or_default()));
                let error = (answer.kind != AnswerKind::Done).then(|| answer.sentence.unwrap_or_default());
                self.history.answer(&call.id, answer.text, error);
            }
            for interrupt in interrupts {
                let answer = self.asked(interrupt).await?;
                self.resume.push(answer);
            }
        }
        Ok(failed(Reason::Error, "The Bot never finished.".to_owned()))
    }

    async fn turn(&mut self, turn: u32) -> Result<RunOutcome, RunFailure> {
        let thread = self.job.run.to_string();
        let run_id = format!("{thread}-{turn}");
        let resume = std::mem::take(&mut self.resume);
        let history = self.history.fitted(HISTORY_BYTES_MAX);
        let input = RunInput {
            thread_id: &thread,
            run_id: &run_id,
            history: &history,
            tools: &self.tools,
            state: &self.state,
            resume: &resume,
        };
        // The client watches itself: an answer may take long as long as pieces of it come.
        let _busy = self.job.progress.busy();
        self.client.run(input).await
    }

    /// The Bot wants a person's word before it goes on. A no is an answer too; what only a person could write is not
    /// asked for where nobody is.
    async fn asked(&mut self, interrupt: Interrupt) -> Result<Resume, Stop> {
        let yes_or_no = interrupt.is_yes_or_no();
        let Interrupt { id: interrupt_id, message, tool_call_id, .. } = interrupt;
        let cancelled = |interrupt_id| Resume { interrupt_id, status: ResumeStatus::Cancelled, payload: None };
        if !yes_or_no {
            return Ok(cancelled(interrupt_id));
        }
        let made = tool_call_id.as_deref().and_then(|id| self.history.call(id)).cloned();
        let (tool, arguments) = match made {
            Some(made) => (made.name, arguments(&made.arguments)),
            None => ("interrupt".to_owned(), Ok(json!({ "message": message }))),
        };
        let call = Call { tool, arguments, step: None, whose: Whose::TheBots };
        let payload = match self.gateway.pass(self.job, &call).await? {
            Passed::Refused(answer) => {
                json!({ "approved": false, "reason": answer.sentence.unwrap_or_default() })
            }
            Passed::Allowed(decided) => {
                let since = self.job.engine.world().clock.monotonic();
                let call = tool_call_id.unwrap_or_default();
                self.under_way.push(UnderWay { call, decided, since });
                json!({ "approved": true })
            }
        };
        Ok(Resume { interrupt_id, status: ResumeStatus::Resolved, payload: Some(payload) })
    }

    /// Records the outcome of the Bot's own calls that were allowed: their results came with this turn. One without a
    /// result is not known to have worked.
    async fn settle(&mut self, produced: &Produced) -> Result<(), Stop> {
        for UnderWay { call, decided, since } in std::mem::take(&mut self.under_way) {
            let result = produced.messages.iter().find_map(|message| match message {
                Message::Tool { tool_call_id, content, error, .. } if *tool_call_id == call => {
                    Some(ToolResult { ok: error.is_none(), text: content.clone() })
                }
                _ => None,
            });
            let result = result.unwrap_or_else(|| ToolResult::failed("the Bot did not say what came of it"));
            let took = self.job.engine.world().clock.monotonic().saturating_sub(since);
            act::record(self.job, &decided, &result, took).await?;
        }
        Ok(())
    }
}

/// The arguments of a call, or why they are none.
fn arguments(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("The arguments are not JSON: {error}."))
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
    let messages = messages(produced);
    command(job, RunCommand::FinishTurn { take: job.take, calls, messages }).await
}

/// The messages as they are recorded: redacted, and cut where an event could not hold them.
fn messages(produced: &Produced) -> String {
    let said = serde_json::to_value(&produced.messages).unwrap_or_default();
    let sent_off = serde_json::to_value(&produced.subagents).unwrap_or_default();
    let both = [said, sent_off].into_iter().filter_map(|list| match list {
        Value::Array(items) => Some(items),
        _ => None,
    });
    let recorded = Value::Array(both.flatten().collect());
    let text = redact_text(&crate::redact::redact(&recorded).to_string());
    if text.len() <= MESSAGES_BYTES_MAX {
        return text;
    }
    let mut end = MESSAGES_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    json!({"cut": true, "bytes": text.len(), "start": &text[..end / 2]}).to_string()
}

async fn command(job: &Job, command: RunCommand) -> Result<(), Stop> {
    let stream = StreamName::run(job.run);
    let origin = Origin::of(Actor::Bot(job.opened.bot)).within(&stream);
    handle::<Run>(&job.engine, &stream, &origin, None, |_| Ok(command.clone())).await?;
    job.progress.goes_on(job.engine.world().clock.monotonic());
    Ok(())
}

async fn brief(job: &Job, instruction: &str) -> Result<String, Stop> {
    let payload = match job.opened.delivery {
        None => None,
        Some(delivery) => job.engine.reading(delivery).await?,
    };
    let previous = previous(job).await?;
    let tag = format!("data-{}", uuid::Uuid::from_bytes(job.engine.world().random::<16>()).simple());
    let brief = Brief {
        instruction,
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
