//! The door itself, on real ledgers: what is counted, what is refused, and what acts only after it was decided.

use std::{sync::Arc, time::Duration};

use midwatch_commands::run::{Run, RunCommand};
use midwatch_engine::{
    Engine, Opening, Origin,
    deployment::Outside,
    handle::handle,
    leases::Alive,
    progress::Progress,
    routines::NewRoutine,
    runner::Job,
    world::{Boxed, Clock, World},
};
use midwatch_events::{
    Actor, AnyEvent, Micros, StreamName,
    id::{BotId, ProcessId},
    repeat::RepeatEvent,
    routine::{Limits, Work},
    run::{Decision, DecisionKind, RefusalCause, RunEvent},
};
use midwatch_log::{Filter, testing};
use serde_json::json;
use tempfile::TempDir;

use super::{Answer, AnswerKind, Call, Stop};
use crate::{Gateway, GatewayOptions, decide::Whose};

mod approvals;
mod secrets;
mod together;

/// One process with a gateway; nothing runs by itself.
struct Process {
    engine: Engine,
    gateway: Gateway,
}

impl Process {
    async fn new(url: &str, home: &TempDir, world: World) -> Self {
        let opening = Opening {
            url: url.to_owned(),
            outside: Outside { deployment: None, key: None, key_file: None, state_home: home.path().to_owned() },
            process: ProcessId::new(World::system().uuid()),
            actor: Actor::Cli(0),
            repeat_window_s: None,
            halted: false,
        };
        let gateway = Gateway::new(GatewayOptions::files(home.path().join("workspaces"))).unwrap();
        Self { engine: Engine::open(world, opening).await.unwrap(), gateway }
    }

    /// A run of `bot` that this process has taken.
    async fn job(&self, bot: BotId) -> Job {
        let new = NewRoutine {
            name: "watch".to_owned(),
            bot,
            schedule: r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#.to_owned(),
            work: Work { instruction: Some("Look.".to_owned()), recording: None },
            limits: Limits::default(),
            owner: None,
        };
        let routine = self.engine.create_routine(&new, &me(), None).await.unwrap().value;
        let run = self.engine.run_now(routine, &me(), None).await.unwrap().value;
        let (stream, now) = (StreamName::run(run), self.engine.log().store_time().await.unwrap());
        let worker = self.engine.process();
        handle::<Run>(&self.engine, &stream, &me(), None, |_| Ok(RunCommand::Take { worker, now })).await.unwrap();
        let state = self.engine.load::<Run>(&stream).await.unwrap().state;
        let (alive, work) = (Alive::default(), Work::default());
        alive.renewed(self.engine.world().clock.monotonic());
        let progress = Progress::from(self.engine.world().clock.monotonic());
        Job { engine: self.engine.clone(), run, take: 1, opened: state.opened.unwrap(), work, alive, progress }
    }

    async fn call(&self, job: &Job, tool: &str) -> Result<Answer, Stop> {
        let arguments = Ok(json!({"path": "same.txt", "contents": "x"}));
        self.gateway.call(job, Call { tool: tool.to_owned(), arguments, step: None, whose: Whose::Ours }).await
    }
}

fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

async fn bot(engine: &Engine) -> BotId {
    engine.register_bot("ops", None, &me(), None).await.unwrap().value
}

async fn all(engine: &Engine) -> Vec<AnyEvent> {
    let (events, _) = engine.log().read_all(0, 10_000, &Filter::default()).await.unwrap();
    events.iter().map(|event| AnyEvent::decode(event).unwrap()).collect()
}

async fn decisions(engine: &Engine) -> Vec<Decision> {
    let decided = all(engine).await.into_iter().filter_map(|event| match event {
        AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) => Some(decision),
        _ => None,
    });
    decided.collect()
}

const WRITE: &str = "computer_write_file";

/// Promise 5.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_from_two_processes_at_once_is_counted_exactly_and_no_threshold_twice() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let processes = [
            Arc::new(Process::new(&url, &home, World::system()).await),
            Arc::new(Process::new(&url, &home, World::system()).await),
        ];
        let bot = bot(&processes[0].engine).await;
        let mut callers = tokio::task::JoinSet::new();
        for n in 0..8 {
            let process = Arc::clone(&processes[n % 2]);
            callers.spawn(async move {
                let job = process.job(bot).await;
                for _ in 0..4 {
                    assert_eq!(process.call(&job, WRITE).await.unwrap().kind, AnswerKind::Done);
                }
            });
        }
        callers.join_all().await;
        let mut counts: Vec<_> =
            decisions(&processes[0].engine).await.iter().map(|decision| decision.repeat_count).collect();
        counts.sort_unstable();
        assert_eq!(counts, (1..=32).collect::<Vec<_>>(), "{name}");
        let events = all(&processes[0].engine).await;
        let thresholds: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                AnyEvent::Repeat(RepeatEvent::ThresholdCrossed { threshold, count, .. }, _) => {
                    Some((*threshold, *count))
                }
                _ => None,
            })
            .collect();
        assert_eq!(thresholds, [(3, 3), (10, 10), (25, 25)], "{name}");
        assert_eq!(midwatch_log::verify::verify(processes[1].engine.log()).await.unwrap().first_bad, None);
    }
}

