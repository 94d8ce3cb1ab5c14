//! One event of each kind: always the same one for golden bytes, or drawn from a seed for properties.
//!
//! Each kind is written once. A [`Draw`] that is fixed gives the values that stand here and every optional field; one
//! from a seed gives others, out of a small world in which events meet (three ids of each kind).

use midwatch_events::{
    Actor, AnyEvent, Family, Micros, New, Recorded, StreamName,
    bot::BotEvent,
    boundary::{BoundaryContent, BoundaryEvent},
    codec::encode,
    delivery::{DeliveryContent, DeliveryEvent, HeldCause, Received, ReceivedStatus, RedeliveryStarted},
    engine::{EngineContent, EngineEvent, HaltCause, NoticeKind, Role},
    id::Id,
    key::{Bytes, Digest},
    leaf::{commitment, leaf_hash},
    repeat::{RepeatContent, RepeatEvent},
    routine::{
        DeliveryQueued, DropReason, Limits, MissedReason, RearmCause, RoutineContent, RoutineEvent, RunClaimed,
        RunSettled, SkippedReason, SuspendCause, Work,
    },
    run::{
        ApprovalAnswer, ApprovalAnswered, ApprovalRequested, Approvers, BlobRef, CallResult, Cause, Decision,
        DecisionKind, Ended, Opened, Outcome, Reason, RefusalCause, RunContent, RunEvent, Verdict, WorkKind,
    },
    trigger::{Intake, Scheme, TriggerContent, TriggerEvent, WhenBusy},
    user::{Access, EvidencePart, UserContent, UserEvent},
};
use uuid::Uuid;

/// The instant around which everything happens: 2026-11-30T14:45:17.357Z.
pub(crate) const NOW: Micros = Micros(1_796_049_917_357_000);

pub(crate) const ROUTINE: u8 = 1;
pub(crate) const RUN: u8 = 2;
pub(crate) const TRIGGER: u8 = 3;
pub(crate) const DELIVERY: u8 = 4;
pub(crate) const BOT: u8 = 5;
pub(crate) const USER: u8 = 6;
pub(crate) const TOKEN: u8 = 7;
pub(crate) const PROCESS: u8 = 8;
pub(crate) const CALL: u8 = 9;
pub(crate) const BLOB: u8 = 10;
pub(crate) const APPROVAL: u8 = 11;
pub(crate) const REDELIVERY: u8 = 11;
pub(crate) const RECEIVER: u8 = 12;
pub(crate) const NOTICE: u8 = 13;

/// The id `n` of a kind; the same in every run of the tests.
pub(crate) fn id<Of>(kind: u8, n: u8) -> Id<Of> {
    Id::new(Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + u128::from(kind) * 256 + u128::from(n)))
}

/// Where the values of samples come from.
pub(crate) struct Draw(Option<u64>);

impl Draw {
    /// Always the values that stand in this file, with every optional field.
    pub(crate) fn fixed() -> Self {
        Self(None)
    }

    /// Others, that follow from `seed`.
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(Some(seed))
    }

    /// 0 to `below` - 1 (the steps are those of SplitMix64).
    fn pick(&mut self, below: u64) -> u64 {
        let Some(seed) = &mut self.0 else { return 0 };
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn id<Of>(&mut self, kind: u8) -> Id<Of> {
        id(kind, u8::try_from(self.pick(3)).unwrap())
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.pick(2) == 0).then_some(value)
    }

    /// A field that came later: never in the golden bytes, which are older.
    fn later<T>(&mut self, value: T) -> Option<T> {
        self.0.and_then(|_| self.maybe(value))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.pick(all.len() as u64)).unwrap()]
    }

    fn flag(&mut self) -> bool {
        self.one_of(&[true, false])
    }

    fn number(&mut self, fixed: u64) -> u64 {
        self.one_of(&[fixed, 0, 23, 24, 255, 256, 65_536, u64::from(u32::MAX), u64::MAX, 1, 2])
    }

    fn small(&mut self, fixed: u32) -> u32 {
        self.one_of(&[fixed, 0, 1, 2, 3, 24, 65_536, u32::MAX])
    }

    fn text(&mut self, fixed: &str) -> String {
        match self.pick(6) {
            0..=2 => fixed.to_owned(),
            3 => String::new(),
            4 => "Łódź \"§\" \u{202e}\n\u{1f319}".to_owned(),
            // Longer than a decoder's scratch buffer.
            _ => fixed.chars().cycle().take(5_000).collect(),
        }
    }

    fn at(&mut self, plus_s: i64) -> Micros {
        let shift = i64::try_from(self.pick(7_200)).unwrap();
        self.one_of(&[NOW.plus_s(plus_s + shift), NOW.plus_s(plus_s), Micros(0), Micros(-1), Micros(i64::MAX)])
    }

    fn digest(&mut self, fixed: u8) -> Digest {
        Digest([fixed.wrapping_add(u8::try_from(self.pick(3)).unwrap()); 32])
    }

    fn blob(&mut self) -> BlobRef {
        BlobRef {
            blob: self.id(BLOB),
            length: self.number(50_000),
            salt: Bytes(vec![7; 16]),
            digest: self.digest(0x60),
        }
    }
}

