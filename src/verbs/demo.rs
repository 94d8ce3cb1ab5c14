//! `midwatch demo`: what it does, on a ledger of its own.

mod post;
mod scene;
mod story;

use std::{
    collections::BTreeSet,
    env, fs,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use midwatch_engine::{Engine, Opening, deployment::Outside, world::World};
use midwatch_events::{engine::Role, id::ProcessId};
use serde_json::json;

use super::trigger::path;
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    serving::{self, Plan, Served, Signals},
};
use scene::Scene;

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Where its ledger, keys and workspaces are [default: a new temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where hooks, API and dashboard are [default: 127.0.0.1:7350; with --once any free port]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Play the story once, read it back from the ledger, and end
    #[arg(long)]
    once: bool,
}

/// A directory that belongs to one demo.
#[derive(Debug)]
struct Place {
    dir: PathBuf,
    temporary: bool,
}

impl Demo {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let place = Place::new(self.dir.as_deref())?;
        if self.once {
            let listen = self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
            let told = story::play(&place, listen).await?;
            told.show(globals)?;
            // What went wrong is kept to be looked at.
            if told.ok && place.temporary {
                place.remove();
            }
            return Ok(if told.ok { ExitCode::SUCCESS } else { ExitCode::from(1) });
        }
        let listen = self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 7350)));
        serve(globals, &place, listen).await
    }
}

async fn serve(globals: &Globals, place: &Place, listen: SocketAddr) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let engine = Engine::open(World::system(), place.opening()?).await?;
    let scene = scene::set(&engine).await?;
    let served = serving::start(engine, &place.plan(listen)).await?;
    let announced = announce(globals, place, &scene, &served).await;
    served.until_asked(&mut signals, announced).await
}

async fn announce(globals: &Globals, place: &Place, scene: &Scene, served: &Served) -> Result<(), Failure> {
    let url = served.url(None).unwrap_or_default();
    let link = served.first_link(&url).await?;
    let (endpoint, secret) = (path(&scene.endpoint), &scene.secret);
    let curl = format!(
        "curl -sS {url}{endpoint} -H 'Authorization: Bearer {secret}' -H 'Content-Type: application/json' \
         -d '{{\"event\":\"order.created\",\"order\":17}}'"
    );
    let confirm = format!("{} trigger confirm {}", place.command(), scene.trigger);
    let answer = json!({
        "url": url, "link": link, "curl": curl, "confirm": confirm, "dir": place.dir, "trigger": scene.trigger,
    });
    globals.output().answer(&answer, || {
        let link = link.clone().unwrap_or_else(|| url.clone());
        format!(
            "Dashboard (the link is good once):\n  {link}\n\
             A routine runs every minute; another one reaches for a file that the boundary keeps from it.\n\
             Post a delivery; the first is a sample that somebody has to read:\n  {curl}\n\
             Confirm it, here or on the trigger's page, and post another one (with another order):\n  {confirm}\n\
             All of it is in {}; Ctrl-C ends it.",
            place.dir.display()
        )
    })
}

impl Place {
    fn new(dir: Option<&Path>) -> Result<Self, Failure> {
        let name = || format!("midwatch-demo-{}", World::system().uuid().simple());
        let (dir, temporary) = dir.map_or_else(|| (env::temp_dir().join(name()), true), |dir| (dir.to_owned(), false));
        let shown = dir.display();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).and_then(|()| dir.canonicalize());
        let dir = made.map_err(|error| Failure::fault("file", format!("cannot use {shown}: {error}")))?;
        let place = Self { dir, temporary };
        if place.database().exists() {
            let sentence =
                format!("{} holds a demo already; choose another --dir, or serve it with", place.dir.display());
            return Err(Failure::bad_request("dir", format!("{sentence} `{} serve`", place.command())));
        }
        Ok(place)
    }

    fn database(&self) -> PathBuf {
        self.dir.join("midwatch.db")
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.database().display())
    }

    /// What stands in front of a verb that is to work on this demo.
    fn command(&self) -> String {
        format!("XDG_STATE_HOME={} midwatch --db {}", self.dir.join("state").display(), self.url())
    }

    /// As a process of a deployment of its own: nothing of the caller's environment belongs to it.
    fn opening(&self) -> Result<Opening, Failure> {
        let process = ProcessId::new(World::system().uuid());
        let state_home = self.dir.join("state/midwatch");
        let outside = Outside { deployment: None, key: None, key_file: None, state_home };
        Ok(Opening { url: self.url(), outside, process, actor: joining::actor(), repeat_window_s: None, halted: false })
    }

    fn plan(&self, listen: SocketAddr) -> Plan {
        Plan {
            roles: BTreeSet::from(Role::ALL),
            listen,
            hooks_listen: None,
            public_url: None,
            commands: None,
            workspace_dir: self.dir.join("workspaces"),
            reach: midwatch_gateway::dialer::Reach::Public,
            halted: false,
        }
    }

    fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "could not be removed");
        }
    }
}
