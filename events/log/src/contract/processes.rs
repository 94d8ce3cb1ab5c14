//! Other processes, which this test binary starts from itself, and kills.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    time::Duration,
};

use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};
use tokio::time::{sleep, timeout};

use super::{
    load::Load,
    outages::fill_up,
    server::{Fixed, SmallDisk},
    support::{append, event, key, one, to, write},
};
use crate::{
    Append, Expected, Log, NewEvent, Open,
    testing::{fresh_postgres, fresh_sqlite},
    verify::{Verified, verify},
};

const URL: &str = "MIDWATCH_CHILD_URL";

/// This binary, running only `test`, which sees by [`URL`] that it is to be the child.
fn child(test: &str, url: &str) -> Child {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", &format!("contract::processes::{test}"), "--nocapture"]).env(URL, url);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The child: four callers, each acknowledged append a line, until it is killed or its input ends.
async fn append_and_tell(url: &str) {
    let log = Log::open(url, Open::ReadWrite).await.unwrap();
    let mut callers = Vec::new();
    for caller in 0..4 {
        let log = log.clone();
        callers.push(tokio::spawn(async move {
            // Unique in each life, so that a life after a kill repeats nothing.
            let life = std::process::id();
            for n in 0..2_000_u64 {
                let part = format!("{life}/{caller}/{n}");
                let entry = to(&format!("run-{life}x{caller}"), Expected::Exact(2 * n), two_events());
                let asked = Append { keys: vec![key(&part, "x")], ..append(vec![entry]) };
                let done = log.append(asked).await.unwrap();
                let line = format!("ack {part} {}\n", done.first);
                std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            }
        }));
    }
    tokio::task::block_in_place(|| std::io::stdin().lock().read_line(&mut String::new()).unwrap());
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    log.close().await;
    std::process::exit(0);
}

fn two_events() -> Vec<crate::NewEvent> {
    // The ids of `support` count from one in every process.
    let mut events = vec![event("run.taken"), event("run.ended")];
    for event in &mut events {
        let mut random = [0; 16];
        getrandom::fill(&mut random).unwrap();
        event.event_id = uuid::Uuid::from_bytes(random);
    }
    events
}

/// What a child said before it ended.
fn acknowledged(child: &mut Child) -> Vec<(String, u64)> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).filter_map(|line| {
        let (part, first) = line.strip_prefix("ack ")?.rsplit_once(' ')?;
        Some((part.to_owned(), first.parse().ok()?))
    });
    told.collect()
}

async fn holds(log: &Log, told: &[(String, u64)]) {
    for (part, first) in told {
        let found = log.find_key(&key(part, "x").hash).await.unwrap();
        assert_eq!(found, Some((*first, key(part, "x").digest)), "what was acknowledged is gone: {part}");
    }
    // Both events of an append, or none.
    let verified = verify(log).await.unwrap();
    assert_eq!((verified.events % 2, verified.first_bad), (0, None));
}

/// SIGKILL at any moment, on either backend: each acknowledged append stands, and each append is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_that_it_told() {
    if let Ok(url) = env::var(URL) {
        return append_and_tell(&url).await;
    }
    for (url, _guard) in [fresh_sqlite(), fresh_postgres().await] {
        let mut told = Vec::new();
        for life in 0..4 {
            let mut child = child("a_killed_process_loses_nothing_that_it_told", &url);
            sleep(Duration::from_millis(700 + 90 * life)).await;
            child.kill().unwrap();
            told.extend(acknowledged(&mut child));
            child.wait().unwrap();
            let reader = Log::open(&url, Open::ReadOnly).await.unwrap();
            holds(&reader, &told).await;
            reader.close().await;
        }
        assert!(told.len() > 40, "only {} appends came through", told.len());
        let log = Log::open(&url, Open::ReadWrite).await.unwrap();
        assert!(
            log.wait_durable(told.iter().map(|(_, first)| first + 1).max().unwrap(), Duration::from_secs(5))
                .await
                .unwrap()
        );
        assert_eq!(write(&log, "run-a", 2).await.count, 2);
        holds(&log, &told).await;
    }
}

