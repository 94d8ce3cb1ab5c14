//! An idle process rests.

use std::time::Duration;

use super::support::{FAR, Place, Roles, at_once, bot, routine};

/// Processor time this process has used; each test has a process of its own.
fn used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<u64> =
        stat.rsplit(") ").next().unwrap().split(' ').skip(11).take(2).map(|n| n.parse().unwrap()).collect();
    Duration::from_millis((fields[0] + fields[1]) * 10)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_roles_together_use_next_to_nothing() {
    for place in Place::each().await {
        let engine = place.engine().await;
        let bot = bot(&engine).await;
        for _ in 0..20 {
            routine(&engine, bot, FAR).await;
        }
        let mut roles = Roles::new();
        roles.project(&engine);
        roles.tasks.spawn(crate::clock::run(engine.clone(), roles.stopped.clone()));
        roles.tasks.spawn(crate::reactor::run(engine.clone(), roles.stopped.clone()));
        roles.tasks.spawn(crate::runner::run(engine.clone(), at_once(), roles.stopped.clone()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = used();
        tokio::time::sleep(Duration::from_secs(4)).await;
        // Of one core, in a build that is not optimised, one in a hundred is usual. What spins takes all of it.
        let used = used() - before;
        assert!(used < Duration::from_millis(400), "{} used {used:?} in 4 s", place.backend);
        roles.end().await;
    }
}
