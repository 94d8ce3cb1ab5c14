//! The same promises on SQLite and on a real PostgreSQL, each test in a database of its own.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use midwatch_events::StreamName;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use super::*;
use crate::{
    Append, Expected, Log, NewEvent, StreamAppend,
    testing::{Guard, fresh_simulated, fresh_sqlite, fresh_urls},
};

const COLUMNS: &[Column] = &[Column { name: "state", kind: Kind::Text }, Column { name: "due_us", kind: Kind::Int }];
static RUNS: Table =
    Table { name: "runs", version: 1, columns: COLUMNS, indexes: &[&["state", "due_us"], &["due_us"]] };
static RUNS_2: Table =
    Table { name: "runs", version: 2, columns: &[Column { name: "order", kind: Kind::Text }], indexes: &[&["order"]] };
static OTHER: Table = Table { name: "other", version: 1, columns: &[], indexes: &[] };

/// A ledger of its own, that goes with this value.
struct Place {
    url: String,
    _guard: Guard,
}

impl Place {
    async fn made(url: String, guard: Guard) -> Self {
        Log::open(&url, Open::ReadWrite).await.unwrap().close().await;
        Self { url, _guard: guard }
    }

    async fn sqlite() -> Self {
        let (url, guard) = fresh_sqlite();
        Self::made(url, guard).await
    }

    /// On each backend, the simulated one too.
    async fn each() -> Vec<Self> {
        let mut places = Self::both().await;
        let (url, guard) = fresh_simulated();
        places.push(Self::made(url, guard).await);
        places
    }

    async fn both() -> Vec<Self> {
        let mut places = Vec::new();
        for (_, url, guard) in fresh_urls().await {
            places.push(Self::made(url, guard).await);
        }
        places
    }

    async fn open(&self) -> Views {
        Views::open(&self.url, Open::ReadWrite).await.unwrap()
    }

    fn on_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    fn projections(&self) -> PathBuf {
        PathBuf::from(format!("{}-projections", self.url.trim_start_matches("sqlite://")))
    }
}

fn keep(key: &str, doc: &str, state: Option<&str>, due_us: Option<i64>) -> RowWrite {
    let state = state.map_or(Cell::Null, |state| Cell::Text(state.to_owned()));
    RowWrite { key: key.to_owned(), row: Some((doc.into(), vec![state, due_us.map_or(Cell::Null, Cell::Int)])) }
}

fn drop_row(key: &str) -> RowWrite {
    RowWrite { key: key.to_owned(), row: None }
}

async fn writing(views: &Views, table: &'static Table) -> Generation {
    views.attach(table).await.unwrap().generation().unwrap()
}

fn by(column: &'static str, descending: bool, limit: u32) -> Query {
    Query { filters: Vec::new(), order: Order { column, descending }, limit, after: None }
}

async fn keys(views: &Views, query: &Query) -> Vec<String> {
    views.query(&RUNS, query).await.unwrap().into_iter().map(|row| row.key).collect()
}

/// Counts events in one row, as a fold does: reads the row, adds the events, writes it.
async fn count_up_to(views: &Views, table: &'static Table, head: u64, batch: u64) -> u64 {
    let mut applied = 0;
    loop {
        let generation = writing(views, table).await;
        // It may be swapped away between any two of these.
        let Some(from) = generation.checkpoint().await.unwrap() else { continue };
        if from >= head {
            return applied;
        }
        applied += u64::from(count_once(&generation, from, head.min(from + batch)).await);
    }
}

async fn count_once(generation: &Generation, from: u64, to: u64) -> bool {
    let Some(rows) = generation.load(&["count".to_owned()]).await.unwrap() else { return false };
    let before: u64 = rows.first().map_or(0, |(_, doc)| String::from_utf8(doc.clone()).unwrap().parse().unwrap());
    let now = before + (to - from);
    let write = keep("count", &now.to_string(), Some("live"), Some(i64::try_from(to).unwrap()));
    generation.apply(from, to, Micros(to as i64 * 10), vec![write]).await.unwrap()
}

