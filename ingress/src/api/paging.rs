//! Lists, a page at a time.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_engine::{Engine, projector};
use midwatch_events::Micros;
use midwatch_log::views::{Cell, Condition, Cursor, Order};
use midwatch_projections::{Kind, Projection};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::Problem;

const LIMIT: u32 = 50;
const LIMIT_MAX: u32 = 200;

/// Which page.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// Rows on the page, 1 to 200; 50 if nothing is said.
    pub(crate) limit: Option<u32>,
    /// `next` of the page before.
    pub(crate) cursor: Option<String>,
}

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listed<T> {
    /// The rows.
    pub(crate) items: Vec<T>,
    /// Where the next page starts; null on the last one.
    pub(crate) next: Option<String>,
    /// What the rows are as of.
    pub(crate) as_of: AsOf,
}

/// What the rows of a projection are as of.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AsOf {
    /// The last position they hold.
    pub(crate) position: u64,
    /// When that was recorded.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) at: String,
    /// Positions they do not hold yet.
    pub(crate) behind: u64,
}

impl AsOf {
    pub(crate) async fn of<P: Projection>(engine: &Engine) -> Result<Self, Problem> {
        let (position, at): (u64, Micros) = projector::as_of::<P>(engine).await?;
        let behind = engine.log().head().await?.saturating_sub(position);
        Ok(Self { position, at: at.to_string(), behind })
    }
}

impl Paging {
    pub(crate) fn limit(&self) -> Result<u32, Problem> {
        match self.limit.unwrap_or(LIMIT) {
            limit @ 1..=LIMIT_MAX => Ok(limit),
            other => Err(Problem::bad("invalid_limit", format!("a page has 1 to {LIMIT_MAX} rows, not {other}"))),
        }
    }

    /// The place to go on from, in an order by cells of this kind.
    pub(crate) fn after(&self, kind: Kind) -> Result<Option<Cursor>, Problem> {
        let Some(text) = &self.cursor else { return Ok(None) };
        let fits = |cursor: &Cursor| match cursor.cell {
            Cell::Null => true,
            Cell::Int(_) => kind == Kind::Int,
            Cell::Text(_) => kind == Kind::Text,
        };
        read(text)
            .filter(fits)
            .map(Some)
            .ok_or_else(|| Problem::bad("invalid_cursor", "the cursor is none of ours; start again without one"))
    }
}

/// One page of a projection.
pub(crate) async fn list<P: Projection>(
    engine: &Engine,
    filters: Vec<Condition>,
    order: Order,
    paging: &Paging,
) -> Result<Listed<P::Row>, Problem> {
    let limit = paging.limit()?;
    let after = paging.after(kind::<P>(order.column))?;
    // Before the rows: they may then hold more than it says, never less.
    let as_of = AsOf::of::<P>(engine).await?;
    // One more than is shown tells whether there is a next page.
    let mut rows = projector::page::<P>(engine, filters, order, limit + 1, after).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|(_, cursor)| written(cursor));
    Ok(Listed { items: rows.into_iter().map(|(row, _)| row).collect(), next, as_of })
}

/// What the cells of a column hold; the key is text.
pub(crate) fn kind<P: Projection>(column: &str) -> Kind {
    P::TABLE.columns.iter().find(|(name, _)| *name == column).map_or(Kind::Text, |(_, kind)| *kind)
}

/// A place in an order, opaque to whoever hands it back.
pub(crate) fn written(cursor: &Cursor) -> String {
    let (kind, value) = match &cursor.cell {
        Cell::Null => ('n', String::new()),
        Cell::Int(int) => ('i', int.to_string()),
        Cell::Text(text) => ('t', text.clone()),
    };
    URL_SAFE_NO_PAD.encode(format!("{kind}{}\n{}{value}", cursor.key.len(), cursor.key))
}

fn read(text: &str) -> Option<Cursor> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (head, rest) = text.split_once('\n')?;
    let kind = head.chars().next()?;
    let (key, value) = rest.split_at_checked(head.get(1..)?.parse().ok()?)?;
    let cell = match kind {
        'n' if value.is_empty() => Cell::Null,
        'i' => Cell::Int(value.parse().ok()?),
        't' => Cell::Text(value.to_owned()),
        _ => return None,
    };
    // PostgreSQL takes no NUL.
    (!text.contains('\0')).then(|| Cursor { cell, key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        for cell in [Cell::Null, Cell::Int(-5), Cell::Text("a\nb:ä".to_owned()), Cell::Text(String::new())] {
            let cursor = Cursor { cell, key: "kéy/0001".to_owned() };
            assert_eq!(read(&written(&cursor)), Some(cursor));
        }
    }

    #[test]
    fn anything_else_is_no_cursor() {
        for text in ["", "x", "AAAA", "!!", &URL_SAFE_NO_PAD.encode("i3\nabcx"), &URL_SAFE_NO_PAD.encode("t9\nabc")] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
