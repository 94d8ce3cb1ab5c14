//! The bytes of each family's state after all of its golden events, for each fold version. A state that is kept in a
//! deployment's database has these bytes; who changes them without a new number would have old states read as new ones.
//!
//! `MIDWATCH_ACCEPT=1` writes what is missing in `golden/`; it never changes a file.

use std::{env, fs, path::Path};

use midwatch_events::{Family as _, Micros, codec::decode_facts};

use super::any_order::bytes;
use crate::{
    Decider,
    bot::Bot,
    boundary::{Boundary, ToolServers},
    delivery::{Delivery, Redelivery},
    engine::{Engine, Notice, Receiver},
    repeat::Repeat,
    routine::Routine,
    run::Run,
    trigger::Trigger,
    user::User,
};

/// Folds the golden events of a family, twice: what comes before the event that begins a stream is taken in after it.
fn folded<D: Decider>() -> D {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../events/golden");
    let family = format!("{}.", D::Event::NAME);
    let mut events: Vec<(String, D::Event)> = fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&family))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let facts = text.lines().find_map(|line| line.strip_prefix("facts: ")).unwrap();
            let (event_type, schema) = name.rsplit_once('.').unwrap();
            let event = decode_facts(event_type, schema.parse().unwrap(), &unhex(facts)).unwrap();
            (name, event)
        })
        .collect();
    events.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut state = D::default();
    for round in 0..2 {
        for (n, (_, event)) in events.iter().enumerate() {
            state.evolve(event, Micros(1_796_083_200_000_000 + round * 1_000_000 + i64::try_from(n).unwrap()));
        }
    }
    state
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// `state` names it among those that are folded from the same family's events.
fn check<D: Decider>(state: &str, wrong: &mut Vec<String>) {
    let name = format!("{state}.{}.txt", D::FOLD_VERSION);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(&name);
    let found = hex(&bytes(&folded::<D>())) + "\n";
    match fs::read_to_string(&path) {
        Ok(golden) if golden == found => {}
        Ok(_) => wrong.push(format!("{name}: the state of {state} changed; raise its FOLD_VERSION")),
        Err(_) if env::var_os("MIDWATCH_ACCEPT").is_some() => {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, found).unwrap();
        }
        Err(_) => wrong.push(format!("{name} is missing; MIDWATCH_ACCEPT=1 writes it")),
    }
}

#[test]
fn a_state_that_changed_has_a_new_fold_version() {
    let mut wrong = Vec::new();
    check::<Routine>("routine", &mut wrong);
    check::<Trigger>("trigger", &mut wrong);
    check::<Run>("run", &mut wrong);
    check::<Repeat>("repeat", &mut wrong);
    check::<Delivery>("delivery", &mut wrong);
    check::<Redelivery>("redelivery", &mut wrong);
    check::<Engine>("engine", &mut wrong);
    check::<Receiver>("receiver", &mut wrong);
    check::<Notice>("notice", &mut wrong);
    check::<Bot>("bot", &mut wrong);
    check::<Boundary>("boundary", &mut wrong);
    check::<ToolServers>("tool_servers", &mut wrong);
    check::<User>("user", &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
