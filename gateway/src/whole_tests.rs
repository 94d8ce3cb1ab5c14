//! The engine with this gateway, on both backends: claims, runs, calls, endings.

use std::{path::Path, sync::Arc, time::Duration};

use midwatch_commands::run::Run;
use midwatch_engine::{
    Engine, Opening, Origin, clock,
    deployment::Outside,
    projector, reactor,
    routines::NewRoutine,
    runner,
    triggers::{NewSecret, NewTrigger},
    world::World,
};
use midwatch_events::{
    Actor, AnyEvent, Recorded, StreamName,
    id::{BotId, ProcessId, RoutineId, RunId},
    repeat::RepeatEvent,
    routine::{Limits, RoutineEvent, Work},
    run::{CallResult, Decision, DecisionKind, Outcome, Reason, RefusalCause, RunContent, RunEvent},
    trigger::Intake,
};
use midwatch_log::{Filter, testing};
use serde_json::json;
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet};

use crate::{Gateway, GatewayOptions};

mod bots;

/// One process of a deployment, with all its roles running.
struct Process {
    engine: Engine,
    stop: watch::Sender<bool>,
    roles: JoinSet<()>,
}

impl Process {
    async fn start(url: &str, home: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let engine = engine(url, home).await;
        let gateway = Gateway::new(GatewayOptions::files(home.join("workspaces"))).unwrap();
        let (stop, stopped) = watch::channel(false);
        let mut roles = JoinSet::new();
        roles.spawn(clock::run(engine.clone(), stopped.clone()));
        roles.spawn(reactor::run(engine.clone(), stopped.clone()));
        roles.spawn(projector::run(engine.clone(), stopped.clone()));
        roles.spawn(runner::run(engine.clone(), gateway.executor(), stopped));
        Self { engine, stop, roles }
    }

    async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.roles.join_next().await.is_some() {}
        self.engine.close().await;
    }
}

