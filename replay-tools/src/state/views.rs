//! States as JSON. Each names every member of its state, so that one added later is not forgotten here.

use midwatch_commands::{
    bot::Bot,
    boundary::{Boundary, ToolServers},
    delivery::Delivery,
    engine::Engine,
    repeat::{Attempt, Repeat},
    routine::{Phase, Routine},
    run::{Approval, Run},
    target::Target,
    trigger::Trigger,
    user::User,
};
use midwatch_events::{Micros, key::Digest, routine::DeliveryQueued, run::Decision};
use serde_json::{Map, Value, json};

fn at(at: Option<Micros>) -> Value {
    at.map_or(Value::Null, |at| json!(at.to_string()))
}

pub(super) fn bot(state: &Bot) -> Value {
    let Bot { id, name, agui, tools, retired, unreachable } = state;
    json!({
        "id": id,
        "name": name,
        "agui": agui,
        "tools": tools,
        "retired": retired,
        "unreachable": unreachable,
    })
}

pub(super) fn boundary(state: &Boundary) -> Value {
    let Boundary { document } = state;
    // As it can be read; text that is no JSON is shown as it is.
    let document = document.as_ref().map(|text| serde_json::from_str(text).unwrap_or_else(|_| json!(text)));
    json!({ "document": document })
}

pub(super) fn tools(state: &ToolServers) -> Value {
    let ToolServers { servers } = state;
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let servers = servers.iter().map(|(name, server)| {
        let tools = server.tools.iter().map(|(tool, accepted)| {
            (tool.clone(), json!({ "definition": read(&accepted.definition), "reads": accepted.reads }))
        });
        (name.clone(), json!({ "place": read(&server.place), "tools": tools.collect::<Map<_, _>>() }))
    });
    json!({ "servers": servers.collect::<Map<_, _>>() })
}

pub(super) fn delivery(state: &Delivery) -> Value {
    use midwatch_commands::delivery::Fate;
    let Delivery { received, fate, redeliveries } = state;
    let (run, reason) = match fate {
        Fate::Started(run) => (Some(run), None),
        Fate::Dropped(reason) => (None, Some(reason)),
        Fate::Absent | Fate::Received(_) | Fate::Queued | Fate::Redelivered => (None, None),
    };
    json!({ "received": received, "fate": fate.name(), "run": run, "reason": reason, "redeliveries": redeliveries })
}

/// Three kinds of stream fold into [`Engine`], each into its own part: the deployment's identity,
pub(super) fn engine(state: &Engine) -> Value {
    let Engine { namespace, deployment, key_id, repeat_window_s, halted: _, lifted_at: _, running: _, reactions } =
        state;
    json!({
        "namespace": namespace,
        "deployment": deployment,
        "key_id": key_id,
        "repeat_window_s": repeat_window_s,
        "reactions": reactions,
    })
}

/// whether scheduling is halted,
pub(super) fn halt(state: &Engine) -> Value {
    let Engine { halted, lifted_at, .. } = state;
    json!({ "halted": halted.is_some(), "cause": halted, "lifted_at": at(*lifted_at) })
}

/// and whether a process runs.
pub(super) fn process(state: &Engine) -> Value {
    json!({ "running": state.running })
}

pub(super) fn repeat(state: &Repeat) -> Value {
    let Repeat { attempts, crossed } = state;
    let attempt =
        |Attempt { call, at, result }: &Attempt| json!({ "call": call, "at": at.to_string(), "result": result });
    json!({ "attempts": attempts.iter().map(attempt).collect::<Vec<_>>(), "crossed": crossed })
}

pub(super) fn routine(state: &Routine) -> Value {
    let Routine {
        id,
        name,
        owner,
        bot,
        schedule_text,
        schedule,
        work,
        work_at,
        version: _,
        limits,
        anchor,
        next,
        ended_up_to,
        queued,
        held,
        counted_from,
        tzdb,
        phase,
        target,
    } = state;
    let phase = match phase {
        Phase::Absent => "absent",
        Phase::Active => "active",
        Phase::Paused => "paused",
        Phase::Suspended => "suspended",
        Phase::Deleted => "deleted",
    };
    json!({
        "id": id,
        "name": name,
        "owner": owner,
        "bot": bot,
        "schedule": schedule_text,
        "schedule_readable": schedule.is_some(),
        "work": work,
        "work_at_version": work_at,
        "limits": limits,
        "anchor": anchor.to_string(),
        "next_window": at(*next),
        "windows_ended_up_to": at(*ended_up_to),
        "queued_window": at(*queued),
        "held": held.map(|(window, reason)| json!({ "window": window.to_string(), "reason": reason })),
        "counted_from": at(*counted_from),
        "tzdb": tzdb,
        "state": phase,
        "target": self::target(target),
    })
}

