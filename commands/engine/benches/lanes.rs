//! One hot stream beside distinct streams, through the engine: every caller gives one routine a new name, again and
//! again; all of them the same routine, or each its own.
//!
//! `lanes URL CALLERS SECONDS`, `URL` being a ledger that does not exist yet; without words it measures 256 callers for
//! 5 s on a new SQLite file. Prints one line of JSON: appends per second of both, and their ratio.
#![expect(clippy::print_stdout, reason = "its line is its result")]

use std::{error::Error, path::Path, time::Duration};

use midwatch_commands::routine::{Edit, Routine, RoutineCommand};
use midwatch_engine::{
    Engine, Opening, Origin, deployment::Outside, handle::handle, routines::NewRoutine, world::World,
};
use midwatch_events::{
    Actor, StreamName,
    id::{BotId, ProcessId, RoutineId},
    routine::{Limits, Work},
};
use tokio::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WARM_UP: Duration = Duration::from_secs(1);

fn main() -> Outcome<()> {
    // cargo bench adds a flag of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let directory = tempfile::tempdir()?;
    let own = format!("sqlite://{}/ledger.db", directory.path().display());
    let (url, callers, seconds) = match words.as_slice() {
        [] => (own, 256, 5),
        [url, callers, seconds] => (url.clone(), callers.parse()?, seconds.parse()?),
        _ => return Err("lanes [URL CALLERS SECONDS]".into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("{}", runtime.block_on(measure(&url, directory.path(), callers, Duration::from_secs(seconds)))?);
    Ok(())
}

async fn measure(url: &str, home: &Path, callers: usize, span: Duration) -> Outcome<String> {
    let opening = Opening {
        url: url.to_owned(),
        outside: Outside { deployment: None, key: None, key_file: None, state_home: home.to_owned() },
        process: ProcessId::new(World::system().uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    let engine = Engine::open(World::system(), opening).await?;
    let bot = engine.register_bot("bench", None, &me(), None).await?.value;
    let mut routines = Vec::new();
    for _ in 0..callers {
        routines.push(routine(&engine, bot).await?);
    }
    let distinct = rate(&engine, &routines, span).await?;
    let hot = rate(&engine, &vec![routine(&engine, bot).await?; callers], span).await?;
    engine.close().await;
    let ratio = hot / distinct;
    Ok(format!(
        r#"{{"callers":{callers},"distinct_per_s":{distinct:.0},"hot_per_s":{hot:.0},"hot_to_distinct":{ratio:.2}}}"#
    ))
}

fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

async fn routine(engine: &Engine, bot: BotId) -> Outcome<RoutineId> {
    let new = NewRoutine {
        name: "bench".to_owned(),
        bot,
        schedule: r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#.to_owned(),
        work: Work { instruction: Some("Look.".to_owned()), recording: None },
        limits: Limits::default(),
        owner: None,
    };
    Ok(engine.create_routine(&new, &me(), None).await?.value)
}

/// Commands per second, each caller on its own routine of these.
async fn rate(engine: &Engine, routines: &[RoutineId], span: Duration) -> Outcome<f64> {
    let from = Instant::now() + WARM_UP;
    let callers: Vec<_> = routines
        .iter()
        .enumerate()
        .map(|(n, id)| {
            let (engine, stream) = (engine.clone(), StreamName::routine(*id));
            tokio::spawn(async move {
                let mut done = 0_u64;
                for round in 0_u64.. {
                    let name = format!("caller {n} for the {round}th time");
                    handle::<Routine>(&engine, &stream, &me(), None, |_| {
                        Ok(RoutineCommand::Edit(Box::new(Edit { name: Some(name.clone()), ..Edit::default() })))
                    })
                    .await?;
                    let now = Instant::now();
                    if now >= from + span {
                        break;
                    }
                    done += u64::from(now >= from);
                }
                Outcome::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await??;
    }
    #[expect(clippy::cast_precision_loss, reason = "it is a rate")]
    let done = done as f64;
    Ok(done / span.as_secs_f64())
}
