//! `/mcp`: where agents that run elsewhere use a Bot's tools.
//!
//! Who asks is settled here, before the protocol: the token is in the `Authorization` header and nowhere else, a browser
//! comes from our own pages or not at all, the host is one that we are known by, and an MCP session belongs to the token
//! that opened it. A cookie is nobody here: no person's session makes an agent's calls.

use std::{net::IpAddr, pin::Pin};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, header},
    response::Response,
};
use futures_util::{Stream, StreamExt as _, stream};
use midwatch_engine::people::Agent;
use midwatch_gateway::mcp_server::{Agents, Gone};
use tokio::sync::watch;

use crate::{
    app::App,
    auth::{bearer, same_origin},
    error::{Kind, Problem},
};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Longest id of a session that is looked up, in characters.
const SESSION_CHARS_MAX: usize = 200;

/// Serves one request of an MCP client.
pub(crate) async fn serve(State(app): State<App>, mut request: Request) -> Result<Response, Problem> {
    let agents = app.agents.as_ref().ok_or_else(not_here)?;
    if request.uri().query().is_some() {
        let sentence = "this address takes no query; send the token as `Authorization: Bearer mwb_…`";
        return Err(Problem::bad("query", sentence));
    }
    from_here(&app, request.headers())?;
    let agent = agent(&app, request.headers()).await?;
    let session = session(request.headers())?;
    match &session {
        Some(session) if !agents.knows(session, agent.token) => return Err(no_session()),
        None if opens(&request) && !agents.has_room(agent.token) => return Err(too_many()),
        Some(_) | None => {}
    }
    let ends = request.method() == Method::DELETE;
    let (left, gone) = watch::channel(false);
    let leaves = Leaves { left, answered: false };
    request.extensions_mut().insert(agent);
    request.extensions_mut().insert(Gone(gone));
    let answer = Box::pin(agents.service().handle(request)).await;
    settle(agents, agent, session, ends, answer.status(), answer.headers()).await;
    let (parts, body) = answer.into_parts();
    Ok(Response::from_parts(parts, watched(Body::new(body), leaves)))
}

/// Whether it may open an MCP session: what comes later says the version that was agreed on.
fn opens(request: &Request) -> bool {
    request.method() == Method::POST && !request.headers().contains_key(VERSION)
}

/// What the answer says of the session: a new one is this token's, one that was ended is nobody's.
async fn settle(
    agents: &Agents,
    agent: Agent,
    session: Option<String>,
    ends: bool,
    status: StatusCode,
    headers: &HeaderMap,
) {
    match session {
        Some(session) if ends && status.is_success() => agents.leave(&session, agent.token).await,
        Some(_) => {}
        None => {
            if let Some(opened) = headers.get(SESSION).and_then(|id| id.to_str().ok()) {
                agents.enter(opened.to_owned(), agent.token);
            }
        }
    }
}

/// A browser's request comes from our own pages, and every request to a host that we are known by: a page that has
/// another name for this address is somebody else's.
fn from_here(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(header::ORIGIN) || headers.contains_key(SEC_FETCH_SITE) {
        same_origin(app, headers)?;
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = without_port(host);
    let public = app.settings.public_url.as_deref().and_then(|url| url.split_once("://"));
    let public = public.map(|(_, rest)| without_port(rest.split('/').next().unwrap_or_default()));
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if address || name.eq_ignore_ascii_case("localhost") || public.is_some_and(|own| own.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let sentence = "this server does not know itself by this host name; start it with --public-url";
    Err(Problem::new(StatusCode::FORBIDDEN, Kind::Refusal, "host", sentence))
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

async fn agent(app: &App, headers: &HeaderMap) -> Result<Agent, Problem> {
    let found = match bearer(headers) {
        Some(secret) => app.engine.agent_by_token(secret).await?,
        None => None,
    };
    found.ok_or_else(|| {
        let sentence =
            "send an agent's token as `Authorization: Bearer mwb_…`; `midwatch token add --bot BOT` makes one";
        let problem = Problem::new(StatusCode::UNAUTHORIZED, Kind::Refusal, "unauthenticated", sentence);
        problem.header(header::WWW_AUTHENTICATE, "Bearer")
    })
}

fn session(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(SESSION) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| text.len() <= SESSION_CHARS_MAX);
    text.map(|text| Some(text.to_owned())).ok_or_else(no_session)
}

/// Clients open a new session then, as MCP says: so does one that comes to another process than before.
fn no_session() -> Problem {
    let sentence = "there is no such MCP session here; send `initialize` without Mcp-Session-Id to open one";
    Problem::new(StatusCode::NOT_FOUND, Kind::Refusal, "no_session", sentence)
}

fn too_many() -> Problem {
    let sentence = "too many MCP sessions are open; end one of them, or wait until one that is not used is closed";
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, Kind::Refusal, "too_many_sessions", sentence);
    Problem { retry_after_s: Some(60), ..problem }
}

fn not_here() -> Problem {
    let sentence = "this process makes no calls: ask one that has the roles web and runner, and is not halted";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Refusal, "no_runner", sentence);
    Problem { retry_after_s: Some(60), ..problem }
}

/// Says that whoever asked is gone, when it is dropped before the answer was whole.
struct Leaves {
    left: watch::Sender<bool>,
    answered: bool,
}

impl Leaves {
    /// The answer was whole.
    fn whole(mut self) {
        self.answered = true;
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        if !self.answered {
            self.left.send_replace(true);
        }
    }
}

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// The same answer; where it breaks off, that is said.
fn watched(body: Body, leaves: Leaves) -> Body {
    let pieces: Pieces = Box::pin(body.into_data_stream());
    Body::from_stream(stream::unfold((pieces, leaves), |(mut pieces, leaves)| async move {
        match pieces.next().await {
            Some(piece) => Some((piece, (pieces, leaves))),
            None => {
                leaves.whole();
                None
            }
        }
    }))
}