async fn engine(url: &str, home: &Path) -> Engine {
    let world = World::system();
    let opening = Opening {
        url: url.to_owned(),
        outside: Outside { deployment: None, key: None, key_file: None, state_home: home.to_owned() },
        process: ProcessId::new(world.uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    Engine::open(world, opening).await.unwrap()
}

fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

async fn bot(engine: &Engine, agui: Option<&str>) -> BotId {
    engine.register_bot("ops", agui, &me(), None).await.unwrap().value
}

async fn routine(engine: &Engine, bot: BotId, schedule: &str, work: Work) -> RoutineId {
    let new = NewRoutine {
        name: "watch".to_owned(),
        bot,
        schedule: schedule.to_owned(),
        work,
        limits: Limits::default(),
        owner: None,
    };
    engine.create_routine(&new, &me(), None).await.unwrap().value
}

fn recording(steps: &serde_json::Value) -> Work {
    Work { instruction: None, recording: Some(json!({ "steps": steps }).to_string()) }
}

fn instruction(text: &str) -> Work {
    Work { instruction: Some(text.to_owned()), recording: None }
}

/// A schedule whose first window is far away.
const YEARLY: &str = r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#;

async fn ended(engine: &Engine, run: RunId) -> (Outcome, Option<Reason>) {
    for _ in 0..300 {
        let state = engine.load::<Run>(&StreamName::run(run)).await.unwrap().state;
        if let Some(ended) = state.ended {
            return ended;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the run never ended: {:#?}", events(engine, &StreamName::run(run)).await);
}

async fn events(engine: &Engine, stream: &StreamName) -> Vec<AnyEvent> {
    let recorded = engine.log().read_stream(stream, 1, 1_000).await.unwrap();
    recorded.iter().map(|event| AnyEvent::decode(event).unwrap()).collect()
}

async fn all(engine: &Engine) -> Vec<(Recorded, AnyEvent)> {
    let (recorded, _) = engine.log().read_all(0, 100_000, &Filter::default()).await.unwrap();
    recorded.into_iter().map(|recorded| (recorded.clone(), AnyEvent::decode(&recorded).unwrap())).collect()
}

async fn decisions(engine: &Engine, run: RunId) -> Vec<Decision> {
    let decided = events(engine, &StreamName::run(run)).await.into_iter().filter_map(|event| match event {
        AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) => Some(decision),
        _ => None,
    });
    decided.collect()
}

async fn verified(engine: &Engine) {
    let verified = midwatch_log::verify::verify(engine.log()).await.unwrap();
    assert_eq!(verified.first_bad, None);
}

// A11 of docs/architecture.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_decided_before_it_acts_and_its_outcome_is_recorded() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let process = Process::start(&url, home.path()).await;
        let engine = &process.engine;
        let bot = bot(engine, None).await;
        let steps = json!([
            {"tool": "computer_write_file", "arguments": {"path": "notes.txt", "contents": "all quiet"}},
            {"tool": "computer_read_file", "arguments": {"path": "notes.txt"}},
        ]);
        let routine = routine(engine, bot, YEARLY, recording(&steps)).await;
        let run = engine.run_now(routine, &me(), None).await.unwrap().value;
        assert_eq!(ended(engine, run).await, (Outcome::Succeeded, None), "{name}");

        let mut order = Vec::new();
        for event in events(engine, &StreamName::run(run)).await {
            if let AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) = &event {
                assert!(decision.unattended);
                assert_eq!(decision.rule.as_deref(), Some("allow-all"));
                order.push(("decided", decision.ordinal));
            } else if let AnyEvent::Run(RunEvent::ToolCallEnded { decision, result, .. }, _) = &event {
                assert_eq!(*result, CallResult::Finished);
                order.push(("ended", decision.ordinal));
            }
        }
        assert_eq!(order, [("decided", 1), ("ended", 1), ("decided", 2), ("ended", 2)], "{name}");
        let file = home.path().join("workspaces").join(bot.to_string()).join("notes.txt");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "all quiet");
        verified(engine).await;
        process.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_knows_nobody_is_watching_refuses_the_step_and_ends_the_run_refused() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let document = json!({"rules": [
        {"id": "look-only", "name": "Nobody watching: look only", "verdict": "deny",
         "when": "run.unattended && intent == \"write_file\""},
        {"id": "rest", "name": "The rest", "verdict": "allow", "when": "true"},
    ]});
    engine.publish_boundary(&document.to_string(), "", None, &me(), None).await.unwrap();
    let bot = bot(engine, None).await;
    let steps = json!([{"tool": "computer_write_file", "arguments": {"path": "a.txt", "contents": "x"}}]);
    let routine = routine(engine, bot, YEARLY, recording(&steps)).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await, (Outcome::Refused, None));
    let decision = events(engine, &StreamName::run(run)).await.into_iter().find_map(|event| match event {
        AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) => Some(decision),
        _ => None,
    });
    let decision = decision.unwrap();
    assert_eq!(decision.decision, DecisionKind::Refused);
    assert_eq!(decision.refusal, Some(RefusalCause::Rule));
    assert_eq!(decision.matched, ["look-only", "rest"]);
    assert_eq!(decision.boundary, 2);
    assert!(!home.path().join("workspaces").join(bot.to_string()).join("a.txt").exists());
    process.stop().await;
}

// G10.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_stopped_for_going_in_circles_says_so() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let document = json!({"rules": [
        {"id": "circles", "name": "No circles", "verdict": "deny", "when": "repeat.count >= 3"},
        {"id": "rest", "name": "The rest", "verdict": "allow", "when": "true"},
    ]});
    engine.publish_boundary(&document.to_string(), "", None, &me(), None).await.unwrap();
    let bot = bot(engine, None).await;
    let step = json!({"tool": "computer_write_file", "arguments": {"path": "same.txt", "contents": "x"}});
    let routine = routine(engine, bot, YEARLY, recording(&json!(vec![step; 4]))).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await, (Outcome::Stopped, Some(Reason::Repeat)));
    assert_eq!(decisions(engine, run).await.len(), 3);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_calls_are_counted_over_runs_and_each_threshold_is_recorded_once() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let bot = bot(engine, None).await;
    let steps: Vec<_> = (0..6)
        .map(|n| json!({"tool": "computer_write_file", "arguments": {"path": "same.txt", "contents": n.to_string()}}))
        .collect();
    let routine = routine(engine, bot, YEARLY, recording(&json!(steps))).await;
    for _ in 0..2 {
        let run = engine.run_now(routine, &me(), None).await.unwrap().value;
        assert_eq!(ended(engine, run).await.0, Outcome::Succeeded);
    }
    let mut counts = Vec::new();
    let mut thresholds = Vec::new();
    for (_, event) in all(engine).await {
        match event {
            AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) => counts.push(decision.repeat_count),
            AnyEvent::Repeat(RepeatEvent::ThresholdCrossed { threshold, count, .. }, _) => {
                thresholds.push((threshold, count));
            }
            _ => {}
        }
    }
    assert_eq!(counts, (1..=12).collect::<Vec<_>>());
    assert_eq!(thresholds, [(3, 3), (10, 10)]);
    process.stop().await;
}

