//! Ledgers to ask, written event by event as the engine writes them.

use std::sync::atomic::{AtomicU64, Ordering};

use midwatch_events::{
    Family, Micros, New, StreamName,
    bot::BotEvent,
    codec::encode,
    delivery::{DeliveryContent, DeliveryEvent, Received, ReceivedStatus},
    id::{BotId, CallId, DeliveryId, Id, ProcessId, RoutineId, RunId, TriggerId, UserId},
    key::{Bytes, Digest},
    repeat::{RepeatContent, RepeatEvent},
    routine::{DeliveryQueued, Limits, RoutineContent, RoutineEvent, RunClaimed, RunSettled, Work},
    run::{
        CallResult, Cause, Decision, DecisionKind, Ended, Opened, Outcome, RefusalCause, RunContent, RunEvent, Verdict,
        WorkKind,
    },
    trigger::{Intake, TriggerEvent},
};
use midwatch_log::{
    Append, Expected, Log, NewEvent, Open, StreamAppend,
    testing::{Guard, fresh_urls},
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use uuid::Uuid;

pub(crate) fn id<Of>(n: u128) -> Id<Of> {
    Id::new(Uuid::from_u128(n))
}

pub(crate) const ROUTINE: u128 = 1;
pub(crate) const RUN: u128 = 2;
pub(crate) const TRIGGER: u128 = 3;
pub(crate) const DELIVERY: u128 = 4;
pub(crate) const BOT: u128 = 5;
pub(crate) const USER: u128 = 6;
pub(crate) const PROCESS: u128 = 8;
pub(crate) const WINDOW: Micros = Micros(1_796_049_900_000_000);

/// The call `n` of the run.
pub(crate) fn call(n: u32) -> CallId {
    id(0x900 + u128::from(n))
}

pub(crate) fn run_stream() -> StreamName {
    StreamName::run(id(RUN))
}

pub(crate) fn routine_stream() -> StreamName {
    StreamName::routine(id(ROUTINE))
}

pub(crate) fn delivery_stream() -> StreamName {
    StreamName::delivery(id(DELIVERY))
}

/// A fresh ledger on one backend.
pub(crate) struct Ledger {
    pub(crate) log: Log,
    pub(crate) name: &'static str,
    pub(crate) url: String,
    _guard: Guard,
}

/// Runs a test on a fresh ledger on each backend.
pub(crate) async fn on_both(test: impl AsyncFn(Ledger)) {
    for (name, url, guard) in fresh_urls().await {
        let log = Log::open(&url, Open::ReadWrite).await.unwrap();
        test(Ledger { log, name, url, _guard: guard }).await;
    }
}

/// One append in the making.
pub(crate) struct Batch<'a> {
    ledger: &'a Ledger,
    actor: String,
    within: Option<StreamName>,
    because: Option<Uuid>,
    append: Append,
}

impl Batch<'_> {
    pub(crate) fn within(mut self, stream: StreamName) -> Self {
        self.within = Some(stream);
        self
    }

    pub(crate) fn because(mut self, event: Uuid) -> Self {
        self.because = Some(event);
        self
    }

    /// Adds an event; it becomes what the next ones of this append are caused by when `chained`.
    pub(crate) fn add<F: Family>(mut self, stream: &StreamName, event: impl Into<New<F>>) -> Self {
        let event = event.into();
        let bytes = encode(&event).unwrap();
        let new = NewEvent {
            event_id: new_id(),
            event_type: bytes.event_type,
            schema: bytes.schema,
            actor: self.actor.clone(),
            correlation_id: self.within.as_ref().map(ToString::to_string),
            causation_id: self.because,
            facts: bytes.facts,
            content: bytes.content,
        };
        let entry = StreamAppend { stream: stream.clone(), expected: Expected::Any, events: vec![new] };
        self.append.entries.push(entry);
        self
    }

    /// What follows in this append is caused by its last event.
    pub(crate) fn chained(mut self) -> Self {
        self.because = self.append.entries.last().and_then(|entry| entry.events.last()).map(|event| event.event_id);
        self
    }

    /// Appends; the id of the last event.
    pub(crate) async fn write(self) -> Uuid {
        let last = self.append.entries.last().unwrap().events.last().unwrap().event_id;
        self.ledger.log.append(self.append).await.unwrap();
        last
    }
}

