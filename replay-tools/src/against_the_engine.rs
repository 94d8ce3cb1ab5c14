//! The same questions, asked of a ledger that the engine itself wrote.

use midwatch_commands::run::{End, Run, RunCommand};
use midwatch_engine::{
    Engine, Opening, Origin, Request,
    deployment::Outside,
    handle::handle,
    intake::Posted,
    reactor,
    routines::NewRoutine,
    triggers::{NewSecret, NewTrigger},
    world::World,
};
use midwatch_events::{
    Actor, StreamName,
    id::{BotId, ProcessId, RoutineId, RunId, TriggerId},
    key::Digest,
    routine::{Limits, Work},
    run::{CallResult, Decision, Outcome, RunContent},
    trigger::Intake,
};
use midwatch_log::{Log, Open, testing::fresh_urls};

use crate::{
    cause::{self, Origin as Began},
    run::{State, Timeline, What},
    state,
    testing::{decision, new_id},
    verify,
};

async fn on_both(test: impl AsyncFn(&'static str, Engine)) {
    for (name, url, _guard) in fresh_urls().await {
        let home = tempfile::tempdir().unwrap();
        let outside = Outside { deployment: None, key: None, key_file: None, state_home: home.path().to_owned() };
        let process = ProcessId::new(new_id());
        let opening = Opening { url, outside, process, actor: Actor::Cli(1000), repeat_window_s: None, halted: false };
        let engine = Engine::open(World::system(), opening).await.unwrap();
        test(name, engine.clone()).await;
        engine.close().await;
    }
}

fn person() -> Origin {
    Origin::of(Actor::Cli(1000))
}

/// As an auditor opens it: to read only, and without a key.
async fn reader(engine: &Engine) -> Log {
    Log::open(&engine.opening().url, Open::ReadOnly).await.unwrap()
}

async fn post(engine: &Engine, trigger: TriggerId, sender_id: &str) {
    let posted = Posted {
        headers: vec![("content-type".into(), "application/json".into())],
        query: None,
        body: br#"{"zen":"Keep it logically awesome."}"#.to_vec(),
        sender_id: Some(sender_id.into()),
        id_alone: false,
        signed: None,
        alike: None,
        secret: None,
        event_type: Some("ping".into()),
        unparsed: None,
    };
    engine.receive(trigger, &posted).await.unwrap();
    react(engine).await;
}

async fn react(engine: &Engine) {
    while reactor::react(engine).await.unwrap() {}
}

/// What a runner and the gateway append for one call, as they do.
async fn work(engine: &Engine, run: RunId) -> u64 {
    let stream = StreamName::run(run);
    let origin = person().within(&stream);
    let command = async |origin: &Origin, command: RunCommand| {
        handle::<Run>(engine, &stream, origin, None, |_| Ok(command.clone())).await.unwrap().position
    };
    let now = engine.log().store_time().await.unwrap();
    command(&origin, RunCommand::Take { worker: engine.process(), now }).await;
    command(&origin, RunCommand::StartTurn { take: 1 }).await;
    let messages = r#"[{"role":"assistant","id":"1","content":"Noted."}]"#.to_owned();
    command(&origin, RunCommand::FinishTurn { take: 1, calls: 1, messages }).await;
    let opened = engine.load::<Run>(&stream).await.unwrap().state.opened.unwrap();
    let decision = Decision { run, bot: opened.bot, routine: opened.routine, ..decision(1, 1) };
    let call = decision.call;
    let content = RunContent::ToolCallDecided {
        arguments: "{}".into(),
        context: "{}".into(),
        fingerprint: "computer_write_file notes.txt".into(),
    };
    let decided = command(&origin, RunCommand::Decide { take: 1, decision: Box::new(decision), content }).await;
    let decided = engine.log().read_at(decided).await.unwrap().unwrap();
    let end = RunCommand::EndCall {
        take: 1,
        call,
        result: CallResult::Finished,
        result_digest: Digest([2; 32]),
        result_bytes: 2,
        duration_us: 7,
        content: RunContent::ToolCallEnded { result: Some("ok".into()), blob: None },
    };
    let outcome = command(&origin.because(decided.event_id), end).await;
    let end =
        End { take: Some(1), outcome: Outcome::Succeeded, reason: None, headline: "Noted.".into(), error: None, now };
    engine.settle(run, end, &Origin::of(Actor::Engine)).await.unwrap();
    react(engine).await;
    outcome
}

async fn bot(engine: &Engine) -> BotId {
    engine.register_bot("ops", None, &person(), None).await.unwrap().value
}

fn events(chain: &[cause::Link]) -> Vec<&str> {
    chain.iter().map(|link| link.event.as_str()).collect()
}

#[tokio::test]
async fn a_webhook_of_a_trigger_with_its_own_instruction_is_traced_to_the_outcome() {
    on_both(async |name, engine| {
        let new = NewTrigger {
            name: "Pings".into(),
            routine: None,
            bot: Some(bot(&engine).await),
            instruction: Some("Note the ping.".into()),
            intake: Intake::default(),
            limits: Limits::default(),
            scheme: None,
            secret: NewSecret::Made,
            owner: None,
        };
        let trigger = engine.create_trigger(&new, &person(), None).await.unwrap().value.id;
        post(&engine, trigger, "1").await;
        engine.confirm_trigger(trigger, None, &person(), None).await.unwrap();
        post(&engine, trigger, "2").await;
        // One more waits until the first run has ended.
        post(&engine, trigger, "3").await;
        let target = engine.load::<midwatch_commands::trigger::Trigger>(&StreamName::trigger(trigger)).await.unwrap();
        let run = target.state.target.live.unwrap();
        let outcome = work(&engine, run).await;

        let log = reader(&engine).await;
        let caused = cause::cause(&log, outcome).await.unwrap();
        let Began::Delivery { trigger: by, trigger_name, delivery } = &caused.origin else { panic!("{caused:?}") };
        assert_eq!((*by, trigger_name.as_deref()), (trigger, Some("Pings")), "{name}");
        assert_eq!(
            events(&caused.chain),
            [
                "delivery.received/1",
                "trigger.delivery_queued/1",
                "trigger.run_claimed/1",
                "run.opened/1",
                "run.taken/1",
                "run.turn_started/1",
                "run.turn_finished/1",
                "run.tool_call_decided/1",
                "run.tool_call_ended/1",
            ],
            "{name}"
        );
        // And back: the delivery brought the outcome, and the run that followed it is another delivery's.
        let onwards = cause::cause(&log, caused.chain[0].position).await.unwrap();
        let brought: Vec<_> = onwards.followed.iter().map(|followed| followed.link.clone()).collect();
        assert!(brought.contains(caused.chain.last().unwrap()), "{brought:?}");
        assert!(
            events(&brought).contains(&"trigger.run_settled/1") && events(&brought).contains(&"delivery.started/1")
        );
        let own = StreamName::run(run).to_string();
        assert!(brought.iter().all(|link| !link.stream.starts_with("run-") || link.stream == own), "{brought:?}");
        let next = engine.load::<midwatch_commands::trigger::Trigger>(&StreamName::trigger(trigger)).await.unwrap();
        let next = next.state.target.live.unwrap();
        assert_ne!(next, run);
        let opened = log.read_stream(&StreamName::run(next), 1, 1).await.unwrap()[0].position;
        let other = cause::cause(&log, opened).await.unwrap();
        let Began::Delivery { delivery: later, .. } = &other.origin else { panic!("{other:?}") };
        assert_ne!(later, delivery);

        let mut timeline = Timeline::open(&log, run, None).await.unwrap();
        let entries = timeline.page().await.unwrap();
        assert_eq!(timeline.state(), State::Ended);
        let What::Opened(opening) = &entries[0].what else { panic!("{entries:?}") };
        assert_eq!(opening.claim.as_ref().unwrap().process, engine.process());
        assert_eq!(opening.delivery.as_ref().unwrap().id, *delivery);
        let halted = state::state(&log, &StreamName::engine(), None).await.unwrap();
        assert_eq!(halted.state["deployment"], halted.state["namespace"]);
        assert!(verify::verify(&log).await.unwrap().ok);
        log.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_person_is_the_origin_of_run_now() {
    on_both(async |name, engine| {
        let new = NewRoutine {
            name: "Tidy".into(),
            bot: bot(&engine).await,
            schedule: r#"{"kind":"every","minutes":60,"zone":"Europe/Berlin"}"#.into(),
            work: Work { instruction: Some("Tidy up.".into()), recording: None },
            limits: Limits::default(),
            owner: None,
        };
        let routine: RoutineId = engine.create_routine(&new, &person(), None).await.unwrap().value;
        let request = Request::new("once", &[b"run now"]);
        let run = engine.run_now(routine, &person(), Some(&request)).await.unwrap().value;
        let outcome = work(&engine, run).await;
        let log = reader(&engine).await;
        let caused = cause::cause(&log, outcome).await.unwrap();
        assert_eq!(caused.origin, Began::Actor { actor: "cli:1000".to_owned() }, "{name}");
        assert_eq!(events(&caused.chain)[..2], ["routine.run_claimed/1", "run.opened/1"]);
        let claimed = cause::cause(&log, caused.chain[0].position).await.unwrap();
        assert!(
            events(&claimed.followed.iter().map(|f| f.link.clone()).collect::<Vec<_>>())
                .contains(&"routine.run_settled/1")
        );
        assert!(verify::verify(&log).await.unwrap().ok);
        log.close().await;
    })
    .await;
}
