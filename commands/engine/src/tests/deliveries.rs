//! Which deliveries are wanted, what a busy target does with them, and letting them run once more.

use std::time::Duration;

use midwatch_commands::{
    Refusal,
    delivery::{Delivery, Fate, Redelivery},
    run::End,
};
use midwatch_events::{
    AnyEvent, StreamName,
    delivery::{DeliveryEvent, HeldCause, ReceivedStatus},
    id::{DeliveryId, TriggerId},
    routine::DropReason,
    run::{Outcome, Reason},
    trigger::{Intake, TriggerEvent, WhenBusy},
};
use tokio::task::JoinSet;

use super::support::{FAR, Place, all, bot, me, new_trigger, open_trigger, posted, refused, routine, until, verified};
use crate::{
    Engine, EngineError,
    intake::Posted,
    projector, reactor,
    redeliveries::{self, Counted, Matching},
    triggers::NewTrigger,
    upkeep,
};

async fn react(engine: &Engine) {
    while reactor::react(engine).await.unwrap() {}
    projector::catch_up(engine).await.unwrap();
}

/// Ends whatever is live.
async fn finish(engine: &Engine) {
    projector::catch_up(engine).await.unwrap();
    for run in engine.live_runs().await.unwrap() {
        let now = engine.log().store_time().await.unwrap();
        let (outcome, reason) = (Outcome::Cancelled, Some(Reason::Person));
        let end = End { take: None, outcome, reason, headline: String::new(), error: None, now };
        let _ = engine.settle(run, end, &me()).await;
    }
}

async fn fate(engine: &Engine, delivery: DeliveryId) -> Fate {
    engine.load::<Delivery>(&StreamName::delivery(delivery)).await.unwrap().state.fate
}

async fn receive(engine: &Engine, trigger: TriggerId, id: &str, body: &str) -> (DeliveryId, ReceivedStatus) {
    let posted = Posted { event_type: Some("push".to_owned()), ..posted(Some(id), body) };
    let taken = engine.receive(trigger, &posted).await.unwrap();
    (taken.delivery, taken.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_waits_for_a_busy_target_the_newest_alone_runs_where_its_trigger_says_so() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let intake = Intake { when_busy: WhenBusy::Coalesce, ..Intake::default() };
        let trigger = open_trigger(&engine, &new_trigger(bot, intake)).await;
        let mut deliveries = Vec::new();
        for n in 0..4 {
            deliveries.push(receive(&engine, trigger, &n.to_string(), "x").await.0);
            react(&engine).await;
        }
        assert!(matches!(fate(&engine, deliveries[0]).await, Fate::Started(_)), "{}", place.backend);
        for gone in &deliveries[1..3] {
            assert_eq!(fate(&engine, *gone).await, Fate::Dropped(DropReason::Coalesced), "{}", place.backend);
        }
        assert_eq!(fate(&engine, deliveries[3]).await, Fate::Queued);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_target_refuses_at_once_in_every_process_and_the_retry_is_new_work() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let routine = routine(&engines[0], bot, FAR).await;
        let intake = Intake { when_busy: WhenBusy::Refuse, ..Intake::default() };
        let own = new_trigger(bot, intake.clone());
        let forwarding =
            NewTrigger { routine: Some(routine), bot: None, instruction: None, ..new_trigger(bot, intake) };
        for new in [own, forwarding] {
            let trigger = open_trigger(&engines[0], &new).await;
            let mut senders = JoinSet::new();
            for n in 0..12 {
                let engine = engines[n % 2].clone();
                senders.spawn(async move { (n, receive(&engine, trigger, &n.to_string(), "x").await) });
            }
            let answers = senders.join_all().await;
            let (taken, turned): (Vec<_>, Vec<_>) =
                answers.iter().partition(|(_, (_, status))| *status == ReceivedStatus::Accepted);
            assert_eq!(taken.len(), 1, "{}", place.backend);
            assert!(turned.iter().all(|(_, (_, status))| *status == ReceivedStatus::Refused));
            assert_eq!(fate(&engines[1], turned[0].1.0).await.name(), "refused");
            react(&engines[0]).await;
            let taken = taken[0].1.0;
            assert!(matches!(fate(&engines[0], taken).await, Fate::Started(_)), "{}", place.backend);

            // Still busy: refused again, as a delivery of its own. Free again: the same id is new work.
            let again = receive(&engines[1], trigger, &turned[0].0.to_string(), "x").await;
            assert_eq!(again.1, ReceivedStatus::Refused);
            assert_ne!(again.0, turned[0].1.0);
            until("the run ends", || async {
                finish(&engines[0]).await;
                react(&engines[0]).await;
                let Fate::Started(run) = fate(&engines[0], taken).await else { return false };
                let run = engines[0].load::<midwatch_commands::run::Run>(&StreamName::run(run)).await.unwrap();
                run.state.ended.is_some()
            })
            .await;
            assert_eq!(receive(&engines[1], trigger, &turned[0].0.to_string(), "x").await.1, ReceivedStatus::Accepted);
        }
        verified(&engines[0]).await;
    }
}

