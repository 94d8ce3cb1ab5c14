//! `midwatch verify`: whether the record holds. Reads only, and needs no key.

use std::process::ExitCode;

use clap::Args;
use midwatch_log::{Log, Open};
use midwatch_replay::verify;

use crate::{cli::Globals, failure::Failure};

#[derive(Args, Debug)]
pub(crate) struct Verify {}

impl Verify {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let log = Log::open(&globals.db, Open::ReadOnly).await?;
        let verification = verify::verify(&log).await;
        log.close().await;
        let verification = verification?;
        globals.output().answer(&verification, || verify::text(&verification))?;
        Ok(if verification.ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}
