//! Chains as they stand in a ledger.

use midwatch_events::{
    Micros, StreamName,
    bot::BotEvent,
    routine::{DeliveryQueued, RoutineEvent},
    run::Cause as Why,
};

use super::*;
use crate::testing::{
    BOT, DELIVERY, Ledger, ROUTINE, RUN, TRIGGER, WINDOW, claim, id, on_both, routine_stream, run_stream,
};

async fn of(ledger: &Ledger, position: u64) -> Cause {
    cause(&ledger.log, position).await.unwrap()
}

fn chain(cause: &Cause) -> Vec<u64> {
    cause.chain.iter().map(|link| link.position).collect()
}

fn followed(cause: &Cause) -> Vec<(u64, u64)> {
    cause.followed.iter().map(|followed| (followed.link.position, followed.because)).collect()
}

fn delivered() -> Origin {
    Origin::Delivery { delivery: id(DELIVERY), trigger: id(TRIGGER), trigger_name: Some("Pushes".to_owned()) }
}

#[tokio::test]
async fn an_outcome_leads_up_to_the_webhook() {
    on_both(async |ledger| {
        ledger.story().await;
        let outcome = of(&ledger, 15).await;
        // Received, queued, claimed, opened, taken, asked, answered, decided, done.
        assert_eq!(chain(&outcome), [4, 5, 6, 8, 10, 11, 12, 14, 15], "{}", ledger.name);
        assert_eq!(outcome.origin, delivered());
        assert_eq!(followed(&outcome), []);
        assert_eq!((outcome.scanned_to, outcome.head), (22, 22));
        let text = text(&outcome);
        let first = format!("A sender's delivery {} to the trigger Pushes (", id::<()>(DELIVERY));
        assert!(text.starts_with(&first), "{text}");
        assert!(text.contains("t: allowed by the rule allow-all  [run.tool_call_decided/1 run-"), "{text}");
        // What was counted for a decision leads up the same way; so does the ending.
        assert_eq!(chain(&of(&ledger, 17).await), [4, 5, 6, 8, 10, 11, 12, 18, 17]);
        assert_eq!(chain(&of(&ledger, 22).await), [4, 5, 6, 8, 10, 21, 22]);
        assert_eq!(chain(&of(&ledger, 20).await), [4, 5, 6, 8, 10, 11, 12, 19, 20]);
        assert_eq!(chain(&of(&ledger, 9).await), [4, 5, 6, 8, 9]);
    })
    .await;
}

#[tokio::test]
async fn all_that_a_webhook_brought_follows_from_it() {
    on_both(async |ledger| {
        ledger.story().await;
        let received = of(&ledger, 4).await;
        let expected = [
            (5, 4),
            (6, 5),
            (7, 6),
            (8, 7),
            (9, 8),
            (10, 8),
            (11, 10),
            (12, 10),
            (13, 10),
            (14, 12),
            (15, 14),
            (16, 10),
            (17, 10),
            (18, 12),
            (19, 10),
            (20, 10),
            (21, 10),
            (22, 21),
        ];
        assert_eq!(followed(&received), expected, "{}", ledger.name);
        assert_eq!(chain(&received), [4]);
        assert_eq!(followed(&of(&ledger, 14).await), [(15, 14)]);
        assert_eq!(followed(&of(&ledger, 12).await), [(14, 12), (15, 14), (18, 12)]);
        let text = text(&received);
        assert!(text.contains("What followed\n"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_window_and_a_person_are_origins() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        ledger.take().await;
        let taken = of(&ledger, 6).await;
        assert_eq!(chain(&taken), [4, 5, 6]);
        assert_eq!(taken.origin, Origin::Window { routine: Some(id(ROUTINE)), window: WINDOW });
        let made = of(&ledger, 1).await;
        assert_eq!((chain(&made), made.origin), (vec![1], Origin::Actor { actor: "cli:0".to_owned() }));
        let none = cause(&ledger.log, 99).await.unwrap_err();
        assert!(none.to_string().contains("the last is 6"), "{none}");
        assert!(cause(&ledger.log, 0).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn the_next_delivery_is_another_story() {
    on_both(async |ledger| {
        ledger.story().await;
        // Another delivery had waited; the settled run made room for it.
        let settled = ledger.log.read_at(22).await.unwrap().unwrap();
        let queued =
            DeliveryQueued { delivery: id(40), trigger: id(TRIGGER), expires_us: Micros(i64::MAX), redelivery: None };
        ledger.by("engine").add(&routine_stream(), RoutineEvent::DeliveryQueued(queued)).write().await;
        let next = midwatch_events::routine::RunClaimed {
            run: id(20),
            delivery: Some(id(40)),
            window_us: None,
            ..claim(Why::Delivery)
        };
        ledger
            .by("engine")
            .within(StreamName::run(id(20)))
            .because(settled.event_id)
            .add(&routine_stream(), RoutineEvent::RunClaimed(next))
            .write()
            .await;
        let taken = midwatch_events::run::RunEvent::Taken { take: 1, worker: id(8), deadline_us: Micros(0) };
        let other = StreamName::run(id(20));
        ledger.by("engine").within(other.clone()).add(&other, taken).write().await;
        // It is shown that room was made, and no more.
        let received = followed(&of(&ledger, 4).await);
        assert_eq!(received[received.len() - 2..], [(22, 21), (24, 22)]);
        // And it came from its own delivery's wait, not from the run before.
        assert_eq!(chain(&of(&ledger, 24).await), [23, 24]);
    })
    .await;
}

#[tokio::test]
async fn a_late_consequence_is_found_and_a_long_tail_is_not_read() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        ledger.take().await;
        let noise = async |batches: u32| {
            for _ in 0..batches {
                let mut batch = ledger.by("cli:0");
                for _ in 0..1_000 {
                    batch = batch.add(&StreamName::bot(id(BOT)), BotEvent::ToolsGranted { tools: vec![] });
                }
                batch.write().await;
            }
        };
        noise(12).await;
        ledger.settle("Done.").await;
        noise(11).await;
        let claimed = of(&ledger, 4).await;
        assert_eq!(followed(&claimed), [(5, 4), (6, 5), (12_007, 6), (12_008, 12_007)]);
        assert_eq!((claimed.scanned_to, claimed.head), (22_007, 23_008));
        assert!(text(&claimed).ends_with("Looked for consequences up to position 22007 of 23008\n"));
    })
    .await;
}

#[tokio::test]
async fn a_listing_has_an_end_and_says_what_it_left_out() {
    on_both(async |ledger| {
        ledger.set_up().await;
        ledger.claim_window().await;
        for _ in 0..3 {
            let mut batch = ledger.by("engine").within(run_stream());
            for turn in 1..=1_000 {
                batch = batch.add(&run_stream(), midwatch_events::run::RunEvent::TurnStarted { turn });
            }
            batch.write().await;
        }
        let opened = of(&ledger, 5).await;
        assert_eq!((opened.followed.len(), opened.left_out), (1_000, 2_000));
        assert!(text(&opened).ends_with("and 2000 more, left out\n"));
        assert_eq!(opened.chain[0].stream, StreamName::routine(id(ROUTINE)).to_string());
        assert_eq!(opened.followed[0].link.stream, StreamName::run(id(RUN)).to_string());
    })
    .await;
}
