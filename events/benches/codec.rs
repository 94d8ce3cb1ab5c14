//! Facts and content to bytes and back, and the leaf over them.
#![expect(clippy::expect_used, reason = "what is measured is fixed here")]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use midwatch_events::{
    Micros, New, Recorded, StreamName,
    codec::{decode_content, decode_facts, encode},
    id::{BotId, CallId, RoutineId, RunId},
    key::Digest,
    leaf::{commitment, leaf_hash},
    run::{Cause, Decision, DecisionKind, RunContent, RunEvent, Verdict},
};
use uuid::Uuid;

/// The event there is most of, and the one with the most fields.
fn decided() -> New<RunEvent> {
    let uuid = |n: u64| Uuid::from_u64_pair(0x0198_c0de_0000_7000, 0x8000_0000_0000_0000 | n);
    let decision = Decision {
        call: CallId::new(uuid(1)),
        ordinal: 3,
        turn: 2,
        step: None,
        tool: "computer_write_file".to_owned(),
        intent: "write_file".to_owned(),
        verdict: Verdict::Allow,
        decision: DecisionKind::Allowed,
        refusal: None,
        enforced: true,
        rule: Some("allow-workspace".to_owned()),
        matched: vec!["allow-workspace".to_owned()],
        broken: Vec::new(),
        unattended: true,
        cause: Cause::Schedule,
        run: RunId::new(uuid(2)),
        bot: BotId::new(uuid(3)),
        routine: Some(RoutineId::new(uuid(4))),
        trigger: None,
        boundary: 7,
        fingerprint: Digest([7; 32]),
        repeat_count: 1,
        repeat_same_result: 0,
        repeat_cycle: 0,
        approval: None,
    };
    let content = RunContent::ToolCallDecided {
        arguments: r#"{"path":"reports/today.md","text":"All is well."}"#.to_owned(),
        context: r#"{"intent":"write_file","file.path":"reports/today.md"}"#.to_owned(),
        fingerprint: "write_file reports/today.md".to_owned(),
    };
    New::with(RunEvent::ToolCallDecided(decision), content)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let event = decided();
    let bytes = encode(&event).expect("it encodes");
    let content = bytes.content.clone().expect("it has content");
    let salt = [9; 16];
    let row = Recorded {
        position: 70_000,
        stream: StreamName::stored("run-0198c0de-0000-7000-8000-000000000002".to_owned()),
        version: 9,
        event_id: Uuid::from_u64_pair(0x0198_c0de_0000_7000, 0x8000_0000_0000_0009),
        event_type: bytes.event_type.clone(),
        schema: bytes.schema,
        recorded_at: Micros(1_767_225_600_000_000),
        actor: "engine".to_owned(),
        correlation_id: Some("run-0198c0de-0000-7000-8000-000000000002".to_owned()),
        causation_id: None,
        facts: bytes.facts.clone(),
        commitment: Some(commitment(&salt, &content)),
        salt: Some(salt),
        content: Some(content.clone()),
        leaf_hash: [0; 32],
    };
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Elements(1));
    group.bench_function("encode", |bencher| bencher.iter(|| encode(black_box(&event))));
    group.bench_function("decode facts", |bencher| {
        bencher.iter(|| decode_facts::<RunEvent>(&bytes.event_type, bytes.schema, black_box(&bytes.facts)));
    });
    group.bench_function("decode content", |bencher| {
        bencher.iter(|| decode_content::<RunEvent>(&bytes.event_type, bytes.schema, black_box(&content)));
    });
    group.bench_function("commitment", |bencher| bencher.iter(|| commitment(&salt, black_box(&content))));
    group.bench_function("leaf hash", |bencher| bencher.iter(|| leaf_hash(black_box(&row), &[])));
    group.finish();
    criterion.final_summary();
}
