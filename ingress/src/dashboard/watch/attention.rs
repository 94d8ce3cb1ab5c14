//! What needs somebody: each kind once, with how many and the latest of them.

use midwatch_engine::projector;
use midwatch_events::{Micros, user::Access};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    audit::{Audit, AuditRow},
    deliveries::Deliveries,
    routines_list::RoutinesList,
    run_approvals::Approvals,
    runs::Runs,
    triggers::{TriggerRow, Triggers},
};

use super::super::{
    frame::{Failure, capital},
    names::Names,
    scope,
    status::{Mark, reason},
    text::{Shown, counted, word},
    time::{When, span},
};
use crate::{app::App, auth::Caller};

/// How far back it looks, in seconds.
const BACK_S: i64 = 86_400;

/// A ledger this far ahead of its store's clock is no matter of moments, in microseconds.
const AHEAD_US: u64 = 5_000_000;

/// One thing that needs somebody.
pub(crate) struct Item {
    pub(crate) mark: Mark,
    pub(crate) title: String,
    /// The latest of them.
    pub(crate) latest: Option<Shown>,
    pub(crate) at: Option<When>,
    pub(crate) path: String,
}

/// Everything that needs somebody now, the most pressing first.
pub(crate) async fn items(app: &App, caller: &Caller, now: Micros) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    items.extend(asked(app, caller, now).await?);
    if caller.reads_all() {
        items.extend(stopped(app).await?);
        items.extend(clock_set_back(app).await?);
        items.extend(unconfirmed(app, caller).await?);
        items.extend(held(app).await?);
    }
    items.extend(suspended(app, caller).await?);
    items.extend(held_windows(app, caller, now).await?);
    items.extend(failed(app, caller, now).await?);
    for kind in &KINDS {
        items.extend(of_audit(app, caller, now, kind).await?);
    }
    Ok(items)
}

/// Calls that wait for a person.
async fn asked(app: &App, caller: &Caller, now: Micros) -> Result<Option<Item>, Failure> {
    let mut filters = vec![Condition { column: "state", is: Test::Eq(Cell::Text("open".to_owned())) }];
    filters.extend(scope::owned(caller));
    let count = projector::count::<Approvals>(&app.engine, &filters).await?;
    let order = Order { column: "asked_at", descending: true };
    let latest = projector::page::<Approvals>(&app.engine, filters, order, 1, None).await?;
    let Some((latest, _)) = latest.into_iter().next() else { return Ok(None) };
    let path = if count == 1 { format!("/approvals/{}", latest.id) } else { "/approvals".to_owned() };
    Ok(Some(Item {
        mark: Mark { shape: "?", ..Mark::warn("asked") },
        title: counted(count, "call waits for a person", "calls wait for a person"),
        latest: Some(Shown::short(latest.fingerprint.as_deref().unwrap_or(&latest.tool), 120)),
        at: Some(When::utc(latest.asked_at, now)),
        path,
    }))
}

/// One kind of audit row that needs somebody.
struct Kind {
    column: &'static str,
    value: &'static str,
    title: fn(u64) -> String,
    mark: fn(String) -> Mark,
    filter: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        column: "outcome",
        value: "missed",
        title: |count| {
            format!("Windows were missed {}", if count == 1 { "once".to_owned() } else { format!("{count} times") })
        },
        mark: |word| Mark { shape: "◌", ..Mark::warn(word) },
        filter: "outcome:missed+since:24h",
    },
    Kind {
        column: "decision",
        value: "refused",
        title: |count| counted(count, "call refused", "calls refused"),
        mark: |word| Mark { shape: "⊘", ..Mark::bad(word) },
        filter: "decision:refused+since:24h",
    },
    Kind {
        column: "event",
        value: "repeat.threshold_crossed",
        title: |count| counted(count, "sign of going in circles", "signs of going in circles"),
        mark: |word| Mark { shape: "↻", ..Mark::warn(word) },
        filter: "event:repeat.threshold_crossed+since:24h",
    },
];

async fn of_audit(app: &App, caller: &Caller, now: Micros, kind: &Kind) -> Result<Option<Item>, Failure> {
    let mut filters = vec![
        Condition { column: kind.column, is: Test::Eq(Cell::Text(kind.value.to_owned())) },
        Condition { column: "at", is: Test::Ge(Cell::Int(now.plus_s(-BACK_S).0)) },
    ];
    filters.extend(scope::of_own_routines(app, caller).await?);
    let count = projector::count::<Audit>(&app.engine, &filters).await?;
    let order = Order { column: "position", descending: true };
    let latest = projector::page::<Audit>(&app.engine, filters, order, 1, None).await?;
    let Some((latest, _)) = latest.into_iter().next() else { return Ok(None) };
    Ok(Some(Item {
        mark: (kind.mark)(kind.value.to_owned()),
        title: (kind.title)(count),
        latest: Some(Shown::short(&line(app, &latest).await?, 120)),
        at: Some(When::utc(latest.at, now)),
        path: format!("/audit?q={}", kind.filter),
    }))
}

/// A row in a few words.
async fn line(app: &App, row: &AuditRow) -> Result<String, Failure> {
    let mut names = Names::default();
    let mut parts = Vec::new();
    if let Some(id) = row.routine {
        parts.push(names.routine(&app.engine, id).await?.to_string());
    }
    parts.extend(row.fingerprint.clone().or_else(|| row.tool.clone()));
    if let Some(rule) = &row.rule {
        parts.push(format!("rule {rule}"));
    } else if let Some(why) = &row.reason {
        parts.push(reason(why));
    }
    Ok(parts.join(", "))
}