async fn counted(views: &Views) -> String {
    String::from_utf8(views.get(&RUNS, "count").await.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn rows_and_checkpoint_move_together() {
    for place in Place::each().await {
        let views = place.open().await;
        let Attached::Active(runs) = views.attach(&RUNS).await.unwrap() else { panic!("the first is active") };
        assert_eq!(runs.checkpoint().await.unwrap(), Some(0));
        assert_eq!(views.as_of(&RUNS).await.unwrap(), (0, Micros(0)));
        let writes = vec![
            keep("a", "1", Some("live"), Some(1)),
            keep("a", "2", None, None),
            keep("b", "3", Some("done"), Some(i64::MIN)),
            keep("gone", "4", None, None),
            drop_row("gone"),
            drop_row("never"),
        ];
        assert!(runs.apply(0, 7, Micros(70), writes).await.unwrap());
        assert!(!runs.apply(0, 7, Micros(71), vec![keep("a", "other", None, None)]).await.unwrap());
        assert!(runs.apply(7, 9, Micros(90), vec![drop_row("b"), keep("c", "5", Some(""), Some(0))]).await.unwrap());
        // A page of events that concern nobody moves the checkpoint too.
        assert!(runs.apply(9, 500, Micros(5_000), Vec::new()).await.unwrap());
        assert_eq!(views.as_of(&RUNS).await.unwrap(), (500, Micros(5_000)));
        assert_eq!(runs.checkpoint().await.unwrap(), Some(500));
        let wanted: Vec<String> = ["a", "b", "c", "gone"].map(str::to_owned).to_vec();
        let mut loaded = runs.load(&wanted).await.unwrap().unwrap();
        loaded.sort();
        assert_eq!(loaded, [("a".to_owned(), b"2".to_vec()), ("c".to_owned(), b"5".to_vec())]);
        assert_eq!(views.get(&RUNS, "b").await.unwrap(), None);
        assert_eq!(views.count(&RUNS, &[]).await.unwrap(), 2);
        views.close().await;
    }
}

#[tokio::test]
async fn a_write_that_does_not_fit_moves_nothing() {
    for place in Place::each().await {
        let views = place.open().await;
        let runs = writing(&views, &RUNS).await;
        let swapped = RowWrite { key: "a".into(), row: Some((Vec::new(), vec![Cell::Int(1), Cell::Int(1)])) };
        let short = RowWrite { key: "a".into(), row: Some((Vec::new(), vec![Cell::Null])) };
        for write in [swapped, short, keep("a\0", "", None, None), keep("a", "", Some("\0"), None)] {
            runs.apply(0, 1, Micros(1), vec![keep("z", "", None, None), write]).await.unwrap_err();
        }
        runs.apply(3, 3, Micros(1), Vec::new()).await.unwrap_err();
        assert_eq!(runs.checkpoint().await.unwrap(), Some(0));
        assert_eq!(views.count(&RUNS, &[]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn many_rows_in_one_transaction() {
    for place in Place::each().await {
        let views = place.open().await;
        let runs = writing(&views, &RUNS).await;
        for round in 0..2_i64 {
            let writes = (0..1_234).map(|n| keep(&format!("{n:05}"), "x", Some("s"), Some(n + round))).collect();
            let from = round as u64;
            assert!(runs.apply(from, from + 1, Micros(1), writes).await.unwrap());
        }
        let all: Vec<String> = (0..1_234).map(|n| format!("{n:05}")).collect();
        assert_eq!(runs.load(&all).await.unwrap().unwrap().len(), 1_234);
        let at_least = [Condition { column: "due_us", is: Test::Ge(Cell::Int(1_234)) }];
        assert_eq!(views.count(&RUNS, &at_least).await.unwrap(), 1);
        let writes = all.iter().skip(1).map(|key| drop_row(key)).collect();
        assert!(runs.apply(2, 3, Micros(1), writes).await.unwrap());
        assert_eq!(keys(&views, &by(KEY, false, 10)).await, ["00000"]);
    }
}

// A17 of docs/architecture.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_that_race_apply_each_event_once() {
    for place in Place::each().await {
        let (one, two) = tokio::join!(place.open(), place.open());
        let (first, second) = tokio::join!(
            tokio::spawn({
                let views = one.clone();
                async move { count_up_to(&views, &RUNS, 300, 3).await }
            }),
            tokio::spawn({
                let views = two.clone();
                async move { count_up_to(&views, &RUNS, 300, 3).await }
            }),
        );
        // How often somebody won is how many steps there were: none was taken twice.
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(first + second >= 100, "{first} + {second}");
        assert_eq!(counted(&one).await, "300");
        assert_eq!(two.as_of(&RUNS).await.unwrap(), (300, Micros(3_000)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_guard_lets_exactly_one_through() {
    for place in Place::each().await {
        let (one, two) = (place.open().await, place.open().await);
        let (one, two) = (writing(&one, &RUNS).await, writing(&two, &RUNS).await);
        for from in 0..50 {
            let step = |generation: &Generation| {
                let generation = generation.clone();
                tokio::spawn(async move { count_once(&generation, from, from + 1).await })
            };
            let (a, b) = tokio::join!(step(&one), step(&two));
            assert!(a.unwrap() != b.unwrap(), "both or none at {from}");
        }
        assert_eq!(counted(&one.views).await, "50");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_attach_at_the_same_moment_all_succeed() {
    for place in Place::each().await {
        let mut tasks = Vec::new();
        for _ in 0..6 {
            let url = place.url.clone();
            tasks.push(tokio::spawn(async move {
                let views = Views::open(&url, Open::ReadWrite).await.unwrap();
                let (runs, other) = (writing(&views, &RUNS).await, writing(&views, &OTHER).await);
                views.advance("reactor", 0, 1).await.unwrap();
                (runs.number, other.number)
            }));
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), (1, 1));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rebuild_changes_nothing_for_readers_until_it_has_caught_up() {
    for place in Place::each().await {
        let views = place.open().await;
        count_up_to(&views, &RUNS, 200, 50).await;
        let old = writing(&views, &RUNS).await;
        let rebuild = views.begin_rebuild(&RUNS).await.unwrap();
        assert_eq!(rebuild.checkpoint().await.unwrap(), Some(0));
        assert!(matches!(views.attach(&RUNS).await.unwrap(), Attached::Active(active) if active.number == old.number));

        let stop = tokio_stop();
        let reading = tokio::spawn({
            let (views, stop) = (views.clone(), stop.clone());
            async move {
                let (mut reads, mut last) = (0_u64, 200);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let (at_least, _) = views.as_of(&RUNS).await.unwrap();
                    let count: u64 = counted(&views).await.parse().unwrap();
                    assert!(count >= at_least && at_least >= last, "{count} rows as of {at_least} after {last}");
                    last = at_least;
                    reads += 1;
                }
                reads
            }
        });
        let applying = tokio::spawn({
            let views = views.clone();
            async move { count_up_to(&views, &RUNS, 400, 1).await }
        });
        assert!(!views.swap(&rebuild).await.unwrap(), "it is behind");
        let mut rebuilt = 0;
        while !(rebuilt >= 300 && views.swap(&rebuild).await.unwrap()) {
            if rebuilt < 400 {
                assert!(count_once(&rebuild, rebuilt, rebuilt + 4).await);
                rebuilt += 4;
            }
        }
        applying.await.unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reading.await.unwrap() > 0);

        assert_eq!(counted(&views).await, "400");
        assert_eq!(writing(&views, &RUNS).await.number, rebuild.number);
        // Who still holds the old one is told, and cannot write into the new one.
        assert_eq!(old.checkpoint().await.unwrap(), None);
        assert!(!old.apply(400, 401, Micros(1), Vec::new()).await.unwrap());
        assert_eq!(old.load(&["count".to_owned()]).await.unwrap(), None);
        assert!(!views.swap(&old).await.unwrap());
    }
}

fn tokio_stop() -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    std::sync::Arc::default()
}

#[tokio::test]
async fn a_rebuild_that_was_left_is_dropped_by_the_next_one_or_on_purpose() {
    for place in Place::each().await {
        let views = place.open().await;
        count_up_to(&views, &RUNS, 10, 5).await;
        let left = views.begin_rebuild(&RUNS).await.unwrap();
        count_once(&left, 0, 10).await;
        let again = views.begin_rebuild(&RUNS).await.unwrap();
        assert_ne!(left.number, again.number);
        assert_eq!(left.checkpoint().await.unwrap(), None);
        assert_eq!(again.checkpoint().await.unwrap(), Some(0));
        views.discard(again.clone()).await.unwrap();
        assert_eq!(again.checkpoint().await.unwrap(), None);
        // The active one is safe from it.
        views.discard(writing(&views, &RUNS).await).await.unwrap();
        assert_eq!(counted(&views).await, "10");
    }
}

#[tokio::test]
async fn a_raised_version_is_built_beside_the_old_one() {
    for place in Place::each().await {
        let (old, new) = (place.open().await, place.open().await);
        count_up_to(&old, &RUNS, 20, 5).await;
        let Attached::Building(next) = new.attach(&RUNS_2).await.unwrap() else { panic!("it is under construction") };
        assert_eq!(next.checkpoint().await.unwrap(), Some(0));
        // Attaching again finds it, and the old binary goes on with its own.
        assert!(matches!(new.attach(&RUNS_2).await.unwrap(), Attached::Building(same) if same.number == next.number));
        count_up_to(&old, &RUNS, 22, 5).await;
        assert_eq!(counted(&new).await, "22");
        let row = |doc: &str| RowWrite { key: "x".into(), row: Some((doc.into(), vec![Cell::Text("1".into())])) };
        assert!(next.apply(0, 21, Micros(1), vec![row("early")]).await.unwrap());
        assert!(!new.swap(&next).await.unwrap());
        assert!(next.apply(21, 22, Micros(2), vec![row("v2")]).await.unwrap());
        assert!(new.swap(&next).await.unwrap());
        assert!(matches!(new.attach(&RUNS_2).await.unwrap(), Attached::Active(active) if active.number == next.number));
        let one = Condition { column: "order", is: Test::Eq(Cell::Text("1".into())) };
        assert_eq!(new.count(&RUNS_2, &[one]).await.unwrap(), 1);
        assert_eq!(new.get(&RUNS_2, "x").await.unwrap(), Some(b"v2".to_vec()));

        // The old binary gives up, and does not build its own version again by itself.
        assert!(matches!(old.attach(&RUNS).await.unwrap(), Attached::Superseded { active: 2 }));
        // On purpose it can: then the newer version is what has to be built.
        let back = old.begin_rebuild(&RUNS).await.unwrap();
        assert!(!old.swap(&back).await.unwrap());
        assert!(back.apply(0, 22, Micros(2), vec![keep("count", "22", None, None)]).await.unwrap());
        assert!(old.swap(&back).await.unwrap());
        assert_eq!(counted(&old).await, "22");
        assert!(matches!(new.attach(&RUNS_2).await.unwrap(), Attached::Building(_)));
    }
}

#[tokio::test]
async fn a_poison_event_stops_one_projection_and_shows_why() {
    for place in Place::each().await {
        let views = place.open().await;
        let (runs, other) = (writing(&views, &RUNS).await, writing(&views, &OTHER).await);
        assert!(runs.apply(0, 4, Micros(4), Vec::new()).await.unwrap());
        runs.stop(5, "no run of that name\0").await.unwrap();
        let shown = Some((5, "no run of that name\u{fffd}".to_owned()));
        assert_eq!(views.health(&RUNS).await.unwrap(), shown);
        assert_eq!(runs.checkpoint().await.unwrap(), Some(4));
        assert_eq!(views.health(&OTHER).await.unwrap(), None);
        assert!(other.apply(0, 9, Micros(9), Vec::new()).await.unwrap());

        // A rebuild shows its own health only once it is active.
        let rebuild = views.begin_rebuild(&RUNS).await.unwrap();
        assert_eq!(views.health(&RUNS).await.unwrap(), shown);
        assert!(rebuild.apply(0, 5, Micros(5), Vec::new()).await.unwrap());
        assert!(views.swap(&rebuild).await.unwrap());
        assert_eq!(views.health(&RUNS).await.unwrap(), None);

        // Moving past clears it; stopping at what is passed already says nothing.
        rebuild.stop(6, "again").await.unwrap();
        assert_eq!(views.health(&RUNS).await.unwrap(), Some((6, "again".to_owned())));
        assert!(rebuild.apply(5, 6, Micros(6), Vec::new()).await.unwrap());
        assert_eq!(views.health(&RUNS).await.unwrap(), None);
        rebuild.stop(6, "late").await.unwrap();
        assert_eq!(views.health(&RUNS).await.unwrap(), None);
    }
}

/// Rows with equal cells, nulls, and texts that a language would order in another way than their bytes.
fn sample() -> Vec<RowWrite> {
    let mut writes = Vec::new();
    for n in 0..40_i64 {
        let state = [Some("Zeta"), Some("alpha"), Some("ähnlich"), None, Some("Alpha")][n as usize % 5];
        let due = [Some(-1), Some(7), Some(7), None, Some(7), Some(i64::MAX)][n as usize % 6];
        let key = if n % 2 == 0 { format!("k{n:02}") } else { format!("K{n:02}") };
        writes.push(keep(&key, &n.to_string(), state, due));
    }
    writes
}

#[tokio::test]
async fn pages_hold_every_row_once_in_both_directions() {
    let mut orders = BTreeMap::new();
    for place in Place::each().await {
        let views = place.open().await;
        assert!(writing(&views, &RUNS).await.apply(0, 1, Micros(1), sample()).await.unwrap());
        for column in ["state", "due_us", KEY] {
            let forwards = keys(&views, &by(column, false, 1_000)).await;
            let mut backwards = keys(&views, &by(column, true, 1_000)).await;
            backwards.reverse();
            assert_eq!(forwards.len(), 40);
            assert_eq!(forwards, backwards, "{column}");
            assert_eq!(*orders.entry(column).or_insert_with(|| forwards.clone()), forwards, "the backends differ");
            for (descending, limit) in [(false, 1), (false, 7), (true, 1), (true, 7), (true, 39), (false, 40)] {
                let mut query = by(column, descending, limit);
                let mut paged = Vec::new();
                loop {
                    let page = views.query(&RUNS, &query).await.unwrap();
                    let Some(last) = page.last() else { break };
                    assert!(page.len() <= limit as usize);
                    query.after = Some(last.cursor());
                    paged.extend(page.into_iter().map(|row| row.key));
                }
                if descending {
                    paged.reverse();
                }
                assert_eq!(paged, forwards, "{column} {descending} {limit}");
            }
        }
        // The page before a row: the order turned round, from that row.
        let rows = views.query(&RUNS, &by("due_us", false, 40)).await.unwrap();
        let before = Query { after: Some(rows[20].cursor()), ..by("due_us", true, 3) };
        let expected: Vec<String> = [19, 18, 17].map(|index: usize| rows[index].key.clone()).to_vec();
        assert_eq!(keys(&views, &before).await, expected);
    }
    assert_eq!(orders["state"].first().map(String::as_str), Some("K03"), "null is lower than everything");
}

#[tokio::test]
async fn filters_find_the_same_rows_on_every_backend() {
    let text = |text: &str| Cell::Text(text.to_owned());
    let tests = [
        ("state", Test::Eq(text("alpha")), 8),
        ("state", Test::Eq(Cell::Null), 8),
        ("state", Test::Ne(text("alpha")), 32),
        ("state", Test::Ne(Cell::Null), 32),
        ("state", Test::IsNull, 8),
        ("state", Test::NotNull, 32),
        ("state", Test::Lt(text("alpha")), 16),
        ("state", Test::Le(text("alpha")), 24),
        ("state", Test::Gt(text("alpha")), 8),
        ("state", Test::Ge(text("alpha")), 16),
        ("state", Test::In(vec![text("alpha"), text("Zeta"), text("' OR 1=1 --")]), 16),
        ("state", Test::In(Vec::new()), 0),
        ("state", Test::Contains("lph".into()), 16),
        ("state", Test::Contains("LPH".into()), 0),
        ("state", Test::Contains("%".into()), 0),
        ("state", Test::Contains("\u{e4}".into()), 8),
        ("due_us", Test::Eq(Cell::Int(7)), 20),
        ("due_us", Test::Ne(Cell::Int(7)), 20),
        ("due_us", Test::Lt(Cell::Int(7)), 7),
        ("due_us", Test::Ge(Cell::Int(i64::MAX)), 6),
        ("due_us", Test::In(vec![Cell::Int(-1), Cell::Int(5)]), 7),
        (KEY, Test::Lt(text("k")), 20),
    ];
    for place in Place::each().await {
        let views = place.open().await;
        assert!(writing(&views, &RUNS).await.apply(0, 1, Micros(1), sample()).await.unwrap());
        for (column, is, expected) in tests.clone() {
            let filters = vec![Condition { column, is }];
            let counted = views.count(&RUNS, &filters).await.unwrap();
            assert_eq!(counted, expected, "{} {filters:?}", place.url);
            let query = Query { filters, ..by("due_us", true, 1_000) };
            assert_eq!(keys(&views, &query).await.len() as u64, expected);
        }
        let two = [
            Condition { column: "state", is: Test::Eq(text("alpha")) },
            Condition { column: "due_us", is: Test::Gt(Cell::Int(0)) },
        ];
        let both = views.query(&RUNS, &Query { filters: two.to_vec(), ..by(KEY, false, 100) }).await.unwrap();
        assert_eq!(views.count(&RUNS, &two).await.unwrap(), both.len() as u64);
        assert!(!both.is_empty() && both.len() < 8);
        for (column, is) in [
            ("absent", Test::IsNull),
            ("due_us", Test::Eq(text("7"))),
            ("due_us", Test::Contains("7".into())),
            ("state", Test::Lt(Cell::Null)),
            ("state", Test::In(vec![Cell::Null])),
        ] {
            views.count(&RUNS, &[Condition { column, is }]).await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn names_that_cannot_stand_in_a_statement_are_refused() {
    static QUOTED: Table = Table { name: "a\"b", version: 1, columns: &[], indexes: &[] };
    static TAKEN: Table =
        Table { name: "a", version: 1, columns: &[Column { name: "doc", kind: Kind::Int }], indexes: &[] };
    static UNKNOWN: Table = Table { name: "a", version: 1, columns: &[], indexes: &[&["b"]] };
    let place = Place::sqlite().await;
    let views = place.open().await;
    for table in [&QUOTED, &TAKEN, &UNKNOWN] {
        views.attach(table).await.unwrap_err();
        views.begin_rebuild(table).await.unwrap_err();
    }
}

// A18 of docs/architecture.md.
#[tokio::test]
async fn the_projections_file_can_be_deleted_at_any_time() {
    for (while_open, with_wal) in [(false, false), (false, true), (true, true), (true, false)] {
        let place = Place::sqlite().await;
        let views = place.open().await;
        count_up_to(&views, &RUNS, 30, 7).await;
        assert!(views.advance("reactor", 0, 30).await.unwrap());
        assert!(views.lead("runs", Uuid::from_u128(1), 10, Micros(0)).await.unwrap());
        if !while_open {
            views.close().await;
        }
        std::fs::remove_file(place.projections()).unwrap();
        if with_wal {
            for end in ["-wal", "-shm"] {
                let beside = PathBuf::from(format!("{}{end}", place.projections().display()));
                if beside.exists() {
                    std::fs::remove_file(beside).unwrap();
                }
            }
        }
        let views = if while_open { views } else { place.open().await };
        let runs = writing(&views, &RUNS).await;
        assert_eq!(runs.checkpoint().await.unwrap(), Some(0), "open: {while_open}, wal: {with_wal}");
        assert_eq!(views.count(&RUNS, &[]).await.unwrap(), 0);
        count_up_to(&views, &RUNS, 30, 7).await;
        assert_eq!(counted(&views).await, "30");
        // The reactor's checkpoint was not in it; the leaders were, and another one leads.
        assert_eq!(views.named_checkpoint("reactor").await.unwrap(), 30);
        assert!(views.lead("runs", Uuid::from_u128(2), 10, Micros(0)).await.unwrap());
        let again = place.open().await;
        assert_eq!(counted(&again).await, "30");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_projector_that_loses_its_file_under_way_counts_right_in_the_end() {
    let place = Place::sqlite().await;
    let views = place.open().await;
    count_up_to(&views, &RUNS, 50, 1).await;
    let old = writing(&views, &RUNS).await;
    std::fs::remove_file(place.projections()).unwrap();
    assert!(!count_deleted(&old).await, "the checkpoint it knew is not that of the new file");
    let (one, two) = (views.clone(), views.clone());
    let one = tokio::spawn(async move { count_up_to(&one, &RUNS, 100, 3).await });
    let two = tokio::spawn(async move { count_up_to(&two, &RUNS, 100, 3).await });
    one.await.unwrap();
    two.await.unwrap();
    assert_eq!(counted(&views).await, "100");
}

async fn count_deleted(generation: &Generation) -> bool {
    generation.apply(50, 51, Micros(1), vec![keep("count", "51", None, None)]).await.unwrap()
}

#[tokio::test]
async fn to_read_only_nothing_is_made() {
    for place in Place::each().await {
        match Views::open(&place.url, Open::ReadOnly).await {
            Ok(views) => {
                views.attach(&RUNS).await.unwrap_err();
                views.query(&RUNS, &by(KEY, false, 1)).await.unwrap_err();
            }
            Err(error) => assert!(matches!(error, LogError::Absent(_)), "{error}"),
        }
        assert!(!place.projections().exists());
        let writer = place.open().await;
        count_up_to(&writer, &RUNS, 3, 1).await;
        let reader = Views::open(&place.url, Open::ReadOnly).await.unwrap();
        assert_eq!(counted(&reader).await, "3");
        assert_eq!(reader.as_of(&RUNS).await.unwrap(), (3, Micros(30)));
        assert_eq!(reader.named_checkpoint("reactor").await.unwrap(), 0);
        let runs = writing(&reader, &RUNS).await;
        runs.apply(3, 4, Micros(4), Vec::new()).await.unwrap_err();
        reader.begin_rebuild(&RUNS).await.unwrap_err();
        reader.advance("reactor", 0, 1).await.unwrap_err();
    }
    let absent = TempDir::new().unwrap();
    let url = format!("sqlite://{}/none.db", absent.path().display());
    let error = Views::open(&url, Open::ReadWrite).await.unwrap_err();
    assert!(matches!(error, LogError::Absent(_)), "{error}");
    assert_eq!(std::fs::read_dir(absent.path()).unwrap().count(), 0);
    assert!(
        matches!(Views::open("mysql://a:secret@b/c", Open::ReadWrite).await, Err(LogError::Address(shown)) if shown == "b/c")
    );
}

#[tokio::test]
async fn named_checkpoints_move_from_where_they_are() {
    for place in Place::each().await {
        let (one, two) = (place.open().await, place.open().await);
        assert_eq!(one.named_checkpoint("reactor").await.unwrap(), 0);
        assert!(!one.advance("reactor", 5, 6).await.unwrap(), "it is at 0");
        let (a, b) = tokio::join!(one.advance("reactor", 0, 10), two.advance("reactor", 0, 10));
        assert!(a.unwrap() != b.unwrap());
        assert!(!two.advance("reactor", 0, 20).await.unwrap());
        assert!(two.advance("reactor", 10, 20).await.unwrap());
        assert_eq!(one.named_checkpoint("reactor").await.unwrap(), 20);
        assert_eq!(one.named_checkpoint("sealer").await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn checkpoints_and_appends_do_not_stand_in_each_others_way() {
    for place in Place::each().await {
        let log = Log::open(&place.url, Open::ReadWrite).await.unwrap();
        let views = place.open().await;
        let appending = tokio::spawn({
            let log = log.clone();
            async move {
                for n in 0..100 {
                    log.append(an_append(n)).await.unwrap();
                }
            }
        });
        for at in 0..100 {
            assert!(views.advance("reactor", at, at + 1).await.unwrap());
        }
        appending.await.unwrap();
        assert_eq!((log.head().await.unwrap(), views.named_checkpoint("reactor").await.unwrap()), (100, 100));
        log.close().await;
        views.close().await;
        // The ledger still takes itself for one, with the tables that were added.
        let log = Log::open(&place.url, Open::ReadWrite).await.unwrap();
        assert_eq!(log.head().await.unwrap(), 100);
    }
}

fn an_append(n: u64) -> Append {
    let event = NewEvent {
        event_id: Uuid::from_u128(u128::from(n) + 1),
        event_type: "run.started".to_owned(),
        schema: 1,
        actor: "engine".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: vec![0xa0],
        content: None,
    };
    let stream = StreamName::engine();
    Append { entries: vec![StreamAppend { stream, expected: Expected::Any, events: vec![event] }], ..Append::default() }
}

#[tokio::test]
async fn one_leads_until_its_time_is_up() {
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    for place in Place::each().await {
        let views = place.open().await;
        let mut now = Micros(1_000_000);
        assert!(views.lead("runs", one, 2, now).await.unwrap());
        assert!(views.lead("runs", one, 2, now).await.unwrap(), "renewed");
        assert!(!views.lead("runs", two, 2, now).await.unwrap());
        assert!(views.lead("other", two, 2, now).await.unwrap());
        if !place.url.starts_with("sqlite") {
            // A process whose own clock is wrong by a year takes nothing over.
            assert!(!views.lead("runs", two, 2, now.plus_s(31_536_000)).await.unwrap());
            tokio::time::sleep(Duration::from_millis(2_100)).await;
        } else {
            assert!(!views.lead("runs", two, 2, Micros(now.0 + 1_999_999)).await.unwrap());
            now = now.plus_s(2);
        }
        assert!(views.lead("runs", two, 60, now).await.unwrap(), "taken over");
        for ttl_s in [65, LEAD_MAX_S, u32::MAX] {
            assert!(views.lead("long", two, ttl_s, now).await.unwrap());
            assert!(
                !views.lead("long", one, 1, now.plus_s(-1)).await.unwrap(),
                "its clock is a little behind: {ttl_s}"
            );
        }
        assert!(!views.lead("runs", one, 60, now).await.unwrap());
        views.give_up("runs", one).await.unwrap();
        assert!(!views.lead("runs", one, 60, now).await.unwrap(), "only its own lead can be given up");
        views.give_up("runs", two).await.unwrap();
        assert!(views.lead("runs", one, 60, now).await.unwrap());
        if place.url.starts_with("sqlite") {
            // The clock was set back by a day: who led may be dead, and its time would not be up before tomorrow.
            assert!(views.lead("runs", two, 2, now.plus_s(-86_400)).await.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_want_to_lead_one_does() {
    for place in Place::each().await {
        let mut tasks = Vec::new();
        for process in 1..=8 {
            let views = place.open().await;
            let lead = async move { views.lead("runs", Uuid::from_u128(process), 60, Micros(0)).await.unwrap() };
            tasks.push(tokio::spawn(lead));
        }
        let mut leaders = 0;
        for task in tasks {
            leaders += u32::from(task.await.unwrap());
        }
        assert_eq!(leaders, 1);
    }
}

#[tokio::test]
async fn pages_are_read_from_an_index() {
    for place in Place::both().await {
        let views = place.open().await;
        let runs = writing(&views, &RUNS).await;
        let writes = (0..3_000).map(|n| keep(&format!("{n}"), "x", Some("live"), Some(n % 100))).collect();
        assert!(runs.apply(0, 1, Micros(1), writes).await.unwrap());
        for descending in [false, true] {
            let query =
                Query { after: Some(Cursor { cell: Cell::Int(50), key: "7".into() }), ..by("due_us", descending, 5) };
            let (dialect, name) = match place.on_postgres() {
                true => (Dialect::Postgres, postgres::table_name(&RUNS, runs.number)),
                false => (Dialect::Sqlite, sqlite::table_name(&RUNS, runs.number)),
            };
            let statement = Statement::select(dialect, &name, &RUNS, &query).unwrap();
            let plan = explain(&place, statement).await;
            let than = if descending { '<' } else { '>' };
            let (range, scan) = match place.on_postgres() {
                true => (format!("Index Cond: (ROW(due_us, key) {than} ROW("), "Seq Scan"),
                false => (format!("USING INDEX v_runs_1_1 ((due_us,key){than}(?,?))"), "SCAN v"),
            };
            assert!(plan.contains(&range) && !plan.contains(scan), "{descending}: {plan}");
            // Only the two halves of the page, not what they were taken from.
            assert!(descending || !(plan.contains("TEMP B-TREE") || plan.contains("Sort")), "{plan}");
        }
    }
}

async fn explain(place: &Place, statement: Statement) -> String {
    let text = statement.text.replace("$1", "'7'").replace("$2", "50").replace("$3", "5");
    if place.on_postgres() {
        let mut connection = PgConnection::connect(&place.url).await.unwrap();
        let name = "ANALYZE midwatch_projections.v_runs_1";
        sqlx::query(name).execute(&mut connection).await.unwrap();
        let plan: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN {text}"))).fetch_all(&mut connection).await.unwrap();
        return plan.join("\n");
    }
    let options = SqliteConnectOptions::new().filename(place.projections());
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let plan: Vec<(i64, i64, i64, String)> =
        sqlx::query_as(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"))).fetch_all(&mut connection).await.unwrap();
    plan.into_iter().map(|step| step.3).collect::<Vec<_>>().join("\n")
}
