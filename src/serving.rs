//! One serving process: its roles as tasks, all ended by one stop.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use midwatch_engine::{Engine, clock, projector, reactor, redeliveries, runner};
use midwatch_events::{engine::Role, user::Access};
use midwatch_gateway::{
    Gateway, GatewayOptions,
    child::Supervisor,
    dialer::{Dialer, Reach},
    mcp_server::Agents,
    notices,
    tools::{command::Commands, mcp::Mcp},
};
use midwatch_ingress::{
    App,
    app::Settings,
    server::{self, ServeError, Serving},
};
use midwatch_projections::users::{People, PeopleRow};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    failure::Failure,
    joining,
    verbs::{all, equal, user::sign_in_link},
};

/// How often the highest position seen is kept outside the ledger.
const REMEMBER: Duration = Duration::from_secs(30);
/// How long all roles together may take to end; more than any of them allows itself.
const END: Duration = Duration::from_secs(20);

/// What a process serves.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) listen: SocketAddr,
    pub(crate) hooks_listen: Option<SocketAddr>,
    pub(crate) public_url: Option<String>,
    pub(crate) workspace_dir: PathBuf,
    /// How commands are run, if they are.
    pub(crate) commands: Option<Commands>,
    /// What our own requests may reach.
    pub(crate) reach: Reach,
    /// Nothing starts in this process: it claims no window, follows up nothing, executes nothing.
    pub(crate) halted: bool,
}

/// A process that serves.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) engine: Engine,
    /// Where hooks, API and dashboard are; none without the web role.
    pub(crate) address: Option<SocketAddr>,
    /// Where hooks alone are.
    pub(crate) hooks_address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    roles: JoinSet<&'static str>,
    web: Option<Serving>,
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let code = match &error {
            ServeError::InUse { .. } => "port_in_use",
            ServeError::Address { .. } => "address",
        };
        Self::fault(code, error.to_string())
    }
}

/// Starts what the plan says. Addresses are bound first: a process that cannot listen joins nothing.
pub(crate) async fn start(engine: Engine, plan: &Plan) -> Result<Served, Failure> {
    let started = start_roles(&engine, plan).await;
    if started.is_err() {
        engine.close().await;
    }
    started
}

async fn start_roles(engine: &Engine, plan: &Plan) -> Result<Served, Failure> {
    let (stop, stopped) = watch::channel(false);
    let has = |role| plan.roles.contains(&role);
    let gateway = match has(Role::Runner) && !plan.halted {
        true => Some(gateway(plan)?),
        false => None,
    };
    // Agents that run elsewhere come in by the web, and their calls are made here.
    let agents = gateway.clone().filter(|_| has(Role::Web)).map(|gateway| Agents::new(gateway, engine.clone()));
    let dialer = Dialer::new(plan.reach, notices::PATIENCE)
        .map_err(|error| Failure::fault("notices", format!("notices cannot be posted: {error}")))?;
    let web = match has(Role::Web) {
        true => Some(web(engine, plan, agents.clone(), stopped.clone()).await?),
        false => None,
    };
    let roles: Vec<Role> = plan.roles.iter().copied().collect();
    engine.start_process(env!("CARGO_PKG_VERSION"), &roles).await?;

    let mut tasks = JoinSet::new();
    if has(Role::Projector) {
        tasks.spawn(named("projector", projector::run(engine.clone(), stopped.clone())));
    }
    if has(Role::Clock) && !plan.halted {
        tasks.spawn(named("clock", keep_time(engine.clone(), stopped.clone())));
        tasks.spawn(named("reactor", reactor::run(engine.clone(), stopped.clone())));
        tasks.spawn(named("notices", notices::run(engine.clone(), dialer.clone(), stopped.clone())));
        tasks.spawn(named("redeliverer", redeliveries::run(engine.clone(), stopped.clone())));
    }
    if let Some(gateway) = gateway {
        tasks.spawn(named("runner", runner::run(engine.clone(), gateway.executor(), stopped.clone())));
    }
    if let Some(agents) = agents {
        tasks.spawn(named("desk of agents", agents.look_after(stopped.clone())));
    }
    tasks.spawn(named("memory of the highest position", remember(engine.clone(), stopped)));
    let address = web.as_ref().map(|web| web.listen);
    let hooks_address = web.as_ref().and_then(|web| web.hooks_listen);
    Ok(Served { engine: engine.clone(), address, hooks_address, stop, roles: tasks, web })
}

