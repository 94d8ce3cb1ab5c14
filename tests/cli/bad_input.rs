//! What cannot be done is said in one sentence, with the right exit code: no panic, no stack trace.

use std::net::TcpListener;

use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use crate::home::{Home, LISTING, WEEKDAYS};

const NOBODY: &str = "0198c0de-0000-7000-8000-000000000000";

/// Runs SQL on a database file, as another program would.
pub(crate) fn sql(file: &std::path::Path, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

#[test]
fn a_schedule_that_is_none() {
    let (home, bot, routine) = Home::with_routine();
    for (schedule, part) in [
        ("{", "the schedule cannot be read"),
        ("[]", "write a JSON object"),
        (r#"{"kind":"daily","zone":"UTC"}"#, "unknown variant"),
        (r#"{"kind":"weekly","zone":"Europe/Berln","days":["mon"],"times":["08:00"]}"#, "Europe/Berlin"),
        (r#"{"kind":"weekly","zone":"UTC","days":["monday"],"times":["08:00"]}"#, "`days`"),
        (r#"{"kind":"weekly","zone":"UTC","days":["mon"],"times":["24:00"]}"#, "`times`"),
        (r#"{"kind":"every","zone":"UTC","minutes":0}"#, "`minutes`"),
        (r#"{"kind":"cron","zone":"UTC","expr":"61 * * * *"}"#, "expr"),
        (r#"{"kind":"once","at":"2020-01-01T00:00:00Z"}"#, "has passed"),
        ("@nowhere.json", "cannot read nowhere.json"),
    ] {
        let add = ["routine", "add", "--name", "R", "--bot", &bot, "--schedule", schedule, "--recording", LISTING];
        home.fails(&add, 2, part);
        home.fails(&["routine", "edit", &routine, "--schedule", schedule], 2, part);
        if part != "has passed" {
            home.fails(&["schedule", "preview", "--schedule", schedule], 2, part);
        }
    }
    assert_eq!(home.json(&["routine", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_routine_that_cannot_be() {
    let (home, bot, _) = Home::with_routine();
    let add = |more: &[&'static str], bot: &str| {
        let start = ["routine", "add", "--name", "R", "--bot", bot, "--schedule", WEEKDAYS];
        start.iter().copied().chain(more.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    for (more, whose, part) in [
        (&["--recording", LISTING][..], NOBODY, "there is no Bot"),
        (&["--recording", LISTING], "ops", "no id"),
        (&[], &bot, "either an instruction or a recording"),
        (&["--recording", LISTING, "--instruction", "x"], &bot, "cannot be used with"),
        (&["--recording", r#"{"steps":[]}"#], &bot, "no steps"),
        (&["--instruction", " "], &bot, "empty"),
        (&["--recording", LISTING, "--deadline-s", "0"], &bot, "deadline_s"),
        (&["--recording", LISTING, "--owner", NOBODY], &bot, "no person"),
    ] {
        let arguments = add(more, whose);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        home.fails(&arguments, 2, part);
    }
}

#[test]
fn things_that_are_not_there() {
    let (home, ..) = Home::with_routine();
    for verb in [
        &["routine", "show", NOBODY][..],
        &["routine", "pause", NOBODY],
        &["routine", "delete", NOBODY],
        &["run", "now", NOBODY],
        &["run", "show", NOBODY],
        &["run", "cancel", NOBODY],
        &["trigger", "show", NOBODY],
        &["trigger", "confirm", NOBODY],
        &["trigger", "deliveries", NOBODY],
        &["bot", "show", NOBODY],
        &["bot", "retire", NOBODY],
        &["token", "revoke", NOBODY],
        &["user", "link", NOBODY],
        &["boundary", "show", "--version", "99"],
    ] {
        assert_eq!(home.fails(verb, 1, "there is no")["code"], "not_found", "{verb:?}");
    }
    home.fails(&["trigger", "create", "--name", "T", "--routine", NOBODY], 2, "there is no routine");
    home.fails(&["rebuild", "everything"], 2, "there is no projection `everything`");
    home.fails(&["audit", "bot:nobody"], 2, "there is no bot");
    home.fails(&["audit", "colour:red"], 2, "no word of a filter");
}

#[test]
fn a_command_line_that_is_none() {
    let home = Home::new();
    for (arguments, part) in [
        (&["wach"][..], "unrecognized subcommand"),
        (&["routine", "list", "--frob"], "--frob"),
        (&["routine", "add", "--name", "R"], "--bot"),
        (&["schedule", "preview", "--schedule", "{}", "--count", "0"], "--count"),
        (&["schedule", "preview", "--schedule", WEEKDAYS, "--from", "yesterday"], "no instant"),
        (&["serve", "--roles", "web,cook"], "the roles are web, clock, runner, projector"),
        (&["serve", "--listen", "everywhere"], "--listen"),
        (&["trigger", "create", "--name", "T"], "--routine"),
        (&["trigger", "create", "--name", "T", "--bot", NOBODY], "--instruction"),
        (&["halt"], "--reason"),
        (&["halt", "--reason", "x", "status"], "--reason"),
    ] {
        home.fails(arguments, 2, part);
    }
    assert!(!home.path("midwatch.db").exists(), "a verb that was not understood makes nothing");
    assert_eq!(home.run(&["--help"]).code, 0);
    assert_eq!(home.run(&["--version"]).out.trim(), concat!("midwatch ", env!("CARGO_PKG_VERSION")));
    assert_eq!(home.run(&[]).code, 2);
}

#[test]
fn an_environment_that_is_none() {
    let home = Home::new();
    let add = ["bot", "add", "--name", "ops"];
    for (name, value, exit, part) in [
        ("MIDWATCH_REPEAT_WINDOW", "3", 2, "180s or 3m"),
        ("MIDWATCH_REPEAT_WINDOW", "soon", 2, "180s or 3m"),
        ("MIDWATCH_DEPLOYMENT", "mine", 2, "no UUID"),
        ("MIDWATCH_KEY", "short", 3, "is not a key"),
    ] {
        home.fails_with(&[(name, value)], &add, exit, part);
    }
    home.fails_with(&[("MIDWATCH_SCHEDULER", "maybe")], &["serve", "--listen", "127.0.0.1:0"], 2, "write off");
    home.id(&add);
    // 3m is the usual window; another process must not count over another one.
    assert_eq!(home.run_with(&[("MIDWATCH_REPEAT_WINDOW", "3m")], &add).code, 0);
    home.fails_with(&[("MIDWATCH_REPEAT_WINDOW", "200s")], &add, 3, "must agree");
}

#[test]
fn reading_makes_no_ledger() {
    let home = Home::new();
    for verb in [
        &["routine", "list"][..],
        &["run", "list"],
        &["trigger", "list"],
        &["bot", "list"],
        &["boundary", "show"],
        &["audit"],
        &["rebuild"],
        &["halt", "status"],
        &["halt", "adopt"],
        &["user", "list"],
        &["token", "list"],
    ] {
        home.fails(verb, 3, "there is no ledger at");
    }
    assert!(!home.path("midwatch.db").exists() && !home.path("state").exists());
}

#[test]
fn an_address_that_is_none() {
    let home = Home::new();
    for db in ["mysql://me:hunter2@host/db", "midwatch.db", ":memory:"] {
        let error = home.fails(&["routine", "list", "--db", db], 2, "is no ledger address");
        assert!(!error["message"].as_str().unwrap().contains("hunter2"), "{error}");
    }
    let error = home.fails(&["bot", "list", "--db", "postgres://me:hunter2@127.0.0.1:1/mw"], 3, "");
    assert!(!error["message"].as_str().unwrap().contains("hunter2"), "{error}");
}

#[test]
fn a_database_that_is_not_ours() {
    let home = Home::new();
    let add = ["bot", "add", "--name", "ops"];
    std::fs::write(home.path("midwatch.db"), "Dear diary, nothing happened today.".repeat(40)).unwrap();
    home.fails(&add, 3, "not a SQLite database");
    home.fails(&["bot", "list"], 3, "not a SQLite database");

    std::fs::remove_file(home.path("midwatch.db")).unwrap();
    sql(&home.path("midwatch.db"), "CREATE TABLE songs (name TEXT)");
    let before = std::fs::read(home.path("midwatch.db")).unwrap();
    home.fails(&add, 3, "not a Midwatch ledger");
    home.fails(&["bot", "list"], 3, "not a Midwatch ledger");
    home.fails(&["serve", "--listen", "127.0.0.1:0"], 3, "not a Midwatch ledger");
    assert_eq!(std::fs::read(home.path("midwatch.db")).unwrap(), before, "it stays as it was");
}

#[test]
fn a_database_that_is_newer() {
    let (home, ..) = Home::with_routine();
    sql(&home.path("midwatch.db"), "INSERT INTO ledger_schema (version, application) VALUES (999, 'midwatch')");
    home.fails(&["bot", "add", "--name", "ops"], 3, "use a newer midwatch");
    home.fails(&["routine", "list"], 3, "use a newer midwatch");
}

/// A directory that may not be written is no hindrance to root; a path below a file is one for everybody.
#[test]
fn a_place_that_cannot_be_written() {
    let home = Home::new();
    home.write("file", "");
    let below = format!("sqlite://{}", home.path("file/midwatch.db").display());
    let nowhere = format!("sqlite://{}", home.path("nowhere/midwatch.db").display());
    let directory = format!("sqlite://{}", home.path("").display());
    for db in [&below, &nowhere, &directory] {
        home.fails(&["bot", "add", "--name", "ops", "--db", db], 3, "cannot open");
    }
    let state = home.path("file/state").display().to_string();
    home.fails_with(&[("XDG_STATE_HOME", &state)], &["bot", "add", "--name", "ops"], 3, "cannot use");
    home.fails(&["demo", "--once", "--dir", &home.path("file/demo").display().to_string()], 3, "cannot use");
    let workspaces = home.path("file/w").display().to_string();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--workspace-dir", &workspaces];
    home.fails(&serve, 3, "cannot use");
}

#[test]
fn a_directory_that_is_read_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let locked = home.path("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    let db = format!("sqlite://{}", locked.join("midwatch.db").display());
    home.fails(&["bot", "add", "--name", "ops", "--db", &db], 3, "is read-only");
}

#[test]
fn a_port_in_use() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = home.fails(&["serve", "--listen", &address], 3, "another process uses this port");
    assert_eq!(error["code"], "port_in_use");
    home.fails(&["serve", "--listen", "127.0.0.1:0", "--hooks-listen", &address], 3, "--hooks-listen");
    // Nothing says that a process had been there.
    let processes = home.json(&["doctor"])["checks"].as_array().unwrap().clone();
    assert!(processes.iter().all(|check| check["name"] != "process"), "{processes:?}");
}

#[test]
fn a_boundary_that_does_not_compile_is_not_published() {
    let (home, ..) = Home::with_routine();
    let file = home.write("b.json", r#"{"rules":[{"id":"r","name":"R","verdict":"deny","when":"intent === 1"}]}"#);
    home.fails(&["boundary", "publish", &file, "--note", "x"], 2, "`r`");
    let file = home.write("c.json", r#"{"rules":[{"id":"r","name":"R","verdict":"deny","when":"args.pth == \"a\""}]}"#);
    home.fails(&["boundary", "publish", &file], 2, "`r`");
    assert_eq!(home.json(&["boundary", "show"])["version"], 1);
}