/// G13: what cannot be judged is refused, and that is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_boundary_that_cannot_be_read_refuses_every_call() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::new(&url, &home, World::system()).await;
    let bot = bot(&process.engine).await;
    let job = process.job(bot).await;
    process.engine.publish_boundary("{\"rules\":", "", None, &me(), None).await.unwrap();
    assert_eq!(process.call(&job, WRITE).await.unwrap().kind, AnswerKind::Refused);
    let decided = decisions(&process.engine).await;
    assert_eq!(decided[0].refusal, Some(RefusalCause::Unjudged));
    assert_eq!((decided[0].boundary, decided[0].unattended), (2, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_name_as_long_as_a_book_is_counted_and_refused_like_any_other() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::new(&url, &home, World::system()).await;
    let bot = bot(&process.engine).await;
    let job = process.job(bot).await;
    let tool = "ß".repeat(60_000);
    for n in 1..=4 {
        assert_eq!(process.call(&job, &tool).await.unwrap().kind, AnswerKind::Refused);
        let decided = decisions(&process.engine).await;
        assert_eq!(decided.len(), n);
        assert_eq!(decided[n - 1].refusal, Some(RefusalCause::UnknownTool));
    }
}

/// A grant that is withdrawn, or a boundary that is published, counts for every call that is decided after it was
/// answered, in every process.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_judged_by_what_was_so_before() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let caller = Arc::new(Process::new(&url, &home, World::system()).await);
        let admin = Process::new(&url, &home, World::system()).await;
        let bot = bot(&admin.engine).await;
        let job = caller.job(bot).await;
        let calls = tokio::spawn({
            let caller = Arc::clone(&caller);
            async move {
                for _ in 0..30 {
                    caller.call(&job, WRITE).await.unwrap();
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(60)).await;
        let deny = r#"{"rules":[{"id":"no","name":"No","verdict":"deny","when":"true"}]}"#;
        let published = admin.engine.publish_boundary(deny, "", None, &me(), None).await.unwrap().position;
        calls.await.unwrap();
        let (events, _) = admin.engine.log().read_all(0, 10_000, &Filter::default()).await.unwrap();
        let mut after = 0;
        for event in events {
            if let AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) = AnyEvent::decode(&event).unwrap() {
                let refused = decision.decision == DecisionKind::Refused;
                assert_eq!(
                    (refused, decision.boundary),
                    (event.position > published, 1 + u64::from(refused)),
                    "{name}"
                );
                after += u32::from(refused);
            }
        }
        assert!(after > 0, "{name}: all calls were over before the boundary was published");
    }
}

/// Monotonic time that has gone on by a minute since the lease was renewed.
struct Late(Arc<dyn Clock>);

impl Clock for Late {
    fn now(&self) -> Micros {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() + Duration::from_secs(60)
    }

    fn sleep(&self, span: Duration) -> Boxed<'static, ()> {
        self.0.sleep(span)
    }
}

/// Promise 3: the decision stands, nothing acted, and the ending says that the call's outcome is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_lease_is_too_old_decides_and_does_not_act() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let system = World::system();
    let world = World { clock: Arc::new(Late(Arc::clone(&system.clock))), ..system.clone() };
    let process = Process::new(&url, &home, world).await;
    let bot = bot(&process.engine).await;
    let job = process.job(bot).await;
    job.alive.renewed(system.clock.monotonic());
    assert!(matches!(process.call(&job, WRITE).await, Err(Stop::Lease)));
    assert_eq!(decisions(&process.engine).await[0].decision, DecisionKind::Allowed);
    assert!(!home.path().join("workspaces").join(bot.to_string()).join("same.txt").exists());
    process.engine.cancel_run(job.run, &me()).await.unwrap();
    let unknown = all(&process.engine).await.into_iter().any(|event| {
        matches!(
            event,
            AnyEvent::Run(RunEvent::ToolCallEnded { result: midwatch_events::run::CallResult::Unknown, .. }, _)
        )
    });
    assert!(unknown);
    // Ended: no call is decided any more.
    assert!(matches!(process.call(&job, WRITE).await, Err(Stop::Lost(_))));
}
