//! A ledger in which something of everything happened, made through the engine.

use std::time::Duration;

use midwatch_boundary::{BoundaryDoc, Rule, Verdict, default_document};
use midwatch_engine::{
    clock,
    intake::Posted,
    projector,
    routines::NewRoutine,
    runner,
    triggers::{NewSecret, NewTrigger},
};
use midwatch_events::{
    Micros,
    id::{BotId, DeliveryId, RoutineId, RunId, TriggerId, UserId},
    routine::{Limits, Work},
    trigger::Intake,
    user::Access,
};
use midwatch_gateway::{Gateway, GatewayOptions};
use midwatch_log::views::Order;
use midwatch_projections::runs::{RunRow, RunState, Runs};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::testing::{Server, Session, by};

/// What a hostile person calls things: markup, and a right-to-left override that turns an ending round.
pub(super) const HOSTILE: &str = "<script>alert('x')</script> gpj.\u{202e}exe & \"q\"";

/// A server, a signed-in admin, and what was made.
pub(super) struct Story {
    pub(super) server: Server,
    pub(super) admin: Session,
    pub(super) bot: BotId,
    pub(super) routine: RoutineId,
    pub(super) run: RunId,
    pub(super) trigger: TriggerId,
    pub(super) sample: DeliveryId,
    pub(super) missed: RoutineId,
    _workspaces: TempDir,
}

pub(super) fn recording(steps: &[(&str, Value)]) -> Work {
    let steps = steps.iter().map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments }));
    let recording = json!({ "steps": steps.collect::<Vec<_>>() }).to_string();
    Work { instruction: None, recording: Some(recording) }
}

impl Story {
    pub(super) async fn told() -> Self {
        let server = Server::start().await;
        let engine = server.engine.clone();
        let admin = server.sign_in(HOSTILE, Access::Admin).await;
        let bot = engine.register_bot(HOSTILE, None, &by(), None).await.unwrap().value;
        publish(&server).await;
        let workspaces = tempfile::tempdir().unwrap();
        let gateway = Gateway::new(GatewayOptions::files(workspaces.path().to_owned())).unwrap();
        tokio::spawn(runner::run(engine.clone(), gateway.executor(), server.stop.subscribe()));

        let notes = json!({ "path": "<b>notes</b>.txt", "contents": HOSTILE });
        let mut steps = vec![("computer_list_files", json!({ "path": "." })); 10];
        steps.push(("computer_write_file", notes));
        steps.push(("computer_read_file", json!({ "path": "passwords.txt" })));
        let weekly = json!({ "kind": "weekly", "zone": "Europe/Berlin", "days": ["mon", "fri"], "times": ["08:00"] });
        let routine = Self::routine(&server, bot, HOSTILE, &weekly, recording(&steps), admin.user, 600).await;
        let run = engine.run_now(routine, &by(), None).await.unwrap().value;
        let ended = ended(&server, run).await;
        assert_eq!(ended.refused_calls, 1, "{ended:?}");

        let missed = missed(&server, bot, admin.user).await;
        let (trigger, sample) = captured(&server, routine).await;
        let position = projector::catch_up(&engine).await.unwrap();
        projector::wait_for(&engine, position).await;
        Self { server, admin, bot, routine, run, trigger, sample, missed, _workspaces: workspaces }
    }

    pub(super) async fn routine(
        server: &Server,
        bot: BotId,
        name: &str,
        schedule: &Value,
        work: Work,
        owner: UserId,
        grace_s: u32,
    ) -> RoutineId {
        let new = NewRoutine {
            name: name.to_owned(),
            bot,
            schedule: schedule.to_string(),
            work,
            limits: Limits { grace_s, ..Limits::default() },
            owner: Some(owner),
        };
        server.engine.create_routine(&new, &by(), None).await.unwrap().value
    }

    /// A page that is there.
    pub(super) async fn page(&self, path: &str) -> String {
        self.page_for(&self.admin, path, StatusCode::OK).await
    }

