//! The gateway as an MCP server: an agent that runs elsewhere uses a Bot's granted tools through the one door.
//!
//! Its calls live in a run of cause `session`, opened by its first call: one for each MCP session, and one for each
//! token that comes without any (the protocol has none since 2026-07-28). The run is this process's; another process
//! knows neither it nor the MCP session, says so (404), and the client opens a new one there.
//!
//! An agent is always unattended: no token is a person who watches.

mod handler;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use midwatch_engine::{
    Engine,
    people::Agent,
    sessions::{SESSION_S, Sessions, Sitting, ending},
};
use midwatch_events::{
    id::TokenId,
    run::{Outcome, Reason},
};
use rmcp::{
    RoleServer,
    service::Peer,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use crate::{
    Gateway,
    approval::told,
    decide::{Answer, AnswerKind, Call, Stop},
};

pub use handler::Handler;

/// An agent that makes no call for so long has left.
const IDLE: Duration = Duration::from_secs(1_800);
/// After the run of a token without MCP sessions was ended by somebody, none is opened for it for so long.
const REST: Duration = Duration::from_secs(600);
/// How often it is looked who has left.
const SWEEP: Duration = Duration::from_secs(30);
/// MCP sessions of one token in one process, at once.
const SESSIONS_OF_A_TOKEN_MAX: usize = 32;
/// MCP sessions, and runs of agents, in one process at once.
const SESSIONS_MAX: usize = 256;
/// Calls under way in one run at once.
const CALLS_MAX: usize = 64;
/// Longest message of an agent, in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How long a client may take to be told that its tools changed.
const TELL_MAX: Duration = Duration::from_secs(1);

/// Becomes true when whoever sent a request is gone. It stands in the request's extensions, beside the [`Agent`].
#[derive(Clone, Debug)]
pub struct Gone(pub watch::Receiver<bool>);

/// The agents that one process serves. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    desk: Arc<Desk>,
    service: StreamableHttpService<Handler, LocalSessionManager>,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Agents")
    }
}

/// Where agents sit.
pub(crate) struct Desk {
    gateway: Gateway,
    sessions: Sessions,
    seats: tokio::sync::Mutex<HashMap<Seat, Taken>>,
    rooms: Mutex<HashMap<String, Room>>,
    peers: Mutex<Vec<Peer<RoleServer>>>,
}

/// Whose run it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    token: TokenId,
    session: Option<String>,
}

enum Taken {
    Live(Box<Live>),
    /// Somebody ended its run at this monotonic time.
    Over(Duration),
}

struct Live {
    sitting: Sitting,
    since: Duration,
    used: Duration,
    /// Each call under way has one more.
    calls: Arc<()>,
}

/// An MCP session: whose it is, and when it was used last, in monotonic time.
struct Room {
    token: TokenId,
    used: Duration,
}

