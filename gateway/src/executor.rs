//! Doing a run's work: a recording's steps, or a Bot's own loop over AG-UI. Every call goes through the gateway.

mod instruction;
mod recorded;

use std::time::Duration;

use midwatch_commands::{Refusal, bot::Bot};
use midwatch_engine::{
    runner::{Ending, Executor, Job},
    world::Boxed,
};
use midwatch_events::run::{Outcome, Reason, WorkKind};

use tokio::{net::TcpStream, time::timeout};

use crate::{Gateway, decide::Stop, redact::redact_text};

/// Executes runs through one gateway.
#[derive(Debug)]
pub struct Work {
    gateway: Gateway,
}

impl Work {
    /// Executes runs through `gateway`.
    #[must_use]
    pub fn new(gateway: Gateway) -> Self {
        Self { gateway }
    }
}

/// How long a Bot's endpoint may take to be tried.
const TRY_MAX: Duration = Duration::from_secs(5);

impl Executor for Work {
    fn answers(&self, bot: &Bot) -> Boxed<'static, bool> {
        let address = bot.agui.as_deref().and_then(address_of);
        Box::pin(async move {
            // Nothing is asked of it: a request could make it work.
            let Some((host, port)) = address else { return true };
            matches!(timeout(TRY_MAX, TcpStream::connect((host, port))).await, Ok(Ok(_)))
        })
    }

    fn execute(&self, job: Job) -> Boxed<'static, Ending> {
        let gateway = self.gateway.clone();
        Box::pin(async move {
            let done = match job.opened.work {
                WorkKind::Recording => Box::pin(recorded::run(&gateway, &job)).await,
                WorkKind::Instruction => Box::pin(instruction::run(&gateway, &job)).await,
                // Held by the process that its agent came to, which took it as it was opened.
                WorkKind::Session => return failed(Reason::Error, "An agent's session is not executed.".to_owned()),
            };
            done.unwrap_or_else(|stop| stopped(&stop))
        })
    }
}

/// How a run ends that could not go on. One that was taken away has been ended by somebody else already.
fn stopped(stop: &Stop) -> Ending {
    match stop {
        Stop::Lost(Refusal::TurnLimit { max }) => Ending {
            outcome: Outcome::Stopped,
            reason: Some(Reason::Turns),
            headline: format!("It had not finished after {max} turns"),
            error: None,
        },
        Stop::Lease => Ending {
            outcome: Outcome::Abandoned,
            reason: Some(Reason::Lease),
            headline: "The lease could not be renewed".to_owned(),
            error: None,
        },
        Stop::Lost(_) | Stop::Engine(_) => failed(Reason::Error, stop.to_string()),
    }
}

/// Its last call was refused because it had been made too often: whatever the Bot says of itself, it did not finish.
fn circling(error: String) -> Ending {
    Ending {
        outcome: Outcome::Stopped,
        reason: Some(Reason::Repeat),
        headline: headline(&format!("It was going in circles. {error}")),
        error: Some(error),
    }
}

/// What went wrong may hold what a tool or a Bot said.
fn failed(reason: Reason, sentence: String) -> Ending {
    let sentence = redact_text(&sentence);
    Ending { outcome: Outcome::Failed, reason: Some(reason), headline: headline(&sentence), error: Some(sentence) }
}

/// Where an endpoint is connected to.
fn address_of(url: &str) -> Option<(String, u16)> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some((host, url.port_or_known_default()?))
}

/// The first line of a text, cut to what fits a list.
fn headline(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if line.chars().count() <= 200 { line.to_owned() } else { line.chars().take(199).chain(['…']).collect() }
}
