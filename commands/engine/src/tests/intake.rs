//! Promise 4: a delivery that was taken in is in the log, and the same one twice is one.

use std::time::Duration;

use midwatch_commands::{Refusal, trigger::TriggerCommand};
use midwatch_events::{
    AnyEvent, StreamName,
    delivery::{DeliveryEvent, ReceivedStatus},
    trigger::Intake,
};
use tokio::task::JoinSet;

use super::support::{FAR, Place, all, bot, me, new_trigger, open_trigger, posted, refused, routine, verified};
use crate::{
    Engine, EngineError,
    intake::Posted,
    triggers::{NewSecret, NewTrigger},
};

async fn received(engine: &Engine) -> Vec<(u64, DeliveryEvent)> {
    let deliveries = all(engine).await.into_iter().filter_map(|(recorded, event)| match event {
        AnyEvent::Delivery(event @ DeliveryEvent::Received(_), _) => Some((recorded.position, event)),
        _ => None,
    });
    deliveries.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_at_the_same_moment_is_one_delivery() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let trigger = open_trigger(&engines[0], &new_trigger(bot, Intake::default())).await;
        for (id, body) in [(Some("one"), "a"), (None, "b")] {
            let mut senders = JoinSet::new();
            for n in 0..16 {
                let engine = engines[n % 2].clone();
                senders.spawn(async move { engine.receive(trigger, &posted(id, body)).await.unwrap() });
            }
            let taken = senders.join_all().await;
            assert_eq!(taken.iter().filter(|taken| !taken.duplicate).count(), 1, "{}", place.backend);
            assert!(taken.iter().all(|other| other.delivery == taken[0].delivery && other.status == taken[0].status));
        }
        // The sample, and one each.
        assert_eq!(received(&engines[0]).await.len(), 3, "{}", place.backend);
        verified(&engines[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_an_id_is_new_after_its_window_and_always_where_that_is_off() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let intake = Intake { duplicate_window_s: 2, ..Intake::default() };
        let trigger = open_trigger(&engine, &new_trigger(bot, intake)).await;
        let mut places = Vec::new();
        // Processes that have not seen the ones before, and follow them all.
        for other in [place.engine().await, place.engine().await, place.engine().await] {
            let first = engine.receive(trigger, &posted(None, "x")).await.unwrap();
            let again = engine.receive(trigger, &posted(None, "x")).await.unwrap();
            assert_eq!((first.duplicate, again.duplicate), (false, true), "{}", place.backend);
            assert_eq!(first.delivery, again.delivery);
            places.push(first.delivery);
            let other = other.receive(trigger, &posted(None, "x")).await.unwrap();
            assert_eq!((other.duplicate, other.delivery), (true, first.delivery));
            tokio::time::sleep(Duration::from_millis(2_050)).await;
        }
        places.dedup();
        assert_eq!(places.len(), 3);

        let off = Intake { duplicate_window_s: 0, ..Intake::default() };
        let trigger = open_trigger(&engine, &new_trigger(bot, off)).await;
        let one = engine.receive(trigger, &posted(None, "x")).await.unwrap();
        let two = engine.receive(trigger, &posted(None, "x")).await.unwrap();
        assert!(!two.duplicate && one.delivery != two.delivery);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_for_another_body_is_a_delivery_of_its_own_and_marked() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let trigger = open_trigger(&engines[0], &new_trigger(bot, Intake::default())).await;
        let mut senders = JoinSet::new();
        for n in 0..12 {
            let engine = engines[n % 2].clone();
            let body = if n % 3 == 0 { "one" } else { "other" };
            senders.spawn(async move { (body, engine.receive(trigger, &posted(Some("id"), body)).await.unwrap()) });
        }
        let taken = senders.join_all().await;
        assert_eq!(taken.iter().filter(|(_, taken)| !taken.duplicate).count(), 2, "{}", place.backend);
        let of = |body: &str| taken.iter().find(|(asked, _)| *asked == body).unwrap().1.delivery;
        assert!(taken.iter().all(|(body, taken)| taken.delivery == of(body)));
        let marked = received(&engines[0])
            .await
            .into_iter()
            .filter(|(_, event)| matches!(event, DeliveryEvent::Received(received) if received.id_conflict));
        assert_eq!(marked.count(), 1, "{}", place.backend);
    }
}

fn signed(id: Option<&str>, body: &str, signed: u8) -> Posted {
    Posted { signed: Some([signed; 32]), ..posted(id, body) }
}

// W8, W9, W20 of the cases that broke receivers.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_signed_and_what_an_admin_chose_tell_deliveries_apart() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let intake = Intake { duplicate_window_s: 1, ..Intake::default() };
        let trigger = open_trigger(&engine, &new_trigger(bot(&engine).await, intake)).await;
        let receive = async |posted: &Posted| engine.receive(trigger, posted).await.unwrap();
        let first = receive(&signed(Some("a"), "one", 1)).await;
        for again in [signed(Some("b"), "one", 1), signed(None, "one", 1), signed(Some("a"), "one", 2)] {
            let taken = receive(&again).await;
            assert_eq!((taken.duplicate, taken.delivery), (true, first.delivery), "{again:?}");
        }
        // The same id for something else that was signed is a delivery of its own, once.
        let other = receive(&signed(Some("a"), "two", 3)).await;
        assert!(!other.duplicate);
        assert_eq!(receive(&signed(Some("c"), "two", 3)).await.delivery, other.delivery);
        // What was signed counts for ever; what is merely alike, for a while.
        let alike = |signed: u8| Posted { alike: Some([9; 32]), ..self::signed(None, &signed.to_string(), signed) };
        let group = receive(&alike(10)).await;
        assert_eq!(receive(&alike(11)).await.delivery, group.delivery);
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        assert!(receive(&signed(None, "one", 1)).await.duplicate);
        assert!(!receive(&alike(12)).await.duplicate);
        // An id that stands in the body counts whatever else stands there, and however it was signed.
        let inside = |body: &str, signed: u8| Posted { id_alone: true, ..self::signed(Some("evt_1"), body, signed) };
        let event = receive(&inside("attempt 1", 20)).await;
        let retried = receive(&inside("attempt 2", 21)).await;
        assert_eq!((retried.duplicate, retried.delivery), (true, event.delivery), "{}", place.backend);
        verified(&engine).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_signed_body_under_many_ids_at_the_same_moment_is_one_delivery() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let trigger = open_trigger(&engines[0], &new_trigger(bot(&engines[0]).await, Intake::default())).await;
        let mut senders = JoinSet::new();
        for n in 0..16 {
            let engine = engines[n % 2].clone();
            senders.spawn(async move { engine.receive(trigger, &signed(Some(&n.to_string()), "x", 1)).await.unwrap() });
        }
        let taken = senders.join_all().await;
        assert_eq!(taken.iter().filter(|taken| !taken.duplicate).count(), 1, "{}", place.backend);
        assert!(taken.iter().all(|other| other.delivery == taken[0].delivery));
        verified(&engines[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_was_replaced_meanwhile_opens_nothing() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let key = |text: &str| NewSecret::Signing(text.to_owned());
        let new = NewTrigger { secret: key("one"), ..new_trigger(bot(&engine).await, Intake::default()) };
        let trigger = open_trigger(&engine, &new).await;
        let by =
            |key: &str| Posted { secret: Some(engine.secrets().unwrap().recognised(key)), ..posted(Some(key), "x") };
        engine.receive(trigger, &by("one")).await.unwrap();
        engine.rotate_secret(trigger, &key("two"), 600, &me(), None).await.unwrap();
        engine.receive(trigger, &Posted { sender_id: None, ..by("one") }).await.unwrap();
        engine.receive(trigger, &by("two")).await.unwrap();
        let by_old: Vec<_> = received(&engine)
            .await
            .into_iter()
            .map(|(_, event)| match event {
                DeliveryEvent::Received(received) => received.old_secret,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(by_old, [false, false, true, false], "{}", place.backend);
        let stranger = engine.receive(trigger, &by("three")).await;
        assert!(matches!(stranger, Err(EngineError::Refused(Refusal::NotFound(_)))), "{stranger:?}");
        let empty = engine.rotate_secret(trigger, &key(" "), 600, &me(), None).await;
        assert!(matches!(empty, Err(EngineError::Refused(Refusal::Invalid(_)))), "{empty:?}");
        let state =
            engine.load::<midwatch_commands::trigger::Trigger>(&StreamName::trigger(trigger)).await.unwrap().state;
        let sealed = state.secret.unwrap().sealed.unwrap();
        assert_eq!(engine.secrets().unwrap().unsealed(trigger, &sealed.0).unwrap(), "two");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_first_deliveries_at_once_one_is_the_sample() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let made = engines[0].create_trigger(&new_trigger(bot, Intake::default()), &me(), None).await.unwrap().value;
        let mut senders = JoinSet::new();
        for n in 0..8 {
            let (engine, trigger) = (engines[n % 2].clone(), made.id);
            senders.spawn(
                async move { engine.receive(trigger, &posted(Some(&n.to_string()), "x")).await.unwrap().status },
            );
        }
        let mut statuses = senders.join_all().await;
        statuses.sort_by_key(|status| *status != ReceivedStatus::Captured);
        assert_eq!(statuses[0], ReceivedStatus::Captured, "{}", place.backend);
        assert!(statuses[1..].iter().all(|status| *status == ReceivedStatus::AwaitingConfirmation));
    }
}

/// Closes a door while deliveries come in: none is recorded behind the event that closed it.
async fn close_during(place: &Place, door: &str) {
    let (one, two) = (place.engine().await, place.engine().await);
    let bot = bot(&one).await;
    let trigger = open_trigger(&one, &new_trigger(bot, Intake::default())).await;
    let mut senders = JoinSet::new();
    for n in 0..60 {
        let engine = one.clone();
        senders.spawn(async move {
            tokio::time::sleep(Duration::from_micros(n * 150)).await;
            engine.receive(trigger, &posted(Some(&n.to_string()), "x")).await
        });
    }
    tokio::time::sleep(Duration::from_millis(4)).await;
    let closed = match door {
        "pause" => two.change_trigger(trigger, &me(), None, TriggerCommand::Pause).await,
        "delete" => two.change_trigger(trigger, &me(), None, TriggerCommand::Delete).await,
        _ => two.halt_scheduling(&me(), "drill", None).await,
    };
    let closed = closed.unwrap().position;
    let (mut taken, mut turned_away) = (0, 0);
    for answer in senders.join_all().await {
        match answer {
            Ok(_) => taken += 1,
            Err(EngineError::Refused(Refusal::NotFound(_) | Refusal::Halted)) => turned_away += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(taken + turned_away, 60);
    let received = received(&one).await;
    assert_eq!(received.len(), taken + 1);
    assert!(received.iter().all(|(position, _)| *position < closed), "{} {door}", place.backend);
    assert!(refused(one.receive(trigger, &posted(None, "late")).await).to_string().len() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_that_was_closed_is_never_passed() {
    for door in ["pause", "delete", "halt"] {
        for place in Place::each().await {
            close_during(&place, door).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_comes_back_byte_for_byte_and_a_duplicate_or_a_closed_door_keeps_none() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let trigger = open_trigger(&engine, &new_trigger(bot, Intake::default())).await;
        let long: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        // Too long together with its headers, though not by itself.
        let beside = vec![7; crate::intake::CONTENT_BYTES_MAX];
        for (body, headers) in [(long, vec![]), (beside, vec![("x-long".to_owned(), "y".repeat(30_000))])] {
            let posted = Posted { headers, body: body.clone(), ..posted(None, "") };
            let taken = engine.receive(trigger, &posted).await.unwrap();
            assert!(engine.receive(trigger, &posted).await.unwrap().duplicate);
            assert_eq!(engine.body(taken.delivery).await.unwrap(), Some(body), "{}", place.backend);
        }
        engine.halt_scheduling(&me(), "drill", None).await.unwrap();
        let late = Posted { body: vec![1; 100_000], ..posted(None, "") };
        assert!(matches!(refused(engine.receive(trigger, &late).await), Refusal::Halted));
        assert_eq!(place.number("SELECT count(*) FROM blob").await, 2, "{}", place.backend);
    }
}

#[tokio::test]
async fn a_delivery_for_a_routine_that_is_switched_off_is_held() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let bot = bot(&engine).await;
    let routine = routine(&engine, bot, FAR).await;
    let new =
        NewTrigger { routine: Some(routine), bot: None, instruction: None, ..new_trigger(bot, Intake::default()) };
    let trigger = open_trigger(&engine, &new).await;
    let status = async |id| engine.receive(trigger, &posted(Some(id), "x")).await.unwrap().status;
    assert_eq!(status("1").await, ReceivedStatus::Accepted);
    engine.pause_routine(routine, "", &me(), None).await.unwrap();
    assert_eq!(status("2").await, ReceivedStatus::Held);
    assert_eq!(engine.log().version(&StreamName::trigger(trigger)).await.unwrap(), 3);
}
