//! This process's row among the writers, and what a commit may leave to the flusher.
//!
//! Who is alone commits synchronously, and its row says that everything is durable. Who is not, or for whom a crowd
//! waits, commits without waiting for the disk, and the flusher moves the mark. Each transaction decides under the lock which of the two it is; going
//! from one to the other takes a synchronous commit that says so, so that at any moment either every commit is
//! synchronous or readers go by the mark.
//!
//! A process is taken for dead when its row was not beaten for [`DEAD`] by the database's clock. A wrong guess costs
//! nothing but speed: whoever finds its row gone takes a seat again before it commits anything without a flush.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sqlx::{PgConnection, Row as _, postgres::PgRow};
use tokio::sync::Notify;
use uuid::Uuid;

use super::read::signed;

/// The durable mark of a process that is alone; in SQL it is written out.
const ALL: i64 = i64::MAX;

/// Appends that wait for one transaction are a crowd; the next ones are then judged and inserted while it is flushed.
/// With fewer the way to the flusher and back costs more than it gains.
const CROWD: usize = 4;
/// Transactions after the last one with a crowd that still count as such: going from one to the other costs a few
/// statements.
const CALM: u32 = 256;

/// Positions up to this one are durable; for statements of readers.
macro_rules! durable {
    () => {
        "(SELECT coalesce(max(durable), 9223372036854775807) FROM ledger_writer)"
    };
}
pub(super) use durable;

/// The end of the ledger, the clock, and who else writes; `$1` is this writer. Its own statement, after the lock.
pub(super) const HEAD: &str = "SELECT c.now, e.position, e.recorded_at, e.leaf_hash,
        w.mine, w.others, w.seats, w.all_durable, w.durable
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) c
    LEFT JOIN (SELECT position, recorded_at, leaf_hash FROM events ORDER BY position DESC LIMIT 1) e ON true
    CROSS JOIN LATERAL (
        SELECT max(durable) FILTER (WHERE writer = $1) AS mine,
            count(*) FILTER (WHERE writer <> $1
                AND (beat > c.now - 10000000 OR (durable = 9223372036854775807 AND beat > 0))) AS others,
            count(*) AS seats,
            coalesce(bool_or(durable = 9223372036854775807), false) AS all_durable,
            coalesce(max(durable), 0) AS durable
        FROM ledger_writer
    ) w";

const REMOVE_OTHERS: &str = "DELETE FROM ledger_writer WHERE writer <> $1";

const REMOVE_DEAD: &str = "DELETE FROM ledger_writer WHERE writer <> $1
    AND beat <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 10000000
    AND (durable < 9223372036854775807 OR beat = 0)";

/// Who was alone is so no longer. It gets a beat: it could not know that it has to have one.
const OPEN_TO_OTHERS: &str = "UPDATE ledger_writer
    SET durable = $2, beat = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE writer <> $1 AND durable = 9223372036854775807";

const TAKE_SEAT: &str = "INSERT INTO ledger_writer (writer, durable, beat)
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (writer) DO UPDATE SET durable = excluded.durable, beat = excluded.beat";

const LEAVE: &str = "UPDATE ledger_writer SET beat = 0 WHERE writer = $1";

/// What the session and the flusher of one process share.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(super) writer: Uuid,
    /// The flusher has a connection; without it every commit is synchronous.
    flushes: AtomicBool,
    /// Transactions that are left until it is no longer a crowd that waits.
    crowd: AtomicU32,
    /// Told when there are other writers, or a crowd: the flusher is needed.
    pub(super) needed: Notify,
}

/// What a transaction is, found under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The only writer, and the rows say so.
    Alone,
    /// The rows have to change with this transaction, or there is no flusher: it commits synchronously.
    Settle { alone: bool },
    /// One of several, or the writer for a crowd; the mark stands at `durable`.
    Shared { durable: u64 },
}

impl Seat {
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let writer = uuid::Builder::from_random_bytes(random).into_uuid();
        Ok(Self { writer, flushes: AtomicBool::new(false), crowd: AtomicU32::new(0), needed: Notify::new() })
    }

    pub(super) fn set_flushes(&self, flushes: bool) {
        self.flushes.store(flushes, Ordering::SeqCst);
    }

    /// How many appends wait for the transaction that begins; only the session says so.
    pub(super) fn waiting(&self, appends: usize) {
        let left = self.crowd.load(Ordering::Relaxed);
        let crowd = if appends >= CROWD { CALM } else { left.saturating_sub(1) };
        self.crowd.store(crowd, Ordering::Relaxed);
    }

    pub(super) fn standing(&self, head: &PgRow) -> Result<Standing, sqlx::Error> {
        let (mine, others, seats): (Option<i64>, i64, i64) = (head.try_get(4)?, head.try_get(5)?, head.try_get(6)?);
        let all_durable: bool = head.try_get(7)?;
        if others == 0 && self.crowd.load(Ordering::Relaxed) == 0 {
            let said = mine == Some(ALL) && seats == 1;
            return Ok(if said { Standing::Alone } else { Standing::Settle { alone: true } });
        }
        self.needed.notify_one();
        if mine.is_some() && !all_durable && self.flushes.load(Ordering::SeqCst) {
            return Ok(Standing::Shared { durable: head.try_get::<i64, _>(8)?.unsigned_abs() });
        }
        Ok(Standing::Settle { alone: false })
    }

    /// Writes down what `Standing::Settle` asks for, as a part of the transaction that ends at `last`.
    pub(super) async fn settle(
        &self,
        connection: &mut PgConnection,
        alone: bool,
        last: u64,
    ) -> Result<(), sqlx::Error> {
        let durable = if alone { ALL } else { signed(last) };
        if alone {
            sqlx::query(REMOVE_OTHERS).bind(self.writer).execute(&mut *connection).await?;
        } else {
            sqlx::query(REMOVE_DEAD).bind(self.writer).execute(&mut *connection).await?;
            sqlx::query(OPEN_TO_OTHERS).bind(self.writer).bind(durable).execute(&mut *connection).await?;
        }
        sqlx::query(TAKE_SEAT).bind(self.writer).bind(durable).execute(connection).await.map(drop)
    }

    /// Lets the others know at once that this process is gone.
    pub(super) async fn leave(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query(LEAVE).bind(self.writer).execute(connection).await.map(drop)
    }
}
