//! Measures the clock with many routines; `benches/schedule.sh` (or `make bench-schedule`) calls it.
//!
//! `schedule due URL ROUTINES DUE PROCESSES` makes a ledger with so many routines, of which DUE are due in one second,
//! lets so many processes serve, and says how late their windows were claimed. `schedule idle URL ROUTINES SECONDS` lets
//! one process serve while nothing is due, and says what it used. Each prints one line of JSON; both need a fresh
//! database. `schedule serve URL HOME` is one of the processes.
#![expect(clippy::print_stdout, reason = "its lines are its result")]

use std::{
    error::Error,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use midwatch_commands::calendar::{Schedule, tzdb_version};
use midwatch_engine::{
    Engine, Opening, Origin, clock,
    deployment::Outside,
    handle::Plan,
    projector, reactor,
    runner::{self, Ending, Executor, Job},
    world::{Boxed, World},
};
use midwatch_events::{
    Actor, Micros, New, StreamName,
    engine::Role,
    id::{BotId, ProcessId, RoutineId, UserId},
    routine::{Limits, RoutineContent, RoutineEvent, Work},
    run::{Outcome as RunOutcome, WorkKind},
};
use midwatch_log::Filter;
use serde_json::json;
use tokio::{sync::watch, time::sleep};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "schedule due URL ROUTINES DUE PROCESSES | idle URL ROUTINES SECONDS | serve URL HOME";
/// Routines made by one append.
const BATCH: u64 = 1_000;
const FAR: &str = r#"{"kind":"weekly","zone":"Europe/Berlin","days":["mon","thu"],"times":["08:00","17:30"]}"#;

fn main() -> ExitCode {
    // cargo bench adds a flag of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.is_empty() {
        println!("nothing to measure by itself; use benches/schedule.sh\n{USAGE}");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(measure(&words))) {
        Ok(line) if line.is_empty() => ExitCode::SUCCESS,
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(words: &[&str]) -> Outcome<String> {
    match *words {
        ["due", url, routines, due, processes] => {
            due_at_once(url, routines.parse()?, due.parse()?, processes.parse()?).await
        }
        ["idle", url, routines, seconds] => idle(url, routines.parse()?, seconds.parse()?).await,
        ["serve", url, home] => serve(url, Path::new(home)).await,
        _ => Err(USAGE.into()),
    }
}

async fn engine(url: &str, home: &Path) -> Outcome<Engine> {
    let world = World::system();
    let opening = Opening {
        url: url.to_owned(),
        outside: Outside { deployment: None, key: None, key_file: None, state_home: home.to_owned() },
        process: ProcessId::new(world.uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    Ok(Engine::open(world, opening).await?)
}

/// Runs are done at once: the clock is measured, and not what they do.
struct AtOnce;

impl Executor for AtOnce {
    fn execute(&self, _: Job) -> Boxed<'static, Ending> {
        let ending = Ending { outcome: RunOutcome::Succeeded, reason: None, headline: "done".to_owned(), error: None };
        Box::pin(std::future::ready(ending))
    }
}

/// All roles, until standard input ends.
#[expect(clippy::disallowed_methods, reason = "it waits for its standard input beside everything else")]
async fn serve(url: &str, home: &Path) -> Outcome<String> {
    let engine = engine(url, home).await?;
    engine.start_process("bench", &[Role::Clock, Role::Runner, Role::Projector]).await?;
    let (stop, stopped) = watch::channel(false);
    let roles = [
        tokio::spawn(projector::run(engine.clone(), stopped.clone())),
        tokio::spawn(clock::run(engine.clone(), stopped.clone())),
        tokio::spawn(reactor::run(engine.clone(), stopped.clone())),
        tokio::spawn(runner::run(engine.clone(), Arc::new(AtOnce), stopped)),
    ];
    println!("serving");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    stop.send_replace(true);
    for role in roles {
        role.await?;
    }
    // Whoever started it may have stopped reading.
    Ok(String::new())
}

struct Serving {
    child: Child,
}

impl Serving {
    fn start(url: &str, home: &Path) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", url])
            .arg(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("the process has no output")?;
        BufReader::new(out).read_line(&mut line)?;
        if line.trim() != "serving" {
            return Err(format!("the process does not serve: {line}").into());
        }
        Ok(Self { child })
    }

    /// Processor time in milliseconds, and resident memory in kilobytes.
    fn used(&self) -> Outcome<(u64, u64)> {
        let proc = format!("/proc/{}", self.child.id());
        let stat = std::fs::read_to_string(format!("{proc}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let status = std::fs::read_to_string(format!("{proc}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let resident = resident.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        Ok(((ticks(11) + ticks(12)) * 10, resident))
    }

    fn stop(mut self) -> Outcome<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// Makes routines, of which the first `due` have their only window at `at`.
async fn make(engine: &Engine, routines: u64, due: u64, at: Micros) -> Outcome<()> {
    let origin = Origin::of(Actor::Cli(0));
    let bot: BotId = engine.register_bot("bench", None, &origin, None).await?.value;
    let owner: UserId = midwatch_engine::deployment::first_admin(engine.namespace());
    let now = engine.log().store_time().await?;
    let far = Schedule::parse(FAR)?.next_after(now, now).ok_or("the schedule has no window")?.at;
    let once = json!({ "kind": "once", "at": at.to_string() }).to_string();
    let recording = json!({ "steps": [{ "tool": "computer_list_files", "arguments": {} }] }).to_string();
    let mut made = 0;
    while made < routines {
        let mut plan = Plan::default();
        for n in made..routines.min(made + BATCH) {
            let routine = RoutineId::new(engine.world().uuid());
            let (schedule, next) = if n < due { (once.clone(), at) } else { (FAR.to_owned(), far) };
            let facts = RoutineEvent::Created {
                routine,
                name: format!("routine {n}"),
                owner,
                bot,
                schedule,
                work: WorkKind::Recording,
                limits: Limits::default(),
                anchor_us: now,
                next_us: Some(next),
            };
            let work = Work { instruction: None, recording: Some(recording.clone()) };
            let event = New::with(facts, RoutineContent::Created(work));
            plan.add(engine.world(), &StreamName::routine(routine), 0, &[event], &origin)?;
        }
        plan.commit(engine.log()).await?;
        made += BATCH;
    }
    projector::catch_up(engine).await?;
    Ok(())
}

async fn due_at_once(url: &str, routines: u64, due: u64, processes: usize) -> Outcome<String> {
    let home = tempfile::tempdir()?;
    let engine = engine(url, home.path()).await?;
    // Long enough for making them all; the second in which they are due is what counts.
    let now = engine.log().store_time().await?;
    let lead_s = i64::try_from(routines / 700 + 30)?;
    let at = Micros((now.seconds() + lead_s) * 1_000_000);
    make(&engine, routines, due, at).await?;
    let left = at.since(engine.log().store_time().await?);
    if left < 8_000_000 {
        return Err("making the routines took too long for their window; the machine is too busy".into());
    }
    let children = (0..processes).map(|_| Serving::start(url, home.path())).collect::<Outcome<Vec<_>>>()?;
    let head = engine.log().head().await?;
    sleep(Duration::from_micros(u64::try_from(left)?.saturating_sub(2_000_000))).await;
    let before = children.iter().map(|child| child.used().map(|(cpu, _)| cpu)).sum::<Outcome<u64>>()?;
    let lateness = claims(&engine, head, at, due).await?;
    let after = children.iter().map(|child| child.used().map(|(cpu, _)| cpu)).sum::<Outcome<u64>>()?;
    children.into_iter().try_for_each(Serving::stop)?;
    let of = |share: f64| {
        let last = lateness.len().saturating_sub(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank"
        )]
        let rank = (last as f64 * share) as usize;
        lateness.get(rank).copied().unwrap_or(0) / 1_000
    };
    let line = json!({
        "routines": routines,
        "due": due,
        "processes": processes,
        "claimed": lateness.len(),
        "p50_ms": of(0.5),
        "p99_ms": of(0.99),
        "all_claimed_ms": of(1.0),
        "cpu_ms": after - before,
    });
    Ok(line.to_string())
}

/// How late each window was claimed, in microseconds, sorted; when all were, or after two minutes.
async fn claims(engine: &Engine, head: u64, at: Micros, due: u64) -> Outcome<Vec<i64>> {
    let until = at.plus_s(120);
    let filter = Filter { event_types: vec!["routine.run_claimed".to_owned()], ..Filter::default() };
    let (mut after, mut late) = (head, Vec::new());
    while (late.len() as u64) < due && engine.log().store_time().await? < until {
        // Looked at seldom: it is not what is measured.
        sleep(Duration::from_millis(500)).await;
        loop {
            let (events, scanned) = engine.log().read_all(after, 1_000, &filter).await?;
            late.extend(events.iter().map(|event| event.recorded_at.since(at)));
            if scanned == after {
                break;
            }
            after = scanned;
        }
    }
    late.sort_unstable();
    Ok(late)
}

async fn idle(url: &str, routines: u64, seconds: u64) -> Outcome<String> {
    let home = tempfile::tempdir()?;
    let engine = engine(url, home.path()).await?;
    make(&engine, routines, 0, Micros(0)).await?;
    let child = Serving::start(url, home.path())?;
    // What it does once is not what is asked for: with each release of zone data it looks at every routine.
    let looked = format!("zone_data/{}", tzdb_version());
    while engine.views().named_checkpoint(&looked).await? == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(35)).await;
    let (before, _) = child.used()?;
    sleep(Duration::from_secs(seconds)).await;
    let (after, resident) = child.used()?;
    child.stop()?;
    std::io::stdout().flush()?;
    let line = json!({ "routines": routines, "seconds": seconds, "cpu_ms": after - before, "resident_kb": resident });
    Ok(line.to_string())
}
