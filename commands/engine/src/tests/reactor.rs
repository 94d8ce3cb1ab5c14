//! What follows from deliveries: each once, with two reactors and without a checkpoint.

use std::{collections::BTreeMap, time::Duration};

use midwatch_commands::{
    delivery::{Delivery, Fate},
    engine::{Engine as Deployment, EngineCommand},
};
use midwatch_events::{
    AnyEvent, StreamName,
    delivery::{DeliveryEvent, ReceivedStatus},
    id::DeliveryId,
    routine::DropReason,
    run::RunEvent,
    trigger::{Intake, TriggerEvent},
};

use super::support::{
    FAR, Place, Roles, all, at_once, bot, me, new_trigger, on_routine, on_trigger, open_trigger, posted, routine,
    run_now, until, verified,
};
use crate::{Engine, clock, handle::handle, projector, reactor, runner, triggers::NewTrigger};

async fn react_to_all(engine: &Engine) {
    while reactor::react(engine).await.unwrap() {}
}

async fn fate(engine: &Engine, delivery: DeliveryId) -> Fate {
    engine.load::<Delivery>(&StreamName::delivery(delivery)).await.unwrap().state.fate
}

async fn receive(engine: &Engine, trigger: midwatch_events::id::TriggerId, id: &str) -> DeliveryId {
    engine.receive(trigger, &posted(Some(id), "x")).await.unwrap().delivery
}

