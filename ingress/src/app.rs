//! What every handler is given.

use std::sync::Arc;

use midwatch_engine::Engine;
use midwatch_gateway::mcp_server::Agents;
use tokio::sync::watch;

/// One process's web role. Cheap to clone.
#[derive(Clone, Debug)]
pub struct App {
    /// What is asked of it goes to the engine.
    pub engine: Engine,
    /// How it is set up.
    pub settings: Arc<Settings>,
    /// The agents that make calls here; none in a process that makes no calls.
    pub agents: Option<Agents>,
}

/// How the web role is set up.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The address people and senders see, such as `https://watch.example`; without it pages name this setting instead
    /// of guessing.
    pub public_url: Option<String>,
}

/// Becomes true when the process is to stop: what streams without an end ends then. Every handler finds it as an
/// `Extension<Stopping>`.
#[derive(Clone, Debug)]
pub struct Stopping(pub watch::Receiver<bool>);

impl Stopping {
    /// Comes back when the process is to stop.
    pub async fn wait(&mut self) {
        // A sender that is gone is a process that stops.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
