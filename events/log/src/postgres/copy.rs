//! A page of the ledger in PostgreSQL's binary `COPY` format: rows as they come, without a driver's work for each value.
//! For whoever reads everything.

use futures_util::TryStreamExt as _;
use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{PgPool, postgres::PgPoolCopyExt as _};
use uuid::Uuid;

use super::{
    connect::failed,
    read::{array, select},
    seat::durable,
};
use crate::log::LogError;

/// What every answer begins with; flags and the length of an extension follow, four bytes each.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Up to `limit` events above `after` that are durable. Not to be dropped half-way: the connection would go back to the
/// pool with the rest of the answer in it.
pub(super) async fn page(pool: &PgPool, after: u64, limit: u32) -> Result<Vec<Recorded>, LogError> {
    // `COPY` takes no parameters; these are numbers.
    let sql = format!(
        concat!(
            "COPY (",
            select!("WHERE position > {0} AND position <= "),
            durable!(),
            " ORDER BY position LIMIT {1}) TO STDOUT (FORMAT binary)"
        ),
        after, limit
    );
    let failed = |error: sqlx::Error| failed("read the ledger", &error);
    let mut answer = pool.copy_out_raw(&sql).await.map_err(failed)?;
    let mut bytes = Vec::with_capacity(512 * limit as usize);
    while let Some(part) = answer.try_next().await.map_err(failed)? {
        bytes.extend_from_slice(&part);
    }
    events(&bytes, after)
}

fn events(bytes: &[u8], after: u64) -> Result<Vec<Recorded>, LogError> {
    let mut position = after;
    rows(bytes, &mut position).map_err(|reason| LogError::Corrupt { position, reason })
}

/// `position` is that of the row that was begun last, for whoever has to say where it went wrong.
fn rows(bytes: &[u8], position: &mut u64) -> Result<Vec<Recorded>, String> {
    let mut rest = Rest(bytes.strip_prefix(SIGNATURE).ok_or("it is no binary COPY")?);
    rest.take(4)?;
    let extension = rest.length()?.ok_or("an extension has no length")?;
    rest.take(extension)?;
    let mut rows = Vec::new();
    // The number of columns, or -1 at the end.
    while rest.take(2)? != [0xff; 2] {
        *position = rest.number()?.unsigned_abs();
        rows.push(row(*position, &mut rest)?);
    }
    Ok(rows)
}

fn row(position: u64, rest: &mut Rest<'_>) -> Result<Recorded, String> {
    Ok(Recorded {
        position,
        stream: StreamName::stored(rest.text()?),
        version: rest.number()?.unsigned_abs(),
        event_id: Uuid::from_bytes(rest.fixed()?),
        event_type: rest.text()?,
        schema: u16::try_from(i32::from_be_bytes(rest.fixed()?)).map_err(|e| e.to_string())?,
        recorded_at: Micros(rest.number()?),
        actor: rest.text()?,
        correlation_id: rest.value()?.map(text).transpose()?,
        causation_id: rest.value()?.map(fixed).transpose()?.map(Uuid::from_bytes),
        facts: rest.there()?.to_vec(),
        content: rest.value()?.map(<[u8]>::to_vec),
        salt: rest.value()?.map(fixed).transpose()?,
        commitment: rest.value()?.map(fixed).transpose()?,
        leaf_hash: rest.fixed()?,
    })
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it ends in the middle of a row")?;
        self.0 = rest;
        Ok(taken)
    }

    /// A length; none is NULL.
    fn length(&mut self) -> Result<Option<usize>, String> {
        let length = u32::from_be_bytes(fixed(self.take(4)?)?);
        Ok((length != u32::MAX).then_some(length as usize))
    }

    fn value(&mut self) -> Result<Option<&'a [u8]>, String> {
        self.length()?.map(|length| self.take(length)).transpose()
    }

    fn there(&mut self) -> Result<&'a [u8], String> {
        self.value()?.ok_or_else(|| "NULL where a value belongs".to_owned())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.there().and_then(fixed)
    }

    fn number(&mut self) -> Result<i64, String> {
        Ok(i64::from_be_bytes(self.fixed()?))
    }

    fn text(&mut self) -> Result<String, String> {
        self.there().and_then(text)
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], String> {
    array(bytes).map_err(|error| error.to_string())
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())
}
