//! `midwatch trigger`: public endpoints that turn deliveries into runs.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use midwatch_boundary::filter::Passes;
use midwatch_commands::{
    Refusal,
    trigger::{Trigger as State, TriggerCommand},
};
use midwatch_engine::{Done, projector, triggers::NewTrigger, world::World};
use midwatch_events::{
    StreamName,
    id::{BotId, DeliveryId, RoutineId, TriggerId, UserId},
    routine::Limits,
    trigger::{Intake, WhenBusy},
};
use midwatch_ingress::senders;
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    deliveries::{Deliveries, DeliveryRow},
    triggers::{TriggerRow, Triggers},
};
use serde_json::{Value, json};

use super::{all, equal, routine::NewLimits, sender::Sender};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, pairs, word},
    typed::{id, text_or_file},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Trigger {
    /// Make a trigger; its secret is shown this once
    Create(Create),
    /// All triggers
    List,
    /// One trigger
    Show {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
    },
    /// Say that the sample was read: deliveries become runs from here on
    Confirm {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
        /// The delivery that was read; refused if that is not the sample
        #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Delivery>)]
        delivery: Option<DeliveryId>,
    },
    /// Answer as if it did not exist, until resumed
    Pause {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
    },
    /// Answer again
    Resume {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
    },
    /// Close it for good; its history stays
    Delete {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
    },
    /// Give it another secret, shown this once
    Rotate {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
        /// How long the old secret stays good too
        #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
        overlap_s: u32,
        /// The new key, where the sender signs and shows it itself
        #[arg(long, value_name = "TEXT|@FILE")]
        secret: Option<String>,
    },
    /// Let another kind of sender post to it, or take its id from elsewhere in the body
    Edit {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
        /// The sender, as `trigger presets` names it; the old secret opens nothing any more
        #[arg(long, value_name = "NAME", required_unless_present = "id_pointers")]
        preset: Option<String>,
        /// How the sender signs, with --preset template
        #[arg(long, value_name = "TEXT|@FILE", requires = "preset")]
        template: Option<String>,
        /// The key the sender signs with, where it is the sender who shows it
        #[arg(long, value_name = "TEXT|@FILE", requires = "preset")]
        secret: Option<String>,
        /// JSON pointers into the body whose values together are a delivery's id; `` takes them away
        #[arg(long = "id-pointer", value_name = "POINTER")]
        id_pointers: Vec<String>,
    },
    #[command(flatten)]
    Sender(Sender),
    /// Take deliveries in by other rules; what is not said stays as it is
    Intake {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
        #[command(flatten)]
        intake: NewIntake,
        /// Change nothing: show which of the last 100 deliveries would pass
        #[arg(long)]
        preview: bool,
    },
    /// What came through it, newest first
    Deliveries {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
        /// Not more than this many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// What people call it
    #[arg(long)]
    name: String,
    /// The routine that deliveries run
    #[arg(
        long,
        value_name = "ID",
        value_parser = id::<midwatch_events::id::Routine>,
        conflicts_with_all = ["bot", "instruction"],
        required_unless_present = "bot"
    )]
    routine: Option<RoutineId>,
    /// Or the Bot that works by --instruction
    #[arg(long, value_name = "ID", value_parser = id::<midwatch_events::id::Bot>, requires = "instruction")]
    bot: Option<BotId>,
    /// What that Bot is told
    #[arg(long, value_name = "TEXT|@FILE", requires = "bot")]
    instruction: Option<String>,
    /// The sender, as `trigger presets` names it
    #[arg(long, value_name = "NAME", default_value = "bearer")]
    preset: String,
    /// How the sender signs, with --preset template
    #[arg(long, value_name = "TEXT|@FILE")]
    template: Option<String>,
    /// The key the sender signs with, where it is the sender who shows it
    #[arg(long, value_name = "TEXT|@FILE")]
    secret: Option<String>,
    #[command(flatten)]
    limits: NewLimits,
    #[command(flatten)]
    intake: NewIntake,
    /// Whose rights its runs have; the first admin's, if nothing is said
    #[arg(long, value_name = "USER", value_parser = id::<midwatch_events::id::User>)]
    owner: Option<UserId>,
}

