//! Erasing from the command line: the words go, the record stays, and replay says so.

use std::fs;

use serde_json::json;

use crate::home::{Home, keys};

#[test]
fn a_runs_words_are_erased_and_the_record_still_holds() {
    let (home, _, routine) = Home::with_routine();
    home.json(&["routine", "edit", &routine, "--instruction", "Write to Zaphod Beeblebrox"]);
    let run = home.json(&["run", "now", &routine])["run"].as_str().unwrap().to_owned();
    home.fails(&["erase", "--run", &run, "--reason", "asked"], 1, "is still live");
    home.json(&["run", "cancel", &run]);
    let told = home.json(&["replay", "run", &run]);

    let erased = home.json(&["erase", "--run", &run, "--reason", "asked"]);
    assert_eq!(keys(&erased), ["blobs", "events", "position", "stream"], "{erased}");
    assert_eq!((&erased["stream"], &erased["blobs"]), (&json!(format!("run-{run}")), &json!(0)));
    assert!(home.run(&["replay", "run", &run]).out.contains("instruction: erased"));
    let after = home.json(&["replay", "run", &run]);
    assert_eq!(after["ended"]["outcome"], told["ended"]["outcome"]);
    assert_eq!(after["entries"][0]["told"], json!({"erased": true}), "{after}");
    let row = home.rows(&["audit", "event:engine.content_erased"]);
    assert_eq!(row[0]["subject"], json!(format!("run-{run}")), "{row:?}");
    home.fails(&["erase", "--run", &run, "--reason", "asked"], 1, "nothing left to erase");

    // The routine has the words too, and is erased for itself.
    let said = home.run(&["erase", "--stream", &format!("routine-{routine}"), "--reason", "asked"]);
    assert!(said.code == 0 && said.out.contains("Erased the words of"), "{}{}", said.out, said.err);
    for entry in fs::read_dir(home.path(".")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        assert!(!bytes.windows(17).any(|at| at == b"Zaphod Beeblebrox"), "{}", path.display());
    }
    assert_eq!(home.json(&["verify"])["ok"], true);
    home.fails(&["run", "now", &routine], 2, "was erased");
}

#[test]
fn an_erasure_names_one_thing_and_a_reason() {
    let (home, _, routine) = Home::with_routine();
    home.fails(&["erase", "--reason", "asked"], 2, "--run");
    home.fails(&["erase", "--run", &routine], 2, "--reason");
    home.fails(&["erase", "--run", &routine, "--delivery", &routine, "--reason", "asked"], 2, "cannot be used");
    home.fails(&["erase", "--run", &routine, "--reason", " "], 2, "say why");
    for whose in [["--run", &routine], ["--delivery", &routine], ["--stream", "nothing"]] {
        home.fails(&[&["erase"], &whose[..], &["--reason", "asked"]].concat(), 1, "there is no stream");
    }
}
