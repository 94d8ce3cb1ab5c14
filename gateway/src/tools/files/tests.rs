use std::{
    os::unix::{fs::PermissionsExt, fs::symlink, net::UnixListener},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use midwatch_events::id::BotId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::tools::ToolResult;

struct Place {
    _root: tempfile::TempDir,
    outside: PathBuf,
    inside: PathBuf,
    workspace: Workspace,
}

fn place() -> Place {
    let root = tempfile::tempdir().unwrap();
    let bot = BotId::new(Uuid::from_u128(7));
    let bots = root.path().join("bots");
    let workspace = Workspace::open(&bots, bot).unwrap();
    let outside = root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret.txt"), "not yours").unwrap();
    Place { inside: bots.join(bot.to_string()), outside, workspace, _root: root }
}

impl Place {
    async fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        tokio::time::timeout(Duration::from_secs(5), self.workspace.call(tool, &arguments))
            .await
            .expect("answers at once")
    }

    async fn done(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        assert!(result.ok, "{}", result.text);
        let answer: Value = serde_json::from_str(&result.text).unwrap();
        assert_eq!(answer["ok"], true);
        answer
    }

    async fn refused(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        assert!(!result.ok, "{}", result.text);
        let answer: Value = serde_json::from_str(&result.text).unwrap();
        assert_eq!(answer["ok"], false);
        answer["error"].as_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.inside).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[tokio::test]
async fn what_is_written_is_read_and_listed() {
    let place = place();
    place.done(WRITE_FILE, json!({ "path": "./notes//today.txt", "contents": "tea" })).await;
    place.done(WRITE_FILE, json!({ "path": "notes/today.txt", "contents": " at four", "append": true })).await;
    place.done(WRITE_FILE, json!({ "path": "new.log", "contents": "1", "append": true })).await;
    let read = place.done(READ_FILE, json!({ "path": "notes/today.txt" })).await;
    assert_eq!(read, json!({ "ok": true, "path": "notes/today.txt", "size": 11, "text": "tea at four" }));
    let list = place.done(LIST_FILES, json!({})).await;
    assert_eq!(
        list["entries"],
        json!([{ "name": "new.log", "type": "file", "size": 1 }, { "name": "notes", "type": "directory" }])
    );
    let list = place.done(LIST_FILES, json!({ "path": "notes/" })).await;
    assert_eq!(list["entries"], json!([{ "name": "today.txt", "type": "file", "size": 11 }]));
}

#[tokio::test]
async fn the_workspace_and_what_is_in_it_is_the_owners_alone() {
    let place = place();
    place.done(WRITE_FILE, json!({ "path": "a/b.txt", "contents": "x" })).await;
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.inside.clone()), 0o700);
    assert_eq!(mode(place.inside.join("a")), 0o700);
    assert_eq!(mode(place.inside.join("a/b.txt")), 0o600);
}

#[test]
fn a_link_in_the_workspaces_place_is_not_opened() {
    let root = tempfile::tempdir().unwrap();
    let bot = BotId::new(Uuid::from_u128(8));
    std::fs::create_dir(root.path().join("elsewhere")).unwrap();
    symlink("elsewhere", root.path().join(bot.to_string())).unwrap();
    assert!(Workspace::open(root.path(), bot).is_err());
}

#[tokio::test]
async fn a_whole_write_replaces_keeps_the_mode_and_leaves_no_draft() {
    let place = place();
    let script = place.inside.join("run.sh");
    std::fs::write(&script, "old and much longer").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o750)).unwrap();
    let before = std::fs::File::open(&script).unwrap();
    place.done(WRITE_FILE, json!({ "path": "run.sh", "contents": "new" })).await;
    assert_eq!(std::fs::read_to_string(&script).unwrap(), "new");
    assert_eq!(std::fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(std::io::read_to_string(before).unwrap(), "old and much longer", "a reader never sees half a file");
    assert_eq!(place.names(), ["run.sh"]);
}

