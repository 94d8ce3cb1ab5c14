//! `evolve` is total: whatever the order of events, nothing panics and nothing is refused.

use std::ops::RangeInclusive;

use midwatch_events::{
    Micros,
    bot::BotEvent,
    boundary::BoundaryEvent,
    delivery::{DeliveryEvent, Received, ReceivedStatus, RedeliveryStarted},
    engine::{EngineEvent, HaltCause, NoticeKind},
    id::Id,
    key::Digest,
    repeat::RepeatEvent,
    routine::{
        DeliveryQueued, DropReason, Limits, MissedReason, Overlap, RearmCause, RoutineEvent, RunClaimed, RunSettled,
        SkippedReason, SuspendCause,
    },
    run::{
        ApprovalAnswer, ApprovalAnswered, ApprovalRequested, Approvers, CallResult, Cause, Decision, DecisionKind,
        Ended, Opened, Outcome, RunEvent, Verdict, WorkKind,
    },
    trigger::{Intake, TriggerEvent},
    user::{Access, EvidencePart, UserEvent},
};
use proptest::prelude::*;

use crate::{
    Decider,
    bot::Bot,
    boundary::{Boundary, ToolServers},
    delivery::{Delivery, Passing, Redelivery, Standing},
    engine::{Engine, Notice, Receiver},
    repeat::Repeat,
    routine::Routine,
    run::Run,
    trigger::Trigger,
    user::User,
};

/// Where one event's values come from: few ids, so that events meet, and instants at the ends of the range.
struct Dice(Vec<u8>);

impl Dice {
    fn roll(&mut self, sides: RangeInclusive<u8>) -> u8 {
        let roll = self.0.pop().unwrap_or_default();
        sides.start() + u8::try_from(u16::from(roll) % (u16::from(sides.end() - sides.start()) + 1)).unwrap()
    }

    fn id<Of>(&mut self) -> Id<Of> {
        super::id(u128::from(self.roll(1..=3)))
    }

    fn digest(&mut self) -> Digest {
        Digest([self.roll(1..=3); 32])
    }

