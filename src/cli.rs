//! The command line: what can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{output::Output, verbs};

/// Lets AI Bots work while nobody is watching, and lets anybody find out afterwards exactly what they did.
#[derive(Debug, Parser)]
#[command(name = "midwatch", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes, before or after its name.
#[derive(Args, Clone, Debug)]
pub(crate) struct Globals {
    /// The ledger: sqlite://FILE or postgres://USER@HOST/DATABASE
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "MIDWATCH_DB",
        hide_env_values = true,
        default_value = "sqlite://midwatch.db"
    )]
    pub(crate) db: String,
    /// Answer in JSON; an error is then {kind, code, message} on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The file that holds the deployment's key (else MIDWATCH_KEY, else the state directory)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Write the program's own log as JSON
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
}

impl Globals {
    pub(crate) fn output(&self) -> Output {
        Output { json: self.json }
    }
}

/// What can be asked for. The two that an auditor's build has come first.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// What a Bot did, how things stood at any moment, and what led to what
    #[command(subcommand)]
    Replay(verbs::replay::Replay),
    /// Whether the record holds: everything that can be computed again is
    Verify(verbs::verify::Verify),
    /// Serve hooks, API and dashboard, and do the work
    #[cfg(feature = "serve")]
    Serve(verbs::serve::Serve),
    /// Show what it does on a ledger of its own, with a Bot, a boundary, a routine and a trigger
    #[cfg(feature = "serve")]
    Demo(verbs::demo::Demo),
    /// Make, change and look at routines
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Routine(verbs::routine::Routine),
    /// Run a routine now, look at runs, call one off
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Run(verbs::run::Run),
    /// Make, confirm and look at triggers and their deliveries
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Trigger(verbs::trigger::Trigger),
    /// Look for deliveries, and let them run once more
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Delivery(verbs::delivery::Delivery),
    /// Tell programs what happens here: who is told, and what became of it
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Notice(verbs::notice::Notice),
    /// Make Bots known, and grant them tools
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Bot(verbs::bot::Bot),
    /// Make MCP servers known, look at their tools, and accept these
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Mcp(verbs::mcp::Mcp),
    /// Answer calls that a rule says to ask a person about
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Approval(verbs::approval::Approval),
    /// Look at, check, try and publish the rules that every tool call is judged by
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Boundary(verbs::boundary::Boundary),
    /// What was done, newest first: audit 'bot:ops decision:refused since:7d text:"invoice"'
    #[cfg(feature = "serve")]
    Audit(verbs::audit::Audit),
    /// Build projections again from the events, while serving
    #[cfg(feature = "serve")]
    Rebuild(verbs::rebuild::Rebuild),
    /// Erase words of people and senders; what was decided and counted stays
    #[cfg(feature = "serve")]
    Erase(verbs::erase::Erase),
    /// Stop everything from starting, until lifted
    #[cfg(feature = "serve")]
    Halt(verbs::halt::Halt),
    /// People, and the links they sign in by
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    User(verbs::user::User),
    /// Tokens for the API
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Token(verbs::token::Token),
    /// When a schedule would be due; needs no ledger
    #[cfg(feature = "serve")]
    #[command(subcommand)]
    Schedule(verbs::schedule::Schedule),
    /// Whether everything is as it should be
    #[cfg(feature = "serve")]
    Doctor(verbs::doctor::Doctor),
}
