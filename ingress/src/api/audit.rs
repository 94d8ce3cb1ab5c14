//! The audit view, by its own filter language.

use axum::{Json, extract::State};
use midwatch_engine::{Engine, projector};
use midwatch_log::views::{self, Condition, Cursor, Order, Test};
use midwatch_projections::{
    Cell, Kind, Projection,
    audit::{
        Audit, AuditRow,
        filter::{BadFilter, Filter, Name, Op},
    },
    bots::Bots,
    routines_list::RoutinesList,
    triggers::Triggers,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{AsOf, Listed, Paging, Query, equals, paging, shapes};
use crate::{app::App, auth::Caller, error::Problem};

/// Rows that a filter on words may look at for one page. The next page goes on from there.
const LOOKED_AT_MAX: u32 = 10_000;
const PAGE: u32 = 500;
/// Things of one name that a filter may mean.
const SAME_NAME_MAX: u32 = 200;

/// Which rows.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// A filter such as `bot:ops decision:refused unattended:true since:7d text:"invoice"`.
    #[serde(default)]
    q: String,
}

impl From<BadFilter> for Problem {
    fn from(error: BadFilter) -> Self {
        Self::bad("invalid_filter", error.to_string())
    }
}

/// The audit view, the newest first. A page of a filter on words may be short or empty and still have a next one.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::AuditRow>), (status = 400, body = shapes::Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<AuditRow>>, Problem> {
    caller.must_read_all()?;
    let filter = resolved(&app.engine, &wanted.q).await?;
    page(&app.engine, &filter, &paging).await.map(Json)
}

/// A filter with its names looked up.
///
/// # Errors
/// 400 for one that cannot be understood, or that names what is not there.
pub(crate) async fn resolved(engine: &Engine, text: &str) -> Result<Filter, Problem> {
    let mut filter = Filter::parse(text, engine.log().store_time().await?)?;
    for name in filter.names().to_vec() {
        let ids = match name.of {
            "bot" => named::<Bots>(engine, &name, |row| row.id.to_string()).await?,
            "routine" => named::<RoutinesList>(engine, &name, |row| row.id.to_string()).await?,
            _ => named::<Triggers>(engine, &name, |row| row.id.to_string()).await?,
        };
        filter.resolve(&name, &ids)?;
    }
    Ok(filter)
}

async fn named<P: Projection>(
    engine: &Engine,
    name: &Name,
    id: impl Fn(&P::Row) -> String,
) -> Result<Vec<String>, Problem> {
    let order = Order { column: "name", descending: false };
    let filters = equals("name", Some(&name.name)).into_iter().collect();
    let rows = projector::page::<P>(engine, filters, order, SAME_NAME_MAX, None).await?;
    Ok(rows.iter().map(|(row, _)| id(row)).collect())
}

/// One page of the rows that pass.
///
/// # Errors
/// 400 for a page that makes no sense, or a fault.
pub(crate) async fn page(engine: &Engine, filter: &Filter, paging: &Paging) -> Result<Listed<AuditRow>, Problem> {
    let limit = paging.limit()? as usize;
    let order = Order { column: "position", descending: true };
    let mut after = paging.after(Kind::Int)?;
    let as_of = AsOf::of::<Audit>(engine).await?;
    let conditions: Vec<Condition> = filter.conditions().iter().map(in_log_words).collect();
    let size = if filter.reads_rows() { PAGE } else { u32::try_from(limit + 1).unwrap_or(PAGE) };
    let (mut items, mut looked_at): (Vec<AuditRow>, u32) = (Vec::new(), 0);
    loop {
        let rows = projector::page::<Audit>(engine, conditions.clone(), order, size, after.clone()).await?;
        let full = rows.len() == size as usize;
        for (row, cursor) in rows {
            if !filter.matches(&row) {
                after = Some(cursor);
            } else if items.len() < limit {
                items.push(row);
                after = Some(cursor);
            } else {
                return Ok(listed(items, after, as_of));
            }
        }
        looked_at += size;
        if !full {
            return Ok(listed(items, None, as_of));
        }
        if looked_at >= LOOKED_AT_MAX {
            return Ok(listed(items, after, as_of));
        }
    }
}

fn listed(items: Vec<AuditRow>, next: Option<Cursor>, as_of: AsOf) -> Listed<AuditRow> {
    Listed { items, next: next.as_ref().map(paging::written), as_of }
}

fn in_log_words(condition: &midwatch_projections::audit::filter::Condition) -> Condition {
    let cell = |cell: &Cell| match cell {
        Cell::Null => views::Cell::Null,
        Cell::Int(int) => views::Cell::Int(*int),
        Cell::Text(text) => views::Cell::Text(text.clone()),
    };
    let is = match &condition.is {
        Op::OneOf(cells) => Test::In(cells.iter().map(cell).collect()),
        Op::AtLeast(least) => Test::Ge(cell(least)),
        Op::Below(limit) => Test::Lt(cell(limit)),
    };
    Condition { column: condition.column, is }
}
