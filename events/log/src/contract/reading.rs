//! Reading and following.

use std::time::Duration;

use midwatch_events::Recorded;
use sqlx::Connection as _;
use tokio::time::{Instant, sleep, timeout};

use super::support::{Backend, all, append, event, one, stream, to, write};
use crate::{Expected, Filter, Log, Open};

fn positions(events: &[Recorded]) -> Vec<u64> {
    events.iter().map(|event| event.position).collect()
}

pub(super) async fn a_stream_is_read_both_ways_in_pages(backend: Backend) {
    let log = backend.open().await;
    for _ in 0..5 {
        write(&log, "run-a", 1).await;
        write(&log, "run-ab", 1).await;
    }
    let a = stream("run-a");
    let versions = |events: Vec<Recorded>| events.iter().map(|event| event.version).collect::<Vec<_>>();
    assert_eq!(versions(log.read_stream(&a, 0, 2).await.unwrap()), [1, 2]);
    assert_eq!(versions(log.read_stream(&a, 3, 2).await.unwrap()), [3, 4]);
    assert_eq!(versions(log.read_stream(&a, 5, 9).await.unwrap()), [5]);
    assert_eq!(versions(log.read_stream(&a, 6, 9).await.unwrap()), [0; 0]);
    assert_eq!(versions(log.read_stream(&a, u64::MAX, 9).await.unwrap()), [0; 0]);
    assert_eq!(versions(log.read_stream_back(&a, u64::MAX, 2).await.unwrap()), [5, 4]);
    assert_eq!(versions(log.read_stream_back(&a, 4, 9).await.unwrap()), [3, 2, 1]);
    assert_eq!(versions(log.read_stream_back(&a, 1, 9).await.unwrap()), [0; 0]);
    assert_eq!(versions(log.read_stream(&stream("run"), 0, 9).await.unwrap()), [0; 0]);
    assert_eq!(log.read_at(3).await.unwrap().unwrap().position, 3);
    assert_eq!(log.read_at(11).await.unwrap(), None);
    assert_eq!(log.read_at(0).await.unwrap(), None);
    let third = log.read_at(3).await.unwrap().unwrap();
    assert_eq!(log.read_event(third.event_id).await.unwrap(), Some(third));
    assert_eq!(log.read_event(super::support::new_id()).await.unwrap(), None);
    let third = log.read_at(3).await.unwrap().unwrap();
    assert_eq!(log.read_event(third.event_id).await.unwrap(), Some(third));
    assert_eq!(log.read_event(uuid::Uuid::nil()).await.unwrap(), None);
    let (page, scanned) = log.read_all(3, 4, &Filter::default()).await.unwrap();
    assert_eq!((positions(&page), scanned), (vec![4, 5, 6, 7], 7));
    assert_eq!(log.read_all(10, 4, &Filter::default()).await.unwrap(), (Vec::new(), 10));
}

pub(super) async fn many_streams_are_read_at_once(backend: Backend) {
    let log = backend.open().await;
    for _ in 0..3 {
        write(&log, "run-a", 1).await;
        write(&log, "run-ab", 1).await;
    }
    let asked = [(stream("run-ab"), 3), (stream("run-b"), 1), (stream("run-a"), 1)];
    let events = log.read_streams(&asked, 2).await.unwrap();
    let mut found: Vec<_> = events.iter().map(|event| (event.stream.as_str(), event.version)).collect();
    found.sort_unstable();
    assert_eq!(found, vec![("run-a", 1), ("run-a", 2), ("run-ab", 3)]);
    assert!(log.read_streams(&[(stream("run-a"), 4)], 9).await.unwrap().is_empty());
    assert!(log.read_streams(&[], 9).await.unwrap().is_empty());
}

pub(super) async fn all_is_read_by_type_and_category(backend: Backend) {
    let log = backend.open().await;
    for (name, event_type) in [
        ("run-a", "run.opened"),
        ("halt", "engine.halted"),
        ("run-b", "run.ended"),
        ("routine-a", "routine.defined"),
        ("runner-a", "run.opened"),
        ("run-a", "run.ended"),
        ("halt", "engine.resumed"),
    ] {
        log.append(one(name, event_type)).await.unwrap();
    }
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (types, categories, expected) in [
        (&[][..], &["run"][..], vec![1, 3, 6]),
        (&[], &["halt", "routine"], vec![2, 4, 7]),
        (&[], &["run", "run", "runner"], vec![1, 3, 5, 6]),
        (&["run.opened"], &[], vec![1, 5]),
        (&["run.opened", "run.ended", "run.opened"], &[], vec![1, 3, 5, 6]),
        (&["run.opened"], &["run"], vec![1]),
        (&["run.opened", "run.ended"], &["runner", "halt"], vec![5]),
        (&["run.opened"], &["halt"], vec![]),
        (&["run"], &[], vec![]),
        (&[], &["ru"], vec![]),
    ] {
        let filter = Filter { event_types: names(types), categories: names(categories) };
        let (page, scanned) = log.read_all(0, 100, &filter).await.unwrap();
        assert_eq!((positions(&page), scanned), (expected.clone(), 7), "{filter:?}");
        // In pages of one, continued from what was scanned.
        let (mut after, mut read) = (0, Vec::new());
        while after < 7 {
            let (page, scanned) = log.read_all(after, 1, &filter).await.unwrap();
            assert!(scanned > after);
            read.extend(positions(&page));
            after = scanned;
        }
        assert_eq!(read, expected, "{filter:?}");
    }
}