fn gateway(plan: &Plan) -> Result<Gateway, Failure> {
    let workspace_dir = plan.workspace_dir.clone();
    let failed = |error: std::io::Error| {
        Failure::fault("workspace", format!("cannot use {}: {error}", plan.workspace_dir.display()))
    };
    std::fs::create_dir_all(&workspace_dir).map_err(failed)?;
    let gateway = Gateway::new(GatewayOptions {
        workspace_dir,
        commands: plan.commands.clone(),
        mcp: Some(Mcp::new(Supervisor::this_binary(), plan.reach)),
    });
    gateway.map_err(|error| Failure::fault("gateway", format!("the gateway cannot start: {error}")))
}

async fn web(
    engine: &Engine,
    plan: &Plan,
    agents: Option<Agents>,
    stopped: watch::Receiver<bool>,
) -> Result<Serving, Failure> {
    let settings = Settings { public_url: plan.public_url.clone() };
    let app = App { engine: engine.clone(), settings: Arc::new(settings), agents };
    Ok(server::serve(app, plan.listen, plan.hooks_listen, stopped).await?)
}

async fn named(name: &'static str, role: impl Future<Output = ()>) -> &'static str {
    role.await;
    name
}

/// The clock, once the projections have taken in what happened before this process was there: else it would find nothing
/// due, and sleep.
async fn keep_time(engine: Engine, stopped: watch::Receiver<bool>) {
    if let Ok(head) = engine.log().head().await {
        projector::wait_for(&engine, head).await;
    }
    clock::run(engine, stopped).await;
}

async fn remember(engine: Engine, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        engine.remember().await;
        tokio::select! {
            biased;
            _ = stopped.changed() => {}
            () = sleep(REMEMBER) => {}
        }
    }
}

impl Served {
    /// Serves until asked to end, or until a role breaks, and ends in order. What could not be announced ends it at once.
    pub(crate) async fn until_asked(
        mut self,
        signals: &mut Signals,
        announced: Result<(), Failure>,
    ) -> Result<ExitCode, Failure> {
        let broken = match announced {
            Err(failure) => Some(failure),
            Ok(()) => tokio::select! {
                biased;
                () = signals.asked() => None,
                failure = self.broken() => Some(failure),
            },
        };
        tracing::info!("stopping");
        tokio::select! {
            biased;
            stopped = self.stop() => stopped?,
            // Asked twice: whoever asks does not want to wait.
            () = signals.asked() => return Err(Failure::fault("stopped", "stopped before everything had ended")),
        }
        broken.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// Comes back when a role ended although nobody stopped it, which nothing should ever do.
    async fn broken(&mut self) -> Failure {
        match self.roles.join_next().await {
            Some(ended) => by_itself(ended),
            None => std::future::pending().await,
        }
    }

    /// Ends all roles, says that the process left, and keeps the head outside the ledger.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        let ends = async {
            while let Some(ended) = self.roles.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "a role did not end well");
                }
            }
            if let Some(web) = self.web {
                web.finished().await;
            }
        };
        if timeout(END, ends).await.is_err() {
            tracing::warn!("some roles did not end in time; leaving them");
        }
        let left = self.engine.stop_process().await;
        self.engine.close().await;
        left?;
        Ok(())
    }

    /// Where people find the dashboard; none without the web role.
    pub(crate) fn url(&self, public_url: Option<&str>) -> Option<String> {
        let address = self.address?;
        Some(public_url.map_or_else(|| reachable(address), str::to_owned))
    }

    /// A one-time sign-in link below `url`, as long as no admin has ever signed in.
    pub(crate) async fn first_link(&self, url: &str) -> Result<Option<String>, Failure> {
        projector::catch_up(&self.engine).await?;
        let order = midwatch_log::views::Order { column: "name", descending: false };
        let people = all::<People>(&self.engine, vec![equal("kind", "user")], order, None).await?;
        let came = people.iter().any(|row| match row {
            PeopleRow::User(row) => row.role == Access::Admin && row.signed_in_at.is_some(),
            PeopleRow::Token(_) | PeopleRow::Session(_) | PeopleRow::Link(_) => false,
        });
        if came {
            return Ok(None);
        }
        let secret = self.engine.issue_link(None, &joining::origin(&self.engine)).await?.value;
        Ok(Some(sign_in_link(url, &secret)))
    }
}

fn by_itself(ended: Result<&'static str, JoinError>) -> Failure {
    let what = match ended {
        Ok(name) => format!("the {name} ended by itself"),
        Err(error) => format!("a role broke: {error}"),
    };
    Failure::fault("role", format!("{what}; this process stops, others go on"))
}

/// An address as somebody on this machine reaches it.
fn reachable(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => format!("http://127.0.0.1:{}", v4.port()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => format!("http://[::1]:{}", v6.port()),
        other => format!("http://{other}"),
    }
}

/// Signals that ask this process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::fault("signals", error.to_string()));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