pub(crate) fn new_id() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u64_pair(0x0198_c0de_0000_7000, 0x8000_0000_0000_0000 | NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Ledger {
    pub(crate) fn by(&self, actor: &str) -> Batch<'_> {
        let actor = actor.to_owned();
        Batch { ledger: self, actor, within: None, because: None, append: Append::default() }
    }

    /// Runs SQL behind the ledger's back.
    pub(crate) async fn sql(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        if self.name == "sqlite" {
            let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
            connection.execute(sql).await.unwrap();
            connection.close().await.unwrap();
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            connection.execute(sql).await.unwrap();
            connection.close().await.unwrap();
        }
    }

    /// Takes the guards off events, as somebody with the database's password could.
    pub(crate) async fn drop_guards(&self) {
        self.sql(if self.name == "sqlite" {
            "DROP TRIGGER events_only_at_head; DROP TRIGGER events_only_erased; DROP TRIGGER events_never_deleted"
        } else {
            "ALTER TABLE events DISABLE TRIGGER ALL"
        })
        .await;
    }

    /// Erases everything that can be erased.
    pub(crate) async fn erase(&self) {
        self.sql("UPDATE events SET content = NULL, salt = NULL WHERE content IS NOT NULL").await;
    }

    /// Positions 1 to 3: a Bot, a routine, a trigger for it.
    pub(crate) async fn set_up(&self) {
        let bot = BotEvent::Registered { bot: id(BOT), name: "ops".into(), agui: None, tools: vec!["t".into()] };
        self.by("cli:0").add(&StreamName::bot(id(BOT)), bot).write().await;
        let created = New::with(
            RoutineEvent::Created {
                routine: id(ROUTINE),
                name: "Nightly tidy".into(),
                owner: id(USER),
                bot: id(BOT),
                schedule: r#"{"kind":"every","minutes":60}"#.into(),
                work: WorkKind::Instruction,
                limits: Limits::default(),
                anchor_us: WINDOW,
                next_us: Some(WINDOW),
            },
            RoutineContent::Created(instruction()),
        );
        self.by("cli:0").add(&routine_stream(), created).write().await;
        let trigger = TriggerEvent::Created {
            trigger: id(TRIGGER),
            name: "Pushes".into(),
            owner: id(USER),
            endpoint: "AAAAAAAAAAAAAAAAAAAAAAAA".into(),
            routine: Some(id(ROUTINE)),
            bot: None,
            secret: Digest([7; 32]),
            intake: Intake::default(),
            limits: Limits::default(),
            scheme: None,
            sealed: None,
        };
        self.by("cli:0").add(&StreamName::trigger(id(TRIGGER)), trigger).write().await;
    }

    /// Positions 4 to 8: the delivery is received, waits, is claimed, and opens the run.
    pub(crate) async fn deliver(&self) -> Uuid {
        let received = self.receive().await;
        let queued = DeliveryQueued {
            delivery: id(DELIVERY),
            trigger: id(TRIGGER),
            expires_us: Micros(i64::MAX),
            redelivery: None,
        };
        let queued = self
            .by("engine")
            .within(delivery_stream())
            .because(received)
            .add(&routine_stream(), RoutineEvent::DeliveryQueued(queued))
            .write()
            .await;
        let claim = RunClaimed { delivery: Some(id(DELIVERY)), window_us: None, tzdb: None, ..claim(Cause::Delivery) };
        let taken = RoutineEvent::DeliveryTaken { delivery: id(DELIVERY), run: id(RUN) };
        let opened = Opened {
            trigger: Some(id(TRIGGER)),
            delivery: Some(id(DELIVERY)),
            event_type: Some("push".into()),
            window_us: None,
            ..opened(Cause::Delivery)
        };
        self.by("engine")
            .within(run_stream())
            .because(queued)
            .add(&routine_stream(), RoutineEvent::RunClaimed(claim))
            .add(&routine_stream(), taken)
            .chained()
            .add(&run_stream(), New::with(RunEvent::Opened(opened), RunContent::Opened { work: instruction() }))
            .write()
            .await
    }

    /// The delivery's first event.
    pub(crate) async fn receive(&self) -> Uuid {
        let body = br#"{"ref":"refs/heads/main"}"#.to_vec();
        let received = Received {
            delivery: id(DELIVERY),
            trigger: id(TRIGGER),
            routine: Some(id(ROUTINE)),
            status: ReceivedStatus::Accepted,
            event_type: Some("push".into()),
            body_bytes: body.len() as u64,
            body_digest: Digest([9; 32]),
            parsed: true,
            unparsed: None,
            id_conflict: false,
            old_secret: false,
            held: None,
            held_until_us: None,
            queued: false,
        };
        let content = DeliveryContent::Received {
            headers: vec![("X-Event".into(), "push".into())],
            query: None,
            body: Some(Bytes(body)),
            blob: None,
            sender_id: Some("abc-1".into()),
            filter_error: None,
        };
        self.by(&format!("trigger:{}", id::<()>(TRIGGER)))
            .within(delivery_stream())
            .add(&delivery_stream(), New::with(DeliveryEvent::Received(received), content))
            .write()
            .await
    }

    /// A window is claimed and opens the run: two events.
    pub(crate) async fn claim_window(&self) {
        let work = RunContent::Opened { work: instruction() };
        self.by("clock")
            .within(run_stream())
            .add(&routine_stream(), RoutineEvent::RunClaimed(claim(Cause::Schedule)))
            .chained()
            .add(&run_stream(), New::with(RunEvent::Opened(opened(Cause::Schedule)), work))
            .write()
            .await;
    }

    /// One event of the run, by the Bot.
    pub(crate) async fn step(&self, event: impl Into<New<RunEvent>>) -> Uuid {
        self.by(&format!("bot:{}", id::<()>(BOT))).within(run_stream()).add(&run_stream(), event).write().await
    }

    pub(crate) async fn take(&self) {
        self.step(RunEvent::Taken { take: 1, worker: id(PROCESS), deadline_us: Micros(WINDOW.0 + 900_000_000) }).await;
    }

    /// A turn in which the Bot says `words` and asks for `calls` calls: two events.
    pub(crate) async fn turn(&self, turn: u32, words: &str, calls: u32) {
        self.step(RunEvent::TurnStarted { turn }).await;
        let call = serde_json::json!({"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}});
        let calls_said = vec![call; calls as usize];
        let messages = serde_json::json!([{"role": "assistant", "id": "m", "content": words, "toolCalls": calls_said}]);
        let content = RunContent::TurnFinished { messages: messages.to_string() };
        self.step(New::with(RunEvent::TurnFinished { turn, calls }, content)).await;
    }

    /// The attempt, the thresholds it crosses, and the decision, in one append.
    pub(crate) async fn decide(&self, decision: &Decision, crossed: Option<u32>) -> Uuid {
        let stream = StreamName::repeat(id(BOT), &decision.fingerprint.0);
        let fingerprint = "t notes.txt".to_owned();
        let attempted = RepeatEvent::Attempted {
            run: id(RUN),
            call: decision.call,
            at_us: WINDOW,
            count: decision.repeat_count,
            crossed: crossed.unwrap_or(0),
        };
        let content = RepeatContent::Attempted { fingerprint: fingerprint.clone() };
        let mut batch = self.by(&format!("bot:{}", id::<()>(BOT))).within(run_stream());
        batch = batch.add(&stream, New::with(attempted, content));
        if let Some(threshold) = crossed {
            let event = RepeatEvent::ThresholdCrossed {
                threshold,
                count: decision.repeat_count,
                bot: id(BOT),
                run: id(RUN),
                call: decision.call,
                tool: decision.tool.clone(),
                unattended: true,
                routine: Some(id(ROUTINE)),
                trigger: None,
            };
            let content = RepeatContent::ThresholdCrossed { fingerprint: fingerprint.clone() };
            batch = batch.add(&stream, New::with(event, content));
        }
        let content = RunContent::ToolCallDecided {
            arguments: r#"{"path":"notes.txt"}"#.into(),
            context: r#"{"intent":"write_file"}"#.into(),
            fingerprint,
        };
        batch.add(&run_stream(), New::with(RunEvent::ToolCallDecided(decision.clone()), content)).write().await
    }

    /// The outcome of a call.
    pub(crate) async fn end_call(&self, decision: &Decision, decided: Uuid, content: RunContent) -> Uuid {
        let ended = RunEvent::ToolCallEnded {
            decision: decision.clone(),
            result: CallResult::Finished,
            result_digest: Some(Digest([3; 32])),
            result_bytes: Some(11),
            duration_us: Some(12_345),
        };
        self.by(&format!("bot:{}", id::<()>(BOT)))
            .within(run_stream())
            .because(decided)
            .add(&run_stream(), New::with(ended, content))
            .write()
            .await
    }

    /// The run's ending and its routine's freedom, in one append.
    pub(crate) async fn settle(&self, headline: &str) {
        let ended = Ended {
            run: id(RUN),
            bot: id(BOT),
            routine: Some(id(ROUTINE)),
            trigger: None,
            cause: Cause::Delivery,
            outcome: Outcome::Succeeded,
            reason: None,
            turns: 2,
            tool_calls: 2,
            refused_calls: 1,
            duration_us: Some(2_500_000),
            unattended: Some(true),
        };
        let content = RunContent::Ended { headline: headline.to_owned(), error: None };
        let settled = RunSettled { run: id(RUN), outcome: Outcome::Succeeded, reason: None, bot: Some(id(BOT)) };
        self.by("engine")
            .within(run_stream())
            .add(&run_stream(), New::with(RunEvent::Ended(ended), content))
            .chained()
            .add(&routine_stream(), RoutineEvent::RunSettled(settled))
            .write()
            .await;
    }

    /// A webhook's whole story: 22 events.
    pub(crate) async fn story(&self) {
        self.set_up().await;
        let opened = self.deliver().await;
        let started = DeliveryEvent::Started { trigger: id(TRIGGER), run: id(RUN) };
        self.by("engine").within(run_stream()).because(opened).add(&delivery_stream(), started).write().await;
        self.take().await;
        self.turn(1, "I will write it down.", 2).await;
        let first = decision(1, 1);
        let decided = self.decide(&first, None).await;
        let result = RunContent::ToolCallEnded { result: Some(r#"{"ok":true}"#.into()), blob: None };
        self.end_call(&first, decided, result).await;
        let second = Decision {
            verdict: Verdict::Deny,
            decision: DecisionKind::Refused,
            refusal: Some(RefusalCause::Rule),
            rule: Some("no-loops".into()),
            matched: vec!["no-loops".into(), "allow-all".into()],
            broken: vec!["odd".into()],
            repeat_count: 3,
            repeat_same_result: 2,
            repeat_cycle: 2,
            ..decision(2, 1)
        };
        self.decide(&second, Some(3)).await;
        self.turn(2, "Done.", 0).await;
        self.settle("Done.").await;
    }
}

pub(crate) fn instruction() -> Work {
    Work { instruction: Some("Look at the push.\nWrite down what it was.".into()), recording: None }
}

pub(crate) fn claim(cause: Cause) -> RunClaimed {
    RunClaimed {
        run: id(RUN),
        bot: Some(id(BOT)),
        cause,
        window_us: Some(WINDOW),
        delivery: None,
        redelivery: None,
        claimed_by: id::<midwatch_events::id::Process>(PROCESS),
        tzdb: Some("2026f".into()),
        next_us: None,
    }
}

pub(crate) fn opened(cause: Cause) -> Opened {
    let (run, bot, owner): (RunId, BotId, UserId) = (id(RUN), id(BOT), id(USER));
    let (routine, trigger, delivery): (RoutineId, Option<TriggerId>, Option<DeliveryId>) = (id(ROUTINE), None, None);
    Opened {
        run,
        bot,
        owner,
        routine: Some(routine),
        trigger,
        delivery,
        event_type: None,
        cause,
        window_us: Some(WINDOW),
        work: WorkKind::Instruction,
        deadline_s: 900,
        max_turns: 20,
        unattended: true,
        retry: None,
    }
}

/// The call `ordinal`, let through by a rule.
pub(crate) fn decision(ordinal: u32, turn: u32) -> Decision {
    Decision {
        call: call(ordinal),
        ordinal,
        turn,
        step: None,
        tool: "t".into(),
        intent: "write_file".into(),
        verdict: Verdict::Allow,
        decision: DecisionKind::Allowed,
        refusal: None,
        enforced: true,
        rule: Some("allow-all".into()),
        matched: vec!["allow-all".into()],
        broken: vec![],
        unattended: true,
        cause: Cause::Delivery,
        run: id(RUN),
        bot: id(BOT),
        routine: Some(id(ROUTINE)),
        trigger: None,
        boundary: 1,
        fingerprint: Digest([5; 32]),
        repeat_count: 1,
        repeat_same_result: 0,
        repeat_cycle: 0,
        approval: None,
    }
}

/// A process's id, to have it named.
pub(crate) fn process() -> ProcessId {
    id(PROCESS)
}

/// Text with every instant of this test's making put to one, so that it can be compared.
pub(crate) fn timeless(text: &str, log_times: &[Micros]) -> String {
    log_times.iter().fold(text.to_owned(), |text, at| {
        let shown = at.to_string();
        text.replace(&format!("{shown:<27}"), "TIME").replace(&shown, "TIME")
    })
}