    pub(super) async fn page_for(&self, session: &Session, path: &str, status: StatusCode) -> String {
        let response = self.server.browser(session, Method::GET, path).send().await.unwrap();
        let (found, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(found, status, "{path}: {text}");
        text
    }

    /// A form that our own page posts.
    pub(super) async fn post(&self, session: &Session, path: &str, fields: &[(&str, &str)]) -> reqwest::Response {
        self.posted(session, path, fields, &session.csrf).await
    }

    pub(super) async fn posted(
        &self,
        session: &Session,
        path: &str,
        fields: &[(&str, &str)],
        csrf: &str,
    ) -> reqwest::Response {
        let mut fields = fields.to_vec();
        fields.push(("csrf", csrf));
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", super::super::text::encoded(value))).collect();
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let request = client.post(self.server.at(path)).header("cookie", &session.cookie);
        let request = request.header("sec-fetch-site", "same-origin");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(body.join("&")).send().await.unwrap()
    }
}

async fn publish(server: &Server) {
    let mut document = default_document();
    let mut rule = Rule::new("no-passwords", HOSTILE, Verdict::Deny, r#"contains(file.path, "password")"#);
    rule.cost = HOSTILE.to_owned();
    document.rules.insert(0, rule);
    let text = BoundaryDoc::to_json(&document);
    server.engine.publish_boundary(&text, HOSTILE, None, &by(), None).await.unwrap();
}

/// Waits until a run has ended and its row says so.
pub(super) async fn ended(server: &Server, run: RunId) -> RunRow {
    for _ in 0..400 {
        let row = projector::get::<Runs>(&server.engine, &run.to_string()).await.unwrap();
        if let Some(row) = row.filter(|row| row.state == RunState::Ended) {
            return row;
        }
        server.engine.world().clock.sleep(Duration::from_millis(25)).await;
    }
    panic!("the run {run} did not end");
}

/// A routine whose only window was missed.
async fn missed(server: &Server, bot: BotId, owner: UserId) -> RoutineId {
    let engine = &server.engine;
    let at = engine.log().store_time().await.unwrap().plus_s(1);
    let once = json!({ "kind": "once", "at": Micros(at.seconds() * 1_000_000).to_string() });
    let work = recording(&[("computer_list_files", json!({}))]);
    let routine = Story::routine(server, bot, "Too late", &once, work, owner, 0).await;
    engine.world().clock.sleep(Duration::from_millis(2_200)).await;
    projector::catch_up(engine).await.unwrap();
    clock::tick(engine).await.unwrap();
    routine
}

/// A trigger with a sample that nobody has confirmed.
async fn captured(server: &Server, routine: RoutineId) -> (TriggerId, DeliveryId) {
    let engine = &server.engine;
    let new = NewTrigger {
        name: HOSTILE.to_owned(),
        routine: Some(routine),
        bot: None,
        instruction: None,
        intake: Intake::default(),
        limits: Limits::default(),
        scheme: None,
        secret: NewSecret::Made,
        owner: None,
    };
    let made = engine.create_trigger(&new, &by(), None).await.unwrap().value;
    let posted = Posted {
        headers: vec![("x-note".to_owned(), HOSTILE.to_owned())],
        query: None,
        body: json!({ "title": HOSTILE }).to_string().into_bytes(),
        sender_id: Some("one".to_owned()),
        id_alone: false,
        signed: None,
        alike: None,
        secret: None,
        event_type: Some(HOSTILE.to_owned()),
        unparsed: None,
    };
    let taken = engine.receive(made.id, &posted).await.unwrap();
    (made.id, taken.delivery)
}

/// The newest run of all.
pub(super) async fn newest(server: &Server) -> RunRow {
    let order = Order { column: "opened_at", descending: true };
    let found = projector::page::<Runs>(&server.engine, Vec::new(), order, 1, None).await.unwrap();
    found.into_iter().next().unwrap().0
}
