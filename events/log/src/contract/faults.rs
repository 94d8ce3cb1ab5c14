//! Databases that are not as they should be: one clear sentence each.

use std::{fs, os::unix::fs::PermissionsExt as _};

use super::support::{Backend, all, one, write};
use crate::{Log, LogError, Open};

async fn refused(url: &str, open: Open) -> LogError {
    match Log::open(url, open).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

pub(super) async fn what_is_absent_or_foreign_or_newer_is_said(backend: Backend) {
    assert!(matches!(refused(&backend.url, Open::ReadOnly).await, LogError::Absent(_)));
    backend.sql("CREATE TABLE of_another_application (id INTEGER)").await.unwrap();
    for open in [Open::ReadOnly, Open::ReadWrite] {
        assert!(matches!(refused(&backend.url, open).await, LogError::Foreign(_)));
    }
    backend.sql("DROP TABLE of_another_application; CREATE TABLE ledger_schema (id INTEGER)").await.unwrap();
    for open in [Open::ReadOnly, Open::ReadWrite] {
        assert!(matches!(refused(&backend.url, open).await, LogError::Foreign(_)));
    }
    backend.sql("DROP TABLE ledger_schema").await.unwrap();
    backend.open().await.close().await;
    backend.sql("INSERT INTO ledger_schema (version, application) VALUES (4000, 'midwatch')").await.unwrap();
    for open in [Open::ReadOnly, Open::ReadWrite] {
        match refused(&backend.url, open).await {
            LogError::Newer { found: 4000, known: 3 } => {}
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn a_reader_makes_nothing(backend: Backend) {
    assert!(matches!(refused(&backend.url, Open::ReadOnly).await, LogError::Absent(_)));
    if backend.is_sqlite() {
        assert!(!fs::exists(backend.file()).unwrap());
    } else {
        // Nothing was made: the name is free.
        backend.sql("CREATE TABLE events (id INTEGER); DROP TABLE events").await.unwrap();
    }
    let log = backend.open().await;
    write(&log, "run-a", 3).await;
    log.close().await;
    let before = backend.is_sqlite().then(|| fs::read(backend.file()).unwrap());
    let reader = Log::open(&backend.url, Open::ReadOnly).await.unwrap();
    assert_eq!(all(&reader).await.len(), 3);
    reader.close().await;
    assert_eq!(backend.is_sqlite().then(|| fs::read(backend.file()).unwrap()), before);
}

pub(super) async fn two_processes_open_an_empty_database_at_once(backend: Backend) {
    let opened = open_at_once(&backend.url, 6).await;
    for log in &opened {
        log.append(one("run-a", "run.opened")).await.unwrap();
    }
    assert_eq!(opened[0].head().await.unwrap(), 6);
}

async fn open_at_once(url: &str, count: usize) -> Vec<Log> {
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let url = url.to_owned();
            tokio::spawn(async move { Log::open(&url, Open::ReadWrite).await })
        })
        .collect();
    let mut opened = Vec::new();
    for task in tasks {
        opened.push(task.await.unwrap().unwrap());
    }
    opened
}

pub(super) async fn a_ledger_is_found_again_after_closing(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-a", 2).await;
    let events = all(&log).await;
    log.close().await;
    log.close().await;
    assert!(log.append(one("run-a", "run.opened")).await.is_err(), "a closed ledger takes nothing");
    if backend.is_sqlite() {
        assert!(!fs::exists(format!("{}-wal", backend.file())).unwrap(), "closing folds the WAL into the file");
    }
    let log = backend.open().await;
    assert_eq!(all(&log).await, events);
    assert_eq!(write(&log, "run-a", 1).await.first, 3);
}

#[tokio::test]
async fn a_bad_sqlite_address_is_said_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("sqlite://{}/{name}", directory.path().display());
    for url in ["sqlite:", "sqlite://", "sqlite::memory:", "sqlite://a.db?mode=memory", "mysql://x", ""] {
        assert!(matches!(refused(url, Open::ReadWrite).await, LogError::Address(_)), "{url}");
    }
    let text = "a letter, long enough to be taken for a header, and then some more of it ".repeat(20);
    fs::write(directory.path().join("letter.txt"), text).unwrap();
    fs::create_dir(directory.path().join("closed")).unwrap();
    fs::set_permissions(directory.path().join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    Log::open(&at("mine.db"), Open::ReadWrite).await.unwrap().close().await;
    fs::set_permissions(directory.path().join("mine.db"), fs::Permissions::from_mode(0o444)).unwrap();
    for (url, open, words) in [
        (at("letter.txt"), Open::ReadWrite, "not a SQLite database"),
        (at("letter.txt"), Open::ReadOnly, "not a SQLite database"),
        (at("none/mine.db"), Open::ReadWrite, "does not exist"),
        (at("letter.txt/mine.db"), Open::ReadWrite, "is no directory"),
        (at("closed"), Open::ReadWrite, "is a directory"),
        (at("closed"), Open::ReadOnly, "is a directory"),
        (at("closed/mine.db"), Open::ReadWrite, "is read-only"),
        (at("mine.db"), Open::ReadWrite, "is read-only"),
    ] {
        let error = refused(&url, open).await;
        assert!(matches!(error, LogError::File { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(words) && !error.to_string().contains('\n'), "{error}");
    }
    Log::open(&at("mine.db"), Open::ReadOnly).await.unwrap();
}

#[tokio::test]
async fn a_bad_postgres_address_never_shows_its_password() {
    let server = std::env::var("MIDWATCH_TEST_POSTGRES").unwrap();
    let (_, place) = server.rsplit_once('@').unwrap();
    let (place, _) = place.rsplit_once('/').unwrap();
    for url in [
        "postgres://me:hunter2@127.0.0.1:1/ledger".to_owned(),
        "postgres://me:hunter2@no-such-host.invalid/ledger".to_owned(),
        "postgres://me:hunter2@[/ledger".to_owned(),
        "postgres://[/ledger?user=me&password=hunter2".to_owned(),
        "mysql://me:hunter2@place/ledger?password=hunter2".to_owned(),
        "postgres://127.0.0.1:1/ledger?user=me&password=hunter2".to_owned(),
        format!("postgres://me:hunter2@{place}/postgres"),
        format!("postgres://postgres:hunter2@{place}/no_such_database"),
    ] {
        let error = refused(&url, Open::ReadWrite).await;
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}