/// An event, ready to be appended.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) stream: StreamName,
    pub(crate) event_type: String,
    pub(crate) schema: u16,
    pub(crate) facts: Vec<u8>,
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) event: AnyEvent,
}

impl Sample {
    pub(crate) fn of<F: Family>(
        stream: StreamName,
        new: New<F>,
        any: impl FnOnce(F, Option<F::Content>) -> AnyEvent,
    ) -> Self {
        let encoded = encode(&new).unwrap();
        Self {
            stream,
            event_type: encoded.event_type,
            schema: encoded.schema,
            facts: encoded.facts,
            content: encoded.content,
            event: any(new.facts, new.content),
        }
    }

    pub(crate) fn wire(&self) -> String {
        format!("{}/{}", self.event_type, self.schema)
    }

    /// It as it stands in a ledger. Everything but the arguments is the same for all.
    pub(crate) fn recorded(&self, position: u64, version: u64, at: Micros, actor: &Actor) -> Recorded {
        let salt = self.content.as_ref().map(|_| [7; 16]);
        let mut recorded = Recorded {
            position,
            stream: self.stream.clone(),
            version,
            event_id: Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + u128::from(position)),
            event_type: self.event_type.clone(),
            schema: self.schema,
            recorded_at: at,
            actor: actor.to_string(),
            correlation_id: Some(StreamName::run(id(RUN, 0)).to_string()),
            causation_id: Some(Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000)),
            facts: self.facts.clone(),
            content: self.content.clone(),
            salt,
            commitment: self.content.as_ref().map(|content| commitment(&[7; 16], content)),
            leaf_hash: [0; 32],
        };
        recorded.leaf_hash = leaf_hash(&recorded, &[]);
        recorded
    }

    /// It as it stands in a ledger, in the middle of a test's story.
    pub(crate) fn at(&self, position: u64) -> Recorded {
        let at = NOW.plus_s(i64::try_from(position).unwrap());
        self.recorded(position, position, at, &Actor::Cli(0))
    }
}

/// One event of each kind.
pub(crate) fn all(draw: &mut Draw) -> Vec<Sample> {
    let mut samples = Vec::new();
    for family in 0..FAMILIES {
        samples.extend(of_family(family, draw));
    }
    samples
}

/// One event of any kind.
pub(crate) fn any(seed: u64) -> Sample {
    let mut draw = Draw::from_seed(seed);
    let family = usize::try_from(draw.pick(FAMILIES as u64)).unwrap();
    let samples = of_family(family, &mut draw);
    let which = usize::try_from(draw.pick(samples.len() as u64)).unwrap();
    samples.into_iter().nth(which).unwrap()
}

const FAMILIES: usize = 9;

fn of_family(family: usize, draw: &mut Draw) -> Vec<Sample> {
    match family {
        0 => {
            let stream = StreamName::bot(draw.id(BOT));
            bot(draw).into_iter().map(|new| Sample::of(stream.clone(), new, |facts, _| AnyEvent::Bot(facts))).collect()
        }
        1 => with_stream(StreamName::boundary(), boundary(draw), AnyEvent::Boundary),
        2 => {
            let mut samples = with_stream(StreamName::delivery(draw.id(DELIVERY)), delivery(draw), AnyEvent::Delivery);
            let many = StreamName::redelivery(draw.id(REDELIVERY));
            samples.extend(with_stream(many, redelivery(draw), AnyEvent::Delivery));
            samples
        }
        3 => engine(draw).into_iter().map(|(stream, new)| Sample::of(stream, new, AnyEvent::Engine)).collect(),
        4 => {
            let stream = StreamName::repeat(draw.id(BOT), &draw.digest(0x20).0);
            with_stream(stream, repeat(draw), AnyEvent::Repeat)
        }
        5 => with_stream(StreamName::routine(draw.id(ROUTINE)), routine(draw), AnyEvent::Routine),
        6 => {
            let stream = StreamName::run(draw.id(RUN));
            let events = run(draw).into_iter().chain(approval(draw)).collect();
            with_stream(stream, events, AnyEvent::Run)
        }
        7 => with_stream(StreamName::trigger(draw.id(TRIGGER)), trigger(draw), AnyEvent::Trigger),
        _ => user(draw).into_iter().map(|(stream, new)| Sample::of(stream, new, AnyEvent::User)).collect(),
    }
}

