//! Servers that stop, crash, fill up, refuse, and are replaced, under load.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep, timeout};

use super::{
    load::Load,
    server::{Address, Server, SmallDisk},
    support::{append, event, key, one, stream, to, worded, write},
};
use crate::{
    Append, AppendError, Appended, Expected, Filter, Log, LogError, Open, WentBack,
    testing::fresh_postgres,
    verify::{Verified, verify},
};

async fn open(url: &str) -> Log {
    Log::open(url, Open::ReadWrite).await.unwrap()
}

/// Two logs as two processes have them, once each knows of the other and commits without waiting for the disk.
async fn shared(url: &str) -> (Log, Log) {
    let (log, other) = (open(url).await, open(url).await);
    let mut connection = PgConnection::connect(url).await.unwrap();
    for _ in 0..100 {
        write(&log, "run-shared", 1).await;
        write(&other, "run-shared", 1).await;
        let sql = "SELECT count(*) FROM ledger_writer WHERE durable = (SELECT max(position) FROM events)
            AND EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'UPDATE ledger_writer%greatest%')";
        let (flushed,): (i64,) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
        if flushed > 0 {
            return (log, other);
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("two writers never came to share");
}

/// What is committed and not flushed is for the next to decide on, and for nobody to see or to be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reads_or_hears_of_what_is_not_durable() {
    let (url, _guard) = fresh_postgres().await;
    let (log, other) = shared(&url).await;
    let head = log.head().await.unwrap();
    // Holds up every flush.
    let mut holder = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM ledger_writer FOR UPDATE").execute(&mut holder).await.unwrap();
    let keyed = || Append { keys: vec![key("k", "x")], ..one("run-a", "run.opened") };
    let asked = keyed();
    let id = asked.entries[0].events[0].event_id;
    let spawn = |log: &Log, asked: Append| {
        let log = log.clone();
        tokio::spawn(async move { log.append(asked).await })
    };
    let first = spawn(&log, asked);
    let a = stream("run-a");
    while other.load_stream(&a, 1, 9).await.unwrap().is_empty() {
        sleep(Duration::from_millis(5)).await;
    }
    let hit = spawn(&other, keyed());
    let conflict = spawn(&other, append(vec![to("run-a", Expected::NoStream, vec![event("run.opened")])]));
    let condition = spawn(&other, append(vec![to("run-a", Expected::Exact(1), Vec::new())]));
    sleep(Duration::from_millis(400)).await;
    for waiting in [&first, &hit, &conflict, &condition] {
        assert!(!waiting.is_finished(), "an answer rests on what a crash can take back");
    }
    let reader = Log::open(&url, Open::ReadOnly).await.unwrap();
    for log in [&log, &other, &reader] {
        assert_eq!(log.head().await.unwrap(), head);
        assert!(*log.follow().borrow() <= head);
        assert_eq!(log.read_all(head, 9, &Filter::default()).await.unwrap(), (Vec::new(), head));
        let of_run = Filter { categories: vec!["run".to_owned()], ..Filter::default() };
        assert_eq!(log.read_all(head, 9, &of_run).await.unwrap(), (Vec::new(), head));
        assert_eq!(log.read_stream(&a, 1, 9).await.unwrap(), Vec::new());
        assert_eq!((log.version(&a).await.unwrap(), log.read_event(id).await.unwrap()), (0, None));
        assert_eq!(log.find_key(&key("k", "x").hash).await.unwrap(), None);
        assert_eq!(log.keys_between(1, u64::MAX).await.unwrap(), Vec::new());
        assert!(!log.wait_durable(head + 1, Duration::from_millis(50)).await.unwrap());
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    let first = first.await.unwrap().unwrap();
    assert_eq!((first.first, first.duplicate), (head + 1, false));
    assert_eq!(hit.await.unwrap().unwrap(), Appended { duplicate: true, ..first });
    assert!(matches!(conflict.await.unwrap(), Err(AppendError::Conflict { actual: 1, .. })));
    assert_eq!(condition.await.unwrap().unwrap().count, 0);
    assert!(reader.wait_durable(head + 1, Duration::from_secs(2)).await.unwrap());
    assert_eq!(reader.version(&a).await.unwrap(), 1);
}

/// A process that ends between its commit and its flush leaves nothing that stays hidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_next_makes_durable_what_was_left() {
    let (url, _guard) = fresh_postgres().await;
    let (log, other) = shared(&url).await;
    let head = log.head().await.unwrap();
    log.close().await;
    other.close().await;
    // As if it had not come to its flush.
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let unflushed = format!("UPDATE ledger_writer SET durable = {}, beat = 0", head - 1);
    sqlx::query(sqlx::AssertSqlSafe(unflushed)).execute(&mut connection).await.unwrap();
    let reader = Log::open(&url, Open::ReadOnly).await.unwrap();
    assert_eq!(reader.head().await.unwrap(), head - 1);
    let next = open(&url).await;
    assert!(reader.wait_durable(head, Duration::from_secs(5)).await.unwrap());
    // Alone again, which the rows say.
    write(&next, "run-a", 1).await;
    let (seats, all): (i64, bool) =
        sqlx::query_as("SELECT count(*), bool_and(durable = 9223372036854775807) FROM ledger_writer")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!((seats, all), (1, true));
}