#[derive(Args, Debug)]
pub(crate) struct NewIntake {
    /// The largest body [default: 1000000, or what the preset says]
    #[arg(long, value_name = "BYTES")]
    body_bytes_max: Option<u32>,
    /// How long an equal body without an id is the same delivery; 0 is off [default: 600]
    #[arg(long, value_name = "SECONDS")]
    duplicate_window_s: Option<u32>,
    /// JSON pointers into the body whose values together are a delivery's id, where the sender gives no good one; `` takes
    /// them away
    #[arg(long = "id-pointer", value_name = "POINTER")]
    id_pointers: Vec<String>,
    /// How many deliveries may wait [default: 100]
    #[arg(long, value_name = "N")]
    queue_max: Option<u32>,
    /// How long one may wait [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    queue_age_s: Option<u32>,
    /// What happens while its target is busy: queue (it waits), coalesce (the newest alone waits), refuse (409)
    #[arg(long, value_name = "HOW", value_parser = when_busy)]
    when_busy: Option<WhenBusy>,
    /// An event type it takes, whole or its beginning and a `*`; may be repeated; `` takes all
    #[arg(long = "event-type", value_name = "TYPE")]
    event_types: Option<Vec<String>>,
    /// A condition in CEL over `headers`, `body` and `event_type`; `` takes it away
    #[arg(long, value_name = "CEL|@FILE")]
    filter: Option<String>,
    /// How many authentic deliveries it takes in a minute, over all processes; 0 is any number
    #[arg(long, value_name = "N")]
    per_minute_max: Option<u32>,
    /// For how many days headers and bodies are kept; 0 is for ever
    #[arg(long, value_name = "DAYS")]
    kept_days: Option<u32>,
}

fn when_busy(text: &str) -> Result<WhenBusy, String> {
    match text {
        "queue" => Ok(WhenBusy::Queue),
        "coalesce" => Ok(WhenBusy::Coalesce),
        "refuse" => Ok(WhenBusy::Refuse),
        _ => Err("it is queue, coalesce or refuse".to_owned()),
    }
}

impl NewIntake {
    /// These rules, and where nothing is said those of `usual`.
    fn over(&self, usual: Intake) -> Result<Intake, Failure> {
        let filter = self.filter.as_deref().map(text_or_file).transpose()?;
        let types = |types: &Vec<String>| types.iter().filter(|text| !text.is_empty()).cloned().collect();
        Ok(Intake {
            body_bytes_max: self.body_bytes_max.unwrap_or(usual.body_bytes_max),
            duplicate_window_s: self.duplicate_window_s.unwrap_or(usual.duplicate_window_s),
            queue_max: self.queue_max.unwrap_or(usual.queue_max),
            queue_age_s: self.queue_age_s.unwrap_or(usual.queue_age_s),
            when_busy: self.when_busy.unwrap_or(usual.when_busy),
            event_types: self.event_types.as_ref().map_or(usual.event_types, types),
            filter: filter.map_or(usual.filter, |text| Some(text).filter(|text| !text.trim().is_empty())),
            per_minute_max: self.per_minute_max.map_or(usual.per_minute_max, |max| Some(max).filter(|max| *max > 0)),
            kept_days: self.kept_days.map_or(usual.kept_days, |days| Some(days).filter(|days| *days > 0)),
            id_pointers: match self.id_pointers.is_empty() {
                true => usual.id_pointers,
                false => {
                    let given = self.id_pointers.iter().filter(|pointer| !pointer.is_empty()).cloned();
                    senders::id_pointers(&given.collect::<Vec<_>>()).map_err(bad)?
                }
            },
        })
    }
}

