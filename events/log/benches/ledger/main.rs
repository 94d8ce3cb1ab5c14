//! Measures the ledger, one thing per call; `benches/run.sh` calls it and puts the lines beside those of others.
//!
//! `ledger append URL CALLERS SECONDS [distinct|hot|lane]`, `ledger pair URL CALLERS SECONDS`,
//! `ledger alone FILE CONNECTIONS SECONDS`, `ledger fill URL EVENTS`, `ledger replay URL`, `ledger verify URL`.
//! Each prints one line of JSON.
#![expect(clippy::print_stdout, reason = "its lines are its result")]

mod alone;
mod append;
mod pair;
mod replay;
mod samples;

use std::{
    error::Error,
    io::{BufRead as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use midwatch_log::{Log, Open};

use crate::append::Mode;

/// Whatever went wrong; it ends the program.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "ledger append URL CALLERS SECONDS [distinct|hot|lane] | pair URL CALLERS SECONDS | \
    alone FILE CONNECTIONS SECONDS | fill URL EVENTS | replay URL | verify URL";

fn main() -> ExitCode {
    // cargo bench adds a flag of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        println!("nothing to measure by itself; use benches/run.sh\n{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(measure(&words.iter().map(String::as_str).collect::<Vec<_>>())));
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(words: &[&str]) -> Outcome<String> {
    match *words {
        ["append", url, callers, seconds, ref rest @ ..] => {
            let mode = Mode::named(rest.first().copied().unwrap_or("distinct"))?;
            let log = Log::open(url, Open::ReadWrite).await?;
            if rest.contains(&"on-go") {
                wait_for_go()?;
            }
            let line = append::callers(&log, callers.parse()?, duration(seconds)?, mode).await?;
            log.close().await;
            Ok(line)
        }
        ["pair", url, callers, seconds] => pair::two_processes(url, callers.parse()?, seconds),
        ["alone", file, connections, seconds] => {
            alone::one_transaction_each(file, connections.parse()?, duration(seconds)?).await
        }
        ["fill", url, events] => replay::fill(url, events.parse()?).await,
        ["replay", url] => replay::replay(url).await,
        ["verify", url] => replay::verify(url).await,
        _ => Err(USAGE.into()),
    }
}

fn duration(seconds: &str) -> Outcome<Duration> {
    Ok(Duration::from_secs_f64(seconds.parse()?))
}

/// Says that the ledger is open, and starts when told to: two processes start together.
fn wait_for_go() -> Outcome<()> {
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
