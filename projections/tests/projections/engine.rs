//! The deployment, its processes, its Bots and its boundaries.

use midwatch_events::{
    Actor, New, StreamName,
    bot::BotEvent,
    boundary::{BoundaryContent, BoundaryEvent},
    engine::{EngineContent, EngineEvent, HaltCause, Role},
    id::{BotId, ProcessId},
    key::Digest,
};
use midwatch_projections::{
    View,
    bots::BotRow,
    boundaries::BoundaryRow,
    engine_deployment::{DeploymentRow, KEY},
    engine_processes::ProcessRow,
    projection::padded,
};
use uuid::Uuid;

use crate::{
    samples::{BOT, PROCESS, id},
    story::{Story, after},
};

#[test]
fn a_halt_says_why_by_whom_and_since_when_until_it_is_lifted() {
    let deployment = Uuid::from_u128(0x5f3d_9c1e_0000_4000_8000_0000_0000_0001);
    let mut story = Story::default();
    let created = EngineEvent::LedgerCreated { deployment, key_id: Digest([1; 32]), repeat_window_s: 180 };
    story.is(&StreamName::engine(), created);
    let row = |story: &Story| story.row::<DeploymentRow>(View::Deployment, KEY);
    assert_eq!(row(&story).deployment, Some(deployment.to_string()));
    assert_eq!((row(&story).halted, row(&story).repeat_window_s), (false, Some(180)));
    let reason = EngineContent::SchedulingHalted { reason: "moving".to_owned() };
    let halted = New::with(EngineEvent::SchedulingHalted { cause: HaltCause::Person }, reason);
    story.at(8).by(&Actor::Cli(1000), &StreamName::halt(), halted);
    let halted = row(&story);
    assert_eq!((halted.halted, halted.cause), (true, Some(HaltCause::Person)));
    assert_eq!((halted.reason.as_deref(), halted.by.as_deref()), (Some("moving"), Some("cli:1000")));
    assert_eq!(halted.since, Some(after(8)));
    story.at(9).is(&StreamName::halt(), EngineEvent::SchedulingLifted {});
    let lifted = row(&story);
    assert_eq!((lifted.halted, lifted.reason, lifted.by, lifted.since), (false, None, None, None));
    assert_eq!((lifted.lifted_at, lifted.lifted_by.as_deref()), (Some(after(9)), Some("cli:0")));
}

#[test]
fn an_adopted_copy_knows_whose_copy_it_was() {
    let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let mut story = Story::default();
    let key_id = Digest([1; 32]);
    story.is(&StreamName::engine(), EngineEvent::LedgerCreated { deployment: first, key_id, repeat_window_s: 180 });
    story.is(&StreamName::engine(), EngineEvent::DeploymentAdopted { deployment: second, previous: first, key_id });
    let row: DeploymentRow = story.row(View::Deployment, KEY);
    assert_eq!((row.deployment, row.previous), (Some(second.to_string()), Some(first.to_string())));
}

#[test]
fn a_process_joins_and_leaves() {
    let process: ProcessId = id(PROCESS, 0);
    let stream = StreamName::process(process);
    let mut story = Story::default();
    let roles = vec![Role::Clock, Role::Runner];
    let (version, tzdb) = ("0.1.0".to_owned(), "2026f".to_owned());
    story.is(&stream, EngineEvent::ProcessStarted { process, version, roles: roles.clone(), tzdb });
    let row: ProcessRow = story.row(View::Processes, process);
    assert_eq!((row.roles, row.tzdb.as_str(), row.stopped_at), (roles, "2026f", None));
    story.at(3).is(&stream, EngineEvent::ProcessStopped { process });
    assert_eq!(story.row::<ProcessRow>(View::Processes, process).stopped_at, Some(after(3)));
}

#[test]
fn a_bot_gains_and_loses_tools_and_retires() {
    let bot: BotId = id(BOT, 0);
    let stream = StreamName::bot(bot);
    let tools = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>();
    let mut story = Story::default();
    story.is(&stream, BotEvent::Registered { bot, name: "ops".to_owned(), agui: None, tools: tools(&["a", "b"]) });
    story.is(&stream, BotEvent::ToolsGranted { tools: tools(&["c", "a"]) });
    story.is(&stream, BotEvent::ToolsWithdrawn { tools: tools(&["b"]) });
    let row: BotRow = story.row(View::Bots, bot);
    assert_eq!(row.tools.into_iter().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!((row.retired, row.version), (false, 3));
    story.is(&stream, BotEvent::Retired {});
    assert!(story.row::<BotRow>(View::Bots, bot).retired);
}

#[test]
fn each_published_boundary_stays() {
    let mut story = Story::default();
    for document in ["{}", r#"{"rules":[]}"#] {
        let facts = BoundaryEvent::Published { document: document.to_owned() };
        let note = BoundaryContent::Published { note: format!("now {document}") };
        story.is(&StreamName::boundary(), New::with(facts, note));
    }
    let first: BoundaryRow = story.row(View::Boundaries, padded(1));
    let second: BoundaryRow = story.row(View::Boundaries, padded(2));
    assert_eq!((first.version, first.document.as_str(), first.author.as_str()), (1, "{}", "cli:0"));
    assert_eq!((second.version, second.note.as_deref()), (2, Some(r#"now {"rules":[]}"#)));
}