impl Trigger {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(create) => create.run(globals).await,
            Self::List => list(globals).await,
            Self::Show { trigger } => show(globals, trigger).await,
            Self::Confirm { trigger, delivery } => {
                let done = joining::write(globals, async |engine, origin| {
                    Ok(engine.confirm_trigger(trigger, delivery, origin, None).await?)
                });
                changed(globals, trigger, "is confirmed: the next deliveries run", &done.await?)
            }
            Self::Pause { trigger } => change(globals, trigger, "was paused", TriggerCommand::Pause).await,
            Self::Resume { trigger } => change(globals, trigger, "was resumed", TriggerCommand::Resume).await,
            Self::Delete { trigger } => change(globals, trigger, "was deleted", TriggerCommand::Delete).await,
            Self::Rotate { trigger, overlap_s, secret } => rotate(globals, trigger, overlap_s, secret).await,
            Self::Edit { trigger, preset, template, secret, id_pointers } => {
                edit(globals, trigger, (preset, template, secret), &id_pointers).await
            }
            Self::Sender(sender) => Box::pin(sender.run(globals)).await,
            Self::Intake { trigger, intake, preview: true } => preview(globals, trigger, &intake).await,
            Self::Intake { trigger, intake, preview: false } => replace_intake(globals, trigger, &intake).await,
            Self::Deliveries { trigger, limit } => deliveries(globals, trigger, limit).await,
        }
    }
}

/// Where a trigger's deliveries are posted to, below the server's address.
pub(crate) fn path(endpoint: &str) -> String {
    format!("/hooks/{endpoint}")
}