    fn instant(&mut self) -> Micros {
        let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, 1_796_083_200_000_000, i64::MAX - 1, i64::MAX];
        match self.roll(0..=15) {
            end @ 0..=7 => Micros(ends[usize::from(end)]),
            minute => super::at("08:00:00").plus_s(60 * i64::from(minute)),
        }
    }

    fn number(&mut self) -> u32 {
        [0, 1, 2, 900, u32::MAX][usize::from(self.roll(0..=4))]
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.roll(0..=1) == 1).then(|| value(self))
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.roll(0..=255)) % all.len()]
    }

    fn outcome(&mut self) -> Outcome {
        self.of(&[Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled, Outcome::Abandoned])
    }

    fn tools(&mut self) -> Vec<String> {
        (0..self.roll(0..=2)).map(|_| self.roll(0..=2).to_string()).collect()
    }

    fn schedule(&mut self) -> String {
        let every = r#"{"kind":"every","zone":"UTC","minutes":15}"#;
        self.of(&["", "{}", every, r#"{"kind":"once","at":"2026-12-01T08:00:00Z"}"#]).to_owned()
    }

    fn limits(&mut self) -> Limits {
        Limits {
            grace_s: self.number(),
            deadline_s: self.number(),
            max_turns: self.number(),
            max_runs: self.maybe(|dice| u64::from(dice.number())),
            overlap: self.of(&[Overlap::Skip, Overlap::QueueOne, Overlap::CancelLive]),
            ..Limits::default()
        }
    }

    fn claimed(&mut self) -> RunClaimed {
        RunClaimed {
            bot: None,
            run: self.id(),
            cause: self.of(&[Cause::Schedule, Cause::Person, Cause::Delivery]),
            window_us: self.maybe(Self::instant),
            delivery: self.maybe(Self::id),
            redelivery: None,
            claimed_by: self.id(),
            tzdb: None,
            next_us: self.maybe(Self::instant),
        }
    }

    fn settled(&mut self) -> RunSettled {
        RunSettled { bot: None, run: self.id(), outcome: self.outcome(), reason: None }
    }

    fn queued(&mut self) -> DeliveryQueued {
        DeliveryQueued { delivery: self.id(), trigger: self.id(), expires_us: self.instant(), redelivery: None }
    }

    fn dropped(&mut self) -> DropReason {
        self.of(&[DropReason::Expired, DropReason::QueueFull, DropReason::TargetGone, DropReason::Coalesced])
    }

    fn decision(&mut self) -> Decision {
        Decision {
            call: self.id(),
            ordinal: self.number(),
            turn: self.number(),
            step: None,
            tool: String::new(),
            intent: String::new(),
            verdict: Verdict::Allow,
            decision: self.of(&[DecisionKind::Allowed, DecisionKind::Refused, DecisionKind::Asked]),
            refusal: None,
            enforced: true,
            rule: None,
            matched: vec![],
            broken: vec![],
            unattended: true,
            cause: Cause::Person,
            run: self.id(),
            bot: self.id(),
            routine: None,
            trigger: None,
            boundary: 1,
            fingerprint: self.digest(),
            repeat_count: self.number(),
            repeat_same_result: 0,
            repeat_cycle: 0,
            approval: self.maybe(Self::id),
        }
    }
}

fn routine(dice: &mut Dice) -> RoutineEvent {
    match dice.roll(0..=17) {
        0 => RoutineEvent::Created {
            routine: dice.id(),
            name: String::new(),
            owner: dice.id(),
            bot: dice.id(),
            schedule: dice.schedule(),
            work: WorkKind::Instruction,
            limits: dice.limits(),
            anchor_us: dice.instant(),
            next_us: dice.maybe(Dice::instant),
        },
        1 => RoutineEvent::Renamed { name: String::new() },
        2 => RoutineEvent::Rescheduled {
            schedule: dice.schedule(),
            anchor_us: dice.instant(),
            next_us: dice.maybe(Dice::instant),
        },
        3 => RoutineEvent::WorkReplaced { work: WorkKind::Recording },
        4 => RoutineEvent::LimitsReplaced { limits: dice.limits() },
        5 => RoutineEvent::Paused {},
        6 => RoutineEvent::Resumed { next_us: dice.maybe(Dice::instant) },
        7 => RoutineEvent::Suspended { cause: SuspendCause::Failing },
        8 => RoutineEvent::Deleted {},
        9 => {
            let cause = dice.of(&[RearmCause::Lifted, RearmCause::ZoneData, RearmCause::MaxRuns]);
            RoutineEvent::Rearmed { next_us: dice.maybe(Dice::instant), cause, tzdb: None }
        }
        10 => RoutineEvent::RunClaimed(dice.claimed()),
        11 => RoutineEvent::RunSettled(dice.settled()),
        12 => RoutineEvent::WindowsMissed {
            bot: None,
            first_us: dice.instant(),
            last_us: dice.instant(),
            count: u64::MAX,
            reason: MissedReason::Late,
            next_us: dice.maybe(Dice::instant),
        },
        13 => RoutineEvent::WindowSkipped {
            bot: None,
            window_us: dice.instant(),
            reason: SkippedReason::Live,
            live: dice.id(),
            next_us: dice.maybe(Dice::instant),
        },
        14 => RoutineEvent::DeliveryQueued(dice.queued()),
        15 => {
            let (window_us, live, next_us) = (dice.instant(), dice.id(), dice.maybe(Dice::instant));
            RoutineEvent::WindowQueued { bot: None, window_us, live, next_us }
        }
        16 => {
            let reason = MissedReason::NoRunner;
            RoutineEvent::WindowHeld { bot: None, window_us: dice.instant(), reason }
        }
        _ => match dice.roll(0..=1) {
            0 => RoutineEvent::DeliveryTaken { delivery: dice.id(), run: dice.id() },
            _ => RoutineEvent::DeliveryDropped { delivery: dice.id(), reason: dice.dropped() },
        },
    }
}

fn trigger(dice: &mut Dice) -> TriggerEvent {
    match dice.roll(0..=13) {
        0 => TriggerEvent::Created {
            trigger: dice.id(),
            name: String::new(),
            owner: dice.id(),
            endpoint: String::new(),
            routine: dice.maybe(Dice::id),
            bot: dice.maybe(Dice::id),
            secret: dice.digest(),
            intake: Intake::default(),
            limits: dice.limits(),
            scheme: None,
            sealed: None,
        },
        11 => TriggerEvent::IntakeReplaced { intake: Intake::default() },
        12 => TriggerEvent::SenderReplaced { scheme: None, secret: dice.digest(), sealed: None },
        1 => TriggerEvent::SecretRotated { secret: dice.digest(), old_until_us: dice.instant(), sealed: None },
        2 => TriggerEvent::SampleCaptured { delivery: dice.id() },
        3 => TriggerEvent::Confirmed { delivery: dice.id() },
        4 => TriggerEvent::Paused {},
        5 => TriggerEvent::Resumed {},
        6 => TriggerEvent::Deleted {},
        7 => TriggerEvent::RunClaimed(dice.claimed()),
        8 => TriggerEvent::RunSettled(dice.settled()),
        9 => TriggerEvent::DeliveryQueued(dice.queued()),
        10 => TriggerEvent::DeliveryTaken { delivery: dice.id(), run: dice.id() },
        _ => TriggerEvent::DeliveryDropped { delivery: dice.id(), reason: dice.dropped() },
    }
}

fn delivery(dice: &mut Dice) -> DeliveryEvent {
    let status = dice.of(&[ReceivedStatus::Accepted, ReceivedStatus::Captured, ReceivedStatus::Held]);
    match dice.roll(0..=8) {
        4 => DeliveryEvent::Redelivered { trigger: dice.id(), redelivery: dice.number(), batch: None },
        5 => DeliveryEvent::RedeliveryStarted(RedeliveryStarted {
            redelivery: dice.id(),
            trigger: dice.maybe(Dice::id),
            status: None,
            event_type: None,
            since_us: None,
            until_us: None,
            through: u64::from(dice.number()),
            count: u64::from(dice.number()),
        }),
        6 => DeliveryEvent::RedeliveryProgressed {
            reached: u64::from(dice.number()),
            redelivered: u64::MAX,
            left_out: u64::from(dice.number()),
        },
        7 => DeliveryEvent::RedeliveryFinished { redelivered: 1, left_out: 0 },
        8 => DeliveryEvent::RedeliveryCancelled {},
        0 => DeliveryEvent::Received(Received {
            delivery: dice.id(),
            trigger: dice.id(),
            routine: dice.maybe(Dice::id),
            status,
            event_type: None,
            body_bytes: u64::MAX,
            body_digest: dice.digest(),
            parsed: false,
            unparsed: None,
            id_conflict: true,
            old_secret: false,
            held: None,
            held_until_us: None,
            queued: false,
        }),
        1 => DeliveryEvent::Queued { trigger: dice.id() },
        2 => DeliveryEvent::Started { trigger: dice.id(), run: dice.id() },
        _ => DeliveryEvent::Dropped { trigger: dice.id(), reason: dice.dropped() },
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each event of a run")]
fn run(dice: &mut Dice) -> RunEvent {
    match dice.roll(0..=11) {
        0 => RunEvent::Opened(Opened {
            run: dice.id(),
            bot: dice.id(),
            owner: dice.id(),
            routine: None,
            trigger: None,
            delivery: None,
            event_type: None,
            cause: Cause::Person,
            window_us: None,
            work: WorkKind::Instruction,
            deadline_s: dice.number(),
            max_turns: dice.number(),
            unattended: true,
            retry: None,
        }),
        1 => RunEvent::Taken { take: dice.number(), worker: dice.id(), deadline_us: dice.instant() },
        2 => RunEvent::TurnStarted { turn: dice.number() },
        3 => RunEvent::TurnFinished { turn: dice.number(), calls: dice.number() },
        4 => RunEvent::ToolCallDecided(dice.decision()),
        5 => RunEvent::ToolCallEnded {
            decision: dice.decision(),
            result: CallResult::Unknown,
            result_digest: None,
            result_bytes: None,
            duration_us: None,
        },
        6 => RunEvent::AttemptFailed { n: dice.number(), reason: None, retry_at_us: dice.instant() },
        7 => RunEvent::ReportedLate { worker: dice.id(), outcome: dice.outcome(), reason: None },
        8 => RunEvent::CallOutcomeLate {
            decision: dice.decision(),
            result: CallResult::Finished,
            result_digest: None,
            result_bytes: None,
            duration_us: None,
        },
        9 => RunEvent::ApprovalRequested(ApprovalRequested {
            approval: dice.id(),
            call: dice.id(),
            digest: dice.digest(),
            tool: String::new(),
            rule: String::new(),
            boundary: 1,
            approvers: dice.of(&[Approvers::Any, Approvers::NotOwner]),
            owner: dice.id(),
            unattended: true,
            run: dice.id(),
            bot: dice.id(),
            routine: None,
            trigger: None,
            expires_us: dice.instant(),
        }),
        10 => RunEvent::ApprovalAnswered(ApprovalAnswered {
            approval: dice.id(),
            call: dice.id(),
            answer: dice.of(&[ApprovalAnswer::Approved, ApprovalAnswer::Declined, ApprovalAnswer::Expired]),
            digest: dice.digest(),
            tool: String::new(),
            rule: String::new(),
            run: dice.id(),
            bot: dice.id(),
            routine: None,
            trigger: None,
        }),
        _ => RunEvent::Ended(Ended {
            unattended: None,
            run: dice.id(),
            bot: dice.id(),
            routine: None,
            trigger: None,
            cause: Cause::Person,
            outcome: dice.outcome(),
            reason: None,
            turns: dice.number(),
            tool_calls: dice.number(),
            refused_calls: dice.number(),
            duration_us: None,
        }),
    }
}

fn repeat(dice: &mut Dice) -> RepeatEvent {
    match dice.roll(0..=2) {
        0 => RepeatEvent::Attempted {
            run: dice.id(),
            call: dice.id(),
            at_us: dice.instant(),
            count: dice.number(),
            crossed: dice.number(),
        },
        1 => RepeatEvent::ThresholdCrossed {
            threshold: dice.number(),
            count: dice.number(),
            bot: dice.id(),
            run: dice.id(),
            call: dice.id(),
            tool: String::new(),
            unattended: true,
            routine: None,
            trigger: None,
        },
        _ => RepeatEvent::Settled { call: dice.id(), result: dice.digest() },
    }
}

fn engine(dice: &mut Dice) -> EngineEvent {
    let deployment = uuid::Uuid::from_u128(u128::from(dice.roll(1..=3)));
    match dice.roll(0..=12) {
        12 => EngineEvent::ReactionStarted { reaction: String::new(), after: dice.number().into() },
        7 => EngineEvent::ReceiverAdded { receiver: dice.id(), about: vec![], heartbeat_s: None },
        8 => EngineEvent::ReceiverRemoved { receiver: dice.id() },
        9 => EngineEvent::NoticeRaised {
            notice: dice.id(),
            receiver: dice.id(),
            kind: NoticeKind::Halt,
            subject: String::new(),
        },
        10 => EngineEvent::NoticeAttempted {
            attempt: dice.number(),
            status: None,
            delivered: false,
            next_us: dice.maybe(Dice::instant),
        },
        11 => EngineEvent::NoticeAskedAgain {},
        0 => EngineEvent::LedgerCreated { deployment, key_id: dice.digest(), repeat_window_s: dice.number() },
        1 => EngineEvent::DeploymentAdopted { deployment, previous: deployment, key_id: dice.digest() },
        2 => EngineEvent::SchedulingHalted { cause: HaltCause::Person },
        3 => EngineEvent::SchedulingLifted {},
        4 => {
            let (version, tzdb) = (String::new(), String::new());
            EngineEvent::ProcessStarted { process: dice.id(), version, roles: vec![], tzdb }
        }
        5 => EngineEvent::ContentErased {
            subject: String::new(),
            first_version: u64::from(dice.number()),
            last_version: u64::from(dice.number()),
            events: 1,
            blobs: 0,
        },
        _ => EngineEvent::ProcessStopped { process: dice.id() },
    }
}

fn bot(dice: &mut Dice) -> BotEvent {
    match dice.roll(0..=5) {
        0 => BotEvent::Registered { bot: dice.id(), name: String::new(), agui: None, tools: dice.tools() },
        1 => BotEvent::ToolsGranted { tools: dice.tools() },
        2 => BotEvent::ToolsWithdrawn { tools: dice.tools() },
        3 => BotEvent::Unreachable {},
        4 => BotEvent::Reachable {},
        _ => BotEvent::Retired {},
    }
}

fn boundary(dice: &mut Dice) -> BoundaryEvent {
    let (server, tool) = (dice.tools().concat(), dice.tools().concat());
    match dice.roll(0..=4) {
        0 => BoundaryEvent::Published { document: server },
        1 => BoundaryEvent::ToolServerAdded { server, place: String::new() },
        2 => BoundaryEvent::ToolServerRemoved { server },
        3 => BoundaryEvent::ToolAccepted { server, tool, definition: String::new(), reads: true },
        _ => BoundaryEvent::ToolDropped { server, tool },
    }
}

fn user(dice: &mut Dice) -> UserEvent {
    match dice.roll(0..=9) {
        6 => UserEvent::EvidenceGranted {},
        7 => UserEvent::EvidenceWithdrawn {},
        8 => UserEvent::EvidenceRead { subject: String::new(), part: EvidencePart::Body },
        9 => UserEvent::BotTokenIssued { token: dice.id(), bot: dice.id(), owner: dice.id(), secret: dice.digest() },
        0 => UserEvent::Invited { user: dice.id(), role: Access::Admin },
        1 => UserEvent::LinkIssued { link: dice.digest(), expires_us: dice.instant() },
        2 => UserEvent::SignedIn { link: dice.digest(), session: dice.digest(), expires_us: dice.instant() },
        3 => UserEvent::SignedOut { session: dice.digest() },
        4 => UserEvent::TokenIssued { token: dice.id(), role: Access::Auditor, secret: dice.digest() },
        _ => UserEvent::TokenRevoked { token: dice.id() },
    }
}

/// What was kept of a state goes on as the state itself does; and where an event says that its instant does not matter,
/// it does not.
fn kept<D: Decider>(throws: &[Vec<u8>], event: fn(&mut Dice) -> D::Event) {
    let (mut whole, mut rest) = (D::default(), D::default());
    for (n, throw) in throws.iter().enumerate() {
        let mut dice = Dice(throw.clone());
        let (event, at) = (event(&mut dice), dice.instant());
        if !D::rests_on_instant(&event) {
            let mut other = whole.clone();
            other.evolve(&event, Micros(at.0 ^ 1));
            let mut this = whole.clone();
            this.evolve(&event, at);
            assert_eq!(bytes(&other), bytes(&this), "{event:?}");
        }
        whole.evolve(&event, at);
        rest.evolve(&event, at);
        if n % 3 == 0 {
            rest = ciborium::from_reader(bytes(&rest).as_slice()).unwrap();
        }
        assert_eq!(bytes(&rest), bytes(&whole));
    }
}

pub(super) fn bytes<D: Decider>(state: &D) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(state, &mut bytes).unwrap();
    bytes
}

/// Folds one event per throw; each is recorded at some instant.
fn fold<D: Decider>(throws: &[Vec<u8>], event: fn(&mut Dice) -> D::Event) -> D {
    let mut state = D::default();
    for throw in throws {
        let mut dice = Dice(throw.clone());
        state.evolve(&event(&mut dice), dice.instant());
    }
    state
}

fn throws() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..24), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // A7 of docs/architecture.md.
    #[test]
    fn every_family_takes_every_event_in_any_order(throws in throws()) {
        let routine: Routine = fold(&throws, routine);
        let trigger: Trigger = fold(&throws, trigger);
        let run: Run = fold(&throws, run);
        let repeat: Repeat = fold(&throws, repeat);
        let delivery: Delivery = fold(&throws, delivery);
        let _: (Engine, Bot) = (fold(&throws, engine), fold(&throws, bot));
        let _: (Redelivery, Receiver, Notice) = (fold(&throws, self::delivery), fold(&throws, engine), fold(&throws, engine));
        let _: (Boundary, User) = (fold(&throws, boundary), fold(&throws, user));

        // What is read of such a state does not panic either.
        for now in [Micros(i64::MIN), super::at("08:00:00"), Micros(i64::MAX)] {
            let _ = (run.overdue(now), repeat.count(now, 180), routine.target.attention_at(true));
            let standing = if routine.may_start() { Standing::Busy } else { Standing::Off };
            let _ = crate::delivery::status(&trigger, Passing::Broken, standing);
        }
        prop_assert!(crate::run::cycles(&run.fingerprints) as usize <= run.fingerprints.len());
        prop_assert!(!delivery.fate.name().is_empty());
    }

    #[test]
    fn a_state_that_was_kept_goes_on_like_one_folded_from_its_first_event(throws in throws()) {
        kept::<Routine>(&throws, routine);
        kept::<Trigger>(&throws, trigger);
        kept::<Run>(&throws, run);
        kept::<Repeat>(&throws, repeat);
        kept::<Delivery>(&throws, delivery);
        kept::<Engine>(&throws, engine);
        kept::<Bot>(&throws, bot);
        kept::<Boundary>(&throws, boundary);
        kept::<ToolServers>(&throws, boundary);
        kept::<User>(&throws, user);
    }

    /// A queue never holds a delivery twice, and a target that is free says why it was busy no longer.
    #[test]
    fn no_order_of_events_doubles_a_delivery(throws in throws()) {
        let target = fold::<Trigger>(&throws, trigger).target;
        let mut waiting: Vec<_> = target.queue.iter().map(|waiting| waiting.delivery).collect();
        waiting.sort_unstable();
        waiting.dedup();
        prop_assert_eq!(waiting.len(), target.queue.len());
        prop_assert_eq!(target.live.is_some(), target.live_cause.is_some());
    }
}
