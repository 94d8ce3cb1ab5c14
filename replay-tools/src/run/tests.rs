//! Timelines of runs as they stand in a ledger.

use std::time::{Duration, Instant};

use midwatch_events::{
    Micros, New,
    key::{Bytes, Digest},
    run::{BlobRef, Outcome, RunContent, RunEvent},
};
use midwatch_log::Filter;
use serde_json::Value;

use super::*;
use crate::testing::{Ledger, RUN, decision, id, on_both, timeless};

async fn all(timeline: &mut Timeline) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let page = timeline.page().await.unwrap();
        if page.is_empty() {
            return entries;
        }
        entries.extend(page);
    }
}

async fn told(ledger: &Ledger, until: Option<&str>) -> Vec<Entry> {
    let until = until.map(|text| text.parse().unwrap());
    all(&mut Timeline::open(&ledger.log, id(RUN), until).await.unwrap()).await
}

async fn times(ledger: &Ledger) -> Vec<Micros> {
    let (events, _) = ledger.log.read_all(0, 1_000, &Filter::default()).await.unwrap();
    events.iter().map(|event| event.recorded_at).collect()
}

/// The document as it is written, page by page.
async fn document(ledger: &Ledger, until: Option<&str>) -> Value {
    let until = until.map(|text| text.parse().unwrap());
    let mut timeline = Timeline::open(&ledger.log, id(RUN), until).await.unwrap();
    let mut json = json_head(&timeline);
    let mut first = true;
    loop {
        let page = timeline.page().await.unwrap();
        if page.is_empty() {
            break;
        }
        json.push_str(&json_entries(&page, first));
        first = false;
    }
    json.push_str(&json_tail(&timeline));
    serde_json::from_str(&json).unwrap()
}

