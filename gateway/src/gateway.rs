//! What the gateway stands on: rule threads, the compiled boundary, workspaces.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use midwatch_boundary::{BoundaryDoc, Compiled, Judge, Judgement, compile_lenient};
use midwatch_commands::{boundary::ToolServers, run::APPROVAL_S};
use midwatch_engine::{EngineError, runner::Executor};
use midwatch_events::id::BotId;
use tokio::sync::oneshot;

use crate::{
    child,
    executor::Work,
    tools::{ToolDefinition, command, command::Commands, files, mcp, mcp::Mcp},
};

/// How a gateway is set up.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The directory that holds one workspace per Bot.
    pub workspace_dir: PathBuf,
    /// How commands are run; none where the deployment has not turned them on.
    pub commands: Option<Commands>,
    /// How MCP servers are reached; none where they are not.
    pub mcp: Option<Mcp>,
}

impl GatewayOptions {
    /// Nothing but files.
    #[must_use]
    pub fn files(workspace_dir: impl Into<PathBuf>) -> Self {
        Self { workspace_dir: workspace_dir.into(), commands: None, mcp: None }
    }
}

/// The gateway of one process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: GatewayOptions,
    judge: Judge,
    compiled: Mutex<Option<(u64, Arc<Compiled>)>>,
    tools: Vec<ToolDefinition>,
    approval_s: i64,
}

impl Gateway {
    /// Starts the rule threads.
    ///
    /// # Errors
    /// The system has no threads to give.
    pub fn new(options: GatewayOptions) -> std::io::Result<Self> {
        Self::asking(options, APPROVAL_S)
    }

    /// As [`Gateway::new`]; persons have `approval_s` seconds to answer.
    ///
    /// # Errors
    /// The system has no threads to give.
    pub fn asking(options: GatewayOptions, approval_s: i64) -> std::io::Result<Self> {
        if options.commands.is_some() {
            // A command belongs to the same account, and our environment holds our key.
            child::hide()?;
        }
        let judge = Judge::new(2)?;
        let mut tools = files::definitions();
        if options.commands.is_some() {
            tools.push(command::definition());
        }
        Ok(Self { inner: Arc::new(Inner { options, judge, compiled: Mutex::new(None), tools, approval_s }) })
    }

    /// How long a person has to answer, in seconds.
    pub(crate) fn approval_s(&self) -> i64 {
        self.inner.approval_s
    }

    /// What the runner role is handed to execute runs with.
    #[must_use]
    pub fn executor(&self) -> Arc<dyn Executor> {
        Arc::new(Work::new(self.clone()))
    }

    /// How commands are run, if they are.
    pub(crate) fn commands(&self) -> Option<&Commands> {
        self.inner.options.commands.as_ref()
    }

    /// How MCP servers are reached, if they are.
    #[must_use]
    pub fn mcp(&self) -> Option<&Mcp> {
        self.inner.options.mcp.as_ref()
    }

    /// All tools there are: this binary's, and those of MCP servers as they were accepted. A Bot is granted some.
    #[must_use]
    pub fn tools(&self, servers: &ToolServers) -> Vec<ToolDefinition> {
        let mut tools = self.inner.tools.clone();
        if self.mcp().is_some() {
            tools.extend(mcp::definitions(servers));
        }
        tools
    }

    /// Where a Bot's files are.
    ///
    /// # Errors
    /// A sentence for the Bot and the record.
    pub(crate) fn workspace(&self, bot: BotId) -> Result<files::Workspace, String> {
        files::Workspace::open(&self.inner.options.workspace_dir, bot).map_err(|error| error.to_string())
    }

    /// The boundary of a version, compiled once. A rule that does not compile any more is broken, which for a deny rule
    /// means that it refuses.
    pub(crate) fn compiled(&self, version: u64, document: &str) -> Result<Arc<Compiled>, EngineError> {
        let mut kept = self.inner.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, compiled)) = kept.as_ref().filter(|(known, _)| *known == version) {
            return Ok(Arc::clone(compiled));
        }
        let document = BoundaryDoc::parse(document)
            .map_err(|error| EngineError::Fault(format!("the boundary in force cannot be read: {error}")))?;
        let compiled = Arc::new(compile_lenient(&document));
        *kept = Some((version, Arc::clone(&compiled)));
        Ok(compiled)
    }

    /// Judges a call on a rule thread; none when no verdict came, which refuses.
    pub(crate) async fn judge(
        &self,
        compiled: Arc<Compiled>,
        context: midwatch_boundary::Context,
    ) -> Option<Judgement> {
        let (reply, answer) = oneshot::channel();
        self.inner.judge.submit(compiled, context, move |judgement| {
            // Nobody waits any more when the run was called off.
            let _ = reply.send(judgement);
        });
        answer.await.ok()
    }
}
