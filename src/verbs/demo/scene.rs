//! Who is there when the story begins: a Bot, a boundary, routines, a trigger.

use midwatch_boundary::{BoundaryDoc, Rule, Verdict, default_document};
use midwatch_engine::{
    Engine, Origin,
    routines::NewRoutine,
    triggers::{NewSecret, NewTrigger},
};
use midwatch_events::{
    Micros,
    id::{BotId, RoutineId, TriggerId},
    routine::{Limits, Work},
    trigger::Intake,
};
use serde_json::{Value, json};

use crate::{failure::Failure, joining};

/// The rule that stops a call.
pub(super) const RULE: &str = "no-passwords";

/// What was made.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) bot: BotId,
    /// Runs every minute, and at once.
    pub(super) every_minute: RoutineId,
    /// One of its calls is refused.
    pub(super) curious: RoutineId,
    /// Works when a delivery comes.
    pub(super) orders: RoutineId,
    pub(super) trigger: TriggerId,
    pub(super) endpoint: String,
    pub(super) secret: String,
}

pub(super) async fn set(engine: &Engine) -> Result<Scene, Failure> {
    let origin = joining::origin(engine);
    let bot = engine.register_bot("demo", None, &origin, None).await?.value;
    engine.publish_boundary(&boundary().to_json(), "Passwords are nobody's work", None, &origin, None).await?;

    let now = engine.log().store_time().await?;
    let notes = json!({ "path": "log.txt", "contents": "One minute more.\n", "append": true });
    let steps = [("computer_list_files", json!({ "path": "." })), ("computer_write_file", notes)];
    // Counted from an anchor that has passed, so that the minute that runs now is due at once.
    let minutes = json!({ "kind": "every", "zone": "UTC", "minutes": 1, "anchor": "2026-01-01T00:00:00Z" });
    let every_minute = routine(engine, &origin, bot, "Every minute", minutes, recording(&steps), None).await?;

    let asks = json!({ "path": "passwords.txt" });
    let steps = [("computer_list_files", json!({})), ("computer_read_file", asks)];
    let soon = once(Micros(now.0 + 1_999_999));
    let curious = routine(engine, &origin, bot, "Curious", soon, recording(&steps), None).await?;

    let steps = [("computer_write_file", json!({ "path": "orders/{{order}}.txt", "contents": "Order {{order}}\n" }))];
    let mut work = recording(&steps);
    work["variables"] = json!({ "order": { "pointer": "/order" } });
    let far = json!({ "kind": "once", "at": "2099-12-31T00:00:00Z" });
    let orders = routine(engine, &origin, bot, "Orders", far, work, None).await?;

    let new = NewTrigger {
        name: "Orders".to_owned(),
        routine: Some(orders),
        bot: None,
        instruction: None,
        intake: Intake::default(),
        limits: Limits::default(),
        scheme: None,
        secret: NewSecret::Made,
        owner: None,
    };
    let made = engine.create_trigger(&new, &origin, None).await?.value;
    let secret = made.secret.unwrap_or_default();
    Ok(Scene { bot, every_minute, curious, orders, trigger: made.id, endpoint: made.endpoint, secret })
}

fn boundary() -> BoundaryDoc {
    let mut rule = Rule::new(RULE, "Keep off passwords", Verdict::Deny, r#"contains(file.path, "password")"#);
    rule.cost = "A file that is called password-rules.md cannot be read either.".to_owned();
    let mut document = default_document();
    document.rules.insert(0, rule);
    document
}

fn recording(steps: &[(&str, Value)]) -> Value {
    let steps = steps.iter().map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments }));
    json!({ "steps": steps.collect::<Vec<_>>() })
}

/// Once, in the whole second that `at` lies in.
pub(super) fn once(at: Micros) -> Value {
    json!({ "kind": "once", "at": Micros(at.seconds() * 1_000_000).to_string() })
}

/// A routine whose single window is `at`; with no grace at all, so that it is missed when no clock runs at that instant.
pub(super) async fn without_grace(engine: &Engine, bot: BotId, at: Micros) -> Result<RoutineId, Failure> {
    let steps = recording(&[("computer_list_files", json!({}))]);
    routine(engine, &joining::origin(engine), bot, "Too late", once(at), steps, Some(0)).await
}

async fn routine(
    engine: &Engine,
    origin: &Origin,
    bot: BotId,
    name: &str,
    schedule: Value,
    recording: Value,
    grace_s: Option<u32>,
) -> Result<RoutineId, Failure> {
    let usual = Limits::default();
    let new = NewRoutine {
        name: name.to_owned(),
        bot,
        schedule: schedule.to_string(),
        work: Work { instruction: None, recording: Some(recording.to_string()) },
        limits: Limits { grace_s: grace_s.unwrap_or(usual.grace_s), ..usual },
        owner: None,
    };
    Ok(engine.create_routine(&new, origin, None).await?.value)
}