impl Create {
    async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let read = |text: &Option<String>| text.as_deref().map(text_or_file).transpose();
        let (template, given) = (read(&self.template)?, read(&self.secret)?);
        let random = World::system().random::<32>();
        let prepared = senders::prepare(&self.preset, template.as_deref(), given.as_deref(), random).map_err(bad)?;
        let mut usual = Intake::default();
        usual.body_bytes_max = prepared.preset.body_bytes_max.unwrap_or(usual.body_bytes_max);
        let new = NewTrigger {
            name: self.name,
            routine: self.routine,
            bot: self.bot,
            instruction: self.instruction.as_deref().map(text_or_file).transpose()?,
            intake: self.intake.over(usual)?,
            limits: self.limits.over(&Limits::default()),
            scheme: prepared.scheme.clone(),
            secret: prepared.secret.clone(),
            owner: self.owner,
        };
        let made =
            joining::write(globals, async |engine, origin| Ok(engine.create_trigger(&new, origin, None).await?));
        let made = made.await?.value;
        let path = path(&made.endpoint);
        let secret = prepared.made.clone().or(made.secret);
        let mut answer = json!({ "id": made.id, "endpoint": made.endpoint, "path": path, "secret": secret });
        if let Some(token) = &prepared.verify_token {
            answer["verify_token"] = json!(token);
        }
        globals.output().answer(&answer, || {
            let shown = pairs(&[
                ("id", Some(made.id.to_string())),
                ("path", Some(path.clone())),
                ("secret", secret.clone()),
                ("verify token", prepared.verify_token.clone()),
            ]);
            let kept = if secret.is_some() { "The secret is shown this once. " } else { "" };
            let setup = if self.preset == "bearer" { String::new() } else { format!("{}\n", prepared.preset.setup) };
            format!("{shown}{setup}{kept}Post a first delivery, read it, then confirm the trigger.")
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn bad(sentence: String) -> Failure {
    Failure::bad_request("invalid", sentence)
}

async fn change(globals: &Globals, id: TriggerId, what: &str, command: TriggerCommand) -> Result<ExitCode, Failure> {
    let done =
        joining::write(globals, async |engine, origin| Ok(engine.change_trigger(id, origin, None, command).await?));
    changed(globals, id, what, &done.await?)
}

fn changed(globals: &Globals, id: TriggerId, what: &str, done: &Done<()>) -> Result<ExitCode, Failure> {
    let answer = json!({ "id": id, "position": done.position });
    globals.output().answer(&answer, || format!("Trigger {id} {what}"))?;
    Ok(ExitCode::SUCCESS)
}

async fn rotate(globals: &Globals, id: TriggerId, overlap_s: u32, secret: Option<String>) -> Result<ExitCode, Failure> {
    let given = secret.as_deref().map(text_or_file).transpose()?;
    let rotated = joining::write(globals, async |engine, origin| {
        let state = engine.load::<State>(&StreamName::trigger(id)).await?.state;
        state.existing()?;
        let random = World::system().random::<32>();
        let renewed = senders::renew(state.scheme.as_ref(), given.as_deref(), random).map_err(bad)?;
        let done = engine.rotate_secret(id, &renewed.secret, overlap_s, origin, None).await?;
        Ok((renewed.made.or(done.value), renewed.verify_token))
    });
    let (secret, verify_token) = rotated.await?;
    let mut answer = json!({ "id": id, "secret": secret });
    if let Some(token) = &verify_token {
        answer["verify_token"] = json!(token);
    }
    globals.output().answer(&answer, || {
        let token = verify_token.as_ref().map(|token| format!("verify token {token}\n")).unwrap_or_default();
        let old = match overlap_s {
            0 => "The old secret opens nothing any more".to_owned(),
            more => format!("The old secret is good for {more} more seconds"),
        };
        match &secret {
            Some(secret) => format!("{secret}\n{token}{old}; this one is shown this once."),
            None => format!("{token}{old}."),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A preset's name, a template and a key, as they were given.
type GivenSender = (Option<String>, Option<String>, Option<String>);

async fn edit(globals: &Globals, id: TriggerId, sender: GivenSender, pointers: &[String]) -> Result<ExitCode, Failure> {
    let (preset, template, given) = sender;
    let read = |text: &Option<String>| text.as_deref().map(text_or_file).transpose();
    let (template, given) = (read(&template)?, read(&given)?);
    let random = World::system().random::<32>();
    let prepared = preset.map(|name| senders::prepare(&name, template.as_deref(), given.as_deref(), random));
    let prepared = prepared.transpose().map_err(bad)?;
    let wanted: Vec<String> = pointers.iter().filter(|pointer| !pointer.is_empty()).cloned().collect();
    let wanted = senders::id_pointers(&wanted).map_err(bad)?;
    let made = joining::write(globals, async |engine, origin| {
        if !pointers.is_empty() {
            let loaded = engine.load::<State>(&StreamName::trigger(id)).await?;
            let intake = Intake { id_pointers: wanted.clone(), ..loaded.state.intake };
            engine.replace_intake(id, &intake, Some(loaded.version), origin, None).await?;
        }
        match &prepared {
            None => Ok(None),
            Some(new) => {
                let done = engine.replace_sender(id, (new.scheme.clone(), &new.secret), None, origin, None).await?;
                Ok(new.made.clone().or(done.value))
            }
        }
    });
    let secret = made.await?;
    let setup = prepared.as_ref().filter(|new| new.scheme.is_some()).map(|new| new.preset.setup.clone());
    let mut answer = json!({ "id": id, "secret": secret });
    if let Some(token) = prepared.as_ref().and_then(|new| new.verify_token.clone()) {
        answer["verify_token"] = json!(token);
    }
    globals.output().answer(&answer, || {
        let shown = secret.as_ref().map(|secret| format!("\nIts secret is {secret}, shown this once"));
        let setup = setup.map(|setup| format!("\n{setup}"));
        format!("Trigger {id} is changed{}{}", shown.unwrap_or_default(), setup.unwrap_or_default())
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn replace_intake(globals: &Globals, id: TriggerId, given: &NewIntake) -> Result<ExitCode, Failure> {
    let done = joining::write(globals, async |engine, origin| {
        let loaded = engine.load::<midwatch_commands::trigger::Trigger>(&StreamName::trigger(id)).await?;
        let intake = given.over(loaded.state.intake)?;
        Ok(engine.replace_intake(id, &intake, Some(loaded.version), origin, None).await?)
    });
    changed(globals, id, "takes deliveries in by these rules", &done.await?)
}

async fn preview(globals: &Globals, id: TriggerId, given: &NewIntake) -> Result<ExitCode, Failure> {
    let previewed = joining::read(globals, async |engine| {
        let loaded = engine.load::<midwatch_commands::trigger::Trigger>(&StreamName::trigger(id)).await?;
        Ok(engine.preview_filter(id, &given.over(loaded.state.intake)?).await?)
    });
    let previewed = previewed.await?;
    let word = |passes: &Option<Passes>| match passes {
        Some(Passes::Yes) => ("yes", None),
        Some(Passes::No) => ("no", None),
        Some(Passes::Broken(why)) => ("broken", Some(why.clone())),
        None => ("erased", None),
    };
    let json: Vec<Value> = previewed
        .iter()
        .map(|one| {
            let (passes, why) = word(&one.passes);
            json!({ "delivery": one.delivery.id, "event_type": one.delivery.event_type, "passes": passes, "why": why })
        })
        .collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["DELIVERY", "RECEIVED", "EVENT TYPE", "PASSES"]);
        for one in &previewed {
            let (passes, why) = word(&one.passes);
            let received = one.delivery.received_at.to_string();
            let passes = why.map_or(passes.to_owned(), |why| format!("{passes}: {why}"));
            table.row(vec![one.delivery.id.to_string(), received, dash(one.delivery.event_type.as_deref()), passes]);
        }
        table.or("No delivery has come through this trigger yet.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn list(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        let there = Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) };
        all::<Triggers>(engine, vec![there], Order { column: "name", descending: false }, None).await
    });
    let rows = rows.await?;
    globals.output().answer(&rows, || {
        let mut table = Table::new(&["ID", "NAME", "STATE", "CONFIRMED", "WAITING", "LAST RECEIVED", "PATH"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.name.clone(),
                word(row.state),
                confirmed(row).to_owned(),
                row.waiting.len().to_string(),
                dash(row.last_received_at),
                path(&row.endpoint),
            ]);
        }
        table.or("There are no triggers; `midwatch trigger create` makes one.")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn confirmed(row: &TriggerRow) -> &'static str {
    match (row.confirmed, row.sample) {
        (true, _) => "yes",
        (false, Some(_)) => "sample to read",
        (false, None) => "no delivery yet",
    }
}

async fn show(globals: &Globals, id: TriggerId) -> Result<ExitCode, Failure> {
    let row = joining::read(globals, async |engine| Ok(projector::get::<Triggers>(engine, &id.to_string()).await?));
    let row = row.await?.ok_or(Refusal::NotFound("trigger"))?;
    globals.output().answer(&row, || {
        let counts: Vec<_> = row.counts.iter().map(|(status, count)| format!("{} {count}", word(status))).collect();
        pairs(&[
            ("id", Some(row.id.to_string())),
            ("name", Some(row.name.clone())),
            ("state", Some(word(row.state))),
            ("path", Some(path(&row.endpoint))),
            ("sender", Some(row.scheme.as_ref().map_or("bearer", |scheme| &scheme.preset).to_owned())),
            ("confirmed", Some(confirmed(&row).to_owned())),
            ("sample", row.sample.map(|id| id.to_string())),
            ("routine", row.routine.map(|id| id.to_string())),
            ("Bot", row.bot.map(|id| id.to_string())),
            ("deliveries", Some(counts.join(", ")).filter(|counts| !counts.is_empty())),
            ("waiting", Some(row.waiting.len().to_string())),
            ("last received", row.last_received_at.map(|at| at.to_string())),
            ("secret last used", row.secret_used_at.map(|at| at.to_string())),
            ("old secret until", row.old_secret_until.map(|at| at.to_string())),
            ("old secret last used", row.old_secret_used_at.map(|at| at.to_string())),
            ("created", Some(row.created_at.to_string())),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn deliveries(globals: &Globals, id: TriggerId, limit: Option<usize>) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        projector::get::<Triggers>(engine, &id.to_string()).await?.ok_or(Refusal::NotFound("trigger"))?;
        let order = Order { column: "position", descending: true };
        all::<Deliveries>(engine, vec![equal("trigger", id)], order, limit).await
    });
    let rows = rows.await?;
    let json: Vec<Value> = rows.iter().map(delivered).collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["ID", "RECEIVED", "STATUS", "EVENT TYPE", "RUN"]);
        for row in &rows {
            table.row(vec![
                row.id.to_string(),
                row.received_at.to_string(),
                word(row.status),
                dash(row.event_type.as_deref()),
                dash(row.run),
            ]);
        }
        table.or("No delivery has come through this trigger yet.")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The members scripts may rely on.
pub(super) fn delivered(row: &DeliveryRow) -> Value {
    json!({
        "id": row.id,
        "received_at": row.received_at.to_string(),
        "status": row.status,
        "event_type": row.event_type,
        "run": row.run,
    })
}
