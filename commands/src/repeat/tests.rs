//! Exact counts (promise 5), thresholds, and the window's edge.

use proptest::prelude::*;

use super::*;
use crate::spec::{Given, at, given, id};

/// Three minutes, as by default.
const WINDOW_S: u32 = 180;

fn attempted(call: u128, now: Micros) -> Attempted {
    Attempted {
        bot: id(3),
        run: id(50),
        call: id(call),
        tool: "computer_click".to_owned(),
        read: false,
        unattended: true,
        routine: Some(id(1)),
        trigger: None,
        fingerprint: "computer_click button \"Save\"".to_owned(),
        now,
        window_s: WINDOW_S,
    }
}

fn attempt(call: u128, now: &str) -> RepeatCommand {
    RepeatCommand::Attempt(Box::new(attempted(call, at(now))))
}

fn settle(call: u128, result: u8) -> RepeatCommand {
    RepeatCommand::Settle { call: id(call), result: Digest([result; 32]) }
}

fn counted(call: u128, now: &str, count: u32, crossed: u32) -> RepeatEvent {
    RepeatEvent::Attempted { run: id(50), call: id(call), at_us: at(now), count, crossed }
}

fn threshold(threshold: u32, call: u128) -> RepeatEvent {
    RepeatEvent::ThresholdCrossed {
        threshold,
        count: threshold,
        bot: id(3),
        run: id(50),
        call: id(call),
        tool: "computer_click".to_owned(),
        unattended: true,
        routine: Some(id(1)),
        trigger: None,
    }
}

#[test]
fn an_attempt_counts_while_it_is_younger_than_the_window() {
    let once = given::<Repeat>([]).after(attempt(1, "08:00:00"));
    once.when(attempt(2, "08:02:59.999999")).then([counted(2, "08:02:59.999999", 2, 0)]);
    once.when(attempt(2, "08:03:00")).then([counted(2, "08:03:00", 1, 0)]);
    assert!(within(at("08:02:59.999999"), at("08:00:00"), WINDOW_S));
    assert!(!within(at("08:03:00"), at("08:00:00"), WINDOW_S));
}

/// S22: a clock that was set back neither empties the window nor puts attempts out of order.
#[test]
fn an_attempt_is_never_counted_before_the_previous_one() {
    let once = given::<Repeat>([]).after(attempt(1, "08:00:00"));
    once.when(attempt(2, "07:00:00")).then([counted(2, "08:00:00", 2, 0)]);
    let twice = once.after(attempt(2, "07:00:00"));
    assert_eq!(twice.0.counted_at(at("07:30:00")), at("08:00:00"));
    assert_eq!(twice.0.counted_at(at("08:00:01")), at("08:00:01"));
    assert_eq!(Repeat::default().counted_at(at("07:30:00")), at("07:30:00"));
}

/// `calls` attempts, one a second; the thresholds that were recorded, each with the attempt it came with.
fn thresholds(calls: u32, read: bool) -> Vec<(u32, u32)> {
    let (mut repeat, mut crossed) = (Repeat::default(), vec![]);
    for n in 1..=calls {
        let asked = Attempted { read, ..attempted(u128::from(n), at("08:00:00").plus_s(i64::from(n))) };
        for event in repeat.decide(RepeatCommand::Attempt(Box::new(asked))).unwrap() {
            if let RepeatEvent::ThresholdCrossed { threshold, count, .. } = event.facts {
                assert_eq!(count, n);
                crossed.push((threshold, n));
            }
            repeat.evolve(&event.facts, Micros(0));
        }
    }
    crossed
}

/// G1: many hundreds of the same call are three rows.
#[test]
fn each_threshold_is_recorded_once_in_a_run_of_repetition() {
    assert_eq!(thresholds(1_535, false), [(3, 3), (10, 10), (25, 25)]);
    assert_eq!(thresholds(1_535, true), [(10, 10), (25, 25), (100, 100)]);
    assert_eq!(thresholds(2, false), []);
    assert_eq!(thresholds(9, true), []);
}

#[test]
fn a_threshold_stands_beside_its_attempt_with_the_words_of_both() {
    let twice = given::<Repeat>([]).after(attempt(1, "08:00:00")).after(attempt(2, "08:00:01"));
    let events = twice.0.decide(attempt(3, "08:00:02")).unwrap();
    let fingerprint = || "computer_click button \"Save\"".to_owned();
    assert_eq!(
        events,
        [
            New::with(counted(3, "08:00:02", 3, 3), RepeatContent::Attempted { fingerprint: fingerprint() }),
            New::with(threshold(3, 3), RepeatContent::ThresholdCrossed { fingerprint: fingerprint() }),
        ]
    );
}

fn three(times: [&str; 3]) -> Given<Repeat> {
    (1..).zip(times).fold(given([]), |repeat, (call, now)| repeat.after(attempt(call, now)))
}

/// A window that slides without ever emptying goes on with the same run of repetition.
#[test]
fn a_threshold_is_not_recorded_again_before_the_window_has_emptied() {
    let sliding = three(["08:00:00", "08:01:00", "08:02:00"]).after(attempt(4, "08:04:30"));
    assert_eq!(sliding.0.attempts.len(), 2, "only 08:02 is still inside the window");
    sliding.when(attempt(5, "08:04:31")).then([counted(5, "08:04:31", 3, 3)]);
}

#[test]
fn after_the_window_has_emptied_it_is_recorded_again() {
    let emptied = three(["08:00:00", "08:01:00", "08:02:00"]).after(attempt(4, "08:05:00"));
    assert_eq!((emptied.0.attempts.len(), emptied.0.crossed), (1, 0));
    let twice = emptied.after(attempt(5, "08:05:01"));
    twice.when(attempt(6, "08:05:02")).then([counted(6, "08:05:02", 3, 3), threshold(3, 6)]);
}