async fn failed(app: &App, caller: &Caller, now: Micros) -> Result<Option<Item>, Failure> {
    let outcomes = ["failed", "stopped", "timed_out", "abandoned"].map(|word| Cell::Text(word.to_owned()));
    let mut filters = vec![
        Condition { column: "outcome", is: Test::In(outcomes.to_vec()) },
        Condition { column: "ended_at", is: Test::Ge(Cell::Int(now.plus_s(-BACK_S).0)) },
    ];
    filters.extend(scope::owned(caller));
    let count = projector::count::<Runs>(&app.engine, &filters).await?;
    let order = Order { column: "opened_at", descending: true };
    let latest = projector::page::<Runs>(&app.engine, filters, order, 1, None).await?;
    let Some((latest, _)) = latest.into_iter().next() else { return Ok(None) };
    let mut names = Names::default();
    let of = match latest.routine {
        Some(id) => names.routine(&app.engine, id).await?.to_string(),
        None => names.bot(&app.engine, latest.bot).await?.to_string(),
    };
    let why = latest.headline.unwrap_or_default();
    Ok(Some(Item {
        mark: Mark::bad("failed"),
        title: counted(count, "run did not succeed", "runs did not succeed"),
        latest: Some(Shown::short(&format!("{of}: {why}"), 120)),
        at: When::maybe(latest.ended_at, now),
        path: "/runs?show=failed".to_owned(),
    }))
}

async fn suspended(app: &App, caller: &Caller) -> Result<Vec<Item>, Failure> {
    let mut filters = vec![Condition { column: "state", is: Test::Eq(Cell::Text("suspended".to_owned())) }];
    filters.extend(scope::owned(caller));
    let order = Order { column: "name", descending: false };
    let found = projector::page::<RoutinesList>(&app.engine, filters, order, 10, None).await?;
    let item = |(row, _): (midwatch_projections::routines_list::RoutineRow, _)| Item {
        mark: Mark::warn("suspended"),
        title: "A routine was suspended".to_owned(),
        latest: Some(Shown::short(&format!("{}: {}", row.name, row.reason.unwrap_or_default()), 120)),
        at: None,
        path: format!("/routines/{}", row.id),
    };
    Ok(found.into_iter().map(item).collect())
}

/// Windows that nobody can run at present.
async fn held_windows(app: &App, caller: &Caller, now: Micros) -> Result<Vec<Item>, Failure> {
    let mut filters = vec![Condition { column: "attention", is: Test::Eq(Cell::Int(1)) }];
    filters.extend(scope::owned(caller));
    let order = Order { column: "name", descending: false };
    let found = projector::page::<RoutinesList>(&app.engine, filters, order, 200, None).await?;
    let item = |row: midwatch_projections::routines_list::RoutineRow| {
        let held = row.held?;
        Some(Item {
            mark: Mark { shape: "◔", ..Mark::warn("held") },
            title: "A window is held: nobody can run it".to_owned(),
            latest: Some(Shown::short(&format!("{}: {}", row.name, reason(&word(held.reason))), 120)),
            at: Some(When::utc(held.since, now)),
            path: format!("/routines/{}", row.id),
        })
    };
    Ok(found.into_iter().filter_map(|(row, _)| item(row)).take(10).collect())
}

async fn stopped(app: &App) -> Result<Vec<Item>, Failure> {
    let all = projector::status(&app.engine).await?;
    let items = all.into_iter().filter_map(|status| {
        let (position, error) = status.stopped?;
        Some(Item {
            mark: Mark::bad("stopped"),
            title: format!("The projection {} stopped at position {position}", status.name),
            latest: Some(Shown::short(&capital(&error), 160)),
            at: None,
            path: "/system".to_owned(),
        })
    });
    Ok(items.collect())
}

/// Events of a time that the store's clock has yet to reach.
async fn clock_set_back(app: &App) -> Result<Option<Item>, Failure> {
    let ahead_us = app.engine.log().ahead_us().await?;
    Ok((ahead_us >= AHEAD_US).then(|| Item {
        mark: Mark::bad("clock"),
        title: format!("The ledger is {} ahead of its database's clock", span(ahead_us)),
        latest: Some(Shown::line(
            "That clock was set back; until it has caught up, everything is recorded at one instant",
        )),
        at: None,
        path: "/system".to_owned(),
    }))
}

async fn unconfirmed(app: &App, caller: &Caller) -> Result<Vec<Item>, Failure> {
    let filters = vec![Condition { column: "state", is: Test::Eq(Cell::Text("active".to_owned())) }];
    let order = Order { column: "name", descending: false };
    let found = projector::page::<Triggers>(&app.engine, filters, order, 200, None).await?;
    let waits = |row: &TriggerRow| row.sample.is_some() && !row.confirmed && caller.role == Access::Admin;
    let item = |row: TriggerRow| Item {
        mark: Mark { shape: "◇", ..Mark::warn("sample") },
        title: "A sample waits to be read".to_owned(),
        latest: Some(Shown::short(&row.name, 120)),
        at: None,
        path: format!("/triggers/{}", row.id),
    };
    Ok(found.into_iter().map(|(row, _)| row).filter(waits).map(item).collect())
}

async fn held(app: &App) -> Result<Option<Item>, Failure> {
    let filters = vec![Condition { column: "status", is: Test::Eq(Cell::Text("held".to_owned())) }];
    let count = projector::count::<Deliveries>(&app.engine, &filters).await?;
    Ok((count > 0).then(|| Item {
        mark: Mark::warn("held"),
        title: counted(count, "delivery is held", "deliveries are held"),
        latest: None,
        at: None,
        path: "/triggers".to_owned(),
    }))
}
