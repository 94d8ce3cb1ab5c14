//! A client for AG-UI over HTTP: one POST carries the whole history, and a stream of events answers it.
//!
//! Protocol 1.0, and peers that speak 0.x. Every run ends as exactly one [`RunOutcome`] or [`RunFailure`]; a stream
//! that breaks off is a failure, however much came before.

mod assemble;
mod event;
mod history;
mod sse;
mod state;

use std::time::Duration;

use reqwest::{Response, StatusCode, Url, header, redirect};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{redact::redact_text, tools::ToolDefinition};
use assemble::{Assembler, Stop};
pub use event::{Interrupt, Subagent, Usage};
pub use history::{History, Message, ToolCall};
use sse::{Decoder, Unreadable};

/// What this client speaks.
const PROTOCOL_VERSION: &str = "1.0";
/// After RUN_FINISHED only a late error can follow; a Bot that leaves the connection open is not waited for longer.
const AFTER_FINISHED: Duration = Duration::from_secs(2);
/// How much of an error page is read, in bytes, and for how long.
const ERROR_PAGE_BYTES: usize = 2_048;
const ERROR_PAGE_TIME: Duration = Duration::from_secs(5);

/// How a Bot is spoken to.
#[derive(Clone)]
pub struct AguiOptions {
    /// The `Authorization` header, if the Bot wants one. Never shown.
    pub authorization: Option<String>,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long the Bot may be silent: before its answer begins, and between any two pieces of it.
    pub stall: Duration,
    /// The longest line, and the most data of one event, in bytes.
    pub line_limit: usize,
    /// The longest text, and the longest arguments of one call, in bytes.
    pub message_limit: usize,
    /// The most that is read in one run, in bytes.
    pub run_limit: usize,
}

impl Default for AguiOptions {
    fn default() -> Self {
        Self {
            authorization: None,
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            line_limit: 1024 * 1024,
            message_limit: 4 * 1024 * 1024,
            run_limit: 16 * 1024 * 1024,
        }
    }
}

/// A Bot's endpoint cannot be used as it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableEndpoint(String);

/// What one run is given.
#[derive(Clone, Copy, Debug)]
pub struct RunInput<'a> {
    /// The conversation's name, the same for all its runs.
    pub thread_id: &'a str,
    /// This run's name, new each time.
    pub run_id: &'a str,
    /// All messages so far. Each call in it must have an answer ([`History::unanswered`]).
    pub history: &'a History,
    /// The tools on offer.
    pub tools: &'a [ToolDefinition],
    /// The Bot's state, as the last run left it; an empty object before the first.
    pub state: &'a Value,
    /// One answer to each interrupt the last run ended with; else empty.
    pub resume: &'a [Resume],
}

/// What becomes of something the Bot wanted to know before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// The interrupt's name.
    pub interrupt_id: String,
    /// Whether there is an answer.
    pub status: ResumeStatus,
    /// The answer. A no is an answer too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

/// Whether an interrupt has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResumeStatus {
    /// It has.
    Resolved,
    /// Nobody will answer it.
    Cancelled,
}

/// What a run brought, as messages for the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    /// What the Bot thought, said and called, and the results of calls it carried out itself.
    pub messages: Vec<Message>,
    /// What the models took; empty when the Bot does not say.
    pub usage: Vec<Usage>,
    /// What became of the agents it sent off, in order.
    pub subagents: Vec<Subagent>,
    /// What its state has become.
    pub state: Value,
}

impl Produced {
    /// All the calls the Bot made, its own ones too.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.messages.iter().flat_map(Message::tool_calls)
    }

    /// The calls that nobody has answered: those are for us. An absent list of the Bot's own means nothing.
    pub fn pending(&self) -> impl Iterator<Item = &ToolCall> {
        let answered: std::collections::BTreeSet<&str> = self.messages.iter().filter_map(Message::answers).collect();
        self.calls().filter(move |call| !answered.contains(call.id.as_str()))
    }

    /// The last thing the Bot said, if it said anything.
    #[must_use]
    pub fn last_text(&self) -> Option<&str> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Assistant { content, .. } if !content.is_empty() => Some(content.as_str()),
            _ => None,
        })
    }
}

/// How a run ended that ended properly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The Bot is done, or waits for the answers to its pending calls.
    Finished,
    /// The Bot asks something that is not a call.
    Interrupted(Vec<Interrupt>),
    /// The Bot was told to stop, by somebody else.
    Cancelled,
}