/// G8: polling whose results change is no loop.
#[test]
fn equal_results_are_those_that_ended_as_the_newest_ended_one_did() {
    let asked = at("08:00:10");
    let count = |repeat: &Given<Repeat>| repeat.0.count(asked, WINDOW_S);
    let three = three(["08:00:00", "08:00:01", "08:00:02"]);
    assert_eq!(count(&three), Counted { count: 4, same_result: 0 });
    let settled = three.after(settle(1, 7)).after(settle(2, 7));
    assert_eq!(count(&settled), Counted { count: 4, same_result: 2 });
    let same = settled.clone().after(settle(3, 7));
    assert_eq!(count(&same), Counted { count: 4, same_result: 3 });
    let changed = settled.after(settle(3, 8));
    assert_eq!(count(&changed), Counted { count: 4, same_result: 1 });
    // Results leave the window with their attempts; a call that is not counted has none.
    assert_eq!(same.0.count(at("08:03:01"), WINDOW_S), Counted { count: 2, same_result: 1 });
    assert_eq!(count(&same.after(settle(99, 7))), Counted { count: 4, same_result: 3 });
    assert_eq!(count(&given([])), Counted { count: 1, same_result: 0 });
}

#[test]
fn a_state_that_is_kept_holds_no_more_than_the_window() {
    let mut repeat = Repeat::default();
    for n in 0..10_000 {
        let asked = attempted(n, at("08:00:00").plus_s(i64::try_from(n).unwrap()));
        for event in repeat.decide(RepeatCommand::Attempt(Box::new(asked))).unwrap() {
            repeat.evolve(&event.facts, Micros(0));
        }
    }
    assert_eq!(repeat.attempts.len(), WINDOW_S as usize);
    assert_eq!(repeat.count(at("08:00:00").plus_s(10_000), WINDOW_S).count, WINDOW_S);
}

/// What may happen next: an attempt so many seconds later (or earlier), or a result of a recent attempt.
#[derive(Clone, Debug)]
enum Step {
    Attempt { after_s: i64 },
    Settle { back: usize, result: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_i64..40).prop_map(|after_s| Step::Attempt { after_s }),
        1 => (-400_i64..400).prop_map(|after_s| Step::Attempt { after_s }),
        2 => (0_usize..6, 0_u8..3).prop_map(|(back, result)| Step::Settle { back, result }),
    ];
    prop::collection::vec(step, 0..120)
}

/// The stream these steps leave, and its last instant.
fn stream(steps: &[Step]) -> (Vec<RepeatEvent>, Micros) {
    let (mut repeat, mut events, mut now) = (Repeat::default(), vec![], at("08:00:00"));
    let mut calls = 0;
    for step in steps {
        let command = match step {
            Step::Attempt { after_s } => {
                now = now.plus_s(*after_s);
                calls += 1;
                RepeatCommand::Attempt(Box::new(attempted(calls, now)))
            }
            Step::Settle { back, result } => settle(calls.saturating_sub(*back as u128), *result),
        };
        for event in repeat.decide(command).unwrap() {
            repeat.evolve(&event.facts, Micros(0));
            events.push(event.facts);
        }
    }
    (events, now)
}

fn at_of(event: &RepeatEvent) -> Option<Micros> {
    match event {
        RepeatEvent::Attempted { at_us, .. } => Some(*at_us),
        RepeatEvent::ThresholdCrossed { .. } | RepeatEvent::Settled { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Reading backwards to the window's edge, and no further, gives the same answer as reading everything.
    #[test]
    fn the_tail_of_a_stream_says_the_same_as_all_of_it(steps in steps(), later_s in -100_i64..300) {
        let (events, last) = stream(&steps);
        let now = last.plus_s(later_s);
        let all = given::<Repeat>(events.clone());
        let counted_at = all.0.counted_at(now);
        let edge = events.iter().position(|event| at_of(event).is_some_and(|at| within(counted_at, at, WINDOW_S)));
        let tail = given::<Repeat>(events[edge.unwrap_or(events.len())..].iter().cloned());
        prop_assert_eq!(all.0.count(now, WINDOW_S), tail.0.count(now, WINDOW_S));
        let ask = || RepeatCommand::Attempt(Box::new(attempted(9_999, now)));
        // With nothing inside the window the tail does not know the last attempt, which nothing but a clock that
        // was set back could ask for.
        if edge.is_some() || all.0.attempts.is_empty() || counted_at == now {
            prop_assert_eq!(all.0.decide(ask()), tail.0.decide(ask()));
        }
    }

    /// Against the definition: attempts a with now − a < window, counted from the stream itself.
    #[test]
    fn counts_are_what_the_stream_says(steps in steps()) {
        let (events, _) = stream(&steps);
        let mut attempts: Vec<Micros> = vec![];
        let mut recorded: Vec<u32> = vec![];
        for event in &events {
            match event {
                RepeatEvent::Attempted { at_us, count, .. } => {
                    prop_assert!(attempts.last().is_none_or(|previous| previous <= at_us));
                    attempts.push(*at_us);
                    let inside = attempts.iter().filter(|at| at_us.since(**at) < 180_000_000).count();
                    prop_assert_eq!(*count as usize, inside);
                    if *count == 1 {
                        recorded.clear();
                    }
                }
                RepeatEvent::ThresholdCrossed { threshold, count, .. } => {
                    prop_assert!(count >= threshold);
                    prop_assert!(!recorded.contains(threshold), "twice in one run of repetition");
                    recorded.push(*threshold);
                }
                RepeatEvent::Settled { .. } => {}
            }
        }
    }
}
