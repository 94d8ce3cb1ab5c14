//! Several processes at once: exact counts, one boundary, and stopping under load.

use std::collections::BTreeSet;

use midwatch_events::{
    id::CallId,
    run::{CallResult, Outcome},
};

use super::*;
use crate::decide::Whose;

/// Promise 5, G1: two processes that make the same call 1,000 times between them count 1 to 1,000, each once.
async fn a_thousand_equal_calls(name: &str, url: &str) {
    let home = TempDir::new().unwrap();
    let processes = [
        Arc::new(Process::new(url, &home, World::system()).await),
        Arc::new(Process::new(url, &home, World::system()).await),
    ];
    let bot = bot(&processes[0].engine).await;
    let mut callers = tokio::task::JoinSet::new();
    for process in &processes {
        let process = Arc::clone(process);
        callers.spawn(async move {
            let job = process.job(bot).await;
            for _ in 0..500 {
                assert_eq!(process.call(&job, WRITE).await.unwrap().kind, AnswerKind::Done);
            }
        });
    }
    callers.join_all().await;
    let (events, _) = processes[0].engine.log().read_all(0, 100_000, &Filter::default()).await.unwrap();
    let (mut counts, mut thresholds, mut same) = (Vec::new(), Vec::new(), 0);
    for event in &events {
        match AnyEvent::decode(event).unwrap() {
            AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) => {
                counts.push(decision.repeat_count);
                same = same.max(decision.repeat_same_result);
            }
            AnyEvent::Repeat(RepeatEvent::ThresholdCrossed { threshold, count, .. }, _) => {
                thresholds.push((threshold, count));
            }
            _ => {}
        }
    }
    // In order of the ledger, as well: the count is part of the append that makes the attempt.
    counts.sort_unstable();
    assert_eq!(counts, (1..=1_000).collect::<Vec<_>>(), "{name}");
    assert_eq!(thresholds, [(3, 3), (10, 10), (25, 25)], "{name}");
    assert!(same > 900, "{name}: {same}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_equal_calls_from_two_processes_are_counted_one_to_a_thousand() {
    for (name, url, _guard) in testing::fresh_urls().await {
        a_thousand_equal_calls(name, &url).await;
    }
}

/// The boundary is changed from one process while five others decide.
#[tokio::test(flavor = "multi_thread")]
async fn no_decision_after_the_answer_carries_an_older_boundary() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let admin = Process::new(&url, &home, World::system()).await;
        let bot = bot(&admin.engine).await;
        let mut callers = tokio::task::JoinSet::new();
        for n in 0..5 {
            let process = Process::new(&url, &home, World::system()).await;
            let job = process.job(bot).await;
            callers.spawn(async move {
                for m in 0..40 {
                    let arguments = Ok(json!({"path": format!("{n}-{}.txt", m % 7), "contents": "x"}));
                    process
                        .gateway
                        .call(&job, Call { tool: WRITE.to_owned(), arguments, step: None, whose: Whose::Ours })
                        .await
                        .unwrap();
                }
            });
        }
        let mut published = Vec::new();
        for version in 2..=4 {
            tokio::time::sleep(Duration::from_millis(80)).await;
            let rules = format!(r#"{{"rules":[{{"id":"all","name":"{version}","verdict":"allow","when":"true"}}]}}"#);
            let done = admin.engine.publish_boundary(&rules, "", None, &me(), None).await.unwrap();
            published.push((done.position, version));
        }
        callers.join_all().await;
        let (events, _) = admin.engine.log().read_all(0, 100_000, &Filter::default()).await.unwrap();
        let mut decided = BTreeSet::new();
        for event in &events {
            if let AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) = AnyEvent::decode(event).unwrap() {
                let before = published.iter().filter(|(position, _)| *position < event.position);
                assert_eq!(decision.boundary, before.map(|(_, version)| *version).max().unwrap_or(1), "{name}");
                decided.insert(decision.boundary);
            }
        }
        assert!(decided.len() > 1, "{name}: all calls were over before a boundary was published");
    }
}

