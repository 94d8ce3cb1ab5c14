//! The one binary: composes what the crates hold.

mod cli;
mod failure;
#[cfg(feature = "serve")]
mod joining;
mod output;
#[cfg(feature = "serve")]
mod serving;
#[cfg(feature = "serve")]
mod table;
mod typed;
mod verbs;

use std::{
    env,
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use clap::{Parser as _, error::ErrorKind};
use tracing_subscriber::EnvFilter;

use cli::Cli;
use failure::Failure;

fn main() -> ExitCode {
    // Not a verb for people: the same binary stands between us and each program that we start.
    #[cfg(feature = "serve")]
    if env::args_os().nth(1).is_some_and(|first| first == midwatch_gateway::child::VERB) {
        return midwatch_gateway::child::main(env::args_os().skip(2));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    log(&cli);
    #[cfg(feature = "serve")]
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // One was installed already: there is TLS, which is all that is wanted.
        tracing::debug!("a TLS provider was there already");
    }
    let json = cli.globals.json;
    run(cli).unwrap_or_else(|failure| failure.report(json))
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::fault("runtime", format!("no thread could be started: {error}")))?;
    let ended = runtime.block_on(Box::pin(verbs::run(cli.verb, &cli.globals)));
    // What still hangs on a connection must not keep the program.
    runtime.shutdown_background();
    ended
}

/// Help and version are answers; everything else is a bad request in one sentence.
fn not_understood(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Printing fails only where nobody reads.
        let _ = error.print();
        return if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let said = error.to_string();
    let sentence: Vec<&str> = said.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).collect();
    let sentence = sentence.iter().filter(|line| !line.is_empty() && !line.starts_with("For more")).copied();
    let sentence = sentence.collect::<Vec<_>>().join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let json = env::args_os().any(|argument| argument == "--json");
    Failure::bad_request("usage", format!("{sentence}; see --help")).report(json)
}

/// The program's own log goes to standard error, so that answers stay by themselves.
fn log(cli: &Cli) {
    #[cfg(feature = "serve")]
    let level = if matches!(cli.verb, cli::Verb::Serve(_)) { "info" } else { "warn" };
    #[cfg(not(feature = "serve"))]
    let level = "warn";
    let filter = env::var("MIDWATCH_LOG").ok().and_then(|text| EnvFilter::try_new(text).ok());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|| EnvFilter::new(level)))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    if cli.globals.log_json { builder.json().init() } else { builder.init() }
}
