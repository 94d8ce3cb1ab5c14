//! The described shapes are those of real rows.

use std::collections::BTreeSet;

use midwatch_events::trigger::{Intake, WhenBusy};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::testing::{Server, answered};

pub(super) fn described(name: &str) -> BTreeSet<String> {
    let api = serde_json::to_value(crate::openapi()).unwrap();
    let schema = &api["components"]["schemas"][name];
    schema["properties"]
        .as_object()
        .unwrap_or_else(|| panic!("{name} is described: {schema}"))
        .keys()
        .cloned()
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_as_described() {
    let server = Server::start().await;
    let bot = server.bot().await;
    let mut routine = json!({"name": "r", "bot": bot.to_string(), "schedule": {"kind": "every", "zone": "UTC", "minutes": 5}, "instruction": "x"});
    routine["limits"] = json!({"max_runs": 9, "missed": {"run_once_within_s": 900}, "overlap": "queue_one", "retry": {"times": 1, "backoff_s": 5}});
    let routine = server.post("/api/v1/routines", &routine).await["id"].as_str().unwrap().to_owned();
    let run =
        server.post(&format!("/api/v1/routines/{routine}/run"), &json!({})).await["run"].as_str().unwrap().to_owned();
    server.post(&format!("/api/v1/runs/{run}/cancel"), &json!({})).await;
    // With everything that is absent where there is none.
    let intake = Intake {
        id_pointers: vec!["/id".to_owned()],
        when_busy: WhenBusy::Coalesce,
        event_types: vec!["*".to_owned()],
        filter: Some("true".to_owned()),
        per_minute_max: Some(9),
        kept_days: Some(9),
        ..Intake::default()
    };
    let hook = server.hook_with(intake).await;
    let sent = answered(server.deliver(&hook).body("x").send().await.unwrap(), StatusCode::ACCEPTED).await;
    midwatch_engine::projector::catch_up(&server.engine).await.unwrap();
    let first = |list: Value| list["items"][0].clone();
    let shown = server.get(&format!("/api/v1/routines/{routine}")).await;
    let trigger = server.get(&format!("/api/v1/triggers/{}", hook.id)).await;
    for (name, row) in [
        ("Bot", first(server.get("/api/v1/bots").await)),
        ("Ending", shown["recent"][0].clone()),
        ("LimitsInForce", shown["limits"].clone()),
        ("Routine", shown),
        ("Run", first(server.get("/api/v1/runs").await)),
        ("Step", first(server.get(&format!("/api/v1/runs/{run}/timeline")).await)),
        ("IntakeInForce", trigger["intake"].clone()),
        ("Trigger", trigger),
        ("Delivery", server.get(&format!("/api/v1/deliveries/{}", sent["delivery"].as_str().unwrap())).await),
        ("BoundaryVersion", first(server.get("/api/v1/boundary/versions").await)),
        ("AuditRow", first(server.get("/api/v1/audit").await)),
        ("ProjectionStatus", server.get("/api/v1/projections").await[0].clone()),
    ] {
        let members: BTreeSet<String> =
            row.as_object().unwrap_or_else(|| panic!("{name}: {row}")).keys().cloned().collect();
        assert_eq!(members, described(name), "{name}");
    }
}
