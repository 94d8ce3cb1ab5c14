//! `midwatch notice`: who is told what happens here, and what became of telling it.

use std::process::ExitCode;

use clap::Subcommand;
use midwatch_engine::notices::NewReceiver;
use midwatch_events::{
    engine::NoticeKind,
    id::{NoticeId, ReceiverId},
};
use midwatch_gateway::{
    dialer::{self, Reach},
    notices::shown,
};
use midwatch_log::views::Order;
use midwatch_projections::{
    engine_notices::Notices,
    engine_receivers::{ReceiverState, Receivers},
};
use serde_json::json;

use super::{all, equal};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, word},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Notice {
    /// Tell a program what happens here from now on, signed as Standard Webhooks says
    Add {
        /// What people call it
        #[arg(long)]
        name: String,
        /// Where notices are posted to
        #[arg(long)]
        url: String,
        /// What it is told: run_ended, run_failed, run_refused, missed, held, suspended, approval_waiting,
        /// going_in_circles, halt
        #[arg(long, value_delimiter = ',', value_parser = kind)]
        about: Vec<NoticeKind>,
        /// Tell it that the clock goes, this often, so that silence alarms
        #[arg(long, value_name = "SECONDS")]
        heartbeat_s: Option<u32>,
    },
    /// Tell it nothing more
    Remove {
        #[arg(value_parser = id::<midwatch_events::id::Receiver>)]
        receiver: ReceiverId,
    },
    /// Who is told
    Receivers,
    /// The key that a receiver checks notices with
    Secret {
        #[arg(value_parser = id::<midwatch_events::id::Receiver>)]
        receiver: ReceiverId,
    },
    /// What was told, newest first
    List {
        /// Only to this receiver
        #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Receiver>)]
        receiver: Option<ReceiverId>,
        /// Not more than this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Post one once more
    Again {
        #[arg(value_parser = id::<midwatch_events::id::Notice>)]
        notice: NoticeId,
    },
}

fn kind(text: &str) -> Result<NoticeKind, String> {
    let names = || NoticeKind::ALL.map(word).join(", ");
    serde_json::from_value(json!(text)).map_err(|_| format!("there are {}", names()))
}

impl Notice {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Add { name, url, about, heartbeat_s } => {
                let url = dialer::address(&url, Reach::Private);
                let url = url.map_err(|barred| Failure::bad_request("invalid_url", barred.to_string()))?;
                add(globals, NewReceiver { name, url: url.into(), about, heartbeat_s }).await
            }
            Self::Remove { receiver } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.remove_receiver(receiver, origin, None).await?)
                });
                let answer = json!({ "id": receiver, "position": done.await?.position });
                globals.output().answer(&answer, || format!("Receiver {receiver} is told nothing more"))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Receivers => receivers(globals).await,
            Self::Secret { receiver } => {
                let secret =
                    joining::write(globals, async |engine, _| Ok(engine.receiver_secret(receiver).await?)).await?;
                let secret = shown(&secret);
                globals.output().answer(&json!({ "id": receiver, "secret": secret }), || secret.clone())?;
                Ok(ExitCode::SUCCESS)
            }
            Self::List { receiver, limit } => list(globals, receiver, limit).await,
            Self::Again { notice } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.ask_notice_again(notice, origin, None).await?)
                });
                let answer = json!({ "id": notice, "position": done.await?.position });
                globals.output().answer(&answer, || format!("Notice {notice} is posted once more"))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

async fn add(globals: &Globals, new: NewReceiver) -> Result<ExitCode, Failure> {
    let added = joining::write(globals, async |engine, origin| {
        let done = engine.add_receiver(&new, origin, None).await?;
        let secret = engine.receiver_secret(done.value).await?;
        Ok((done.value, shown(&secret)))
    });
    let (id, secret) = added.await?;
    globals.output().answer(&json!({ "id": id, "secret": secret }), || {
        format!("{id}\nIts notices are signed with {secret}\n`midwatch notice secret {id}` shows it again.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn receivers(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let active = equal("state", word(ReceiverState::Active));
        all::<Receivers>(engine, vec![active], Order { column: "position", descending: false }, None).await
    });
    let rows = rows.await?;
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["ID", "NAME", "URL", "ABOUT", "HEARTBEAT"]);
        for row in &rows {
            let about: Vec<_> = row.about.iter().map(word).collect();
            table.row(vec![
                row.id.to_string(),
                dash(row.name.as_deref()),
                dash(row.url.as_deref()),
                about.join(","),
                dash(row.heartbeat_s.map(|every| format!("{every} s"))),
            ]);
        }
        table.or("Nobody is told; `midwatch notice add` changes that.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn list(globals: &Globals, receiver: Option<ReceiverId>, limit: usize) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let of = receiver.map(|id| equal("receiver", id)).into_iter().collect();
        all::<Notices>(engine, of, Order { column: "position", descending: true }, Some(limit)).await
    });
    let rows = rows.await?;
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["ID", "RAISED", "KIND", "STATE", "ATTEMPTS", "NEXT", "LAST ERROR"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.raised_at.to_string(),
                word(row.kind),
                word(row.state),
                row.attempts.to_string(),
                dash(row.due),
                dash(row.error.as_deref()),
            ]);
        }
        table.or("Nothing was told yet.")
    })?;
    Ok(ExitCode::SUCCESS)
}
