//! One connection to an MCP server.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ClientHandler, RoleClient, ServiceError, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation, Tool,
    },
    service::{NotificationContext, RunningService},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt as _,
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{Offered, Place, ToolResult, Way, place::Terms};
use crate::{
    child::{Program, Running, Supervisor},
    dialer::{self, Reach},
    redact::redact_text,
};

/// The longest message of a server, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Of what a server's program says about what went wrong, the end is kept, in bytes.
const SAID_BYTES_MAX: usize = 1 << 10;
/// A list is asked for again after so long, whether its server says that it changed or not.
const LIST_MAX: Duration = Duration::from_secs(60);
/// Longer data of a result (an image, a sound) is left out, in characters of base64.
const DATA_MAX: usize = 1_024;

/// A connection. Dropped, it ends the server's program.
#[derive(Debug)]
pub struct Connection {
    service: RunningService<RoleClient, Client>,
    running: Option<Running>,
    terms: Terms,
    changed: Arc<AtomicBool>,
    ended: AtomicBool,
    listed: Mutex<Option<(Instant, Offered)>>,
}

/// What a server may ask of us: nothing. It can say that its tools changed.
#[derive(Clone, Debug)]
struct Client {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("midwatch", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Release);
    }
}

impl Connection {
    /// Reaches a server: starts its program in `directory`, or dials its address.
    ///
    /// # Errors
    /// A sentence: it cannot be reached, or is no MCP server.
    pub(super) async fn open(
        supervisor: &Supervisor,
        reach: Reach,
        place: &Place,
        directory: PathBuf,
    ) -> Result<Self, String> {
        let changed = Arc::new(AtomicBool::new(false));
        let client = Client { changed: Arc::clone(&changed) };
        let (service, running) = match &place.way {
            Way::Stdio { command } => {
                let (service, running) = start(supervisor, client, place, command, directory).await?;
                (service, Some(running))
            }
            Way::Http { url } => (dial(client, reach, place, url).await?, None),
        };
        let (ended, listed) = (AtomicBool::new(false), Mutex::new(None));
        Ok(Self { service, running, terms: place.terms.clone(), changed, ended, listed })
    }

    /// Whether it can still be used.
    pub(super) fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Acquire) && !self.service.is_closed()
    }

    /// Ends it, and the server's program.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(running) = &self.running {
            running.end();
        }
    }

    /// What the server offers, asked again where it may have changed: it said so, it never says so, or said nothing for
    /// long.
    ///
    /// # Errors
    /// A sentence: it does not answer.
    pub(super) async fn offered(&self) -> Result<Offered, String> {
        let mut listed = self.listed.lock().await;
        let fresh = !self.changed.swap(false, Ordering::AcqRel) && self.says_changes();
        if let Some((since, offered)) = listed.as_ref().filter(|_| fresh)
            && since.elapsed() < LIST_MAX
        {
            return Ok(offered.clone());
        }
        *listed = None;
        let most = self.terms.connect();
        let tools = timeout(most, self.service.peer().list_all_tools()).await;
        let tools = tools.map_err(|_| late(most))?.map_err(|error| said(&error))?;
        let offered: Offered = tools.iter().map(|tool| (tool.name.to_string(), defined(tool))).collect();
        *listed = Some((Instant::now(), offered.clone()));
        drop(listed);
        Ok(offered)
    }

    /// Whether the server promises to say when its tools change.
    fn says_changes(&self) -> bool {
        let info = self.service.peer_info();
        let tools = info.as_ref().and_then(|info| info.capabilities.tools.as_ref());
        tools.is_some_and(|tools| tools.list_changed == Some(true))
    }

    /// Calls a tool, once: what the server asks for in return is not given.
    ///
    /// # Errors
    /// A sentence: it does not answer, or not with a result.
    pub(super) async fn call(&self, tool: &str, arguments: &Value) -> Result<ToolResult, String> {
        let most = self.terms.call();
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        let Ok(answered) = timeout(most, self.service.peer().call_tool_once(params)).await else {
            // Whatever it still does for us it must not do.
            self.end();
            return Err(late(most));
        };
        match answered.map_err(|error| said(&error))? {
            CallToolResponse::Complete(result) => Ok(result_of(result)),
            CallToolResponse::InputRequired(_) => {
                Err("The server asks a person for more before it goes on, which is not given here.".to_owned())
            }
            CallToolResponse::Task(_) => {
                Err("The server made a task of it and did not answer; what comes of it is not known.".to_owned())
            }
            other => Err(format!("The server answered with what is not known here: {other:?}")),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end();
    }
}