const STORY: &str = "       8  TIME  Opened by a delivery; nobody is watching
            Bot ops (00000000-0000-0000-0000-000000000005), with the rights of user 00000000-0000-0000-0000-000000000006
            routine Nightly tidy (00000000-0000-0000-0000-000000000001)
            trigger Pushes (00000000-0000-0000-0000-000000000003)
            claimed at position 6 by engine, process 00000000-0000-0000-0000-000000000008
            delivery 00000000-0000-0000-0000-000000000004 at position 4, TIME, push, 25 bytes
            sender's id: abc-1
            payload: {\"ref\":\"refs/heads/main\"}
            instruction:
              Look at the push.
              Write down what it was.
            at most 900 s and 20 turns
      10  TIME  Taken by a runner (take 1), out of time at 2026-11-30T15:00:00Z
            by the process 00000000-0000-0000-0000-000000000008
      11  TIME  Turn 1 started
      12  TIME  Turn 1 finished with 2 calls
            Bot: I will write it down.
            Bot asks for t {}
            Bot asks for t {}
      14  TIME  t: allowed by the rule allow-all
            call 1 of the run, turn 1, intent write_file
            arguments: {\"path\":\"notes.txt\"}
            verdict allow, by the rule allow-all; boundary version 1
            matched: allow-all
            the rules saw: {\"intent\":\"write_file\"}
            nobody was watching; made once inside the window
      15  TIME  t: finished in 12 ms, 11 bytes
            call 1 of the run
            result: {\"ok\":true}
      17  TIME  Going in circles: t made the same call 3 times (threshold 3)
            call: t notes.txt
            nobody was watching
      18  TIME  t: refused by the rule no-loops
            call 2 of the run, turn 1, intent write_file
            arguments: {\"path\":\"notes.txt\"}
            verdict deny, by the rule no-loops; boundary version 1
            matched: no-loops, allow-all
            could not be evaluated: odd
            the rules saw: {\"intent\":\"write_file\"}
            nobody was watching; made 3 times inside the window, 2 with the same result; the last calls have come round 2 times
            it never acted
      19  TIME  Turn 2 started
      20  TIME  Turn 2 finished with 0 calls
            Bot: Done.
      21  TIME  Ended: succeeded; 2 calls, 1 refused, after 2.5 s
            headline: Done.
            turns: 2; nobody was watching
";

#[tokio::test]
async fn a_webhooks_run_is_told_from_its_delivery_to_its_ending() {
    on_both(async |ledger| {
        ledger.story().await;
        let entries = told(&ledger, None).await;
        assert_eq!(timeless(&text(&entries), &times(&ledger).await), STORY, "{}", ledger.name);
    })
    .await;
}

#[tokio::test]
async fn the_document_has_its_shape_and_its_ending() {
    on_both(async |ledger| {
        ledger.story().await;
        let document = document(&ledger, None).await;
        assert_eq!(document["run"], id::<()>(RUN).to_string());
        let kinds: Vec<&str> =
            document["entries"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            [
                "opened",
                "taken",
                "turn_started",
                "turn_finished",
                "decided",
                "call_ended",
                "repeated",
                "decided",
                "turn_started",
                "turn_finished",
                "ended"
            ]
        );
        assert_eq!((&document["state"], &document["until"]), (&Value::from("ended"), &Value::from(21)));
        assert_eq!(document["ended"]["outcome"], "succeeded");
        assert_eq!(document["ended"]["headline"]["text"], "Done.");
        assert_eq!(document["entries"][0]["delivery"]["body"]["text"], r#"{"ref":"refs/heads/main"}"#);
        let refused = &document["entries"][7];
        assert_eq!((&refused["rule"], &refused["unattended"]), (&Value::from("no-loops"), &Value::from(true)));
        assert_eq!(refused["event"], "run.tool_call_decided/1");
        assert_eq!(refused["position"], 18);
    })
    .await;
}

#[tokio::test]
async fn erased_words_say_so_and_facts_stay() {
    on_both(async |ledger| {
        ledger.story().await;
        let before = told(&ledger, None).await;
        ledger.erase().await;
        let entries = told(&ledger, None).await;
        let text = timeless(&text(&entries), &times(&ledger).await);
        for line in [
            "instruction: erased",
            "payload: erased",
            "arguments: erased",
            "result: erased",
            "messages: erased",
            "headline: erased",
        ] {
            assert!(text.contains(&format!("            {line}\n")), "{line} in\n{text}");
        }
        assert!(!text.contains("notes.txt") && !text.contains("refs/heads/main"), "{text}");
        assert!(text.contains("t: refused by the rule no-loops"));
        let titles = |entries: &[Entry]| entries.iter().map(|entry| entry.title.clone()).collect::<Vec<_>>();
        assert_eq!(titles(&entries), titles(&before));
        assert_eq!(document(&ledger, None).await["entries"][0]["told"], serde_json::json!({"erased": true}));
    })
    .await;
}

#[tokio::test]
async fn a_moment_cuts_the_timeline() {
    on_both(async |ledger| {
        ledger.story().await;
        let positions = |entries: Vec<Entry>| entries.iter().map(|entry| entry.position).collect::<Vec<_>>();
        assert_eq!(positions(told(&ledger, Some("12")).await), [8, 10, 11, 12]);
        assert_eq!(positions(told(&ledger, Some("17")).await), [8, 10, 11, 12, 14, 15]);
        let document = document(&ledger, Some("20")).await;
        assert_eq!((&document["state"], &document["ended"]), (&Value::from("running"), &Value::Null));
        let ninth = ledger.log.read_at(21).await.unwrap().unwrap().recorded_at.to_string();
        assert_eq!(told(&ledger, Some(&ninth)).await.last().unwrap().position, 21);
        let early = Timeline::open(&ledger.log, id(RUN), Some("7".parse().unwrap())).await.unwrap_err();
        assert!(early.to_string().contains("opened later than position 7"), "{early}");
        let none = Timeline::open(&ledger.log, id(99), None).await.unwrap_err();
        assert!(matches!(none, ReplayError::NotThere(_)), "{none}");
    })
    .await;
}

#[tokio::test]
async fn what_a_bot_writes_cannot_take_over_a_terminal() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        ledger.take().await;
        ledger.turn(1, "\u{1b}]0;owned\u{7}\nline two \u{202e}txt.exe", 0).await;
        ledger.settle("\u{1b}[2J gone \u{9b}1m").await;
        let text = text(&told(&ledger, None).await);
        let harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(text.chars().all(harmless), "{text:?}");
        assert!(text.contains(r"\u{1b}]0;owned\u{7}") && text.contains(r"\u{202e}txt.exe"), "{text}");
        assert!(text.contains("claimed at position 4 by clock") && text.contains("time-zone data 2026f"), "{text}");
        let timeline = Timeline::open(&ledger.log, id(RUN), None).await.unwrap();
        let json: String = told(&ledger, None).await.iter().map(json_entry).collect();
        assert!(!json.contains('\u{202e}') && !json.contains('\u{1b}'), "{json}{}", json_tail(&timeline));
    })
    .await;
}

#[tokio::test]
async fn long_results_say_where_they_are_and_newer_events_that_they_are_newer() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        ledger.take().await;
        let decision = decision(1, 0);
        let decided = ledger.decide(&decision, None).await;
        let blob = BlobRef { blob: id(77), length: 1_234_567, salt: Bytes(vec![1]), digest: Digest([1; 32]) };
        ledger.end_call(&decision, decided, RunContent::ToolCallEnded { result: None, blob: Some(blob) }).await;
        ledger.drop_guards().await;
        ledger.sql("UPDATE events SET event_type = 'run.dreamt', schema = 7 WHERE position = 6").await;
        let text = text(&told(&ledger, None).await);
        assert!(text.contains(&format!("result: 1234567 bytes, kept as blob {}\n", id::<()>(77))), "{text}");
        assert!(text.contains("run.dreamt/7, which a newer version of Midwatch wrote"), "{text}");
        ledger.sql("UPDATE events SET facts = leaf_hash WHERE position = 8").await;
        let mut timeline = Timeline::open(&ledger.log, id(RUN), None).await.unwrap();
        let damaged = timeline.page().await.unwrap_err();
        assert!(damaged.to_string().contains("damaged at position 8"), "{damaged}");
    })
    .await;
}

#[tokio::test]
async fn a_renamed_routine_has_the_name_it_had() {
    on_both(async |ledger| {
        use midwatch_events::routine::RoutineEvent;
        ledger.set_up().await;
        let rename = async |name: &str| {
            let renamed = RoutineEvent::Renamed { name: name.to_owned() };
            ledger.by("cli:0").add(&crate::testing::routine_stream(), renamed).write().await;
        };
        rename("Then").await;
        ledger.claim_window().await;
        rename("Later").await;
        let What::Opened(opening) = &told(&ledger, None).await[0].what else { panic!("it opens") };
        assert_eq!(opening.routine.as_ref().unwrap().name.as_deref(), Some("Then"));
    })
    .await;
}

#[tokio::test]
async fn a_live_run_is_followed_to_its_ending() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        let mut timeline = Timeline::open(&ledger.log, id(RUN), None).await.unwrap();
        assert_eq!(timeline.page().await.unwrap().len(), 1);
        assert_eq!((timeline.state(), timeline.over()), (State::Waiting, false));
        let follow = async {
            let mut entries = Vec::new();
            while !timeline.over() {
                timeline.wait().await.unwrap();
                entries.extend(timeline.page().await.unwrap());
            }
            entries
        };
        let live = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            ledger.take().await;
            ledger.turn(1, "Hello.", 0).await;
            ledger.settle("Done.").await;
        };
        let both = async { tokio::join!(follow, live).0 };
        let entries = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        assert_eq!(entries.len(), 4);
        let What::Ended(ending) = &entries[3].what else { panic!("it ends") };
        assert_eq!(ending.outcome, Outcome::Succeeded);
        assert_eq!(timeline.state(), State::Ended);
    })
    .await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test measures real time")]