/// The tail that a crash takes is one that nobody was told of, neither a caller nor a reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_takes_nothing_that_anybody_knew_of() {
    // The server flushes late by itself, so that every crash takes a tail with it.
    let server = Server::new(&["wal_writer_delay=10s", "wal_writer_flush_after=1GB", "fsync=on"]);
    let (log, other) = (open(&server.url()).await, open(&server.url()).await);
    let reader = Log::open(&server.url(), Open::ReadOnly).await.unwrap();
    let load = Load::start(&[&log, &other], 12, &[&log, &reader]);
    for _ in 0..5 {
        sleep(Duration::from_millis(1_200)).await;
        server.stop("immediate");
        server.start();
    }
    sleep(Duration::from_millis(500)).await;
    let count = load.check(&log).await;
    assert!(count > 500, "only {count} appends came through");
    for log in [&log, &other, &reader] {
        assert_eq!(*log.went_back().borrow(), None);
    }
    assert!(*log.losses().borrow() >= 5 && log.metrics().losses >= 5);
}

/// The same for a process that is alone, and flushes outside of the lock because so many wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_under_a_crowd_takes_nothing_that_anybody_knew_of() {
    let server = Server::new(&["wal_writer_delay=10s", "wal_writer_flush_after=1GB", "fsync=on"]);
    let log = open(&server.url()).await;
    let reader = Log::open(&server.url(), Open::ReadOnly).await.unwrap();
    let load = Load::start(&[&log], 96, &[&log, &reader]);
    let mut crowds = 0;
    for _ in 0..3 {
        sleep(Duration::from_millis(1_200)).await;
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        let sql = "SELECT count(*) FROM ledger_writer WHERE durable < 9223372036854775807";
        let (shared,): (i64,) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
        crowds += shared;
        server.stop("immediate");
        server.start();
    }
    sleep(Duration::from_millis(500)).await;
    let count = load.check(&log).await;
    assert!(count > 500, "only {count} appends came through");
    assert!(crowds > 0, "it never flushed outside of the lock");
    // Calm again: some appends later everything is durable at once.
    for _ in 0..300 {
        write(&log, "run-calm", 1).await;
    }
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let sql = "SELECT bool_and(durable = 9223372036854775807) FROM ledger_writer";
    let (all,): (bool,) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
    assert!(all);
    assert_eq!(*reader.went_back().borrow(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_is_restarted_under_load() {
    let server = Server::new(&[]);
    let log = open(&server.url()).await;
    let load = Load::start(&[&log], 12, &[&log]);
    for _ in 0..2 {
        sleep(Duration::from_millis(700)).await;
        server.stop("fast");
        sleep(Duration::from_millis(300)).await;
        server.start();
    }
    sleep(Duration::from_millis(500)).await;
    assert!(load.check(&log).await > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_without_a_free_connection_is_said_and_found_again() {
    let server = Server::new(&["max_connections=12", "superuser_reserved_connections=0", "max_wal_senders=0"]);
    let log = open(&server.url()).await;
    write(&log, "run-a", 1).await;
    let mut held = vec![PgConnection::connect(&server.url()).await.unwrap()];
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'midwatch'";
    let full_at = Instant::now();
    while full_at.elapsed() < Duration::from_secs(2) {
        sqlx::query(others).execute(&mut held[0]).await.unwrap();
        while let Ok(Ok(more)) = timeout(Duration::from_secs(1), PgConnection::connect(&server.url())).await {
            held.push(more);
        }
        sleep(Duration::from_millis(50)).await;
    }
    let asked = Append { keys: vec![key("k", "x")], ..one("run-a", "run.taken") };
    let refused = timeout(Duration::from_secs(20), log.append(asked.clone())).await.unwrap();
    match refused {
        Err(AppendError::Log(LogError::Unavailable { reason, .. })) => {
            assert!(reason.contains("too many clients"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    held.truncate(1);
    let done = timeout(Duration::from_secs(10), log.append(asked)).await.unwrap().unwrap();
    assert_eq!((done.first, done.duplicate), (2, false));
    assert_eq!(verify(&log).await.unwrap(), Verified { events: 2, first_bad: None });
}

/// A statement that takes too long is given up, and its append with it; nothing of it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_writes_nothing() {
    let (url, _guard) = fresh_postgres().await;
    let log = open(&url).await;
    let mut holder = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE").execute(&mut holder).await.unwrap();
    let asked = Append { keys: vec![key("k", "x")], ..one("run-a", "run.opened") };
    let refused = timeout(Duration::from_secs(29), log.append(asked.clone())).await.unwrap();
    assert!(matches!(refused, Err(AppendError::Log(LogError::Unavailable { .. }))), "{refused:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    let done = log.append(asked).await.unwrap();
    assert_eq!((done.first, done.duplicate), (1, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_under_postgres_is_said_and_nothing_is_lost() {
    let disk = SmallDisk::new(32);
    let server = Server::new(&[]);
    let tables = disk.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    server.give(&tables);
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let space = format!("CREATE TABLESPACE small LOCATION '{}'", tables.display());
    sqlx::query(sqlx::AssertSqlSafe(space)).execute(&mut connection).await.unwrap();
    sqlx::query("CREATE DATABASE ledger TABLESPACE small").execute(&mut connection).await.unwrap();
    let log = open(&server.url().replace("/postgres", "/ledger").replace("//ledger", "//postgres")).await;
    write(&log, "run-a", 3).await;
    disk.fill(1 << 19);
    fill_up(&log, "No space left").await;
    disk.empty();
    let next = write(&log, "run-a", 1).await;
    assert_eq!(verify(&log).await.unwrap(), Verified { events: next.first, first_bad: None });
}

/// Appends until the disk is full, and holds that it is said, and that nothing of the refused append stands.
pub(super) async fn fill_up(log: &Log, words: &str) {
    for n in 0..400_u64 {
        let noise = |byte: u64| {
            // No two pages alike: what compresses fills no disk.
            let mut state = n * 64 + byte + 1;
            let mut bytes = Vec::with_capacity(60_000);
            while bytes.len() < 60_000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.extend_from_slice(&state.to_be_bytes());
            }
            bytes
        };
        let mut events = vec![worded("run.taken", ""), worded("run.taken", "")];
        events.iter_mut().zip(0..).for_each(|(event, byte)| event.content = Some(noise(byte)));
        let before = log.head().await.unwrap();
        match timeout(Duration::from_secs(25), log.append(append(vec![to("run-full", Expected::Any, events)])))
            .await
            .unwrap()
        {
            Ok(done) => assert_eq!(done.first, before + 1),
            Err(error) => {
                assert!(error.to_string().contains(words), "{error}");
                assert_eq!(log.head().await.unwrap(), before);
                assert_eq!(verify(log).await.unwrap(), Verified { events: before, first_bad: None });
                return;
            }
        }
    }
    panic!("the disk was never full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_database_can_lose_is_said() {
    let server = Server::new(&["fsync=off"]);
    let log = open(&server.url()).await;
    let risks = log.durability().await.unwrap();
    let said: Vec<_> =
        risks.iter().map(|risk| (risk.refused, risk.sentence.split([' ', ':']).next().unwrap())).collect();
    assert_eq!(said, [(true, "fsync"), (false, "there")], "{risks:?}");
    assert!(risks[1].sentence.contains("synchronous standby"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failover_to_a_synchronous_standby_loses_nothing() {
    let server = Server::new(&["synchronous_standby_names=*"]);
    // It cannot be told to wait for a standby before there is one.
    let standby = server.standby();
    standby.start();
    let address = Address::of(&server).await;
    let (log, other) = (open(&address.url()).await, open(&address.url()).await);
    let risks = log.durability().await.unwrap();
    assert!(risks.iter().all(|risk| !risk.sentence.contains("standby")), "{risks:?}");
    let load = Load::start(&[&log, &other], 6, &[&log, &other]);
    sleep(Duration::from_secs(2)).await;
    server.stop("immediate");
    standby.promote();
    address.lead_to(&standby);
    sleep(Duration::from_secs(2)).await;
    let count = load.check(&log).await;
    assert!(count > 50, "only {count} appends came through");
    assert_eq!((*log.went_back().borrow(), *other.went_back().borrow()), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failover_that_loses_something_stops_who_knew_of_it() {
    let server = Server::new(&[]);
    let standby = server.standby();
    standby.start();
    let address = Address::of(&server).await;
    let log = open(&address.url()).await;
    write(&log, "run-a", 5).await;
    let behind = loop {
        // The tables come to it a moment later.
        match Log::open(&standby.url(), Open::ReadOnly).await {
            Ok(behind) => break behind,
            Err(LogError::Absent(_)) => sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    };
    timeout(Duration::from_secs(10), behind.follow().wait_for(|head| *head == 5)).await.unwrap().unwrap();
    behind.close().await;
    standby.stop("fast");
    // The standby never hears of these.
    write(&log, "run-a", 3).await;
    let reader = Log::open(&address.url(), Open::ReadOnly).await.unwrap();
    let mut followed = reader.follow();
    timeout(Duration::from_secs(5), followed.wait_for(|head| *head == 8)).await.unwrap().unwrap();
    server.stop("immediate");
    standby.start();
    standby.promote();
    address.lead_to(&standby);
    for log in [&log, &reader] {
        // Whoever only reads notices too, with its next connection.
        let asked = async {
            loop {
                if let Some(went_back) = *log.went_back().borrow() {
                    return went_back;
                }
                // Both fail until there is a server again.
                let _ = log.append(one("run-a", "run.taken")).await;
                let _ = log.head().await;
                sleep(Duration::from_millis(50)).await;
            }
        };
        assert_eq!(timeout(Duration::from_secs(20), asked).await.unwrap(), WentBack { seen: 8, head: 5 });
    }
    for _ in 0..3 {
        let refused = log.append(one("run-a", "run.taken")).await;
        let Err(AppendError::Log(error)) = refused else { panic!("{refused:?}") };
        assert_eq!(error.code(), "ledger_went_back");
        assert!(matches!(error, LogError::WentBack { seen: 8, head: 5 }), "{error}");
    }
    assert_eq!(reader.head().await.unwrap(), 5, "nothing was appended");
    // Who knows nothing of it goes on, and the others still do not.
    let new = open(&address.url()).await;
    assert_eq!(write(&new, "run-a", 4).await.first, 6);
    log.append(one("run-a", "run.taken")).await.unwrap_err();
    assert_eq!(verify(&new).await.unwrap(), Verified { events: 9, first_bad: None });
}