#[tokio::test]
async fn only_what_a_trigger_wants_becomes_a_run_and_what_cannot_be_said_is_held_and_expires() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let intake = Intake {
        event_types: vec!["pu*".to_owned()],
        filter: Some("has(body.amount) && body.amount > 100".to_owned()),
        queue_age_s: 1,
        ..Intake::default()
    };
    let trigger = open_trigger(&engine, &new_trigger(bot, intake.clone())).await;
    assert_eq!(receive(&engine, trigger, "1", r#"{"amount":101}"#).await.1, ReceivedStatus::Accepted);
    assert_eq!(receive(&engine, trigger, "2", r#"{"amount":100}"#).await.1, ReceivedStatus::Filtered);
    let (held, status) = receive(&engine, trigger, "3", r#"{"amount":"many"}"#).await;
    assert_eq!(status, ReceivedStatus::Held);
    let other = Posted { event_type: Some("issues".to_owned()), ..posted(Some("4"), r#"{"amount":101}"#) };
    assert_eq!(engine.receive(trigger, &other).await.unwrap().status, ReceivedStatus::Filtered);
    let none = posted(Some("5"), r#"{"amount":101}"#);
    assert_eq!(engine.receive(trigger, &none).await.unwrap().status, ReceivedStatus::Filtered);
    let received = engine.load::<Delivery>(&StreamName::delivery(held)).await.unwrap().state.received.unwrap();
    assert_eq!(received.held, Some(HeldCause::FilterBroken));
    assert!(received.held_until_us.is_some());

    // What would pass, before such a filter is saved.
    projector::catch_up(&engine).await.unwrap();
    let asked = Intake { filter: Some("has(body.amount) && body.amount == 100".to_owned()), ..Intake::default() };
    let previewed = engine.preview_filter(trigger, &asked).await.unwrap();
    let passing = previewed.iter().filter(|one| one.passes == Some(midwatch_boundary::filter::Passes::Yes)).count();
    assert_eq!((previewed.len(), passing), (6, 1));
    let broken = Intake { filter: Some("body.amount == 100".to_owned()), ..Intake::default() };
    let said = refused(engine.replace_intake(trigger, &broken, None, &me(), None).await).to_string();
    assert!(said.contains("has(body.amount)"), "{said}");

    tokio::time::sleep(Duration::from_millis(1_050)).await;
    upkeep::keep_up(&engine).await.unwrap();
    assert_eq!(fate(&engine, held).await, Fate::Dropped(DropReason::Expired));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minutes_budget_is_exact_over_processes_and_spent_by_nothing_but_new_deliveries() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let intake = Intake { per_minute_max: Some(11), ..Intake::default() };
        // The sample is one of them.
        let now = engines[0].log().store_time().await.unwrap().seconds().rem_euclid(60);
        if now > 45 {
            tokio::time::sleep(Duration::from_secs(u64::try_from(61 - now).unwrap())).await;
        }
        let trigger = open_trigger(&engines[0], &new_trigger(bot, intake)).await;
        let mut senders = JoinSet::new();
        for n in 0..40 {
            let engine = engines[n % 2].clone();
            senders.spawn(async move { engine.receive(trigger, &posted(Some(&n.to_string()), "x")).await });
        }
        let answers = senders.join_all().await;
        let taken = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(taken, 10, "{}", place.backend);
        assert!(answers.iter().all(|answer| match answer {
            Ok(_) => true,
            Err(EngineError::Refused(Refusal::OverBudget { max: 11, retry_s })) => (1..=60).contains(retry_s),
            Err(_) => false,
        }));
        // The same again costs nothing, and is no refusal.
        assert!(engines[1].receive(trigger, &posted(Some("sample"), "sample")).await.unwrap().duplicate);
    }
}

async fn redelivered(engine: &Engine) -> usize {
    let events = all(engine).await;
    events.iter().filter(|(_, event)| matches!(event, AnyEvent::Delivery(DeliveryEvent::Redelivered { .. }, _))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_runs_once_more_each_time_somebody_asks_and_once_for_each_asking() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let trigger = open_trigger(&engine, &new_trigger(bot, Intake::default())).await;
        let (delivery, _) = receive(&engine, trigger, "1", "x").await;
        assert!(refused(engine.redeliver(delivery, &me(), None).await).to_string().contains("waits"));
        let mut runs = Vec::new();
        for nth in 0..3 {
            if nth > 0 {
                let request = crate::Request::new(&format!("again-{nth}"), &[b"x"]);
                assert!(!engine.redeliver(delivery, &me(), Some(&request)).await.unwrap().duplicate);
                assert!(engine.redeliver(delivery, &me(), Some(&request)).await.unwrap().duplicate);
                assert_eq!(fate(&engine, delivery).await, Fate::Redelivered);
            }
            until("it runs", || async {
                finish(&engine).await;
                react(&engine).await;
                matches!(fate(&engine, delivery).await, Fate::Started(run) if !runs.contains(&run))
            })
            .await;
            let Fate::Started(run) = fate(&engine, delivery).await else { panic!("it does not run") };
            runs.push(run);
            until("it ends", || async {
                finish(&engine).await;
                engine.load::<midwatch_commands::run::Run>(&StreamName::run(run)).await.unwrap().state.ended.is_some()
            })
            .await;
        }
        assert_eq!(redelivered(&engine).await, 2, "{}", place.backend);
        engine.halt_scheduling(&me(), "drill", None).await.unwrap();
        assert_eq!(refused(engine.redeliver(delivery, &me(), None).await), Refusal::Halted);
        verified(&engine).await;
    }
}

/// Many deliveries of a paused trigger's time, in an order.
async fn filtered(engine: &Engine, count: usize) -> (TriggerId, Vec<DeliveryId>) {
    let bot = bot(engine).await;
    let intake = Intake { event_types: vec!["never".to_owned()], queue_max: 4, ..Intake::default() };
    let trigger = open_trigger(engine, &new_trigger(bot, intake)).await;
    let mut deliveries = Vec::new();
    for n in 0..count {
        deliveries.push(receive(engine, trigger, &n.to_string(), "x").await.0);
    }
    projector::catch_up(engine).await.unwrap();
    (trigger, deliveries)
}

fn matching(trigger: TriggerId) -> Matching {
    Matching { trigger: Some(trigger), status: Some("filtered".to_owned()), ..Matching::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_let_run_in_order_and_once_by_two_processes_that_never_ask_each_other() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let (trigger, deliveries) = filtered(&engines[0], 9).await;
        let counted = engines[0].count_redelivery(&matching(trigger)).await.unwrap();
        assert_eq!(counted.count, 9);
        let other = Counted { count: 8, ..counted };
        assert!(
            refused(engines[0].start_redelivery(&matching(trigger), other, &me(), None).await)
                .to_string()
                .contains('9')
        );
        let id = engines[0].start_redelivery(&matching(trigger), counted, &me(), None).await.unwrap().value;
        projector::catch_up(&engines[0]).await.unwrap();
        until("all were let run", || async {
            // Both at once, and neither leads: what a process does after a crash of the other.
            let (one, two) = tokio::join!(redeliveries::go_on(&engines[0]), redeliveries::go_on(&engines[1]));
            one.unwrap();
            two.unwrap();
            finish(&engines[0]).await;
            react(&engines[0]).await;
            !engines[1].load::<Redelivery>(&StreamName::redelivery(id)).await.unwrap().state.open()
        })
        .await;
        let state = engines[0].load::<Redelivery>(&StreamName::redelivery(id)).await.unwrap().state;
        assert_eq!((state.redelivered, state.left_out), (9, 0), "{}", place.backend);
        assert_eq!(redelivered(&engines[0]).await, 9);
        let order: Vec<_> = all(&engines[0])
            .await
            .into_iter()
            .filter_map(|(_, event)| match event {
                AnyEvent::Trigger(TriggerEvent::DeliveryQueued(queued), _) => Some(queued.delivery),
                _ => None,
            })
            .collect();
        assert_eq!(order, deliveries, "{}", place.backend);
        verified(&engines[0]).await;
    }
}

#[tokio::test]
async fn a_redelivery_stops_at_a_halt_where_it_is_cancelled_and_while_the_queue_is_full() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let (trigger, _) = filtered(&engine, 9).await;
    let counted = engine.count_redelivery(&matching(trigger)).await.unwrap();
    let id = engine.start_redelivery(&matching(trigger), counted, &me(), None).await.unwrap().value;
    projector::catch_up(&engine).await.unwrap();
    engine.halt_scheduling(&me(), "drill", None).await.unwrap();
    assert!(!redeliveries::go_on(&engine).await.unwrap());
    assert_eq!(redelivered(&engine).await, 0);
    engine.lift_halt(&me(), None).await.unwrap();
    redeliveries::go_on(&engine).await.unwrap();
    // The queue holds four, and nothing has been claimed.
    assert_eq!(redelivered(&engine).await, 4);
    let state = engine.load::<Redelivery>(&StreamName::redelivery(id)).await.unwrap().state;
    assert!(state.open() && state.redelivered == 4);
    engine.cancel_redelivery(id, &me(), None).await.unwrap();
    react(&engine).await;
    assert!(!redeliveries::go_on(&engine).await.unwrap());
    assert_eq!(redelivered(&engine).await, 4);
    assert!(engine.cancel_redelivery(id, &me(), None).await.is_err());
}

#[tokio::test]
async fn words_go_when_their_time_is_over_and_facts_stay() {
    for place in Place::each().await {
        words_go(&place).await;
    }
}

async fn words_go(place: &Place) {
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let trigger = open_trigger(&engine, &new_trigger(bot, Intake::default())).await;
    let (kept, _) = receive(&engine, trigger, "1", "x").await;
    let intake = Intake { kept_days: Some(3), event_types: vec!["never".to_owned()], ..Intake::default() };
    engine.replace_intake(trigger, &intake, None, &me(), None).await.unwrap();
    let (gone, _) = receive(&engine, trigger, "2", &"y".repeat(100_000)).await;
    projector::catch_up(&engine).await.unwrap();
    let now = engine.log().store_time().await.unwrap();
    upkeep::erase_old(&engine, now.plus_s(3 * 86_400 - 60)).await.unwrap();
    assert!(engine.body(gone).await.unwrap().is_some());
    upkeep::erase_old(&engine, now.plus_s(3 * 86_400 + 60)).await.unwrap();
    assert_eq!(engine.body(gone).await.unwrap(), None);
    assert!(engine.body(kept).await.unwrap().is_some(), "it waits, and its run needs its words");
    projector::catch_up(&engine).await.unwrap();
    let row = projector::get::<midwatch_projections::deliveries::Deliveries>(&engine, &gone.to_string()).await;
    let row = row.unwrap().unwrap();
    assert!(row.erased && row.sender_id.is_none() && row.body_bytes == 100_000);
    let erasures = all(&engine).await.into_iter().filter(|(recorded, event)| {
        matches!(event, AnyEvent::Engine(midwatch_events::engine::EngineEvent::ContentErased { .. }, Some(_)))
            && recorded.actor == "clock"
    });
    // The sample's and this one's.
    assert_eq!(erasures.count(), 2);
    assert!(refused(engine.redeliver(gone, &me(), None).await).to_string().contains("erased"));
    upkeep::erase_old(&engine, now.plus_s(30 * 86_400)).await.unwrap();
    verified(&engine).await;
}

// More that wait than one look takes never keep those behind them for ever.
#[tokio::test]
async fn what_waits_keeps_nothing_behind_it_from_being_erased() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let many = Intake { queue_max: 1_000, ..Intake::default() };
    let trigger = open_trigger(&engine, &new_trigger(bot, many.clone())).await;
    for n in 0..upkeep::PAGE {
        receive(&engine, trigger, &n.to_string(), "x").await;
    }
    let intake = Intake { kept_days: Some(3), event_types: vec!["never".to_owned()], ..many };
    engine.replace_intake(trigger, &intake, None, &me(), None).await.unwrap();
    let (gone, _) = receive(&engine, trigger, "last", "y").await;
    projector::catch_up(&engine).await.unwrap();
    let now = engine.log().store_time().await.unwrap();
    // The sample goes at the first look, and those behind what waits at the next.
    for _ in 0..2 {
        upkeep::erase_old(&engine, now.plus_s(4 * 86_400)).await.unwrap();
        projector::catch_up(&engine).await.unwrap();
    }
    assert_eq!(engine.body(gone).await.unwrap(), None);
}
