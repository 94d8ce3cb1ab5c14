//! What an MCP client asks, and what it is answered.

use std::{sync::Arc, time::Duration};

use midwatch_commands::bot::Bot;
use midwatch_engine::people::Agent;
use midwatch_events::StreamName;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Extensions, Implementation,
        ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::{NotificationContext, RequestContext},
};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::{Desk, Gone, Seat};
use crate::{
    approval::told,
    decide::{Answer, AnswerKind, Call, Whose},
    tools::{ToolDefinition, granted},
};

/// How often a client that wants to know hears that its call goes on.
const PROGRESS: Duration = Duration::from_secs(2);
/// The header of an MCP session.
const SESSION: &str = "mcp-session-id";
/// How much longer than a person has to answer a client should wait, in seconds.
const MORE_S: i64 = 60;

/// Answers MCP clients.
#[derive(Clone)]
pub struct Handler {
    desk: Arc<Desk>,
}

/// Who asks, and where it sits.
struct Who {
    agent: Agent,
    seat: Seat,
    gone: Option<watch::Receiver<bool>>,
}

/// Says that a call's client is gone when it is dropped, however that came.
struct Leaves(watch::Sender<bool>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Handler {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk }
    }

    async fn tools(&self, agent: Agent) -> Result<Vec<Tool>, ErrorData> {
        let engine = self.desk.sessions.engine();
        let fault = |error: midwatch_engine::EngineError| ErrorData::internal_error(error.to_string(), None);
        let bot = engine.load::<Bot>(&StreamName::bot(agent.bot)).await.map_err(fault)?.state;
        if bot.retired {
            return Ok(Vec::new());
        }
        let servers = engine.tool_servers().await.map_err(fault)?.state;
        // Nobody watches an agent.
        let usable = |tool: &ToolDefinition| granted(&bot.tools, &tool.name, true);
        Ok(self.desk.gateway.tools(&servers).into_iter().filter(usable).map(offered).collect())
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let asks_s = self.desk.gateway.approval_s();
        let instructions = format!(
            "The tools of one Bot of a Midwatch deployment. Each call is judged and recorded before it acts; a refusal \
             is a result with `refused: true`, the reason and the rule. A call may wait up to {asks_s} s for a \
             person's approval: send a progress token to hear every {} s that it goes on, or else wait at least {} s \
             for each answer.",
            PROGRESS.as_secs(),
            asks_s + MORE_S,
        );
        let server = Implementation::new("midwatch", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(instructions)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.desk.peers().push(context.peer);
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let who = who(&context.extensions)?;
        Ok(ListToolsResult::with_all_items(self.tools(who.agent).await?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Who { agent, seat, gone } = who(&context.extensions)?;
        let (leave, left) = watch::channel(false);
        let leave = Leaves(leave);
        let arguments = Ok(Value::Object(request.arguments.unwrap_or_default()));
        let call = Call { tool: request.name.into_owned(), arguments, step: None, whose: Whose::Ours };
        let desk = Arc::clone(&self.desk);
        // By itself: a call that acts is recorded to its outcome, whoever still waits for it.
        let mut made = tokio::spawn(async move { Box::pin(desk.call(agent, seat, call, left)).await });
        let token = context.meta.get_progress_token();
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut progress = 0.0;
        let mut away = Box::pin(is_away(&context, gone));
        let mut here = true;
        let answer = loop {
            tokio::select! {
                biased;
                made = &mut made => break made,
                () = &mut away, if here => {
                    here = false;
                    leave.0.send_replace(true);
                }
                _ = ticks.tick(), if here && token.is_some() => {
                    progress += 1.0;
                    if let Some(token) = token.clone() {
                        let said = ProgressNotificationParam::new(token, progress);
                        let said = said.with_message("The call goes on; it may wait for a person's approval.");
                        // Who does not hear it hears the answer.
                        let _ = context.peer.notify_progress(said).await;
                    }
                }
            }
        };
        drop(away);
        let answer =
            answer.map_err(|_| ErrorData::internal_error("Midwatch itself failed; its log says where", None))?;
        Ok(result(answer).into())
    }
}

/// Comes back when the client has cancelled its call, or has closed the connection.
async fn is_away(context: &RequestContext<RoleServer>, gone: Option<watch::Receiver<bool>>) {
    let closed = async {
        match gone {
            Some(mut gone) => told(&mut gone).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = context.ct.cancelled() => {}
        () = closed => {}
    }
}

fn result(answer: Answer) -> CallToolResult {
    let content = vec![ContentBlock::text(answer.text)];
    match answer.kind {
        AnswerKind::Done => CallToolResult::success(content),
        AnswerKind::Failed | AnswerKind::Refused => CallToolResult::error(content),
    }
}

/// A tool as a client is offered it.
fn offered(tool: ToolDefinition) -> Tool {
    let reads = tool.intent.reads();
    let schema = match tool.parameters {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            serde_json::Map::from_iter([("type".to_owned(), Value::from("object"))])
        }
    };
    Tool::new(tool.name, tool.description, schema).with_annotations(ToolAnnotations::new().read_only(reads))
}

fn who(extensions: &Extensions) -> Result<Who, ErrorData> {
    let parts = extensions.get::<http::request::Parts>();
    let found = parts.and_then(|parts| {
        let agent = *parts.extensions.get::<Agent>()?;
        let session = parts.headers.get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let gone = parts.extensions.get::<Gone>().map(|Gone(gone)| gone.clone());
        Some(Who { agent, seat: Seat { token: agent.token, session }, gone })
    });
    found.ok_or_else(|| ErrorData::internal_error("the request says not who sent it", None))
}
