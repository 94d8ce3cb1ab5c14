//! A connection that ends at the worst moment, and a file that somebody else holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    time::{sleep, timeout},
};

use super::support::{append, event, key, one, to, write};
use crate::{
    Append, AppendError, Appended, Expected, Log, Open,
    testing::{fresh_postgres, fresh_sqlite},
    verify::{Verified, verify},
};

/// What happens to the next COMMIT.
const PASS: u8 = 0;
const CUT_BEFORE: u8 = 1;
const CUT_AFTER: u8 = 2;
/// Nothing gets through, then or later.
const DEAD: u8 = 3;
/// No COMMIT gets through, then or later.
const CUT_EACH: u8 = 4;

/// Stands between the ledger and PostgreSQL; cuts the connection at one COMMIT when told to.
async fn proxy(server: String, cut: Arc<AtomicU8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if cut.load(Ordering::SeqCst) == DEAD {
                continue;
            }
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = TcpStream::connect(&server).await.unwrap().into_split();
            let answers = tokio::spawn(pipe(from_server, to_client));
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                asks(from_client, to_server, &cut, &answers).await;
                answers.abort();
            });
        }
    });
    port
}

/// The address of the same database, through a proxy.
async fn through_proxy(url: &str, cut: &Arc<AtomicU8>) -> String {
    let (user, place) = url.rsplit_once('@').unwrap();
    let (server, database) = place.rsplit_once('/').unwrap();
    let port = proxy(server.to_owned(), Arc::clone(cut)).await;
    format!("{user}@127.0.0.1:{port}/{database}?sslmode=disable")
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    tokio::io::copy(&mut from, &mut to).await.ok();
}

async fn asks(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: &AtomicU8, answers: &tokio::task::JoinHandle<()>) {
    let mut bytes = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if cut.load(Ordering::SeqCst) == DEAD {
            return;
        }
        let commits = bytes[..read].windows(7).any(|word| word == b"COMMIT\0");
        let moment = if commits { cut.load(Ordering::SeqCst) } else { PASS };
        if moment != CUT_EACH && moment != PASS {
            cut.store(PASS, Ordering::SeqCst);
        }
        match moment {
            CUT_BEFORE | CUT_EACH => return,
            CUT_AFTER => {
                answers.abort();
                to.write_all(&bytes[..read]).await.unwrap();
                // The server does it; nobody hears.
                sleep(Duration::from_millis(200)).await;
                return;
            }
            _ => to.write_all(&bytes[..read]).await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_an_answer_is_looked_up_and_not_repeated() {
    let (url, _guard) = fresh_postgres().await;
    let cut = Arc::new(AtomicU8::new(PASS));
    let log = Log::open(&through_proxy(&url, &cut).await, Open::ReadWrite).await.unwrap();
    let mut heads = log.follow();
    let mut version = 0;
    for moment in [CUT_AFTER, CUT_BEFORE, CUT_AFTER] {
        cut.store(moment, Ordering::SeqCst);
        let keyed = Append {
            entries: vec![to("run-a", Expected::Exact(version), vec![event("run.taken"), event("run.ended")])],
            keys: vec![key(&version.to_string(), "x")],
            ..Append::default()
        };
        let stale = append(vec![to("run-a", Expected::Exact(99), vec![event("run.taken")])]);
        let (done, other, refused) =
            tokio::join!(log.append(keyed.clone()), log.append(one("run-b", "run.opened")), log.append(stale));
        let done = done.unwrap();
        // It was this call that wrote it, however often it had to ask.
        assert!(!done.duplicate && done.count == 2, "{done:?}");
        assert!(!other.unwrap().duplicate);
        assert!(refused.is_err());
        assert_eq!(cut.load(Ordering::SeqCst), PASS, "the connection was cut");
        assert_eq!(log.append(keyed).await.unwrap(), Appended { duplicate: true, ..done });
        version += 2;
        let head = version / 2 * 3;
        assert_eq!(log.head().await.unwrap(), head);
        timeout(Duration::from_secs(2), heads.wait_for(|seen| *seen == head)).await.unwrap().unwrap();
    }
    assert_eq!(verify(&log).await.unwrap(), Verified { events: 9, first_bad: None });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_waits_for_another_process_that_writes() {
    let (url, _guard) = fresh_sqlite();
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    write(&log, "run-a", 1).await;
    let options = SqliteConnectOptions::new().filename(url.trim_start_matches("sqlite://"));
    let mut other = options.connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { write(&log, "run-a", 1).await }
    });
    sleep(Duration::from_millis(700)).await;
    assert!(!waiting.is_finished());
    assert_eq!(log.head().await.unwrap(), 1, "readers do not wait");
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().first, 2);
}