#[tokio::test]
async fn paths_that_would_leave_are_answered_with_a_sentence() {
    let place = place();
    symlink(&place.outside, place.inside.join("out")).unwrap();
    symlink(place.outside.join("secret.txt"), place.inside.join("secret.txt")).unwrap();
    symlink("../../outside/secret.txt", place.inside.join("relative.txt")).unwrap();
    symlink("loop", place.inside.join("loop")).unwrap();
    let long = "x".repeat(256);
    for (path, why) in [
        ("/etc/passwd", "absolute"),
        ("../outside/secret.txt", "\"..\""),
        ("a/../../outside/secret.txt", "\"..\""),
        ("out/secret.txt", "symbolic link"),
        ("secret.txt", "symbolic link"),
        ("relative.txt", "symbolic link"),
        ("loop", "symbolic link"),
        (long.as_str(), "256 bytes"),
        ("a\0b", "control character"),
        ("", "empty"),
    ] {
        for (tool, mut arguments) in [
            (READ_FILE, json!({})),
            (WRITE_FILE, json!({ "contents": "x" })),
            (WRITE_FILE, json!({ "contents": "x", "append": true })),
        ] {
            arguments["path"] = json!(path);
            let sentence = place.refused(tool, arguments.clone()).await;
            assert!(sentence.contains(why), "{tool} {path}: {sentence}");
        }
    }
    let sentence = place.refused(LIST_FILES, json!({ "path": "out" })).await;
    assert!(sentence.contains("symbolic link"), "{sentence}");
    assert_eq!(std::fs::read_to_string(place.outside.join("secret.txt")).unwrap(), "not yours");
    assert_eq!(std::fs::read_dir(&place.outside).unwrap().count(), 1);
    let very_long = vec!["d"; 3_000].join("/");
    assert!(place.refused(READ_FILE, json!({ "path": very_long })).await.contains("5999 bytes"));
}

#[tokio::test]
async fn a_link_that_stays_inside_is_not_followed_either() {
    let place = place();
    std::fs::write(place.inside.join("denied.txt"), "by name").unwrap();
    symlink("denied.txt", place.inside.join("innocent.txt")).unwrap();
    std::fs::create_dir(place.inside.join("denied")).unwrap();
    symlink("denied", place.inside.join("other")).unwrap();
    for (tool, arguments) in [
        (READ_FILE, json!({ "path": "innocent.txt" })),
        (WRITE_FILE, json!({ "path": "other/x.txt", "contents": "x" })),
        (LIST_FILES, json!({ "path": "other" })),
    ] {
        assert!(place.refused(tool, arguments).await.contains("symbolic link"));
    }
    let list = place.done(LIST_FILES, json!({})).await;
    assert_eq!(list["entries"][2], json!({ "name": "innocent.txt", "type": "link" }));
}

#[tokio::test]
async fn pipes_sockets_and_directories_are_no_files_and_hang_nothing() {
    let place = place();
    assert!(Command::new("mkfifo").arg(place.inside.join("pipe")).status().unwrap().success());
    let _socket = UnixListener::bind(place.inside.join("socket")).unwrap();
    std::fs::create_dir(place.inside.join("dir")).unwrap();
    for (name, why) in [("pipe", "a pipe"), ("socket", "a socket"), ("dir", "a directory")] {
        for (tool, arguments) in [
            (READ_FILE, json!({ "path": name })),
            (WRITE_FILE, json!({ "path": name, "contents": "x" })),
            (WRITE_FILE, json!({ "path": name, "contents": "x", "append": true })),
        ] {
            let sentence = place.refused(tool, arguments).await;
            assert!(sentence.contains(why), "{tool} {name}: {sentence}");
        }
    }
    assert!(place.refused(READ_FILE, json!({ "path": "pipe/x" })).await.contains("not a directory"));
    assert!(place.refused(READ_FILE, json!({ "path": "." })).await.contains("workspace itself"));
    assert!(place.refused(WRITE_FILE, json!({ "path": "dir/", "contents": "" })).await.contains("directory"));
    assert!(place.refused(READ_FILE, json!({ "path": "nowhere/x" })).await.contains("does not exist"));
}

#[tokio::test]
async fn a_long_file_is_cut_and_a_binary_one_is_said_to_be_one() {
    let place = place();
    // "ä" has two bytes, so the cut goes through one of them.
    std::fs::write(place.inside.join("long.txt"), format!("x{}", "ä".repeat(MAX_READ_BYTES / 2 + 10))).unwrap();
    let read = place.done(READ_FILE, json!({ "path": "long.txt" })).await;
    assert_eq!(read["text"].as_str().unwrap().len(), MAX_READ_BYTES - 1);
    assert_eq!(read["cut"], "The first 1048575 of 1048597 bytes are shown.");
    std::fs::write(place.inside.join("exact.txt"), "x".repeat(MAX_READ_BYTES)).unwrap();
    assert_eq!(place.done(READ_FILE, json!({ "path": "exact.txt" })).await.get("cut"), None);
    for bytes in [&b"\xff\xfe\x00\x01"[..], b"a\0b", b"tail \xc3"] {
        std::fs::write(place.inside.join("image.png"), bytes).unwrap();
        let sentence = place.refused(READ_FILE, json!({ "path": "image.png" })).await;
        assert!(sentence.contains(&format!("binary, {} bytes", bytes.len())), "{sentence}");
    }
    let contents = "x".repeat(MAX_WRITE_BYTES + 1);
    assert!(
        place.refused(WRITE_FILE, json!({ "path": "big", "contents": contents })).await.contains("at most 1048576")
    );
}