impl Agents {
    /// Serves agents through `gateway`.
    #[must_use]
    pub fn new(gateway: Gateway, engine: Engine) -> Self {
        let desk = Arc::new(Desk {
            gateway,
            sessions: Sessions::new(engine),
            seats: tokio::sync::Mutex::default(),
            rooms: Mutex::default(),
            peers: Mutex::default(),
        });
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(IDLE);
        manager.session_config.sse_retry = None;
        // Whoever mounts it looks at host and origin. An answer that broke off is not sent again: a call whose agent
        // went away while a person was asked is withdrawn.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_sse_retry(None)
            .with_max_request_body_bytes(MESSAGE_BYTES_MAX);
        let handler = Handler::new(Arc::clone(&desk));
        let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(manager), config);
        Self { desk, service }
    }

    /// What makes their calls.
    #[must_use]
    pub fn gateway(&self) -> &Gateway {
        &self.desk.gateway
    }

    /// What answers requests that carry an [`Agent`] and whether it is [`Gone`].
    #[must_use]
    pub fn service(&self) -> &StreamableHttpService<Handler, LocalSessionManager> {
        &self.service
    }

    /// Whether this MCP session is this token's, in this process.
    #[must_use]
    pub fn knows(&self, session: &str, token: TokenId) -> bool {
        let now = self.desk.now();
        let mut rooms = self.desk.rooms();
        let own = rooms.get_mut(session).filter(|room| room.token == token);
        own.map(|room| room.used = now).is_some()
    }

    /// Whether the token may open one more.
    #[must_use]
    pub fn has_room(&self, token: TokenId) -> bool {
        let rooms = self.desk.rooms();
        let own = rooms.values().filter(|room| room.token == token).count();
        rooms.len() < SESSIONS_MAX && own < SESSIONS_OF_A_TOKEN_MAX
    }

    /// The token has opened an MCP session.
    pub fn enter(&self, session: String, token: TokenId) {
        let used = self.desk.now();
        self.desk.rooms().insert(session, Room { token, used });
        self.desk.sessions.watch(true);
    }

    /// The agent has ended its MCP session.
    pub async fn leave(&self, session: &str, token: TokenId) {
        self.desk.rooms().remove(session);
        let seat = Seat { token, session: Some(session.to_owned()) };
        let taken = self.desk.seats.lock().await.remove(&seat);
        if let Some(Taken::Live(live)) = taken {
            let left = ending(Outcome::Succeeded, None, "The agent ended its session");
            self.desk.sessions.close(live.sitting.job.run, &left).await;
        }
    }

    /// Keeps sessions alive and ends those that were left, until told to stop; then all of them.
    pub async fn look_after(self, mut stop: watch::Receiver<bool>) {
        let stopped = stop.clone();
        let swept = async {
            let mut offers = self.desk.sessions.offers();
            let clock = Arc::clone(&self.desk.sessions.engine().world().clock);
            loop {
                tokio::select! {
                    biased;
                    () = told(&mut stop) => break,
                    Ok(()) = offers.changed() => self.desk.tell().await,
                    () = clock.sleep(SWEEP) => self.desk.sweep().await,
                }
            }
            // Streams without an end end now.
            self.service.config.cancellation_token.cancel();
        };
        tokio::join!(swept, self.desk.sessions.look_after(stopped));
    }
}

impl Desk {
    fn now(&self) -> Duration {
        self.sessions.engine().world().clock.monotonic()
    }

    fn rooms(&self) -> std::sync::MutexGuard<'_, HashMap<String, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peers(&self) -> std::sync::MutexGuard<'_, Vec<Peer<RoleServer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call of an agent, to its answer. Whatever stands in its way is an answer too.
    pub(crate) async fn call(&self, agent: Agent, seat: Seat, call: Call, gone: watch::Receiver<bool>) -> Answer {
        let (sitting, _under_way) = match self.sit(agent, seat).await {
            Ok(sitting) => sitting,
            Err(sentence) => return refused(sentence),
        };
        let Sitting { job, mut called_off } = sitting;
        tokio::select! {
            biased;
            () = told(&mut called_off) => over(),
            () = too_old(&job) => refused("the lease of this session's run could not be renewed".to_owned()),
            done = Box::pin(self.gateway.call_while(&job, call, gone)) => match done {
                Ok(answer) => answer,
                Err(Stop::Lost(_)) => over(),
                Err(stop @ (Stop::Lease | Stop::Engine(_))) => refused(stop.to_string()),
            },
        }
    }

