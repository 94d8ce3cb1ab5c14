//! `midwatch delivery`: what senders sent, and letting it run once more.

use std::process::ExitCode;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use midwatch_engine::redeliveries::{Counted, Matching};
use midwatch_events::{
    Micros,
    id::{DeliveryId, RedeliveryId, TriggerId},
};
use midwatch_ingress::verify_again;
use midwatch_log::views::Order;
use midwatch_projections::{
    deliveries::{Deliveries, DeliveryStatus},
    delivery_redeliveries::{Redeliveries, RedeliveryRow},
};
use serde_json::{Value, json};

use super::{all, equal, trigger::delivered};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, pairs, word},
    typed::id,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Delivery {
    /// Deliveries that match, newest first
    List {
        #[command(flatten)]
        which: Which,
        /// Its sender's own id
        #[arg(long, value_name = "ID")]
        sender_id: Option<String>,
        /// Not more than this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Headers and body of one, exactly as they came; that you read them is recorded
    Read {
        #[arg(value_parser = id::<midwatch_events::id::Delivery>)]
        delivery: DeliveryId,
    },
    /// Check its signature again, with the keys that are sealed now; exit code 1 if it is not right
    Verify {
        #[arg(value_parser = id::<midwatch_events::id::Delivery>)]
        delivery: DeliveryId,
        /// The address senders see, for those who sign it
        #[arg(long, value_name = "URL")]
        public_url: Option<String>,
    },
    /// Let one run once more
    Redeliver {
        #[arg(value_parser = id::<midwatch_events::id::Delivery>)]
        delivery: DeliveryId,
    },
    /// Let all that match run once more, in order; counts them, and does it with --confirm
    RedeliverAll {
        #[command(flatten)]
        which: Which,
        /// Do it, if it is still so many
        #[arg(long, value_name = "COUNT")]
        confirm: Option<u64>,
    },
    /// Redeliveries of many, and how far they are
    Redeliveries,
    /// Stop a redelivery of many; what it let run before runs
    Cancel {
        #[arg(value_parser = id::<midwatch_events::id::Redelivery>)]
        redelivery: RedeliveryId,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Which {
    /// The trigger they came through
    #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Trigger>)]
    trigger: Option<TriggerId>,
    /// What became of them, such as held, filtered or expired
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<DeliveryStatus>,
    /// What their senders say they are about
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Received at or after this instant
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    since: Option<Micros>,
    /// Received before this instant
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    until: Option<Micros>,
}

fn status(text: &str) -> Result<DeliveryStatus, String> {
    serde_json::from_value(json!(text)).map_err(|_| {
        "it is accepted, captured, awaiting_confirmation, filtered, held, queued, started, coalesced, expired, \
         redelivered or refused"
            .to_owned()
    })
}

fn instant(text: &str) -> Result<Micros, String> {
    midwatch_projections::projection::rfc3339::parse(text).ok_or_else(|| "write it as 2026-12-01T08:00:00Z".to_owned())
}

impl Which {
    fn matching(&self) -> Matching {
        Matching {
            trigger: self.trigger,
            status: self.status.map(word),
            event_type: self.event_type.clone(),
            since: self.since,
            until: self.until,
        }
    }
}

impl Delivery {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::List { which, sender_id, limit } => list(globals, &which, sender_id, limit).await,
            Self::Read { delivery } => read(globals, delivery).await,
            Self::Verify { delivery, public_url } => verify(globals, delivery, public_url).await,
            Self::Redeliver { delivery } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.redeliver(delivery, origin, None).await?)
                });
                let answer = json!({ "id": delivery, "position": done.await?.position });
                globals.output().answer(&answer, || format!("Delivery {delivery} waits to run once more"))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::RedeliverAll { which, confirm: None } => count(globals, &which).await,
            Self::RedeliverAll { which, confirm: Some(count) } => redeliver_all(globals, &which, count).await,
            Self::Redeliveries => redeliveries(globals).await,
            Self::Cancel { redelivery } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.cancel_redelivery(redelivery, origin, None).await?)
                });
                let answer = json!({ "id": redelivery, "position": done.await?.position });
                globals.output().answer(&answer, || format!("Redelivery {redelivery} was cancelled"))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