fn with_stream<F: Family>(
    stream: StreamName,
    events: Vec<New<F>>,
    any: fn(F, Option<F::Content>) -> AnyEvent,
) -> Vec<Sample> {
    events.into_iter().map(|new| Sample::of(stream.clone(), new, any)).collect()
}

fn new<F: Family>(draw: &mut Draw, facts: F, content: F::Content) -> New<F> {
    let content = draw.maybe(content);
    New { facts, content }
}

fn bot(d: &mut Draw) -> Vec<New<BotEvent>> {
    let tools = vec!["computer_list_files".to_owned(), "computer_read_file".to_owned()];
    let url = d.text("https://bots.example/agui");
    vec![
        BotEvent::Registered { bot: d.id(BOT), name: d.text("ops"), agui: d.maybe(url), tools: tools.clone() }.into(),
        BotEvent::ToolsGranted { tools: tools.clone() }.into(),
        BotEvent::ToolsWithdrawn { tools }.into(),
        BotEvent::Retired {}.into(),
        BotEvent::Unreachable {}.into(),
        BotEvent::Reachable {}.into(),
    ]
}

fn boundary(d: &mut Draw) -> Vec<New<BoundaryEvent>> {
    let document = r#"{"rules":[{"id":"all","name":"Everything","verdict":"allow","when":"true"}]}"#;
    let facts = BoundaryEvent::Published { document: d.text(document) };
    let content = BoundaryContent::Published { note: d.text("as it was on the first day") };
    let definition = r#"{"description":"Shows the state","inputSchema":{"type":"object"},"name":"status"}"#;
    let place = r#"{"stdio":{"command":["mcp-server-git"]}}"#;
    vec![
        new(d, facts, content),
        BoundaryEvent::ToolServerAdded { server: d.text("git"), place: d.text(place) }.into(),
        BoundaryEvent::ToolServerRemoved { server: d.text("git") }.into(),
        BoundaryEvent::ToolAccepted {
            server: d.text("git"),
            tool: d.text("status"),
            definition: d.text(definition),
            reads: d.one_of(&[true, false]),
        }
        .into(),
        BoundaryEvent::ToolDropped { server: d.text("git"), tool: d.text("status") }.into(),
    ]
}