fn target(state: &Target) -> Value {
    let Target { live, live_cause, queue, failures, windows_claimed } = state;
    let waiting = |DeliveryQueued { delivery, trigger, expires_us, redelivery }: &DeliveryQueued| json!({ "delivery": delivery, "trigger": trigger, "expires": expires_us.to_string(), "redelivery": redelivery });
    json!({
        "live": live,
        "live_cause": live_cause,
        "queue": queue.iter().map(waiting).collect::<Vec<_>>(),
        "failures": failures,
        "windows_claimed": windows_claimed,
    })
}

pub(super) fn run(state: &Run) -> Value {
    let Run {
        opened,
        opened_at,
        take,
        worker,
        taken_at,
        deadline,
        turn,
        calls,
        refused,
        fingerprints,
        open_calls,
        asked_calls,
        approvals,
        ended,
        answered,
        attempts_failed,
        retry_at,
        unknown_calls,
        reported_late,
    } = state;
    let asked = |Approval { asked, answer, spent }: &Approval| {
        json!({
            "approval": asked.approval,
            "call": asked.call,
            "tool": asked.tool,
            "rule": asked.rule,
            "digest": asked.digest,
            "boundary": asked.boundary,
            "expires": asked.expires_us.to_string(),
            "answer": answer,
            "spent": spent,
        })
    };
    let mut opening = json!(opened);
    // Instants are text everywhere else.
    if let (Some(members), Some(opened)) = (opening.as_object_mut(), opened) {
        members.remove("window_us");
        members.insert("window".to_owned(), at(opened.window_us));
    }
    let open: Vec<&Decision> = open_calls.values().collect();
    json!({
        "opened": opening,
        "opened_at": opened.as_ref().map(|_| opened_at.to_string()),
        "take": take,
        "worker": worker,
        "taken_at": at(*taken_at),
        "deadline": at(*deadline),
        "turn": turn,
        "calls": calls,
        "refused": refused,
        "fingerprints": fingerprints,
        "open_calls": open,
        "answered": answered,
        "attempts_failed": attempts_failed,
        "retry_at": at(*retry_at),
        "unknown_calls": unknown_calls.values().collect::<Vec<_>>(),
        "reported_late": reported_late,
        "calls_that_wait": asked_calls.keys().collect::<Vec<_>>(),
        "approvals": approvals.iter().map(asked).collect::<Vec<_>>(),
        "outcome": ended.map(|(outcome, _)| outcome),
        "reason": ended.and_then(|(_, reason)| reason),
    })
}

pub(super) fn trigger(state: &Trigger) -> Value {
    let Trigger {
        id,
        name,
        owner,
        endpoint,
        routine,
        bot,
        scheme,
        secret,
        old_secret,
        intake,
        limits,
        sample,
        confirmed,
        paused,
        deleted,
        target,
    } = state;
    let old = old_secret.as_ref();
    let old = old.map(|(secret, until)| json!({ "digest": secret.digest, "until": until.to_string() }));
    json!({
        "id": id,
        "name": name,
        "owner": owner,
        "endpoint": endpoint,
        "routine": routine,
        "bot": bot,
        "scheme": scheme,
        "secret_digest": secret.as_ref().map(|secret| secret.digest),
        "old_secret": old,
        "intake": intake,
        "limits": limits,
        "sample": sample,
        "confirmed": confirmed,
        "paused": paused,
        "deleted": deleted,
        "target": self::target(target),
    })
}

pub(super) fn user(state: &User) -> Value {
    let User { id, token, role, links, sessions, secret, agent, revoked, evidence: _ } = state;
    let expiring = |all: &std::collections::BTreeMap<Digest, Micros>| -> Map<String, Value> {
        all.iter().map(|(digest, until)| (digest.to_string(), json!(until.to_string()))).collect()
    };
    json!({
        "id": id,
        "token": token,
        "role": role,
        "links": expiring(links),
        "sessions": expiring(sessions),
        "secret_digest": secret,
        "agent": agent.map(|(bot, owner)| json!({ "bot": bot, "owner": owner })),
        "revoked": revoked,
    })
}