// A10 of docs/architecture.md.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_run_a_window_once_and_every_window_ends_once() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let one = Process::start(&url, home.path()).await;
        let two = Process::start(&url, home.path()).await;
        let bot = bot(&one.engine, None).await;
        let at = one.engine.log().store_time().await.unwrap().plus_s(2).seconds();
        let at = midwatch_events::Micros(at * 1_000_000);
        let steps = json!([{"tool": "computer_list_files", "arguments": {}}]);
        let mut routines = Vec::new();
        for _ in 0..20 {
            let schedule = json!({"kind": "once", "at": at.to_string()}).to_string();
            routines.push(routine(&one.engine, bot, &schedule, recording(&steps)).await);
        }
        for id in routines {
            let mut endings = Vec::new();
            for _ in 0..200 {
                endings = events(&one.engine, &StreamName::routine(id)).await;
                if endings.iter().any(|event| matches!(event, AnyEvent::Routine(RoutineEvent::RunSettled(_), _))) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let claims = endings.iter().filter(|e| matches!(e, AnyEvent::Routine(RoutineEvent::RunClaimed(_), _)));
            let settles = endings.iter().filter(|e| matches!(e, AnyEvent::Routine(RoutineEvent::RunSettled(_), _)));
            assert_eq!((claims.count(), settles.count()), (1, 1), "{name}: {endings:#?}");
        }
        verified(&one.engine).await;
        one.stop().await;
        two.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_delivery_becomes_a_run_and_a_repeated_one_does_not() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let bot = bot(engine, None).await;
    let steps = json!([{"tool": "computer_write_file", "arguments": {"path": "hook.txt", "contents": "{{who}}"}}]);
    let work = json!({"steps": steps, "variables": {"who": {"pointer": "/who"}}}).to_string();
    let routine = routine(engine, bot, YEARLY, Work { instruction: None, recording: Some(work) }).await;
    let trigger = NewTrigger {
        name: "hook".to_owned(),
        routine: Some(routine),
        bot: None,
        instruction: None,
        intake: Intake::default(),
        limits: Limits::default(),
        scheme: None,
        secret: NewSecret::Made,
        owner: None,
    };
    let trigger = engine.create_trigger(&trigger, &me(), None).await.unwrap().value;
    let posted = |id: &str, who: &str| midwatch_engine::intake::Posted {
        headers: vec![],
        query: None,
        body: json!({ "who": who }).to_string().into_bytes(),
        sender_id: Some(id.to_owned()),
        id_alone: false,
        signed: None,
        alike: None,
        secret: None,
        event_type: Some("push".to_owned()),
        unparsed: None,
    };
    let status = |taken: &midwatch_engine::intake::Taken| (format!("{:?}", taken.status), taken.duplicate);
    let first = engine.receive(trigger.id, &posted("1", "ann")).await.unwrap();
    assert_eq!(status(&first), ("Captured".to_owned(), false));
    let early = engine.receive(trigger.id, &posted("2", "bob")).await.unwrap();
    assert_eq!(status(&early), ("AwaitingConfirmation".to_owned(), false));
    engine.confirm_trigger(trigger.id, Some(first.delivery), &me(), None).await.unwrap();
    let third = engine.receive(trigger.id, &posted("3", "cyd")).await.unwrap();
    assert_eq!(status(&third), ("Accepted".to_owned(), false));
    let again = engine.receive(trigger.id, &posted("3", "cyd")).await.unwrap();
    assert_eq!((again.delivery, again.duplicate), (third.delivery, true));
    let other = engine.receive(trigger.id, &posted("3", "not cyd")).await.unwrap();
    assert_ne!(other.delivery, third.delivery);

    for (delivery, who) in [(third.delivery, "cyd"), (other.delivery, "not cyd")] {
        let mut run = None;
        for _ in 0..200 {
            let stream = StreamName::delivery(delivery);
            let loaded = engine.load::<midwatch_commands::delivery::Delivery>(&stream).await.unwrap();
            if let midwatch_commands::delivery::Fate::Started(started) = loaded.state.fate {
                run = Some(started);
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let run = run.expect("the delivery became a run");
        assert_eq!(ended(engine, run).await, (Outcome::Succeeded, None));
        let file = home.path().join("workspaces").join(bot.to_string()).join("hook.txt");
        let written = std::fs::read_to_string(file).unwrap();
        assert!(written == who || written == "not cyd", "{written}");
    }
    let runs =
        all(engine).await.into_iter().filter(|(_, event)| matches!(event, AnyEvent::Run(RunEvent::Opened(_), _)));
    assert_eq!(runs.count(), 2);
    verified(engine).await;
    process.stop().await;
}

// A13 of docs/architecture.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_halt_lets_nothing_start_until_it_is_lifted() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let bot = bot(engine, None).await;
    let steps = json!([{"tool": "computer_list_files", "arguments": {}}]);
    let at = engine.log().store_time().await.unwrap().plus_s(2).seconds();
    let schedule = json!({"kind": "once", "at": midwatch_events::Micros(at * 1_000_000).to_string()}).to_string();
    let routine = routine(engine, bot, &schedule, recording(&steps)).await;
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    let refused = engine.run_now(routine, &me(), None).await.unwrap_err();
    assert!(refused.to_string().contains("halted"), "{refused}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    engine.lift_halt(&me(), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let said = events(engine, &StreamName::routine(routine)).await;
    // The window lay in the halt: it does not exist, it neither ran nor was missed.
    assert!(
        matches!(said.last(), Some(AnyEvent::Routine(RoutineEvent::Rearmed { next_us: None, .. }, _))),
        "{said:#?}"
    );
    assert_eq!(said.len(), 2);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_acts_no_more_and_frees_its_routine() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    // No runner: the run waits, and can be called off all the same.
    let engine = engine(&url, home.path()).await;
    let bot = bot(&engine, None).await;
    let steps = json!([{"tool": "computer_list_files", "arguments": {}}]);
    let routine = routine(&engine, bot, YEARLY, recording(&steps)).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    let busy = engine.run_now(routine, &me(), None).await.unwrap_err();
    assert!(busy.to_string().contains(&run.to_string()), "{busy}");
    engine.cancel_run(run, &me()).await.unwrap();
    assert!(engine.cancel_run(run, &me()).await.is_err());
    assert!(engine.run_now(routine, &me(), None).await.is_ok());
    engine.close().await;
}

// A13 of docs/architecture.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_ledger_starts_nothing() {
    let directory = TempDir::new().unwrap();
    let home = TempDir::new().unwrap();
    let original = format!("sqlite://{}", directory.path().join("mw.db").display());
    engine(&original, home.path()).await.close().await;
    std::fs::copy(directory.path().join("mw.db"), directory.path().join("copy.db")).unwrap();
    let copy = format!("sqlite://{}", directory.path().join("copy.db").display());
    let opening = |outside| Opening {
        url: copy.clone(),
        outside,
        process: ProcessId::new(World::system().uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    let nothing = Outside { deployment: None, key: None, key_file: None, state_home: home.path().to_owned() };
    // Absent: refuses to start.
    let refused = Engine::open(World::system(), opening(nothing.clone())).await.unwrap_err();
    assert!(refused.to_string().contains("halt adopt"), "{refused}");
    // The key was carried along, the identity is another one: starts halted.
    let state = midwatch_engine::deployment::state_dir(&nothing, &original);
    let carried =
        Outside { key_file: Some(state.join("key")), deployment: Some(uuid::Uuid::from_u128(7)), ..nothing.clone() };
    let foreign = Engine::open(World::system(), opening(carried)).await.unwrap();
    assert!(foreign.halt().await.unwrap().state.halted.is_some());
    foreign.close().await;
    // Adopted: a deployment of its own.
    midwatch_engine::deployment::adopt(&World::system(), &opening(nothing.clone())).await.unwrap();
    let adopted = Engine::open(World::system(), opening(nothing)).await.unwrap();
    assert!(adopted.secrets().is_ok());
    adopted.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_works_through_the_gateway_until_it_is_done() {
    let peer = crate::bots::agui::peer_tests::start();
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    for (path, expected) in [
        ("notes", (Outcome::Succeeded, None)),
        ("boom", (Outcome::Failed, Some(Reason::Error))),
        ("loop", (Outcome::Stopped, Some(Reason::Turns))),
    ] {
        let bot = bot(engine, Some(&format!("{}/{path}", peer.base))).await;
        let routine = routine(engine, bot, YEARLY, instruction("Write down what you see.")).await;
        let run = engine.run_now(routine, &me(), None).await.unwrap().value;
        assert_eq!(ended(engine, run).await, expected, "{path}");
    }
    let nowhere = bot(engine, Some("http://127.0.0.1:9/")).await;
    let routine = routine(engine, nowhere, YEARLY, instruction("Anything.")).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await, (Outcome::Failed, Some(Reason::BotUnreachable)));
    verified(engine).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_says_to_ask_refuses_while_nobody_is_there() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let document = json!({"rules": [
        {"id": "ask-first", "name": "Ask before writing", "verdict": "ask", "when": "intent == \"write_file\""},
        {"id": "rest", "name": "The rest", "verdict": "allow", "when": "true"},
    ]});
    engine.publish_boundary(&document.to_string(), "", None, &me(), None).await.unwrap();
    let bot = bot(engine, None).await;
    let steps = json!([{"tool": "computer_write_file", "arguments": {"path": "a.txt", "contents": "x"}}]);
    let routine = routine(engine, bot, YEARLY, recording(&steps)).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await, (Outcome::Refused, None));
    let asked = events(engine, &StreamName::run(run)).await.into_iter().find_map(|event| match event {
        AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) => {
            Some((decision.rule, decision.decision, decision.refusal))
        }
        _ => None,
    });
    let refused = (Some("ask-first".to_owned()), DecisionKind::Refused, Some(RefusalCause::AskUnattended));
    assert_eq!(asked, Some(refused));
    assert!(!home.path().join("workspaces").join(bot.to_string()).join("a.txt").exists());
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_ends_the_run_and_no_later_step_acts() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let bot = bot(engine, None).await;
    let steps = json!([
        {"tool": "computer_read_file", "arguments": {"path": "nowhere.txt"}},
        {"tool": "computer_write_file", "arguments": {"path": "later.txt", "contents": "x"}},
    ]);
    let routine = routine(engine, bot, YEARLY, recording(&steps)).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await, (Outcome::Failed, Some(Reason::HandOverFailed)));
    let last = engine.log().read_stream_back(&StreamName::run(run), u64::MAX, 1).await.unwrap().remove(0);
    let Some(RunContent::Ended { error: Some(error), .. }) = last.content::<RunEvent>().unwrap() else { panic!() };
    for part in ["Step 1 of 2", "tool: computer_read_file", "Earlier steps are done, finish from here."] {
        assert!(error.contains(part), "{error}");
    }
    let calls = events(engine, &StreamName::run(run)).await;
    let decided = calls.iter().filter(|event| matches!(event, AnyEvent::Run(RunEvent::ToolCallDecided(_), _)));
    let failed = calls
        .iter()
        .filter(|event| matches!(event, AnyEvent::Run(RunEvent::ToolCallEnded { result: CallResult::Failed, .. }, _)));
    assert_eq!((decided.count(), failed.count()), (1, 1));
    assert!(!home.path().join("workspaces").join(bot.to_string()).join("later.txt").exists());
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_counted_against_higher_thresholds() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let bot = bot(engine, None).await;
    let steps = vec![json!({"tool": "computer_list_files", "arguments": {}}); 12];
    let routine = routine(engine, bot, YEARLY, recording(&json!(steps))).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await.0, Outcome::Succeeded);
    let crossed: Vec<_> = all(engine)
        .await
        .into_iter()
        .filter_map(|(_, event)| match event {
            AnyEvent::Repeat(RepeatEvent::ThresholdCrossed { threshold, count, .. }, _) => Some((threshold, count)),
            _ => None,
        })
        .collect();
    assert_eq!(crossed, [(10, 10)]);
    process.stop().await;
}

/// The executor is shared by all runs of a process.
#[test]
fn an_executor_can_be_shared() {
    fn shared<T: Send + Sync>(_: &T) {}
    let home = TempDir::new().unwrap();
    let gateway = Gateway::new(GatewayOptions::files(home.path().to_owned())).unwrap();
    shared(&Arc::new(gateway.executor()));
}