/// What of a definition a person looks at. Icons and whatever else a server hangs on are nobody's.
fn defined(tool: &Tool) -> Value {
    let mut value = serde_json::to_value(tool).unwrap_or_default();
    if let Value::Object(members) = &mut value {
        members.retain(|name, _| {
            matches!(name.as_str(), "name" | "title" | "description" | "inputSchema" | "outputSchema" | "annotations")
        });
    }
    value
}

fn late(most: Duration) -> String {
    format!("The MCP server did not answer within {} s.", most.as_secs())
}

/// What went wrong, for the Bot: it may hold what the server said.
fn said(error: &ServiceError) -> String {
    let text: String = redact_text(&error.to_string()).chars().take(2_000).collect();
    format!("The MCP server says: {text}")
}

fn result_of(result: CallToolResult) -> ToolResult {
    let failed = result.is_error == Some(true);
    let mut content = serde_json::to_value(&result.content).unwrap_or_default();
    leave_data_out(&mut content);
    let mut members = json!({ "content": content });
    if let Some(structured) = result.structured_content {
        members["structured"] = structured;
    }
    if failed {
        let first = content.as_array().into_iter().flatten().find_map(|block| block["text"].as_str());
        let sentence: String = first.unwrap_or("the tool failed").chars().take(2_000).collect();
        return ToolResult::failed_with(sentence, members);
    }
    ToolResult::done(members)
}

/// Pictures and sounds are no text; what they are is said.
fn leave_data_out(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(leave_data_out),
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if matches!(name.as_str(), "data" | "blob") && text.len() > DATA_MAX => {
                        *text = format!("[{} characters of base64 are left out here]", text.len());
                    }
                    _ => leave_data_out(member),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

async fn start(
    supervisor: &Supervisor,
    client: Client,
    place: &Place,
    command: &[String],
    directory: PathBuf,
) -> Result<(RunningService<RoleClient, Client>, Running), String> {
    let program = Program {
        command: command.iter().map(Into::into).collect(),
        directory,
        environment: place.secret.environment.clone().into_iter().collect(),
        confined: place.terms.network(),
        time: Duration::ZERO,
    };
    let not_started = |error: &dyn std::fmt::Display| format!("The MCP server cannot be started: {error}.");
    let mut running = supervisor.start(&program).map_err(|error| not_started(&error))?;
    let (Some(stdin), Some(stdout), Some(mut stderr)) = (running.stdin(), running.stdout(), running.stderr()) else {
        return Err(not_started(&"it has no streams"));
    };
    let said = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&said);
    // Read to its end, so that the server never waits for us; the end of it explains a server that does not start.
    tokio::spawn(async move {
        let mut buffer = vec![0; 8 << 10];
        while let Ok(read) = stderr.read(&mut buffer).await
            && read > 0
        {
            let mut kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            kept.extend_from_slice(&buffer[..read]);
            let over = kept.len().saturating_sub(SAID_BYTES_MAX);
            kept.drain(..over);
        }
    });
    let transport = rmcp::transport::async_rw::AsyncRwTransport::new_client(stdout, stdin);
    let most = place.terms.connect();
    let serving = timeout(most, client.serve(transport.with_max_line_length(MESSAGE_BYTES_MAX))).await;
    match serving {
        Ok(Ok(service)) => Ok((service, running)),
        Ok(Err(error)) => {
            // What it says last is read by now, or soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let said = redact_text(String::from_utf8_lossy(&said).trim());
            Err(not_started(&if said.is_empty() { redact_text(&error.to_string()) } else { said }))
        }
        Err(_) => Err(late(most)),
    }
}

async fn dial(
    client: Client,
    reach: Reach,
    place: &Place,
    url: &str,
) -> Result<RunningService<RoleClient, Client>, String> {
    let unreachable = |error: &dyn std::fmt::Display| format!("The MCP server cannot be reached: {error}.");
    dialer::address(url, reach).map_err(|barred| unreachable(&barred))?;
    let most = place.terms.connect();
    let http = dialer::streaming(reach, most).map_err(|error| unreachable(&error))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .max_json_response_size(MESSAGE_BYTES_MAX)
        // A call that a server has forgotten is not made a second time behind anybody's back.
        .reinit_on_expired_session(false);
    if let Some(token) = &place.secret.token {
        config = config.auth_header(token.clone());
    }
    let transport = StreamableHttpClientTransport::with_client(http, config);
    let serving = timeout(most, client.serve(transport)).await;
    serving.map_err(|_| late(most))?.map_err(|error| unreachable(&redact_text(&error.to_string())))
}