/// A run that ended properly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// What it brought.
    pub produced: Produced,
    /// How it ended.
    pub ending: Ending,
}

/// A run that did not end properly. Each displays as a sentence for a person, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// No answer began: no connection, no name, silence, or an HTTP status that says "not now" (408, 429, 5xx).
    #[error("{sentence}")]
    Unreachable {
        /// What happened.
        sentence: String,
    },
    /// The Bot answered, and does not take the request: another HTTP status that is no success.
    #[error("{sentence}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// What happened.
        sentence: String,
    },
    /// The answer began, and broke off, broke the protocol or a limit, or was no stream of events.
    #[error("{sentence}")]
    Broken {
        /// What happened.
        sentence: String,
        /// What had come until then.
        produced: Box<Produced>,
    },
    /// The answer began, and then nothing came for too long.
    #[error("{sentence}")]
    Silent {
        /// What happened.
        sentence: String,
        /// What had come until then.
        produced: Box<Produced>,
    },
    /// The Bot said itself that it failed.
    #[error("The Bot reported an error: {message}")]
    BotError {
        /// Its words.
        message: String,
        /// Its code for it.
        code: Option<String>,
        /// What had come until then.
        produced: Box<Produced>,
    },
}

/// A client for one Bot.
#[derive(Clone)]
pub struct AguiClient {
    http: reqwest::Client,
    url: Url,
    options: AguiOptions,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunAgentInput<'a> {
    thread_id: &'a str,
    run_id: &'a str,
    protocol_version: &'a str,
    messages: &'a History,
    tools: Vec<Value>,
    // Servers of protocol 0.x refuse a request without these.
    context: [Value; 0],
    forwarded_props: Value,
    state: &'a Value,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resume: &'a [Resume],
}