pub(super) async fn a_filter_that_matches_nothing_scans_to_the_head(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-a", 50).await;
    let nothing = Filter { event_types: vec!["no.such".to_owned()], categories: Vec::new() };
    assert_eq!(log.read_all(0, 10, &nothing).await.unwrap(), (Vec::new(), 50));
    assert_eq!(log.read_all(50, 10, &nothing).await.unwrap(), (Vec::new(), 50));
}

/// A rare category in a long ledger must not cost a scan of it.
pub(super) async fn filters_use_their_index(backend: Backend) {
    let log = backend.open().await;
    write(&log, "halt", 1).await;
    for _ in 0..20 {
        write(&log, "run-a", 1_024).await;
    }
    for filter in [
        Filter { event_types: Vec::new(), categories: vec!["halt".to_owned()] },
        Filter { event_types: vec!["halted".to_owned()], categories: vec!["run".to_owned()] },
    ] {
        let mut quickest = Duration::MAX;
        for _ in 0..100 {
            let begun = Instant::now();
            log.read_all(0, 10, &filter).await.unwrap();
            quickest = quickest.min(begun.elapsed());
        }
        // A scan of 20,000 rows takes more than ten milliseconds, a look into an index less than one. The quickest of
        // many: on a busy machine any of them may have to wait.
        assert!(quickest < Duration::from_millis(6), "{quickest:?} for {filter:?}");
    }
}

pub(super) async fn own_appends_wake_followers_at_once(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-a", 2).await;
    let (mut first, mut second) = (log.follow(), log.clone().follow());
    first.wait_for(|head| *head == 2).await.unwrap();
    let begun = Instant::now();
    for n in 0..20 {
        write(&log, "run-a", 1).await;
        let woken = timeout(Duration::from_secs(1), first.wait_for(|head| *head == 3 + n)).await;
        woken.unwrap().unwrap();
    }
    second.wait_for(|head| *head == 22).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "twenty appends took {:?} to be seen", begun.elapsed());
}

pub(super) async fn appends_of_other_processes_wake_followers(backend: Backend) {
    let log = backend.open().await;
    let reader = Log::open(&backend.url, Open::ReadOnly).await.unwrap();
    let mut heads = reader.follow();
    write(&log, "run-a", 1).await;
    timeout(Duration::from_millis(1_500), heads.wait_for(|head| *head >= 1)).await.unwrap().unwrap();
    let begun = Instant::now();
    for n in 2..=6 {
        write(&log, "run-a", 1).await;
        timeout(Duration::from_millis(1_500), heads.wait_for(|head| *head >= n)).await.unwrap().unwrap();
    }
    // By the poll's ceiling alone it would be five seconds.
    assert!(begun.elapsed() < Duration::from_millis(2_500), "five appends took {:?} to be seen", begun.elapsed());
    if !backend.is_sqlite() {
        // The connections die, the listening one among them: the next appends are seen all the same.
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        backend.sql(kill).await.unwrap();
        for n in 7..=9 {
            write(&log, "run-a", 1).await;
            timeout(Duration::from_secs(5), heads.wait_for(|head| *head >= n)).await.unwrap().unwrap();
        }
    }
    reader.close().await;
    sleep(Duration::from_millis(10)).await;
    write(&log, "run-a", 1).await;
}

/// However many follow, one connection of the process looks for others' appends.
pub(super) async fn followers_share_one_tailer(backend: Backend) {
    let log = backend.open().await;
    write(&log, "run-a", 1).await;
    let first = log.follow();
    let looking = || async {
        sleep(Duration::from_millis(700)).await;
        if backend.is_sqlite() {
            let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.ends_with(backend.file()))).count()
        } else {
            let sql =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
            let mut connection = sqlx::PgConnection::connect(&backend.url).await.unwrap();
            let (count,): (i64,) = sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
            usize::try_from(count).unwrap()
        }
    };
    let one = looking().await;
    assert!(one > 0);
    let more: Vec<_> = (0..20).map(|_| log.clone().follow()).collect();
    assert_eq!(looking().await, one);
    drop((first, more));
}

pub(super) async fn ledger_time_never_goes_back(backend: Backend) {
    let log = backend.open().await;
    let before = log.store_time().await.unwrap();
    write(&log, "run-a", 1).await;
    // As if the store's clock had been an hour ahead when this one was written.
    let insert =
        "INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor, facts,
        leaf_hash) SELECT 2, 'run-a', 2, NEW_ID, event_type, schema, recorded_at + 3600000000, actor, facts, leaf_hash
        FROM events WHERE position = 1";
    let id = if backend.is_sqlite() { "randomblob(16)" } else { "gen_random_uuid()" };
    backend.sql(&insert.replace("NEW_ID", id)).await.unwrap();
    log.append(append(vec![to("run-a", Expected::Exact(2), vec![event("run.taken")])])).await.unwrap();
    let times: Vec<_> = all(&log).await.iter().map(|event| event.recorded_at).collect();
    assert!(times[0] >= before && times[1] == times[0].plus_s(3_600) && times[2] == times[1], "{times:?}");
}