async fn list(globals: &Globals, which: &Which, sender_id: Option<String>, limit: usize) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let mut filters = which.matching().conditions();
        filters.extend(sender_id.map(|id| equal("sender_id", id)));
        let order = Order { column: "position", descending: true };
        all::<Deliveries>(engine, filters, order, Some(limit)).await
    });
    let rows = rows.await?;
    let json: Vec<Value> = rows.iter().map(delivered).collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["ID", "RECEIVED", "TRIGGER", "STATUS", "EVENT TYPE", "RUN"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.received_at.to_string(),
                row.trigger.to_string(),
                word(row.status),
                dash(row.event_type.as_deref()),
                dash(row.run),
            ]);
        }
        table.or("No delivery matches.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn read(globals: &Globals, id: DeliveryId) -> Result<ExitCode, Failure> {
    let read = joining::write(globals, async |engine, origin| Ok(engine.read_delivery(id, origin).await?)).await?;
    let Some(read) = read else {
        return Err(Failure::bad_request("erased", "its headers and body were erased"));
    };
    let (encoding, body) = match String::from_utf8(read.body) {
        Ok(text) => ("utf8", text),
        Err(bytes) => ("base64", STANDARD.encode(bytes.as_bytes())),
    };
    let query = read.query;
    let answer = json!({ "id": id, "headers": read.headers, "query": query, "encoding": encoding, "body": body });
    globals.output().answer(&answer, || {
        let head: String = read.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let head = query.as_ref().map(|query| format!("?{query}\n")).unwrap_or_default() + &head;
        let packed = if encoding == "base64" { "(not UTF-8; in base64)\n" } else { "" };
        format!("{head}\n{packed}{body}")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn verify(globals: &Globals, id: DeliveryId, public_url: Option<String>) -> Result<ExitCode, Failure> {
    let again =
        joining::write(globals, async |engine, _| Ok(verify_again(engine, public_url.as_deref(), id).await?)).await?;
    let code = if again.verified { ExitCode::SUCCESS } else { ExitCode::from(1) };
    globals.output().answer(&again, || {
        pairs(&[
            ("verifies", Some(if again.verified { "yes" } else { "no" }.to_owned())),
            ("key", again.key.map(str::to_owned)),
            ("body", again.body_unchanged.map(|same| if same { "as received" } else { "changed" }.to_owned())),
            ("because", Some(again.sentence.clone())),
        ])
    })?;
    Ok(code)
}

async fn count(globals: &Globals, which: &Which) -> Result<ExitCode, Failure> {
    let counted = joining::read(globals, async |engine| Ok(engine.count_redelivery(&which.matching()).await?));
    let Counted { count, through } = counted.await?;
    globals.output().answer(&json!({ "count": count, "through": through }), || match count {
        0 => "No delivery matches.".to_owned(),
        _ => format!("{count} deliveries match. To let them run once more, ask again with --confirm {count}"),
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn redeliver_all(globals: &Globals, which: &Which, count: u64) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| {
        let matching = which.matching();
        midwatch_engine::projector::catch_up(engine).await?;
        let through = engine.count_redelivery(&matching).await?.through;
        Ok(engine.start_redelivery(&matching, Counted { count, through }, origin, None).await?)
    });
    let done = done.await?;
    let id = done.value;
    globals.output().answer(&json!({ "id": id, "position": done.position }), || {
        format!("Redelivery {id} of {count} deliveries has begun; a process with the role `clock` goes on with it")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn redeliveries(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        all::<Redeliveries>(engine, vec![], Order { column: "position", descending: true }, None).await
    });
    let rows: Vec<RedeliveryRow> = rows.await?;
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["ID", "STARTED", "STATE", "OF", "REDELIVERED", "LEFT OUT"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.started_at.to_string(),
                word(row.state),
                row.count.to_string(),
                row.redelivered.to_string(),
                row.left_out.to_string(),
            ]);
        }
        table.or("There are no redeliveries.")
    })?;
    Ok(ExitCode::SUCCESS)
}