fn delivery(d: &mut Draw) -> Vec<New<DeliveryEvent>> {
    let (routine, event_type, unparsed) = (d.id(ROUTINE), d.text("invoice.paid"), d.text("a NUL at byte 17"));
    let received = Received {
        delivery: d.id(DELIVERY),
        trigger: d.id(TRIGGER),
        routine: d.maybe(routine),
        status: d.one_of(&[
            ReceivedStatus::Accepted,
            ReceivedStatus::Captured,
            ReceivedStatus::AwaitingConfirmation,
            ReceivedStatus::Filtered,
            ReceivedStatus::Held,
            ReceivedStatus::Refused,
        ]),
        event_type: d.maybe(event_type),
        body_bytes: d.number(17),
        body_digest: d.digest(0x30),
        parsed: d.flag(),
        unparsed: d.maybe(unparsed),
        id_conflict: d.flag(),
        old_secret: d.later(true).unwrap_or_default(),
        held: d.later(HeldCause::FilterBroken),
        held_until_us: d.later(NOW),
        queued: d.later(()).is_some(),
    };
    let (blob, sender_id) = (d.blob(), d.text("evt_1"));
    let content = DeliveryContent::Received {
        headers: vec![("content-type".to_owned(), d.text("application/json"))],
        body: d.maybe(Bytes(br#"{"event":"paid"}"#.to_vec())),
        blob: d.maybe(blob),
        sender_id: d.maybe(sender_id),
        filter_error: d.later("no such key".to_owned()),
        query: d.later("a=1&b=%2F".to_owned()),
    };
    let batch = d.id(REDELIVERY);
    let redelivered =
        DeliveryEvent::Redelivered { trigger: d.id(TRIGGER), redelivery: d.small(1), batch: d.maybe(batch) };
    vec![
        new(d, DeliveryEvent::Received(received), content),
        DeliveryEvent::Queued { trigger: d.id(TRIGGER) }.into(),
        DeliveryEvent::Started { trigger: d.id(TRIGGER), run: d.id(RUN) }.into(),
        DeliveryEvent::Dropped { trigger: d.id(TRIGGER), reason: dropped(d) }.into(),
        redelivered.into(),
    ]
}

fn redelivery(d: &mut Draw) -> Vec<New<DeliveryEvent>> {
    let (trigger, status, event_type) = (d.id(TRIGGER), d.text("held"), d.text("invoice.paid"));
    let (since, until) = (d.at(-86_400), d.at(0));
    let started = RedeliveryStarted {
        redelivery: d.id(REDELIVERY),
        trigger: d.maybe(trigger),
        status: d.maybe(status),
        event_type: d.maybe(event_type),
        since_us: d.maybe(since),
        until_us: d.maybe(until),
        through: d.number(900),
        count: d.number(12),
    };
    let progressed =
        DeliveryEvent::RedeliveryProgressed { reached: d.number(512), redelivered: d.number(7), left_out: d.number(1) };
    vec![
        DeliveryEvent::RedeliveryStarted(started).into(),
        progressed.into(),
        DeliveryEvent::RedeliveryFinished { redelivered: d.number(11), left_out: d.number(1) }.into(),
        DeliveryEvent::RedeliveryCancelled {}.into(),
    ]
}

fn dropped(d: &mut Draw) -> DropReason {
    d.one_of(&[DropReason::Expired, DropReason::QueueFull, DropReason::TargetGone, DropReason::Coalesced])
}

fn engine(d: &mut Draw) -> Vec<(StreamName, New<EngineEvent>)> {
    let deployment = Uuid::from_u128(0x5f3d_9c1e_0000_4000_8000_0000_0000_0001);
    let process = d.id(PROCESS);
    let cause = d.one_of(&[HaltCause::Person, HaltCause::ForeignDeployment, HaltCause::LedgerWentBack]);
    let halted = EngineContent::SchedulingHalted { reason: d.text("moving to another database") };
    let started = EngineEvent::ProcessStarted {
        process,
        version: d.text("0.1.0"),
        roles: Role::ALL.to_vec(),
        tzdb: d.text("2026f"),
    };
    let created = EngineEvent::LedgerCreated { deployment, key_id: d.digest(0x40), repeat_window_s: d.small(180) };
    let adopted = EngineEvent::DeploymentAdopted {
        deployment: Uuid::from_u128(0x5f3d_9c1e_0000_4000_8000_0000_0000_0002),
        previous: deployment,
        key_id: d.digest(0x41),
    };
    let erased = EngineEvent::ContentErased {
        subject: StreamName::run(d.id(RUN)).to_string(),
        first_version: d.number(1),
        last_version: d.number(9),
        events: d.number(7),
        blobs: d.number(2),
    };
    let erased_why = EngineContent::ContentErased { reason: d.text("the sender asked for it") };
    let reaction = EngineEvent::ReactionStarted { reaction: "claim_next".to_owned(), after: d.number(40) };
    vec![
        (StreamName::engine(), created.into()),
        (StreamName::engine(), adopted.into()),
        (StreamName::engine(), new(d, erased, erased_why)),
        (StreamName::engine(), reaction.into()),
        (StreamName::halt(), new(d, EngineEvent::SchedulingHalted { cause }, halted)),
        (StreamName::halt(), EngineEvent::SchedulingLifted {}.into()),
        (StreamName::process(process), started.into()),
        (StreamName::process(process), EngineEvent::ProcessStopped { process }.into()),
    ]
    .into_iter()
    .chain(notices(d))
    .collect()
}

fn notices(d: &mut Draw) -> Vec<(StreamName, New<EngineEvent>)> {
    let (receiver, notice, every, next) = (d.id(RECEIVER), d.id(NOTICE), d.small(60), d.at(5));
    let about = vec![NoticeKind::RunFailed, NoticeKind::Halt];
    let added = EngineEvent::ReceiverAdded { receiver, about, heartbeat_s: d.maybe(every) };
    let address = EngineContent::ReceiverAdded { name: d.text("pager"), url: d.text("https://pager.example/midwatch") };
    let (kind, subject) = (d.one_of(&NoticeKind::ALL), StreamName::run(d.id(RUN)).to_string());
    let raised = EngineEvent::NoticeRaised { notice, receiver, kind, subject };
    let body = EngineContent::NoticeRaised { body: d.text(r#"{"type":"run.failed"}"#) };
    let status = d.one_of(&[503_u16, 200, 410]);
    let attempted = EngineEvent::NoticeAttempted {
        attempt: d.small(1),
        status: d.maybe(status),
        delivered: d.one_of(&[false, true]),
        next_us: d.maybe(next),
    };
    let error = EngineContent::NoticeAttempted { error: d.text("it answered 503") };
    vec![
        (StreamName::receiver(receiver), new(d, added, address)),
        (StreamName::receiver(receiver), EngineEvent::ReceiverRemoved { receiver }.into()),
        (StreamName::notice(notice), new(d, raised, body)),
        (StreamName::notice(notice), new(d, attempted, error)),
        (StreamName::notice(notice), EngineEvent::NoticeAskedAgain {}.into()),
    ]
}

fn repeat(d: &mut Draw) -> Vec<New<RepeatEvent>> {
    let (routine, trigger) = (d.id(ROUTINE), d.id(TRIGGER));
    let words = d.text("computer_write_file notes.txt");
    let attempted =
        RepeatEvent::Attempted { run: d.id(RUN), call: d.id(CALL), at_us: d.at(0), count: d.small(3), crossed: 0 };
    let crossed = RepeatEvent::ThresholdCrossed {
        threshold: d.one_of(&[3, 10, 25, 100]),
        count: d.small(3),
        bot: d.id(BOT),
        run: d.id(RUN),
        call: d.id(CALL),
        tool: d.text("computer_write_file"),
        unattended: d.flag(),
        routine: d.maybe(routine),
        trigger: d.maybe(trigger),
    };
    vec![
        new(d, attempted, RepeatContent::Attempted { fingerprint: words.clone() }),
        new(d, crossed, RepeatContent::ThresholdCrossed { fingerprint: words }),
        RepeatEvent::Settled { call: d.id(CALL), result: d.digest(0x21) }.into(),
    ]
}

const SCHEDULE: &str = r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","fri"],"times":["08:00"]}"#;

fn work(d: &mut Draw) -> Work {
    let (instruction, recording) = (d.text("Sort the inbox."), d.text(r#"{"steps":[]}"#));
    Work { instruction: d.maybe(instruction), recording: d.maybe(recording) }
}

fn routine(d: &mut Draw) -> Vec<New<RoutineEvent>> {
    let next = |d: &mut Draw| {
        let at = d.at(3_600);
        d.maybe(at)
    };
    let kind = d.one_of(&[WorkKind::Instruction, WorkKind::Recording]);
    let created = RoutineEvent::Created {
        routine: d.id(ROUTINE),
        name: d.text("Morning report"),
        owner: d.id(USER),
        bot: d.id(BOT),
        schedule: d.text(SCHEDULE),
        work: kind,
        limits: Limits { grace_s: d.small(600), deadline_s: d.small(900), max_turns: d.small(20), ..Limits::default() },
        anchor_us: d.at(0),
        next_us: next(d),
    };
    let missed = RoutineEvent::WindowsMissed {
        bot: None,
        first_us: d.at(-7_200),
        last_us: d.at(-3_600),
        count: d.number(2),
        reason: d.one_of(&[MissedReason::Late, MissedReason::NoRunner, MissedReason::BotUnreachable]),
        next_us: next(d),
    };
    let cause = d.one_of(&[
        SuspendCause::Failing,
        SuspendCause::OwnerRevoked,
        SuspendCause::BotRetired,
        SuspendCause::NotEvaluable,
    ]);
    let limits = Limits { grace_s: 60, deadline_s: d.small(300), max_turns: 5, ..Limits::default() };
    let (first, second) = (RoutineContent::Created(work(d)), RoutineContent::WorkReplaced(work(d)));
    let (bot, held) = (d.id(BOT), d.one_of(&[MissedReason::NoRunner, MissedReason::BotUnreachable]));
    let paused = RoutineContent::Paused { reason: d.text("on holiday") };
    let suspended = RoutineContent::Suspended { error: d.text("ten endings in a row were no success") };
    vec![
        new(d, created, first),
        RoutineEvent::Renamed { name: d.text("Evening report") }.into(),
        RoutineEvent::Rescheduled { schedule: d.text(SCHEDULE), anchor_us: d.at(0), next_us: next(d) }.into(),
        new(d, RoutineEvent::WorkReplaced { work: kind }, second),
        RoutineEvent::LimitsReplaced { limits }.into(),
        new(d, RoutineEvent::Paused {}, paused),
        RoutineEvent::Resumed { next_us: next(d) }.into(),
        new(d, RoutineEvent::Suspended { cause }, suspended),
        RoutineEvent::Deleted {}.into(),
        RoutineEvent::Rearmed { next_us: next(d), cause: RearmCause::Lifted, tzdb: None }.into(),
        RoutineEvent::RunClaimed(claimed(d)).into(),
        RoutineEvent::RunSettled(settled(d)).into(),
        missed.into(),
        RoutineEvent::WindowSkipped {
            bot: None,
            window_us: d.at(0),
            reason: d.one_of(&[SkippedReason::Live, SkippedReason::QueueFull]),
            live: d.id(RUN),
            next_us: next(d),
        }
        .into(),
        RoutineEvent::WindowQueued { bot: d.maybe(bot), window_us: d.at(0), live: d.id(RUN), next_us: next(d) }.into(),
        RoutineEvent::WindowHeld { bot: d.maybe(bot), window_us: d.at(0), reason: held }.into(),
        RoutineEvent::DeliveryQueued(queued(d)).into(),
        RoutineEvent::DeliveryTaken { delivery: d.id(DELIVERY), run: d.id(RUN) }.into(),
        RoutineEvent::DeliveryDropped { delivery: d.id(DELIVERY), reason: dropped(d) }.into(),
    ]
}

fn cause(d: &mut Draw) -> Cause {
    d.one_of(&[Cause::Schedule, Cause::CatchUp, Cause::Person, Cause::Delivery, Cause::Session])
}

fn claimed(d: &mut Draw) -> RunClaimed {
    let (window, delivery, tzdb, next) = (d.at(0), d.id(DELIVERY), d.text("2026f"), d.at(3_600));
    RunClaimed {
        bot: None,
        run: d.id(RUN),
        cause: cause(d),
        window_us: d.maybe(window),
        delivery: d.maybe(delivery),
        redelivery: d.later(1),
        claimed_by: d.id(PROCESS),
        tzdb: d.maybe(tzdb),
        next_us: d.maybe(next),
    }
}

const OUTCOMES: [Outcome; 7] = [
    Outcome::Succeeded,
    Outcome::Failed,
    Outcome::Refused,
    Outcome::Stopped,
    Outcome::TimedOut,
    Outcome::Cancelled,
    Outcome::Abandoned,
];

const REASONS: [Reason; 15] = [
    Reason::Error,
    Reason::BotUnreachable,
    Reason::HandOverFailed,
    Reason::Turns,
    Reason::Tokens,
    Reason::Money,
    Reason::Repeat,
    Reason::Deadline,
    Reason::Silence,
    Reason::Person,
    Reason::Replaced,
    Reason::Halt,
    Reason::BotStopped,
    Reason::Lease,
    Reason::NoRunner,
];

fn settled(d: &mut Draw) -> RunSettled {
    let reason = d.one_of(&REASONS);
    RunSettled { bot: None, run: d.id(RUN), outcome: d.one_of(&OUTCOMES), reason: d.maybe(reason) }
}

fn queued(d: &mut Draw) -> DeliveryQueued {
    DeliveryQueued {
        delivery: d.id(DELIVERY),
        trigger: d.id(TRIGGER),
        expires_us: d.at(86_400),
        redelivery: d.later(1),
    }
}

fn decision(d: &mut Draw) -> Decision {
    let (step, rule, routine, trigger) = (d.small(2), d.text("no-submit"), d.id(ROUTINE), d.id(TRIGGER));
    let approval = d.id(APPROVAL);
    let refusal = d.one_of(&[
        RefusalCause::Rule,
        RefusalCause::NoRule,
        RefusalCause::AskUnattended,
        RefusalCause::UnknownTool,
        RefusalCause::NotGranted,
        RefusalCause::BadArguments,
        RefusalCause::Unjudged,
        RefusalCause::Contended,
        RefusalCause::Declined,
        RefusalCause::Expired,
        RefusalCause::DefinitionChanged,
    ]);
    Decision {
        call: d.id(CALL),
        ordinal: d.small(4),
        turn: d.small(2),
        step: d.maybe(step),
        tool: d.text("computer_write_file"),
        intent: d.text("write_file"),
        verdict: d.one_of(&[Verdict::Deny, Verdict::Ask, Verdict::Allow]),
        decision: d.one_of(&[DecisionKind::Refused, DecisionKind::Asked, DecisionKind::Allowed]),
        refusal: d.maybe(refusal),
        enforced: d.flag(),
        rule: d.maybe(rule),
        matched: vec!["no-submit".to_owned(), "all".to_owned()],
        broken: d.maybe(vec!["hosts".to_owned()]).unwrap_or_default(),
        unattended: d.flag(),
        cause: cause(d),
        run: d.id(RUN),
        bot: d.id(BOT),
        routine: d.maybe(routine),
        trigger: d.maybe(trigger),
        boundary: d.number(7),
        fingerprint: d.digest(0x20),
        repeat_count: d.small(3),
        repeat_same_result: d.small(2),
        repeat_cycle: d.small(1),
        // The golden bytes are older than approvals.
        approval: d.0.is_some().then_some(approval).filter(|_| d.flag()),
    }
}

fn opened(d: &mut Draw) -> Opened {
    let (routine, trigger, delivery) = (d.id(ROUTINE), d.id(TRIGGER), d.id(DELIVERY));
    let (event_type, window) = (d.text("invoice.paid"), d.at(0));
    Opened {
        run: d.id(RUN),
        bot: d.id(BOT),
        owner: d.id(USER),
        routine: d.maybe(routine),
        trigger: d.maybe(trigger),
        delivery: d.maybe(delivery),
        event_type: d.maybe(event_type),
        cause: cause(d),
        window_us: d.maybe(window),
        work: d.one_of(&[WorkKind::Instruction, WorkKind::Recording]),
        deadline_s: d.small(900),
        max_turns: d.small(20),
        unattended: d.flag(),
        retry: None,
    }
}

fn run(d: &mut Draw) -> Vec<New<RunEvent>> {
    let (routine, trigger, reason, duration) = (d.id(ROUTINE), d.id(TRIGGER), d.one_of(&REASONS), d.number(2_000_000));
    let ended = Ended {
        unattended: None,
        run: d.id(RUN),
        bot: d.id(BOT),
        routine: d.maybe(routine),
        trigger: d.maybe(trigger),
        cause: cause(d),
        outcome: d.one_of(&OUTCOMES),
        reason: d.maybe(reason),
        turns: d.small(2),
        tool_calls: d.small(4),
        refused_calls: d.small(1),
        duration_us: d.maybe(duration),
    };
    let (digest, bytes, duration) = (d.digest(0x50), d.number(34), d.number(12_000));
    let call_ended = RunEvent::ToolCallEnded {
        decision: decision(d),
        result: d.one_of(&[CallResult::Finished, CallResult::Failed, CallResult::Unknown]),
        result_digest: d.maybe(digest),
        result_bytes: d.maybe(bytes),
        duration_us: d.maybe(duration),
    };
    let (result, blob, error) = (d.text(r#"{"ok":true}"#), d.blob(), d.text("connection refused"));
    let result = RunContent::ToolCallEnded { result: d.maybe(result), blob: d.maybe(blob) };
    let headline = RunContent::Ended { headline: d.text("Sorted 14 letters."), error: d.maybe(error) };
    let (reason, digest) = (d.one_of(&REASONS), d.digest(0x51));
    let failed = RunEvent::AttemptFailed { n: d.small(1), reason: d.maybe(reason), retry_at_us: d.at(30) };
    let late = RunEvent::ReportedLate { worker: d.id(PROCESS), outcome: d.one_of(&OUTCOMES), reason: d.maybe(reason) };
    let late_call = RunEvent::CallOutcomeLate {
        decision: decision(d),
        result: d.one_of(&[CallResult::Finished, CallResult::Failed]),
        result_digest: d.maybe(digest),
        result_bytes: d.maybe(34),
        duration_us: d.maybe(12_000),
    };
    let late_result = RunContent::CallOutcomeLate { result: Some(r#"{"ok":true}"#.to_owned()), blob: None };
    let (work, messages) = (work(d), d.text(r#"[{"role":"assistant","content":"Done."}]"#));
    let judged = RunContent::ToolCallDecided {
        arguments: d.text(r#"{"path":"notes.txt","contents":"x"}"#),
        context: d.text(r#"{"file":{"path":"notes.txt"},"run":{"unattended":true}}"#),
        fingerprint: d.text("computer_write_file notes.txt"),
    };
    let (opened, decided) = (RunEvent::Opened(opened(d)), RunEvent::ToolCallDecided(decision(d)));
    let turn_finished = RunEvent::TurnFinished { turn: d.small(1), calls: d.small(2) };
    vec![
        new(d, opened, RunContent::Opened { work }),
        RunEvent::Taken { take: d.small(1), worker: d.id(PROCESS), deadline_us: d.at(900) }.into(),
        RunEvent::TurnStarted { turn: d.small(1) }.into(),
        new(d, turn_finished, RunContent::TurnFinished { messages }),
        new(d, decided, judged),
        new(d, call_ended, result),
        new(d, RunEvent::Ended(ended), headline),
        new(d, failed, RunContent::AttemptFailed { error: "connection refused".to_owned() }),
        new(d, late_call, late_result),
        new(d, late, RunContent::ReportedLate { headline: "Sorted 14 letters.".to_owned(), error: None }),
    ]
}

fn approval(d: &mut Draw) -> Vec<New<RunEvent>> {
    let (routine, trigger) = (d.id(ROUTINE), d.id(TRIGGER));
    let asked = ApprovalRequested {
        approval: d.id(APPROVAL),
        call: d.id(CALL),
        digest: d.digest(0x60),
        tool: d.text("computer_write_file"),
        rule: d.text("ask-writes"),
        boundary: d.number(7),
        approvers: d.one_of(&[Approvers::Any, Approvers::NotOwner]),
        owner: d.id(USER),
        unattended: d.flag(),
        run: d.id(RUN),
        bot: d.id(BOT),
        routine: d.maybe(routine),
        trigger: d.maybe(trigger),
        expires_us: d.at(600),
    };
    let answers =
        [ApprovalAnswer::Approved, ApprovalAnswer::Declined, ApprovalAnswer::Expired, ApprovalAnswer::Withdrawn];
    let answered = ApprovalAnswered {
        approval: asked.approval,
        call: asked.call,
        answer: d.one_of(&answers),
        digest: asked.digest,
        tool: asked.tool.clone(),
        rule: asked.rule.clone(),
        run: asked.run,
        bot: asked.bot,
        routine: asked.routine,
        trigger: asked.trigger,
    };
    let words = RunContent::ApprovalRequested {
        fingerprint: d.text("computer_write_file notes.txt"),
        arguments: d.text(r#"{"path":"notes.txt","contents":"x"}"#),
    };
    vec![new(d, RunEvent::ApprovalRequested(asked), words), RunEvent::ApprovalAnswered(answered).into()]
}

fn intake(d: &mut Draw) -> Intake {
    let when_busy = d.later(()).map_or(WhenBusy::Queue, |()| d.one_of(&[WhenBusy::Coalesce, WhenBusy::Refuse]));
    Intake {
        when_busy,
        event_types: d.later(vec!["push".to_owned(), "issue*".to_owned()]).unwrap_or_default(),
        filter: d.later(r#"event_type == "push""#.to_owned()),
        per_minute_max: d.later(600),
        kept_days: d.later(30),
        id_pointers: d.later(vec!["/id".to_owned()]).unwrap_or_default(),
        ..Intake::default()
    }
}

fn trigger(d: &mut Draw) -> Vec<New<TriggerEvent>> {
    let (routine, bot, limits) = (d.id(ROUTINE), d.id(BOT), Limits::default());
    let created = TriggerEvent::Created {
        trigger: d.id(TRIGGER),
        name: d.text("invoices"),
        owner: d.id(USER),
        endpoint: d.text("q0aZ4n9Xk2mB7-vT1_cLwE8r"),
        routine: d.maybe(routine),
        bot: d.maybe(bot),
        secret: d.digest(0x70),
        intake: intake(d),
        limits,
        scheme: d.later(Scheme { preset: "template".to_owned(), template: Some(String::new()) }),
        sealed: d.later(Bytes(vec![1; 73])),
    };
    let work = TriggerContent::Created(work(d));
    vec![
        new(d, created, work),
        TriggerEvent::SecretRotated {
            secret: d.digest(0x71),
            old_until_us: d.at(86_400),
            sealed: d.later(Bytes(vec![2; 73])),
        }
        .into(),
        TriggerEvent::IntakeReplaced { intake: intake(d) }.into(),
        TriggerEvent::SenderReplaced {
            scheme: d.maybe(Scheme { preset: "template".to_owned(), template: Some(String::new()) }),
            secret: d.digest(0x72),
            sealed: d.maybe(Bytes(vec![3; 73])),
        }
        .into(),
        TriggerEvent::SampleCaptured { delivery: d.id(DELIVERY) }.into(),
        TriggerEvent::Confirmed { delivery: d.id(DELIVERY) }.into(),
        TriggerEvent::Paused {}.into(),
        TriggerEvent::Resumed {}.into(),
        TriggerEvent::Deleted {}.into(),
        TriggerEvent::RunClaimed(claimed(d)).into(),
        TriggerEvent::RunSettled(settled(d)).into(),
        TriggerEvent::DeliveryQueued(queued(d)).into(),
        TriggerEvent::DeliveryTaken { delivery: d.id(DELIVERY), run: d.id(RUN) }.into(),
        TriggerEvent::DeliveryDropped { delivery: d.id(DELIVERY), reason: dropped(d) }.into(),
    ]
}

fn user(d: &mut Draw) -> Vec<(StreamName, New<UserEvent>)> {
    let (user, token) = (d.id(USER), d.id(TOKEN));
    let role = d.one_of(&[Access::Admin, Access::Member, Access::Auditor]);
    let (name, purpose) = (d.text("Ada Lovelace"), d.text("nightly export"));
    let subject = StreamName::delivery(d.id(DELIVERY)).to_string();
    let part = d.one_of(&[EvidencePart::Body, EvidencePart::Prompt]);
    let issued = UserEvent::TokenIssued { token, role, secret: d.digest(0x90) };
    let of_bot = UserEvent::BotTokenIssued { token, bot: d.id(BOT), owner: user, secret: d.digest(0x95) };
    vec![
        (StreamName::user(user), new(d, UserEvent::Invited { user, role }, UserContent::Invited { name })),
        (StreamName::user(user), UserEvent::LinkIssued { link: d.digest(0x80), expires_us: d.at(3_600) }.into()),
        (
            StreamName::user(user),
            UserEvent::SignedIn { link: d.digest(0x80), session: d.digest(0x85), expires_us: d.at(86_400) }.into(),
        ),
        (StreamName::user(user), UserEvent::SignedOut { session: d.digest(0x85) }.into()),
        (StreamName::token(token), new(d, issued, UserContent::TokenIssued { name: purpose.clone() })),
        (StreamName::token(token), new(d, of_bot, UserContent::BotTokenIssued { name: purpose })),
        (StreamName::token(token), UserEvent::TokenRevoked { token }.into()),
        (StreamName::user(user), UserEvent::Revoked { user }.into()),
        (StreamName::user(user), UserEvent::EvidenceGranted {}.into()),
        (StreamName::user(user), UserEvent::EvidenceWithdrawn {}.into()),
        (StreamName::user(user), UserEvent::EvidenceRead { subject, part }.into()),
    ]
}
