//! A copy of a ledger starts nothing.

use crate::home::Home;

#[test]
fn a_copy_elsewhere_is_read_and_not_written_until_adopted() {
    let (home, bot, routine) = Home::with_routine();
    std::fs::copy(home.path("midwatch.db"), home.path("copy.db")).unwrap();
    let db = format!("sqlite://{}", home.path("copy.db").display());
    let on_copy = |arguments: &[&'static str]| -> Vec<String> {
        arguments.iter().map(|&argument| argument.to_owned()).chain(["--db".to_owned(), db.clone()]).collect()
    };
    let list = on_copy(&["routine", "list"]);
    let list: Vec<_> = list.iter().map(String::as_str).collect();
    assert_eq!(home.json(&list)[0]["id"], routine.as_str());
    home.fails(&["run", "now", &routine, "--db", &db], 3, "halt adopt");
    home.fails(&["serve", "--listen", "127.0.0.1:0", "--db", &db], 3, "halt adopt");

    let adopted = on_copy(&["halt", "adopt"]);
    let adopted = home.json(&adopted.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(adopted["deployment"].is_string(), "{adopted}");
    home.json(&["run", "now", &routine, "--db", &db]);
    assert_eq!(home.json(&["run", "list"]), serde_json::json!([]), "the first one is untouched");
    assert_eq!(home.json(&["bot", "list", "--db", &db])[0]["id"], bot.as_str());
}

#[test]
fn an_older_copy_in_the_same_place_starts_halted() {
    let (home, bot, routine) = Home::with_routine();
    std::fs::copy(home.path("midwatch.db"), home.path("backup.db")).unwrap();
    home.routine(&bot, "Later", crate::home::WEEKDAYS);
    // The projections have seen what the older copy will not have.
    assert_eq!(home.json(&["routine", "list"]).as_array().unwrap().len(), 2);
    for name in ["midwatch.db-wal", "midwatch.db-shm"] {
        let _ = std::fs::remove_file(home.path(name));
    }
    std::fs::copy(home.path("backup.db"), home.path("midwatch.db")).unwrap();

    let refused = home.fails(&["run", "now", &routine], 1, "halted");
    assert_eq!(refused["code"], "halted");
    let listed = home.json(&["routine", "list"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &routine.as_str().into()), "{listed}");
    home.fails(&["halt", "lift"], 1, "halt adopt");
    let status = home.json(&["halt", "status"]);
    assert!(status["reason"].as_str().unwrap().contains("restored from an older"), "{status}");
    assert_eq!(status["by"], "engine");
    // What it was halted for is over with the adoption.
    home.json(&["halt", "adopt"]);
    assert_eq!(home.json(&["halt", "status"])["halted"], false);
    home.json(&["run", "now", &routine]);
}

#[test]
fn without_its_key_nothing_is_written() {
    let (home, ..) = Home::with_routine();
    let other = home.write("other.key", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    home.fails(&["bot", "add", "--name", "b", "--key-file", &other], 3, "chmod 600");
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    home.fails(&["bot", "add", "--name", "b", "--key-file", &other], 3, "not this ledger's");
    home.fails(&["bot", "add", "--name", "b", "--key-file", "nowhere.key"], 3, "key is missing");
    assert_eq!(home.json(&["bot", "list"]).as_array().unwrap().len(), 1);
}