async fn thirty_thousand_events_come_in_pages() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        ledger.take().await;
        for _ in 0..30 {
            let mut batch = ledger.by("engine").within(run_stream());
            for turn in 1..=500 {
                let content = RunContent::TurnFinished { messages: "[]".to_owned() };
                batch = batch.add(&run_stream(), RunEvent::TurnStarted { turn });
                batch = batch.add(&run_stream(), New::with(RunEvent::TurnFinished { turn, calls: 0 }, content));
            }
            batch.write().await;
        }
        ledger.settle("Done.").await;
        let started = Instant::now();
        let mut timeline = Timeline::open(&ledger.log, id(RUN), None).await.unwrap();
        let first = timeline.page().await.unwrap();
        let opened = started.elapsed();
        assert_eq!(first.len(), PAGE as usize);
        let rest = all(&mut timeline).await;
        assert_eq!((first.len() + rest.len(), timeline.state()), (30_003, State::Ended));
        let took = started.elapsed();
        eprintln!("{}: first page after {opened:?}, all after {took:?}", ledger.name);
        // Unoptimised and beside other tests; the bar for a release build is 200 ms.
        assert!(opened < Duration::from_secs(2) && took < Duration::from_secs(30), "{opened:?}, {took:?}");
    })
    .await;
}

fn run_stream() -> midwatch_events::StreamName {
    crate::testing::run_stream()
}
