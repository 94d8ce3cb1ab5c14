//! `midwatch rebuild`: projections again, from the events.

use std::process::ExitCode;

use clap::Args;
use midwatch_engine::projector;
use serde_json::json;

use crate::{cli::Globals, failure::Failure, joining, table::hint};

#[derive(Args, Debug)]
pub(crate) struct Rebuild {
    /// The one to rebuild; all, if none is named
    projection: Option<String>,
}

impl Rebuild {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let rebuilt = joining::read(globals, async |engine| {
            let mut shown = 0;
            let progress = |name: &str, position: u64, head: u64| {
                // A line for each tenth of the way, and none for a ledger that is done at once.
                let tenth = position.saturating_mul(10).checked_div(head).unwrap_or(10);
                if tenth != shown && tenth < 10 {
                    hint(&format!("{name}: {position} of {head} events"));
                }
                shown = tenth;
            };
            Ok(projector::rebuild(engine, self.projection.as_deref(), progress).await?)
        });
        let rebuilt = rebuilt.await?;
        let answer = json!({ "rebuilt": rebuilt });
        globals.output().answer(&answer, || format!("Rebuilt: {}", rebuilt.join(", ")))?;
        Ok(ExitCode::SUCCESS)
    }
}