/// Callers of this process and of two others, with readers in this one: one order, nothing skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_write_one_history() {
    if let Ok(url) = env::var(URL) {
        return append_and_tell(&url).await;
    }
    for (url, _guard) in [fresh_sqlite(), fresh_postgres().await] {
        let log = Log::open(&url, Open::ReadWrite).await.unwrap();
        let reader = Log::open(&url, Open::ReadOnly).await.unwrap();
        let poller = tokio::spawn({
            let reader = reader.clone();
            async move {
                let (mut after, mut heads) = (0, reader.follow());
                loop {
                    let (page, scanned) = reader.read_all(after, 50, &crate::Filter::default()).await.unwrap();
                    for event in &page {
                        assert_eq!(event.position, after + 1, "a reader skipped something");
                        after = event.position;
                        if event.event_type == "run.last" {
                            return after;
                        }
                    }
                    if page.is_empty() {
                        let _ = timeout(Duration::from_millis(500), heads.wait_for(|head| *head > scanned)).await;
                    }
                }
            }
        });
        let mut children: Vec<_> = (0..2).map(|_| child("three_processes_write_one_history", &url)).collect();
        let begun = tokio::time::Instant::now();
        let mut mine = Vec::new();
        while begun.elapsed() < Duration::from_secs(2) {
            let part = format!("mine/{}", mine.len());
            let entry = to("run-mine", Expected::Exact(2 * mine.len() as u64), two_events());
            let done = log.append(Append { keys: vec![key(&part, "x")], ..append(vec![entry]) }).await.unwrap();
            mine.push((part, done.first));
        }
        for child in &mut children {
            drop(child.stdin.take());
            let told = acknowledged(child);
            assert!(!told.is_empty(), "a child came through with nothing");
            child.wait().unwrap();
            mine.extend(told);
        }
        holds(&log, &mine).await;
        let last = log.append(append(vec![to("run-mine", Expected::Any, vec![event("run.last")])])).await.unwrap();
        assert_eq!(timeout(Duration::from_secs(20), poller).await.unwrap().unwrap(), last.first);
        assert_eq!(verify(&reader).await.unwrap(), Verified { events: last.first, first_bad: None });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_sqlite_is_said_and_nothing_is_lost() {
    let disk = SmallDisk::new(16);
    let url = format!("sqlite://{}/ledger.db", disk.path().display());
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    write(&log, "run-a", 3).await;
    disk.fill(1 << 20);
    fill_up(&log, "disk is full").await;
    disk.empty();
    let next = write(&log, "run-a", 1).await;
    assert_eq!(verify(&log).await.unwrap(), Verified { events: next.first, first_bad: None });
    log.close().await;
    let log = Log::open(&url, Open::ReadOnly).await.unwrap();
    assert_eq!(verify(&log).await.unwrap(), Verified { events: next.first, first_bad: None });
}

/// The write-ahead log is folded in as it grows; a long reader keeps it from that, which the metric shows, and once that
/// reader is gone it is cut to its limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wal_is_short_again_once_a_long_reader_is_gone() {
    const MIB: u64 = 1 << 20;
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let wal = || log.metrics().wal_bytes.unwrap();
    let three_mib = || async {
        let full = || NewEvent { facts: vec![7; 60_000], ..event("run.taken") };
        let events = (0..50).map(|_| full()).collect();
        log.append(append(vec![to("run-a", Expected::Any, events)])).await.unwrap();
    };
    for _ in 0..12 {
        three_mib().await;
    }
    assert!(wal() < 24 * MIB, "{} after 36 MiB", wal());
    let options = SqliteConnectOptions::new().filename(url.trim_start_matches("sqlite://")).read_only(true);
    let mut long = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM events").execute(&mut long).await.unwrap();
    while wal() < 70 * MIB {
        three_mib().await;
    }
    long.close().await.unwrap();
    // One folds it in, the next starts it anew.
    for _ in 0..3 {
        three_mib().await;
    }
    assert!(wal() <= 64 * MIB, "{} bytes", wal());
}

/// A file that nobody may write to any more is said to be so, and is written to again once that is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_made_read_only_under_load_is_said_and_nothing_is_lost() {
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let reader = Log::open(&url, Open::ReadOnly).await.unwrap();
    let load = Load::start(&[&log], 6, &[&reader]);
    sleep(Duration::from_millis(300)).await;
    let fixed = Fixed::new(url.trim_start_matches("sqlite://"));
    let patience = Duration::from_secs(25);
    let error = timeout(patience, log.append(one("run-a", "run.opened"))).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(verify(&reader).await.unwrap().first_bad, None, "it can be read all the same");
    drop(fixed);
    sleep(Duration::from_millis(500)).await;
    assert!(load.check(&log).await > 20);
}

/// A file that is copied while it is written to is no backup, but it is never taken for more than it holds. SQLite's own
/// way of copying gives a whole ledger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_live_file_is_whole_or_says_that_it_is_not() {
    let (url, _guard) = fresh_sqlite();
    let file = url.trim_start_matches("sqlite://");
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let load = Load::start(&[&log], 6, &[]);
    let elsewhere = tempfile::tempdir().unwrap();
    for n in 0..6 {
        sleep(Duration::from_millis(150)).await;
        let known = log.head().await.unwrap();
        let copy = elsewhere.path().join(format!("copy{n}.db"));
        fs::copy(file, &copy).unwrap();
        if n % 2 == 0 {
            // With what is not in the file yet.
            let wal = elsewhere.path().join(format!("copy{n}.db-wal"));
            fs::copy(format!("{file}-wal"), wal).unwrap();
        }
        if let Ok(copied) = Log::open(&format!("sqlite://{}", copy.display()), Open::ReadWrite).await {
            // An error or a bad event is an answer too; a whole copy is a ledger of its own.
            if let Ok(Verified { events, first_bad: None }) = verify(&copied).await {
                assert_eq!(copied.append(one("run-copy", "run.opened")).await.unwrap().first, events + 1);
            }
            copied.close().await;
        }
        let backup = elsewhere.path().join(format!("backup{n}.db"));
        let mut connection = SqliteConnectOptions::new().filename(file).read_only(true).connect().await.unwrap();
        let sql = format!("VACUUM INTO '{}'", backup.display());
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        let backup = Log::open(&format!("sqlite://{}", backup.display()), Open::ReadOnly).await.unwrap();
        let verified = verify(&backup).await.unwrap();
        assert!(verified.first_bad.is_none() && verified.events >= known, "{verified:?} after {known}");
        backup.close().await;
    }
    assert!(load.check(&log).await > 20);
}