/// A writer that stops with the lock in its hand (a suspended process) holds up nobody for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_writer_loses_the_lock() {
    let (url, _guard) = fresh_postgres().await;
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let mut frozen = crate::postgres::options(&url, Open::ReadWrite).unwrap().connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM ledger_lock WHERE id = 1 FOR UPDATE").execute(&mut frozen).await.unwrap();
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { write(&log, "run-a", 1).await }
    });
    sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    assert_eq!(timeout(Duration::from_secs(9), waiting).await.unwrap().unwrap().first, 1);
    sqlx::query("SELECT 1").execute(&mut frozen).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_gone_is_said_and_found_again() {
    let (url, _guard) = fresh_postgres().await;
    let cut = Arc::new(AtomicU8::new(PASS));
    let log = Log::open(&through_proxy(&url, &cut).await, Open::ReadWrite).await.unwrap();
    write(&log, "run-a", 1).await;
    cut.store(DEAD, Ordering::SeqCst);
    // No commit was sent: it is not "unknown".
    let refused = timeout(Duration::from_secs(20), log.append(one("run-a", "run.taken"))).await.unwrap();
    assert!(matches!(refused, Err(AppendError::Log(_))), "{refused:?}");
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { write(&log, "run-a", 1).await }
    });
    sleep(Duration::from_millis(300)).await;
    cut.store(PASS, Ordering::SeqCst);
    assert_eq!(waiting.await.unwrap().first, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_never_answered_is_unknown_at_the_deadline() {
    let (url, _guard) = fresh_postgres().await;
    let cut = Arc::new(AtomicU8::new(PASS));
    let log = Log::open(&through_proxy(&url, &cut).await, Open::ReadWrite).await.unwrap();
    cut.store(CUT_EACH, Ordering::SeqCst);
    let asked = Append { keys: vec![key("k", "x")], ..one("run-a", "run.opened") };
    let begun = tokio::time::Instant::now();
    let unknown = log.append(asked.clone()).await;
    assert!(matches!(unknown, Err(AppendError::Unknown)), "{unknown:?}");
    assert!((29..35).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    cut.store(PASS, Ordering::SeqCst);
    // As it says: the retry under the same key is safe, whichever of the two is written.
    let retried = log.append(asked.clone()).await.unwrap();
    assert_eq!((retried.first, retried.count), (1, 1));
    assert_eq!(log.append(asked).await.unwrap(), Appended { duplicate: true, ..retried });
    assert_eq!(log.head().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_refused_is_no_unknown_one() {
    let (url, _guard) = fresh_postgres().await;
    let log = Log::open(&url, Open::ReadWrite).await.unwrap();
    let mut other = sqlx::PgConnection::connect(&url).await.unwrap();
    let fails = "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
        CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION fails()";
    sqlx::raw_sql(fails).execute(&mut other).await.unwrap();
    let refused = timeout(Duration::from_secs(5), log.append(one("run-a", "run.opened"))).await.unwrap();
    assert!(matches!(refused, Err(AppendError::Log(_))), "{refused:?}");
    sqlx::raw_sql("DROP TRIGGER fails ON events").execute(&mut other).await.unwrap();
    assert_eq!(write(&log, "run-a", 1).await.first, 1);
}