#[tokio::test(flavor = "multi_thread")]
async fn two_reactors_queue_and_run_each_delivery_once_and_a_lost_checkpoint_doubles_nothing() {
    for place in Place::each().await {
        let engines = [place.engine().await, place.engine().await];
        let bot = bot(&engines[0]).await;
        let triggers = [
            open_trigger(&engines[0], &new_trigger(bot, Intake::default())).await,
            open_trigger(&engines[0], &new_trigger(bot, Intake::default())).await,
        ];
        let mut roles = Roles::new();
        for engine in &engines {
            roles.project(engine);
            roles.tasks.spawn(clock::run(engine.clone(), roles.stopped.clone()));
            roles.tasks.spawn(runner::run(engine.clone(), at_once(), roles.stopped.clone()));
            // No lead: both at once, all the time.
            let (engine, stopped) = (engine.clone(), roles.stopped.clone());
            roles.tasks.spawn(async move {
                while !*stopped.borrow() {
                    let _ = reactor::react(&engine).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        let mut deliveries = Vec::new();
        for n in 0..24 {
            deliveries.push(receive(&engines[n % 2], triggers[n % 2], &n.to_string()).await);
        }
        for delivery in &deliveries {
            until("started", async || matches!(fate(&engines[0], *delivery).await, Fate::Started(_))).await;
        }
        until("ended", async || {
            let ended = all(&engines[0]).await;
            ended.iter().filter(|(_, event)| matches!(event, AnyEvent::Run(RunEvent::Ended(_), _))).count() == 24
        })
        .await;
        roles.end().await;
        react_to_all(&engines[0]).await;

        let mut times: BTreeMap<DeliveryId, [u32; 4]> = BTreeMap::new();
        for (_, event) in all(&engines[0]).await {
            match event {
                AnyEvent::Trigger(TriggerEvent::DeliveryQueued(queued), _) => {
                    times.entry(queued.delivery).or_default()[0] += 1;
                }
                AnyEvent::Trigger(TriggerEvent::DeliveryTaken { delivery, .. }, _) => {
                    times.entry(delivery).or_default()[1] += 1;
                }
                AnyEvent::Run(RunEvent::Opened(opened), _) => {
                    times.entry(opened.delivery.unwrap()).or_default()[2] += 1;
                }
                _ => {}
            }
        }
        for delivery in &deliveries {
            let stream = StreamName::delivery(*delivery);
            let started = super::support::events::<DeliveryEvent>(&engines[0], &stream).await;
            let started = started.iter().filter(|event| matches!(event, DeliveryEvent::Started { .. })).count();
            times.entry(*delivery).or_default()[3] = u32::try_from(started).unwrap();
        }
        assert_eq!(times.len(), 24);
        assert!(times.values().all(|times| *times == [1; 4]), "{}: {times:?}", place.backend);

        let head = engines[1].log().head().await.unwrap();
        let reached = engines[1].views().named_checkpoint("reactor").await.unwrap();
        assert_eq!(reached, head);
        assert!(engines[1].views().advance("reactor", reached, 0).await.unwrap());
        react_to_all(&engines[1]).await;
        assert_eq!(engines[1].log().head().await.unwrap(), head, "{}", place.backend);
        verified(&engines[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_whose_target_went_is_refused_and_so_is_one_too_many() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let target = routine(&engine, bot, FAR).await;
        let intake = Intake { queue_max: 1, ..Intake::default() };
        let new =
            NewTrigger { routine: Some(target), bot: None, instruction: None, ..new_trigger(bot, intake.clone()) };
        let through = open_trigger(&engine, &new).await;
        let gone = receive(&engine, through, "1").await;
        engine.delete_routine(target, &me(), None).await.unwrap();
        react_to_all(&engine).await;
        assert_eq!(fate(&engine, gone).await, Fate::Dropped(DropReason::TargetGone), "{}", place.backend);

        let own = open_trigger(&engine, &new_trigger(bot, intake)).await;
        let deliveries =
            [receive(&engine, own, "1").await, receive(&engine, own, "2").await, receive(&engine, own, "3").await];
        react_to_all(&engine).await;
        let fates = [
            fate(&engine, deliveries[0]).await,
            fate(&engine, deliveries[1]).await,
            fate(&engine, deliveries[2]).await,
        ];
        // The queue holds one; the first is taken only when its own queueing is followed up.
        assert!(matches!(fates[0], Fate::Started(_)), "{fates:?}");
        assert_eq!(fates[1..], [Fate::Dropped(DropReason::QueueFull); 2], "{}", place.backend);
        let waiting = receive(&engine, own, "4").await;
        react_to_all(&engine).await;
        assert_eq!(fate(&engine, waiting).await, Fate::Queued);
        // Deleted: what waits is refused, and says so.
        engine.change_trigger(own, &me(), None, midwatch_commands::trigger::TriggerCommand::Delete).await.unwrap();
        react_to_all(&engine).await;
        assert_eq!(fate(&engine, waiting).await, Fate::Dropped(DropReason::TargetGone));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waited_too_long_expires_while_its_target_is_busy() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let target = routine(&engine, bot, FAR).await;
        let intake = Intake { queue_age_s: 4, ..Intake::default() };
        let new = NewTrigger { routine: Some(target), bot: None, instruction: None, ..new_trigger(bot, intake) };
        let through = open_trigger(&engine, &new).await;
        run_now(&engine, target).await;
        let waiting = receive(&engine, through, "1").await;
        react_to_all(&engine).await;
        projector::catch_up(&engine).await.unwrap();
        let sleep = clock::tick(&engine).await.unwrap();
        assert!(sleep <= Duration::from_secs(4) && sleep > Duration::from_millis(300), "{sleep:?}");
        tokio::time::sleep(Duration::from_millis(4_100)).await;
        clock::tick(&engine).await.unwrap();
        react_to_all(&engine).await;
        assert_eq!(fate(&engine, waiting).await, Fate::Dropped(DropReason::Expired), "{}", place.backend);
        assert_eq!(on_routine(&engine, target).await.len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_halt_refused_starts_after_its_lift() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let trigger = open_trigger(&engine, &new_trigger(bot, Intake::default())).await;
        let delivery = receive(&engine, trigger, "1").await;
        engine.halt_scheduling(&me(), "drill", None).await.unwrap();
        // The reactor goes past the claim that was refused; the row stays due.
        react_to_all(&engine).await;
        projector::catch_up(&engine).await.unwrap();
        assert_eq!(clock::tick(&engine).await.unwrap(), clock::SLEEP_MAX);
        assert_eq!(fate(&engine, delivery).await, Fate::Queued);
        engine.lift_halt(&me(), None).await.unwrap();
        clock::tick(&engine).await.unwrap();
        react_to_all(&engine).await;
        assert!(matches!(fate(&engine, delivery).await, Fate::Started(_)), "{}", place.backend);
        let claims = on_trigger(&engine, trigger).await;
        assert_eq!(claims.iter().filter(|event| matches!(event, TriggerEvent::RunClaimed(_))).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reactor_that_meets_a_newer_event_comes_up_to_it_and_leaves_the_lead() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        let trigger = open_trigger(&engine, &new_trigger(bot, Intake::default())).await;
        let newer = super::projector::newer_event(&engine, &StreamName::trigger(trigger)).await;
        assert!(reactor::react(&engine).await.is_err());
        assert_eq!(engine.views().named_checkpoint("reactor").await.unwrap(), newer - 1, "{}", place.backend);
        let mut roles = Roles::new();
        roles.tasks.spawn(reactor::run(engine.clone(), roles.stopped.clone()));
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (other, now) = (uuid::Uuid::from_u128(1), engine.world().clock.now());
        assert!(engine.views().lead("reactor", other, 1, now).await.unwrap(), "{}", place.backend);
        roles.end().await;
    }
}

// As a process of an older release would have left the ledger: a reaction is recorded from where it was new.
#[tokio::test(flavor = "multi_thread")]
async fn a_reaction_that_is_new_in_a_release_leaves_alone_what_was_before() {
    for place in Place::each().await {
        let older = place.engine().await;
        let bot = bot(&older).await;
        let trigger = open_trigger(&older, &new_trigger(bot, Intake::default())).await;
        let before = receive(&older, trigger, "before").await;
        let head = older.log().head().await.unwrap();
        let known = reactor::started(&older, &["queue", "page_the_owner"]).await.unwrap();
        assert_eq!(
            *known,
            BTreeMap::from([("page_the_owner".to_owned(), head)]),
            "what every ledger has needs no record"
        );

        // Another process, and the same one again: it started once, and stays where it started.
        receive(&older, trigger, "between").await;
        for _ in 0..2 {
            let newer = place.engine().await;
            let known = reactor::started(&newer, &["page_the_owner", "tidy_up"]).await.unwrap();
            assert_eq!(known["page_the_owner"], head);
            assert!(known["tidy_up"] > head);
        }
        let of_engine = older.log().read_stream(&StreamName::engine(), 0, 100).await.unwrap();
        let started = of_engine.iter().filter(|event| event.event_type == "engine.reaction_started").count();
        assert_eq!(started, 2);

        // One of this binary's, new to a ledger after the first delivery: that one stays as it was.
        let start = EngineCommand::StartReactions { names: vec!["queue".to_owned()], head };
        let origin = crate::Origin::of(midwatch_events::Actor::Engine);
        handle::<Deployment>(&older, &StreamName::engine(), &origin, None, |_| Ok(start.clone())).await.unwrap();
        let newest = place.engine().await;
        let after = receive(&newest, trigger, "after").await;
        react_to_all(&newest).await;
        assert_eq!(fate(&newest, before).await, Fate::Received(ReceivedStatus::Accepted), "{}", place.backend);
        assert_ne!(fate(&newest, after).await, Fate::Received(ReceivedStatus::Accepted), "{}", place.backend);
    }
}