    /// The run of a seat, opened if it has none.
    async fn sit(&self, agent: Agent, seat: Seat) -> Result<(Sitting, Arc<()>), String> {
        let now = self.now();
        let mut seats = self.seats.lock().await;
        match seats.get_mut(&seat) {
            Some(Taken::Live(live)) if !*live.sitting.called_off.borrow() => {
                if Arc::strong_count(&live.calls) > CALLS_MAX {
                    return Err(format!("{CALLS_MAX} calls of this session are under way; wait for one of them"));
                }
                live.used = now;
                return Ok((live.sitting.clone(), Arc::clone(&live.calls)));
            }
            Some(Taken::Live(live)) => {
                let run = live.sitting.job.run;
                seats.insert(seat, Taken::Over(now));
                self.sessions.close(run, &called_off()).await;
                return Err(OVER.to_owned());
            }
            Some(Taken::Over(since)) if seat.session.is_some() || now.saturating_sub(*since) < REST => {
                return Err(OVER.to_owned());
            }
            Some(Taken::Over(_)) | None => {}
        }
        let live = seats.values().filter(|taken| matches!(taken, Taken::Live(_))).count();
        if live >= SESSIONS_MAX {
            return Err(format!("this process holds {SESSIONS_MAX} sessions already; try again later"));
        }
        let sitting = self.sessions.open(agent).await.map_err(|error| error.to_string())?;
        let calls = Arc::new(());
        let live = Live { sitting: sitting.clone(), since: now, used: now, calls: Arc::clone(&calls) };
        seats.insert(seat, Taken::Live(Box::new(live)));
        drop(seats);
        Ok((sitting, calls))
    }

    /// Tells all clients that they may be offered other tools; whoever does not hear it is forgotten.
    async fn tell(&self) {
        let peers = std::mem::take(&mut *self.peers());
        for peer in peers {
            if matches!(timeout(TELL_MAX, peer.notify_tool_list_changed()).await, Ok(Ok(()))) {
                self.peers().push(peer);
            }
        }
    }

    /// Ends the runs of those who left, and of those whose time is over.
    async fn sweep(&self) {
        let now = self.now();
        self.rooms().retain(|_, room| now.saturating_sub(room.used) < IDLE + SWEEP);
        let mut ended = Vec::new();
        {
            let mut seats = self.seats.lock().await;
            seats.retain(|_, taken| match taken {
                Taken::Over(since) => now.saturating_sub(*since) < IDLE,
                Taken::Live(live) => match overdue(live, now) {
                    None => true,
                    Some((over, how)) => {
                        ended.push((live.sitting.job.run, how));
                        if over {
                            *taken = Taken::Over(now);
                        }
                        over
                    }
                },
            });
        }
        for (run, how) in ended {
            self.sessions.close(run, &how).await;
        }
        let somebody = !self.rooms().is_empty();
        self.sessions.watch(somebody);
    }
}

/// How a run must end now, if it must, and whether its session is over with it.
fn overdue(live: &mut Live, now: Duration) -> Option<(bool, midwatch_engine::runner::Ending)> {
    if *live.sitting.called_off.borrow() {
        return Some((true, called_off()));
    }
    if now.saturating_sub(live.since) >= Duration::from_secs(u64::from(SESSION_S)) {
        let headline = format!("It took longer than its {SESSION_S} s");
        return Some((false, ending(Outcome::TimedOut, Some(Reason::Deadline), &headline)));
    }
    if Arc::strong_count(&live.calls) > 1 {
        live.used = now;
    }
    let left = now.saturating_sub(live.used) >= IDLE;
    let headline = format!("The agent made no call for {} s", IDLE.as_secs());
    left.then(|| (false, ending(Outcome::Succeeded, None, &headline)))
}

/// How a run ends that somebody else has ended: it has ended already.
fn called_off() -> midwatch_engine::runner::Ending {
    ending(Outcome::Cancelled, Some(Reason::Person), "Somebody called it off")
}

const OVER: &str = "the run of this session was ended, and nothing goes on in it; open a new session to begin another";

fn over() -> Answer {
    refused(OVER.to_owned())
}

/// Refused before any rule was asked.
fn refused(reason: String) -> Answer {
    let text = json!({"ok": false, "refused": true, "reason": reason, "rule": null}).to_string();
    Answer { kind: AnswerKind::Refused, text, sentence: Some(reason), circles: false }
}

/// Comes back when the lease is too old to act on.
async fn too_old(job: &midwatch_engine::runner::Job) {
    let clock = &job.engine.world().clock;
    loop {
        let left = job.alive.left(clock.monotonic());
        if left.is_zero() {
            return;
        }
        clock.sleep(left).await;
    }
}
