//! What the ledger itself can tell.

use std::collections::BTreeSet;

use midwatch_commands::calendar::{self, Schedule, disagreements, second_opinion_version};
use midwatch_engine::{Engine, processes::runner_there, projector};
use midwatch_events::Micros;
use midwatch_log::{
    Log, Risk,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::{
    engine_deployment::{Deployment, KEY},
    engine_processes::Processes,
    projection::rfc3339,
    routines_list::RoutinesList,
};

use super::{super::all, Check};
use crate::failure::Failure;

const YEAR_S: i64 = 365 * 86_400;
/// Older zone data is suspect: governments change rules at short notice, and several releases will have come.
const STALE_AFTER_DAYS: i64 = 240;

pub(super) async fn ledger(engine: &Engine) -> Result<Check, Failure> {
    let head = engine.log().head().await?;
    let (store, here) = (engine.log().store_time().await?, engine.world().clock.now());
    let apart_s = store.since(here).abs() / 1_000_000;
    if apart_s > 5 {
        let sentence = format!("{head} events; the database's clock and this machine's are {apart_s} s apart");
        return Ok(Check::warn("ledger", sentence));
    }
    let ahead_s = engine.log().ahead_us().await? / 1_000_000;
    if ahead_s >= 5 {
        let sentence = format!(
            "{head} events; the newest is {ahead_s} s ahead of the database's clock, which was set back: until it has \
             caught up, everything is recorded at one instant"
        );
        return Ok(Check::warn("ledger", sentence));
    }
    Ok(Check::ok("ledger", format!("reachable, its schema is known, {head} events")))
}

pub(super) async fn durability(engine: &Engine) -> Result<Vec<Check>, Failure> {
    let risks = engine.log().durability().await?;
    if risks.is_empty() {
        let sentence = match engine.log() {
            Log::Postgres(_) => "what is acknowledged is on disk, and on a synchronous standby: a failover keeps it",
            _ => "what is acknowledged is on disk",
        };
        return Ok(vec![Check::ok("durability", sentence)]);
    }
    let check = |risk: Risk| if risk.refused { Check::fail } else { Check::warn }("durability", risk.sentence);
    Ok(risks.into_iter().map(check).collect())
}

/// Whether erased words can still be read in the database's files.
pub(super) async fn erased(engine: &Engine) -> Result<Check, Failure> {
    Ok(match engine.log().unvacuumed().await? {
        None => Check::ok("erased words", "erasing overwrites them in the ledger's file"),
        Some(0) => Check::ok("erased words", "nothing that was erased waits for VACUUM"),
        Some(rows) => Check::warn(
            "erased words",
            format!("{rows} old rows may still hold words that were erased: run `VACUUM events` on the database"),
        ),
    })
}

/// Which data, and how old it is.
pub(super) fn tzdb(now: Micros) -> Check {
    let (version, released) = (calendar::tzdb_version(), calendar::tzdb_released());
    let Some(from) = rfc3339::parse(&format!("{released}T00:00:00Z")) else {
        return Check::warn("time zones", format!("IANA {version}, bundled; its age is not known"));
    };
    let days = (now.since(from) / 86_400_000_000).max(0);
    let said = format!("IANA {version}, bundled, released {released}, {days} days ago");
    if days > STALE_AFTER_DAYS {
        let sentence = format!("{said}: rules that changed since are missing; use a newer midwatch");
        return Check::warn("time zones", sentence);
    }
    Check::ok("time zones", said)
}

pub(super) async fn projections(engine: &Engine) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    // Where the rows stand is looked at before they are brought up, else nobody would ever be behind.
    let behind = projector::status(engine).await?;
    let head = projector::catch_up(engine).await?;
    for status in projector::status(engine).await? {
        if let Some((position, error)) = status.stopped {
            let name = status.name;
            let sentence =
                format!("{name} stopped at position {position}: {error}; `midwatch rebuild {name}` once that is cured");
            checks.push(Check::fail("projection", sentence));
        }
    }
    let most = behind.iter().map(|status| status.behind).max().unwrap_or(0);
    if checks.is_empty() {
        let sentence = format!("{} projections at position {head}; they were {most} events behind", behind.len());
        checks.push(Check::ok("projections", sentence));
    }
    Ok(checks)
}

pub(super) async fn halt(engine: &Engine) -> Result<Check, Failure> {
    let row = projector::get::<Deployment>(engine, KEY).await?.unwrap_or_default();
    if !row.halted {
        return Ok(Check::ok("halt", "scheduling is not halted"));
    }
    let since = row.since.unwrap_or_default();
    let (by, reason) = (row.by.unwrap_or_default(), row.reason.unwrap_or_default());
    Ok(Check::warn("halt", format!("scheduling is halted since {since} by {by}: {reason}")))
}

pub(super) async fn processes(engine: &Engine) -> Result<Vec<Check>, Failure> {
    let here = vec![Condition { column: "stopped_at", is: Test::IsNull }];
    let rows = all::<Processes>(engine, here, Order { column: "started_at", descending: true }, Some(20)).await?;
    let mut checks: Vec<_> = rows
        .iter()
        .map(|row| {
            let roles: Vec<_> = row.roles.iter().map(|role| role.name()).collect();
            let sentence = format!(
                "{} since {}, version {}, IANA {}, {}; it has not said that it left",
                row.id,
                row.started_at,
                row.version,
                row.tzdb,
                roles.join(",")
            );
            Check::ok("process", sentence)
        })
        .collect();
    let runner = if runner_there(engine).await? {
        Check::ok("runner", "a process that executes runs is there")
    } else {
        Check::warn("runner", "no process executes runs: they wait, at most 15 minutes; `midwatch serve` starts one")
    };
    checks.push(runner);
    Ok(checks)
}

/// Where the two copies of the zone data differ for a zone in use, within a year from now.
pub(super) async fn second_opinions(engine: &Engine) -> Result<Vec<Check>, Failure> {
    let there = vec![Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) }];
    let rows = all::<RoutinesList>(engine, there, Order { column: "name", descending: false }, None).await?;
    let schedules = rows.iter().filter_map(|row| Schedule::parse(&row.schedule).ok());
    let zones = schedules.filter(|schedule| schedule.once_at().is_none());
    let zones: BTreeSet<String> = zones.map(|schedule| schedule.zone().name().to_owned()).collect();
    let now = engine.log().store_time().await?;
    let mut checks = Vec::new();
    for zone in &zones {
        let Ok(spans) = disagreements(zone, now, now.plus_s(YEAR_S)) else { continue };
        if let Some(first) = spans.first() {
            checks.push(Check::warn("second opinion", first.in_words(zone).trim_end_matches('.').to_owned()));
        }
    }
    if checks.is_empty() {
        let sentence = format!("{} zones in use, IANA {} says the same", zones.len(), second_opinion_version());
        checks.push(Check::ok("second opinion", sentence));
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::doctor::State;

    #[test]
    fn zone_data_grows_old() {
        let released = rfc3339::parse(&format!("{}T00:00:00Z", calendar::tzdb_released())).unwrap();
        let after = |days: i64| tzdb(released.plus_s(days * 86_400 + 3_600));
        assert_eq!(after(33).state, State::Ok);
        assert!(after(33).message.ends_with("33 days ago"), "{}", after(33).message);
        assert_eq!(after(STALE_AFTER_DAYS).state, State::Ok);
        assert_eq!(after(STALE_AFTER_DAYS + 1).state, State::Warn);
        // A clock that is wrong makes nothing younger than new.
        assert!(after(-9).message.contains(" 0 days ago"));
    }
}
