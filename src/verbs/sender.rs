//! `midwatch trigger presets|check|send|listen`: what a sender is, whether a sample of it verifies, one of our own.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use midwatch_commands::trigger::Trigger as State;
use midwatch_engine::{Engine, EngineError, world::World};
use midwatch_events::{AnyEvent, StreamName, delivery::DeliveryEvent, id::TriggerId};
use midwatch_ingress::{
    Lock,
    senders::{self, Unsigned, check},
};
use midwatch_log::Filter;
use serde_json::json;

use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    serving::Signals,
    table::{Table, pairs, word},
    typed::{id, text_or_file},
};

/// How often the ledger is looked at for new deliveries.
const LOOK: Duration = Duration::from_millis(500);
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where a server listens if nothing else is said.
const SERVER: &str = "http://127.0.0.1:7350";

#[derive(Debug, Subcommand)]
pub(crate) enum Sender {
    /// The senders that are known, and what to do at theirs
    Presets {
        /// One of them, with its instructions
        name: Option<String>,
    },
    /// Whether a sample request would be let in, and if not, at which step it fails
    Check(Check),
    /// Post a delivery as this trigger's sender would
    Send(Box<Send>),
    /// Show deliveries as they come, until Ctrl-C
    Listen {
        #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
        trigger: TriggerId,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The trigger it is for; else --preset and --secret
    #[arg(value_parser = id::<midwatch_events::id::Trigger>, required_unless_present = "preset")]
    trigger: Option<TriggerId>,
    /// The request: its headers, an empty line, its body
    #[arg(long, value_name = "TEXT|@FILE")]
    request: String,
    /// A preset to check it by
    #[arg(long, value_name = "NAME", requires = "secret", conflicts_with = "trigger")]
    preset: Option<String>,
    /// The template, with --preset template
    #[arg(long, value_name = "TEXT|@FILE", requires = "preset")]
    template: Option<String>,
    /// The secret it was signed with
    #[arg(long, value_name = "TEXT|@FILE", env = "MIDWATCH_TRIGGER_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// The address senders see, for those that sign it
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Send {
    /// The trigger it is posted to
    #[arg(value_parser = id::<midwatch_events::id::Trigger>)]
    trigger: TriggerId,
    /// The body
    #[arg(long, value_name = "TEXT|@FILE", default_value = "{\"hello\":\"midwatch\"}")]
    body: String,
    /// What kind it is
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    /// Its id, where this sender gives one; a new one, if nothing is said
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// What it is about, where this sender says so in a header
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// The secret; needed where it is sent along, since only its hash is kept, and where the sender signs with another
    /// key than is known here
    #[arg(long, value_name = "TEXT|@FILE", env = "MIDWATCH_TRIGGER_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// The server to post to
    #[arg(long, value_name = "URL", default_value = SERVER)]
    to: String,
    /// The address senders see, for those that sign it [default: --to]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
}

fn bad(sentence: String) -> Failure {
    Failure::bad_request("invalid", sentence)
}

impl Sender {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Presets { name: Some(name) } => preset(globals, &name),
            Self::Presets { name: None } => presets(globals),
            Self::Check(check) => check.run(globals).await,
            Self::Send(send) => send.run(globals).await,
            Self::Listen { trigger } => listen(globals, trigger).await,
        }
    }
}

