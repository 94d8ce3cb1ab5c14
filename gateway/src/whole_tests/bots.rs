//! Bots with a mind of their own: they ask for a person's word, and take over from recordings.

use midwatch_commands::run::Answerer;
use midwatch_engine::approvals::Answer;
use midwatch_events::id::UserId;

use super::*;
use crate::bots::agui::peer_tests;

/// The Bot has a tool of its own behind a person's yes. Nobody is there, so that is a no, and the Bot goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_bot_that_asks_for_a_persons_word_is_told_no_where_nobody_is() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let peer = peer_tests::start();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    // Not even a boundary that refuses nothing says yes in a person's place.
    let dry = json!({"mode": "dry_run", "rules": []});
    engine.publish_boundary(&dry.to_string(), "", None, &me(), None).await.unwrap();
    let bot = bot(engine, Some(&format!("{}/gated", peer.base))).await;
    let routine = routine(engine, bot, YEARLY, instruction("Wire it.")).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    assert_eq!(ended(engine, run).await, (Outcome::Succeeded, None));
    let decided: Vec<_> = decisions(engine, run).await;
    let [decision] = decided.as_slice() else { panic!("{decided:?}") };
    assert_eq!((decision.tool.as_str(), decision.refusal), ("wire_money", Some(RefusalCause::AskUnattended)));
    assert_eq!(engine.load::<Run>(&StreamName::run(run)).await.unwrap().state.turn, 2);
    process.stop().await;
}

/// A rule lets it wait; a person says yes; the Bot does it, and what came of it is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_bots_own_call_waits_for_a_person_where_a_rule_says_so() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let peer = peer_tests::start();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let when = "tool.name == \"wire_money\" && intent == \"write_tool\" && has(args.amount) && args.amount < 10";
    let document = json!({"rules": [
        {"id": "ask", "name": "Ask", "verdict": "ask", "unattended": "wait", "when": when},
    ]});
    engine.publish_boundary(&document.to_string(), "", None, &me(), None).await.unwrap();
    let bot = bot(engine, Some(&format!("{}/gated", peer.base))).await;
    let routine = routine(engine, bot, YEARLY, instruction("Wire it.")).await;
    let run = engine.run_now(routine, &me(), None).await.unwrap().value;
    let asked = loop {
        let asked = events(engine, &StreamName::run(run)).await.into_iter().find_map(|event| match event {
            AnyEvent::Run(RunEvent::ApprovalRequested(asked), _) => Some(asked),
            _ => None,
        });
        match asked {
            Some(asked) => break asked,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let by = Answerer { user: Some(UserId::new(World::system().uuid())), admin: true };
    let person = Origin::of(Actor::User(by.user.unwrap()));
    let yes = Answer { approval: asked.approval, digest: asked.digest, yes: true, by };
    // A person answers what the page shows.
    projector::catch_up(engine).await.unwrap();
    engine.answer_approval(yes, &person, None).await.unwrap();
    assert_eq!(ended(engine, run).await, (Outcome::Succeeded, None));
    let ended: Vec<_> = events(engine, &StreamName::run(run)).await;
    let outcome = ended.iter().find_map(|event| match event {
        AnyEvent::Run(RunEvent::ToolCallEnded { result, .. }, Some(RunContent::ToolCallEnded { result: text, .. })) => {
            Some((*result, text.clone()))
        }
        _ => None,
    });
    assert_eq!(outcome, Some((CallResult::Finished, Some("wired 5".to_owned()))));
    let Some(AnyEvent::Run(RunEvent::Ended(_), Some(RunContent::Ended { headline, .. }))) = ended.last() else {
        panic!("{ended:?}")
    };
    assert_eq!(headline, "Outcome: wired 5");
    verified(engine).await;
    process.stop().await;
}

/// A recording's step fails, and the Bot goes on from there; where it fails too, nothing is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_that_fails_is_handed_to_its_bot() {
    let (url, _guard) = testing::fresh_sqlite();
    let home = TempDir::new().unwrap();
    let peer = peer_tests::start();
    let process = Process::start(&url, home.path()).await;
    let engine = &process.engine;
    let steps = json!([
        {"tool": "computer_write_file", "arguments": {"path": "first.txt", "contents": "done once"}},
        {"tool": "computer_read_file", "arguments": {"path": "nowhere.txt"}},
    ]);
    for (path, expected, says) in [
        ("notes", (Outcome::Succeeded, None), "It says: tea at four"),
        ("boom", (Outcome::Failed, Some(Reason::HandOverFailed)), "Step 2 of 2 of a recording failed"),
        ("unavailable", (Outcome::Failed, Some(Reason::HandOverFailed)), "Step 2 of 2 of a recording failed"),
    ] {
        let bot = bot(engine, Some(&format!("{}/{path}", peer.base))).await;
        let routine = routine(engine, bot, YEARLY, recording(&steps)).await;
        let run = engine.run_now(routine, &me(), None).await.unwrap().value;
        assert_eq!(ended(engine, run).await, expected, "{path}");
        let last = engine.log().read_stream_back(&StreamName::run(run), u64::MAX, 1).await.unwrap().remove(0);
        let Some(RunContent::Ended { headline, .. }) = last.content::<RunEvent>().unwrap() else { panic!() };
        assert!(headline.starts_with(says), "{path}: {headline}");
        let steps = decisions(engine, run).await.iter().filter(|decision| decision.step.is_some()).count();
        assert_eq!(steps, 2, "{path}: no step acts twice");
    }
    process.stop().await;
}
