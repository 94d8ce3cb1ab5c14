//! The first oracle: Python's zoneinfo over the tzdata package of the same IANA release.

use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use midwatch_commands::calendar::{Schedule, tzdb_version};

use crate::{
    Compared, ours, shared,
    triples::{Random, Triple},
};

/// As far as the oracle follows an `every` with `between`, less the days it begins early: what is later is not asked of
/// it.
const FAR_S: i64 = 110 * 86_400;

/// A missing Python is a failure, never a skip: a promise that is not tested is not kept.
fn python(arguments: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = env::var_os("MIDWATCH_TZDATA_PYTHON")
        .map_or_else(|| root.join("target/calendar-venv/bin/python"), PathBuf::from);
    assert!(
        python.exists(),
        "{} is missing: set MIDWATCH_TZDATA_PYTHON to a Python that has tests/calendar/requirements.txt",
        python.display()
    );
    let mut command = Command::new(python);
    command.arg(root.join("tests/calendar/oracle.py")).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn the_oracle_reads_the_same_release() {
    let said = python(&["release"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), tzdb_version(), "see tests/calendar/requirements.txt");
}

#[test]
fn zoneinfo_agrees() {
    shared("zoneinfo", compared);
}

fn compared(seed: u64, count: usize) -> Compared {
    let mut random = Random::new(seed);
    let triples: Vec<Triple> = (0..count).map(|_| Triple::anywhere(&mut random)).collect();
    let questions: String = triples.iter().map(|triple| format!("{}\n", triple.question())).collect();
    let mut asked = python(&[]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut input = asked.stdin.take().unwrap();
    let answers = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(questions.as_bytes()).unwrap());
        asked.wait_with_output().unwrap()
    });
    assert!(answers.status.success(), "the oracle failed");
    let answers = String::from_utf8(answers.stdout).unwrap();
    assert_eq!(answers.lines().count(), count);
    let mut compared = Compared::default();
    for (triple, answer) in triples.iter().zip(answers.lines()) {
        let expected: Vec<(i64, String)> = serde_json::from_str(answer).unwrap();
        // An anchor that never meets `between` is refused, and the oracle finds nothing either.
        let found = match Schedule::parse(&triple.rule.json().to_string()) {
            Ok(schedule) => ours(&schedule, triple.after_s, triple.created_s, 2),
            Err(error) => {
                assert!(error.to_string().contains("never meets"), "{error}: {}", triple.question());
                Vec::new()
            }
        };
        compared.count(triple.rule.kind(), !expected.is_empty());
        // A start far ahead is the instant the search begins with.
        let begins_s = triple.rule.starts_s.map_or(triple.after_s, |starts_s| starts_s.max(triple.after_s));
        let near = |(at_s, _): &&(i64, String)| !triple.rule.has_between() || *at_s < begins_s + FAR_S;
        if !found.iter().filter(near).eq(expected.iter().filter(near)) {
            compared.differences.push(format!("{}\n  ours {found:?}\n  theirs {expected:?}", triple.question()));
        }
    }
    compared
}
