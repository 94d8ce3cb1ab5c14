//! `midwatch serve`: one process of a deployment.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use midwatch_engine::{Engine, deployment::state_dir, world::World};
use midwatch_events::engine::Role;
use midwatch_gateway::{
    child::{Network, Supervisor},
    dialer::Reach,
    tools::command::Commands,
};
use serde_json::json;

use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    serving::{self, Plan, Signals},
};

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where hooks, API and dashboard are
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7350")]
    listen: SocketAddr,
    /// A second address for hooks alone, to be in reach of the outside
    #[arg(long, value_name = "ADDR")]
    hooks_listen: Option<SocketAddr>,
    /// What this process does
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = role,
        default_value = "web,clock,runner,projector"
    )]
    roles: Vec<Role>,
    /// The address people and senders see, such as `https://watch.example`
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Where the Bots' workspaces are; runners on several machines need one they share [default: beside the state]
    #[arg(long, value_name = "DIR")]
    workspace_dir: Option<PathBuf>,
    /// Whether Bots that are granted it may run commands: `offline` ones touch their workspace and reach nothing over
    /// TCP, `network` ones reach what this machine does, `unconfined` ones may touch whatever this account may
    #[arg(long, value_name = "HOW", value_enum, default_value_t = CommandsAre::Off, env = "MIDWATCH_COMMANDS")]
    commands: CommandsAre,
    /// Let notices be posted to this machine and its networks too, and not to public addresses alone
    #[arg(long)]
    allow_private_addresses: bool,
    /// Start nothing in this process (also MIDWATCH_SCHEDULER=off)
    #[arg(long)]
    halted: bool,
}

/// How commands are run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CommandsAre {
    Off,
    Offline,
    Network,
    Unconfined,
}

impl CommandsAre {
    fn plan(self) -> Option<Commands> {
        let confined = match self {
            Self::Off => return None,
            Self::Offline => Some(Network::None),
            Self::Network => Some(Network::Any),
            Self::Unconfined => None,
        };
        Some(Commands { supervisor: Supervisor::this_binary(), confined })
    }
}

fn role(text: &str) -> Result<Role, String> {
    let names = || Role::ALL.map(Role::name).join(", ");
    Role::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| format!("the roles are {}", names()))
}

impl Serve {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let mut opening = joining::opening(globals)?;
        opening.halted |= self.halted;
        let workspace_dir = state_dir(&opening.outside, &opening.url).join("workspaces");
        let plan = Plan {
            roles: self.roles.iter().copied().collect(),
            listen: self.listen,
            hooks_listen: self.hooks_listen,
            public_url: self.public_url.clone(),
            workspace_dir: self.workspace_dir.clone().unwrap_or(workspace_dir),
            commands: self.commands.plan(),
            reach: if self.allow_private_addresses { Reach::Private } else { Reach::Public },
            halted: opening.halted,
        };
        let mut signals = Signals::new()?;
        let engine = Engine::open(World::system(), opening).await?;
        let served = serving::start(engine, &plan).await?;
        let announced = self.announce(globals, &served).await;
        served.until_asked(&mut signals, announced).await
    }

    async fn announce(&self, globals: &Globals, served: &serving::Served) -> Result<(), Failure> {
        let url = served.url(self.public_url.as_deref());
        let link = match &url {
            Some(url) => served.first_link(url).await?,
            None => None,
        };
        let roles: Vec<_> = self.roles.iter().map(|role| role.name()).collect();
        let hooks = served.hooks_address.map(|address| format!("http://{address}"));
        let answer = json!({
            "listen": served.address.map(|address| format!("http://{address}")),
            "hooks_listen": hooks,
            "url": url,
            "link": link,
            "roles": roles,
        });
        globals.output().answer(&answer, || {
            let mut text = match &url {
                Some(url) => format!("Serving at {url}\n"),
                None => format!("Working as {}\n", roles.join(", ")),
            };
            if let Some(hooks) = &hooks {
                text.push_str(&format!("Hooks alone at {hooks}\n"));
            }
            if let Some(link) = &link {
                text.push_str(&format!("Nobody has signed in yet. The first admin's link, good once: {link}\n"));
            }
            text
        })
    }
}