/// No call is decided after the answer; those decided before it and without an outcome are listed in it, and unknown.
#[tokio::test(flavor = "multi_thread")]
async fn everything_stops_under_load_and_what_was_decided_is_listed() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let processes = [
            Arc::new(Process::new(&url, &home, World::system()).await),
            Arc::new(Process::new(&url, &home, World::system()).await),
        ];
        let engine = &processes[0].engine;
        let bot = bot(engine).await;
        let mut callers = tokio::task::JoinSet::new();
        for n in 0..8 {
            let process = Arc::clone(&processes[n % 2]);
            let job = process.job(bot).await;
            callers.spawn(async move {
                for m in 0.. {
                    let arguments = Ok(json!({"path": format!("{n}-{}.txt", m % 5), "contents": "x"}));
                    let call = Call { tool: WRITE.to_owned(), arguments, step: None, whose: Whose::Ours };
                    if let Err(stop) = process.gateway.call(&job, call).await {
                        assert!(matches!(stop, Stop::Lost(_)), "{stop}");
                        return;
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let stopped = engine.stop_everything(&me(), "drill", None).await.unwrap();
        callers.join_all().await;
        assert_eq!(stopped.value.runs.len(), 8, "{name}");
        let (events, _) = engine.log().read_all(0, 100_000, &Filter::default()).await.unwrap();
        let mut unknown = BTreeSet::<CallId>::new();
        let (mut calls, mut ended) = (0, 0);
        for event in &events {
            match AnyEvent::decode(event).unwrap() {
                AnyEvent::Run(RunEvent::ToolCallDecided(_), _) => {
                    assert!(event.position < stopped.position, "{name}: decided after the answer");
                    calls += 1;
                }
                AnyEvent::Run(RunEvent::ToolCallEnded { decision, result: CallResult::Unknown, .. }, _) => {
                    unknown.insert(decision.call);
                }
                AnyEvent::Run(RunEvent::Ended(over), _) => {
                    assert_eq!(over.outcome, Outcome::Cancelled);
                    ended += 1;
                }
                _ => {}
            }
        }
        assert_eq!(stopped.value.calls.into_iter().collect::<BTreeSet<_>>(), unknown, "{name}");
        assert!(calls > 8 && ended == 8, "{name}: {calls} calls, {ended} ends");
        assert!(engine.halt().await.unwrap().state.halted.is_some());
    }
}

/// A run, and then a Bot, is stopped from one process while five others decide.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_and_a_bot_stop_while_five_processes_decide() {
    for (name, url, _guard) in testing::fresh_urls().await {
        let home = TempDir::new().unwrap();
        let admin = Process::new(&url, &home, World::system()).await;
        for all_of_a_bot in [false, true] {
            let bot = bot(&admin.engine).await;
            let one = admin.job(bot).await;
            let mut callers = tokio::task::JoinSet::new();
            for n in 0..5 {
                let process = Process::new(&url, &home, World::system()).await;
                let job = match all_of_a_bot {
                    true => process.job(bot).await,
                    false => Job { engine: process.engine.clone(), ..one.clone() },
                };
                callers.spawn(async move {
                    for m in 0.. {
                        let arguments = Ok(json!({"path": format!("{n}-{}.txt", m % 5), "contents": "x"}));
                        let call = Call { tool: WRITE.to_owned(), arguments, step: None, whose: Whose::Ours };
                        if let Err(stop) = process.gateway.call(&job, call).await {
                            assert!(matches!(stop, Stop::Lost(_)), "{stop}");
                            return;
                        }
                    }
                });
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            let stopped = match all_of_a_bot {
                true => admin.engine.stop_bot(bot, &me()).await.unwrap(),
                false => admin.engine.cancel_run(one.run, &me()).await.unwrap(),
            };
            callers.join_all().await;
            assert_eq!(stopped.value.runs.len(), if all_of_a_bot { 6 } else { 1 }, "{name}");
            let (events, _) = admin.engine.log().read_all(0, 100_000, &Filter::default()).await.unwrap();
            let (mut calls, mut unknown) = (0, BTreeSet::<CallId>::new());
            for event in &events {
                match AnyEvent::decode(event).unwrap() {
                    AnyEvent::Run(RunEvent::ToolCallDecided(decision), _) if decision.bot == bot => {
                        assert!(event.position < stopped.position, "{name}: decided after the answer");
                        calls += 1;
                    }
                    AnyEvent::Run(RunEvent::ToolCallEnded { decision, result: CallResult::Unknown, .. }, _)
                        if decision.bot == bot =>
                    {
                        unknown.insert(decision.call);
                    }
                    _ => {}
                }
            }
            assert!(calls > 5, "{name}: {calls} calls");
            assert_eq!(stopped.value.calls.into_iter().collect::<BTreeSet<_>>(), unknown, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_a_bot_leaves_the_others_alone() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let process = Process::new(&url, &home, World::system()).await;
    let engine = &process.engine;
    let (one, other) = (bot(engine).await, bot(engine).await);
    let (stops, goes_on) = (process.job(one).await, process.job(other).await);
    let stopped = engine.stop_bot(one, &me()).await.unwrap();
    assert_eq!((stopped.value.runs, stopped.value.calls), (vec![stops.run], vec![]));
    assert!(matches!(process.call(&stops, WRITE).await, Err(Stop::Lost(_))));
    assert_eq!(process.call(&goes_on, WRITE).await.unwrap().kind, AnswerKind::Done);
    assert!(engine.stop_bot(BotId::new(engine.world().uuid()), &me()).await.is_err());
}
