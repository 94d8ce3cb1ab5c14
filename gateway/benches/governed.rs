//! Governed calls on PostgreSQL: what the gateway costs beside the two durable appends it makes, and how many calls a
//! second 256 callers get through it. `make bench-gateway` runs it; it needs `MIDWATCH_TEST_POSTGRES`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement: whatever fails ends it, and it prints")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use midwatch_commands::run::{Run, RunCommand};
use midwatch_engine::{
    Engine, Opening, Origin,
    deployment::Outside,
    handle::{Plan, handle},
    leases::Alive,
    progress::Progress,
    routines::NewRoutine,
    runner::Job,
    world::World,
};
use midwatch_events::{
    Actor, StreamName,
    boundary::BoundaryEvent,
    id::{BotId, ProcessId},
    routine::{Limits, Work},
};
use midwatch_gateway::{
    Gateway, GatewayOptions,
    decide::{Call, Whose},
};
use midwatch_log::testing;
use serde_json::json;

/// Calls that are timed one after the other, and seconds of calls at once; with QUICK=1 a quarter of both.
const ONE_BY_ONE: usize = 400;
const AT_ONCE_S: u64 = 8;
const CALLERS: usize = 256;

fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

#[expect(clippy::disallowed_methods, reason = "this measures")]
fn instant() -> Instant {
    Instant::now()
}

fn quarter() -> usize {
    if std::env::var_os("QUICK").is_some() { 4 } else { 1 }
}

async fn job(engine: &Engine, bot: BotId) -> Job {
    let new = NewRoutine {
        name: "bench".to_owned(),
        bot,
        schedule: r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#.to_owned(),
        work: Work { instruction: Some("x".to_owned()), recording: None },
        limits: Limits::default(),
        owner: None,
    };
    let routine = engine.create_routine(&new, &me(), None).await.unwrap().value;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    let (stream, now) = (StreamName::run(run), engine.log().store_time().await.unwrap());
    let worker = engine.process();
    handle::<Run>(engine, &stream, &me(), None, |_| Ok(RunCommand::Take { worker, now })).await.unwrap();
    let opened = engine.load::<Run>(&stream).await.unwrap().state.opened.unwrap();
    let alive = Alive::default();
    alive.renewed(engine.world().clock.monotonic() + Duration::from_secs(3_600));
    let progress = Progress::from(engine.world().clock.monotonic());
    Job { engine: engine.clone(), run, take: 1, opened, work: Work::default(), alive, progress }
}

/// A call of the tool that does least.
fn call() -> Call {
    Call { tool: "computer_list_files".to_owned(), arguments: Ok(json!({"path": "."})), step: None, whose: Whose::Ours }
}

/// Two durable appends of about the size of a decision and of an outcome, as any caller would make them.
async fn two_appends(engine: &Engine, stream: &StreamName, version: u64) {
    for n in 0..2 {
        let mut plan = Plan::default();
        let event = BoundaryEvent::Published { document: "x".repeat(900) };
        plan.add(engine.world(), stream, version + n, &[event.into()], &me()).unwrap();
        plan.commit(engine.log()).await.unwrap().unwrap();
    }
}

fn spread(mut took: Vec<Duration>) -> (Duration, Duration) {
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

async fn one_by_one(engine: &Engine, gateway: &Gateway, bot: BotId) {
    let job = job(engine, bot).await;
    let stream = StreamName::stored("bench-appends".to_owned());
    let (mut governed, mut bare) = (Vec::new(), Vec::new());
    for n in 0..ONE_BY_ONE / quarter() {
        let start = instant();
        gateway.call(&job, call()).await.unwrap();
        governed.push(start.elapsed());
        let start = instant();
        two_appends(engine, &stream, n as u64 * 2).await;
        bare.push(start.elapsed());
    }
    let ((governed_half, governed_most), (bare_half, bare_most)) = (spread(governed), spread(bare));
    println!("two durable appends   p50 {bare_half:>9.1?}  p99 {bare_most:>9.1?}");
    println!("a governed call       p50 {governed_half:>9.1?}  p99 {governed_most:>9.1?}");
    println!("the gateway on top    p50 {:>9.1?}", governed_half.saturating_sub(bare_half));
}

async fn all_at_once(engine: &Engine, gateway: &Gateway) {
    let mut jobs = Vec::new();
    for n in 0..CALLERS {
        let bot = engine.register_bot(&format!("bench {n}"), None, &me(), None).await.unwrap().value;
        jobs.push(job(engine, bot).await);
    }
    let until = instant() + Duration::from_secs(AT_ONCE_S / quarter() as u64);
    let start = instant();
    let mut callers = tokio::task::JoinSet::new();
    for job in jobs {
        let gateway = gateway.clone();
        callers.spawn(async move {
            let mut done = 0_u64;
            while instant() < until {
                gateway.call(&job, call()).await.unwrap();
                done += 1;
            }
            done
        });
    }
    let done: u64 = callers.join_all().await.into_iter().sum();
    println!("{CALLERS} callers           {:.0} governed calls a second", done as f64 / start.elapsed().as_secs_f64());
}

#[tokio::main]
async fn main() {
    // `cargo bench` runs every target with `--bench`; tests of benches must not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let (url, _guard) = testing::fresh_postgres().await;
    let home = tempfile::tempdir().unwrap();
    let opening = Opening {
        url,
        outside: Outside { deployment: None, key: None, key_file: None, state_home: home.path().to_owned() },
        process: ProcessId::new(World::system().uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    let engine = Engine::open(World::system(), opening).await.unwrap();
    let gateway = Arc::new(Gateway::new(GatewayOptions::files(home.path().join("workspaces"))).unwrap());
    let bot = engine.register_bot("bench", None, &me(), None).await.unwrap().value;
    one_by_one(&engine, &gateway, bot).await;
    all_at_once(&engine, &gateway).await;
    engine.close().await;
}