fn presets(globals: &Globals) -> Result<ExitCode, Failure> {
    let all: Vec<_> = senders::all().collect();
    let json: Vec<_> = all.iter().map(|preset| json!({ "name": preset.name, "title": preset.title })).collect();
    globals.output().answer(&json, || {
        let mut table = Table::new(&["NAME", "SENDER"]);
        all.iter().for_each(|preset| table.row(vec![preset.name.clone(), preset.title.clone()]));
        table.or("")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn preset(globals: &Globals, name: &str) -> Result<ExitCode, Failure> {
    let preset = senders::find(name).map_err(|error| bad(error.to_string()))?;
    let text = senders::text(name).unwrap_or_default();
    let answer = json!({
        "name": preset.name,
        "title": preset.title,
        "setup": preset.setup,
        "source": preset.source,
        "text": text,
    });
    globals.output().answer(&answer, || {
        format!("{}\n\n{}\n\nAfter {}; as it is read here:\n\n{text}", preset.title, preset.setup, preset.source)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A trigger's state; refused where there is none.
async fn state(engine: &Engine, trigger: TriggerId) -> Result<State, Failure> {
    let state = engine.load::<State>(&StreamName::trigger(trigger)).await?.state;
    state.existing()?;
    Ok(state)
}

impl Check {
    async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let pasted = check::paste(&text_or_file(&self.request)?).map_err(bad)?;
        let secret = self.secret.as_deref().map(text_or_file).transpose()?;
        let template = self.template.as_deref().map(text_or_file).transpose()?;
        let now = World::system().clock.now();
        let url = self.public_url.as_deref().map(|url| url.trim_end_matches('/'));
        let verdict = match (self.trigger, self.preset.as_deref()) {
            (Some(trigger), _) => {
                joining::write(globals, async |engine, _| {
                    let state = state(engine, trigger).await?;
                    let lock = Lock::of(engine, trigger, &state)?;
                    let url = url.map(|url| format!("{url}{}", super::trigger::path(&state.endpoint)));
                    let (pointers, cap) = (&state.intake.id_pointers, state.intake.body_bytes_max);
                    Ok(check::check(&lock.preset, &lock.held(now), pointers, &pasted, url.as_deref(), cap, now))
                })
                .await?
            }
            (None, preset) => {
                let sender = (preset.unwrap_or("bearer"), template.as_deref());
                check::by_preset(sender, secret.as_deref().unwrap_or_default(), &pasted, url, now).map_err(bad)?
            }
        };
        let code = if verdict.verified { ExitCode::SUCCESS } else { ExitCode::from(1) };
        globals.output().answer(&verdict, || {
            let only =
                "the signature is right, and only the time is not: usual for a request that was sent a while ago";
            pairs(&[
                ("verifies", Some(if verdict.verified { "yes" } else { "no" }.to_owned())),
                ("failed at", verdict.step.map(word)),
                ("because", Some(verdict.sentence.clone()).filter(|_| !verdict.verified)),
                ("but", Some(only.to_owned()).filter(|_| verdict.only_too_old)),
                ("id", verdict.id.clone()),
                ("event type", verdict.event_type.clone()),
            ])
        })?;
        Ok(code)
    }
}

impl Send {
    async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let given = self.secret.as_deref().map(text_or_file).transpose()?.map(|secret| secret.trim().to_owned());
        let (preset, endpoint, sealed) = joining::write(globals, async |engine, _| {
            let state = state(engine, self.trigger).await?;
            let preset = senders::of_scheme(state.scheme.as_ref()).map_err(bad)?;
            let sealed = state.secret.and_then(|secret| secret.sealed);
            let sealed = sealed.map(|sealed| engine.secrets()?.unsealed(self.trigger, &sealed.0)).transpose()?;
            Ok((preset, state.endpoint, sealed))
        })
        .await?;
        let secret = given.or(sealed).ok_or_else(|| {
            bad("give the trigger's secret with --secret or MIDWATCH_TRIGGER_SECRET: only its hash is kept here"
                .to_owned())
        })?;
        let path = super::trigger::path(&endpoint);
        let to = self.to.trim_end_matches('/');
        let url = format!("{}{path}", self.public_url.as_deref().unwrap_or(to).trim_end_matches('/'));
        let body = text_or_file(&self.body)?;
        let new_id = World::system().uuid().to_string();
        let unsigned = Unsigned {
            secret: &secret,
            body: body.as_bytes(),
            content_type: &self.content_type,
            id: self.id.as_deref().unwrap_or(&new_id),
            event_type: self.event_type.as_deref(),
            url: &url,
            now: World::system().clock.now(),
        };
        let out = senders::sign(&preset, &unsigned).map_err(bad)?;
        let query = out.query.map(|query| format!("?{query}")).unwrap_or_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none()).build();
        let client = client.map_err(|error| Failure::fault("client", error.to_string()))?;
        let mut request = client.post(format!("{to}{path}{query}")).body(out.body);
        for (name, value) in &out.headers {
            request = request.header(name, value);
        }
        let failed = |error: reqwest::Error| {
            Failure::fault(
                "unreachable",
                format!("nothing could be posted to {to}: {}; is a server running there?", error.without_url()),
            )
        };
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let text = response.text().await.map_err(failed)?;
        let answer = json!({ "status": status.as_u16(), "body": text });
        globals.output().answer(&answer, || format!("{status}\n{text}"))?;
        Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

async fn listen(globals: &Globals, trigger: TriggerId) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let engine = Engine::open_reader(World::system(), joining::opening(globals)?).await?;
    let asked = async {
        state(&engine, trigger).await?;
        let filter = Filter { event_types: vec!["delivery.received".to_owned()], ..Filter::default() };
        let mut after = engine.log().head().await?;
        tracing::info!("waiting for deliveries");
        loop {
            let (page, scanned) = engine.log().read_all(after, 200, &filter).await?;
            after = after.max(scanned);
            for recorded in &page {
                let event = AnyEvent::decode(recorded).map_err(EngineError::from)?;
                let AnyEvent::Delivery(DeliveryEvent::Received(received), _) = event else { continue };
                if received.trigger == trigger {
                    shown(globals, recorded, &received)?;
                }
            }
            if page.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
    };
    let ended = tokio::select! {
        ended = asked => ended,
        () = signals.asked() => Ok(ExitCode::SUCCESS),
    };
    engine.close().await;
    ended
}

fn shown(
    globals: &Globals,
    recorded: &midwatch_events::Recorded,
    received: &midwatch_events::delivery::Received,
) -> Result<(), Failure> {
    let at = recorded.recorded_at.to_string();
    let answer = json!({
        "id": received.delivery,
        "received_at": at,
        "status": received.status,
        "event_type": received.event_type,
        "body_bytes": received.body_bytes,
    });
    globals.output().answer(&answer, || {
        let about = received.event_type.as_deref().unwrap_or("-");
        format!("{at}  {}  {}  {about}  {} bytes", received.delivery, word(received.status), received.body_bytes)
    })
}