impl AguiClient {
    /// A client for the Bot at `url`.
    ///
    /// # Errors
    /// The URL is none, or neither http nor https, or the authorization is no header value.
    pub fn new(url: &str, options: AguiOptions) -> Result<Self, UnusableEndpoint> {
        let url = Url::parse(url).map_err(|error| UnusableEndpoint(format!("The Bot's URL is not one: {error}.")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UnusableEndpoint("A Bot's URL begins with http or https.".to_owned()));
        }
        let mut headers = header::HeaderMap::new();
        if let Some(authorization) = &options.authorization {
            let mut value = header::HeaderValue::from_str(authorization)
                .map_err(|_| UnusableEndpoint("The Bot's authorization is not a header value.".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        // A redirect could lead inside, and a proxy could be anybody's. A kept connection may be dead by the next turn,
        // and a request that is then sent twice could be carried out twice.
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .connect_timeout(options.connect)
            .user_agent(concat!("midwatch/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| UnusableEndpoint(format!("No HTTP client could be made: {error}.")))?;
        Ok(Self { http, url, options })
    }

    /// Has the Bot take one turn. The deadline is the caller's: a dropped future hangs up.
    ///
    /// # Errors
    /// See [`RunFailure`]; whether the Bot did anything by itself is known in none of them.
    pub async fn run(&self, input: RunInput<'_>) -> Result<RunOutcome, RunFailure> {
        let response = self.post(&input).await?;
        if !is_event_stream(&response) {
            let kind = content_type(&response);
            let sentence = format!("The Bot answered {kind} and no stream of events.");
            return Err(RunFailure::Broken { sentence, produced: Box::default() });
        }
        let mut assembler = Assembler::new(input.history, input.state, self.options.message_limit);
        let stopped = self.read(response, &mut assembler).await;
        let (produced, ending) = assembler.finish();
        let produced = Box::new(produced);
        let broken = |sentence| Err(RunFailure::Broken { sentence, produced: produced.clone() });
        match (stopped, ending) {
            (Ok(()), Some(ending)) => Ok(RunOutcome { produced: *produced, ending }),
            (Ok(()), None) => broken("The Bot's answer ended before the run did.".to_owned()),
            (Err(Stop::Violation(phrase)), _) => broken(format!("The Bot {}.", redact_text(&phrase))),
            (Err(Stop::Silent(phrase)), _) => {
                Err(RunFailure::Silent { sentence: format!("The Bot {phrase}."), produced })
            }
            (Err(Stop::Error(error)), _) => {
                Err(RunFailure::BotError { message: redact_text(&error.message), code: error.code, produced })
            }
        }
    }

    /// Sends the request, and waits for an answer to begin.
    async fn post(&self, input: &RunInput<'_>) -> Result<Response, RunFailure> {
        let body = RunAgentInput {
            thread_id: input.thread_id,
            run_id: input.run_id,
            protocol_version: PROTOCOL_VERSION,
            messages: input.history,
            tools: input.tools.iter().map(offered).collect(),
            context: [],
            forwarded_props: json!({}),
            state: input.state,
            resume: input.resume,
        };
        let request = self.http.post(self.url.clone()).header(header::ACCEPT, "text/event-stream").json(&body);
        let response = match timeout(self.options.stall, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let sentence = format!("The Bot cannot be reached: {}.", reason(error));
                return Err(RunFailure::Unreachable { sentence });
            }
            Err(_) => {
                let sentence = format!("The Bot did not begin to answer within {:?}.", self.options.stall);
                return Err(RunFailure::Unreachable { sentence });
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let sentence = format!("The Bot answered HTTP {}{}.", status.as_u16(), error_page(response).await);
        let not_now = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if not_now || status.is_server_error() {
            return Err(RunFailure::Unreachable { sentence });
        }
        Err(RunFailure::Rejected { status: status.as_u16(), sentence })
    }

    /// Reads the events until the stream is over.
    async fn read(&self, mut response: Response, assembler: &mut Assembler) -> Result<(), Stop> {
        let mut decoder = Decoder::new(self.options.line_limit);
        let mut size = 0;
        let mut finished_at = None;
        loop {
            let wait_until = finished_at.map_or_else(|| Instant::now() + self.options.stall, |at| at + AFTER_FINISHED);
            let bytes = match timeout_at(wait_until, response.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => break,
                // The run was over, so it does not matter how the connection ends.
                _ if assembler.is_finished() => return Ok(()),
                Ok(Err(error)) => return violation(format!("broke off its answer: {}", reason(error))),
                Err(_) => return Err(Stop::Silent(format!("was silent for {:?}", self.options.stall))),
            };
            size += bytes.len();
            if size > self.options.run_limit {
                return violation(format!("sent more than {} bytes in one run", self.options.run_limit));
            }
            for data in decoder.feed(&bytes).map_err(|error| self.unreadable(&error))? {
                take(assembler, &data)?;
            }
            if assembler.is_finished() && finished_at.is_none() {
                finished_at = Some(Instant::now());
            }
        }
        match decoder.finish().map_err(|error| self.unreadable(&error))? {
            Some(data) => take(assembler, &data),
            None => Ok(()),
        }
    }

    fn unreadable(&self, error: &Unreadable) -> Stop {
        Stop::Violation(match error {
            Unreadable::TooLong => format!("sent a line of more than {} bytes", self.options.line_limit),
            Unreadable::NotText => "sent a line that is not UTF-8".to_owned(),
        })
    }
}

fn take(assembler: &mut Assembler, data: &str) -> Result<(), Stop> {
    assembler.take(event::parse(data).map_err(Stop::Violation)?)
}

fn violation(phrase: String) -> Result<(), Stop> {
    Err(Stop::Violation(phrase))
}

fn offered(tool: &ToolDefinition) -> Value {
    json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters })
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.map_or_else(|| "without a content type".to_owned(), |value| value.chars().take(100).collect())
}

fn is_event_stream(response: &Response) -> bool {
    let value = content_type(response);
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The beginning of an error page, as one line without secrets.
async fn error_page(mut response: Response) -> String {
    let mut page = Vec::new();
    let reading = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            page.extend_from_slice(&bytes);
            if page.len() >= ERROR_PAGE_BYTES {
                break;
            }
        }
    };
    let _ = timeout(ERROR_PAGE_TIME, reading).await;
    page.truncate(ERROR_PAGE_BYTES);
    let page = redact_text(&String::from_utf8_lossy(&page));
    let line = page.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line: String = line.collect::<Vec<_>>().join(" ").chars().take(500).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

/// Why a request failed, down to the cause, without the URL, which may hold a secret.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        reason = error.to_string();
        cause = error.source();
    }
    redact_text(&reason)
}

#[cfg(test)]
pub(crate) mod peer_tests;
#[cfg(test)]
mod stream_tests;