#[tokio::test]
async fn a_long_list_shows_the_first_names_and_says_so() {
    let place = place();
    for n in 0..MAX_ENTRIES + 5 {
        std::fs::write(place.inside.join(format!("{n:05}")), "").unwrap();
    }
    let list = place.done(LIST_FILES, json!({ "path": "." })).await;
    let entries = list["entries"].as_array().unwrap();
    assert_eq!(entries.len(), MAX_ENTRIES);
    assert_eq!((&entries[0]["name"], &entries[999]["name"]), (&json!("00000"), &json!("00999")));
    assert_eq!(list["cut"], "The first 1000 of 1005 names are shown.");
}

// A15 of docs/architecture.md.
#[tokio::test]
async fn a_directory_swapped_for_a_link_meanwhile_leads_nowhere() {
    let place = place();
    let (door, outside) = (place.inside.join("door"), place.outside.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let swapper = std::thread::spawn(move || {
        while !stopped.load(Relaxed) {
            // Each step may lose to a write; the next one puts it right.
            let _ = std::fs::remove_dir_all(&door);
            let _ = symlink(&outside, &door);
            let _ = std::fs::remove_file(&door);
            let _ = std::fs::create_dir(&door);
        }
    });
    let mut written = 0;
    for n in 0..300 {
        let arguments = json!({ "path": "door/x.txt", "contents": "x", "append": n % 2 == 0 });
        written += u32::from(place.call(WRITE_FILE, arguments).await.ok);
        let read = place.call(READ_FILE, json!({ "path": "door/secret.txt" })).await;
        assert!(!read.text.contains("not yours"), "{}", read.text);
    }
    stop.store(true, Relaxed);
    swapper.join().unwrap();
    assert!(written > 0, "some writes hit the real directory");
    let outside: Vec<_> = std::fs::read_dir(&place.outside).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(outside, ["secret.txt"]);
}

#[test]
fn a_rule_sees_the_path_in_one_form() {
    let seen = |tool: &str, arguments: Value| {
        let Target::File(file) = target(tool, &arguments).unwrap() else { panic!("{tool} is about a file") };
        (file.path, file.name, file.extension)
    };
    let owned = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(seen(READ_FILE, json!({ "path": "./a//b/./c.tar.gz" })), owned("a/b/c.tar.gz", "c.tar.gz", "gz"));
    assert_eq!(seen(WRITE_FILE, json!({ "path": ".env", "contents": "" })), owned(".env", ".env", ""));
    assert_eq!(seen(LIST_FILES, json!({})), owned(".", "", ""));
    assert_eq!(seen(LIST_FILES, json!({ "path": "./" })), owned(".", "", ""));
}

#[test]
fn malformed_arguments_are_refused_with_a_sentence() {
    for (tool, arguments, why) in [
        (READ_FILE, json!({ "path": 5 }), "invalid type"),
        (READ_FILE, json!({}), "missing field `path`"),
        (READ_FILE, json!({ "path": "a", "mode": "r" }), "unknown field `mode`"),
        (READ_FILE, json!("a"), "must be a JSON object"),
        (READ_FILE, json!(["a"]), "must be a JSON object"),
        (WRITE_FILE, json!({ "path": "a" }), "missing field `contents`"),
        (WRITE_FILE, json!({ "path": "a", "contents": "", "append": "yes" }), "invalid type"),
        (LIST_FILES, json!({ "path": null }), "invalid type"),
        ("computer_remove_file", json!({}), "no files tool"),
    ] {
        let sentence = target(tool, &arguments).unwrap_err();
        assert!(sentence.contains(why), "{tool} {arguments}: {sentence}");
    }
}

#[test]
fn definitions_say_what_the_arguments_are() {
    let definitions = definitions();
    let seen: Vec<_> = definitions.iter().map(|d| (d.name.as_str(), d.intent.as_str())).collect();
    assert_eq!(seen, [(LIST_FILES, "list_files"), (READ_FILE, "read_file"), (WRITE_FILE, "write_file")]);
    for definition in &definitions {
        assert_eq!(definition.parameters["type"], "object");
        assert_eq!(definition.parameters["additionalProperties"], false);
    }
}
