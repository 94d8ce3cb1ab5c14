//! The second connection of a process that is not the only writer, or for which a crowd waits: it flushes what was committed without a flush, moves
//! the durable mark, and only then lets the answers go.

use std::{sync::Arc, time::Duration};

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{connect, read::signed, seat::Seat};
use crate::desk::{Announce, Answered, Ask};

/// Well below the time after which a writer is taken for dead.
const BEAT: Duration = Duration::from_secs(3);
/// How long a flush may take; longer than that, and what became of it is looked up.
const STEP: Duration = Duration::from_secs(25);
/// Batches that one flush takes with it.
const BATCHES: usize = 64;

/// The event has to be there, as it was written: a server that crashed since has lost it, and may have given its
/// position to another. With the last one all before it stand, because they were committed before it.
const FLUSH: &str = "UPDATE ledger_writer
    SET durable = greatest(durable, $2), beat = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE writer = $1 AND EXISTS (SELECT FROM events WHERE position = $2 AND leaf_hash = $3)";

/// Also takes the mark over what a process left behind that died between its commit and its flush.
const BEAT_SQL: &str = "UPDATE ledger_writer m
    SET durable = greatest(durable, (SELECT coalesce(max(position), 0) FROM events)),
        beat = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE writer = $1 AND EXISTS (SELECT FROM ledger_writer o WHERE o.writer <> $1)";

/// The flushing side of a writer.
#[derive(Debug)]
pub(crate) struct Flusher {
    options: PgConnectOptions,
    seat: Arc<Seat>,
    announce: Announce,
    connection: Option<PgConnection>,
    faults: u32,
}

impl Flusher {
    pub(super) fn new(options: PgConnectOptions, seat: Arc<Seat>, announce: Announce) -> Self {
        Self { options, seat, announce, connection: None, faults: 0 }
    }

    /// Flushes until the desk is done. Each batch goes back to it: empty once its answers have left, whole when it has
    /// to be judged again.
    pub(crate) async fn run(
        mut self,
        mut batches: mpsc::Receiver<Answered>,
        returned: mpsc::UnboundedSender<Vec<Ask>>,
    ) {
        let mut due = Vec::new();
        loop {
            tokio::select! {
                count = batches.recv_many(&mut due, BATCHES) => {
                    if count == 0 {
                        break;
                    }
                    let flushed = self.flush(&due).await;
                    for batch in due.drain(..) {
                        // A desk that is gone waits for nothing.
                        let _ = returned.send(if flushed { batch.leave(&self.announce) } else { batch.take_back() });
                    }
                }
                () = self.seat.needed.notified(), if self.connection.is_none() => self.connect().await,
                () = sleep(BEAT) => self.beat().await,
            }
        }
        if let Some(connection) = self.connection.take() {
            // It did its work.
            let _ = connection.close().await;
        }
    }

    async fn connect(&mut self) {
        match timeout(STEP, connect::appending(&self.options)).await {
            Ok(Ok(connection)) => {
                self.connection = Some(connection);
                self.faults = 0;
                self.seat.set_flushes(true);
            }
            Ok(Err(error)) => self.lose(&error.to_string()).await,
            Err(_) => self.lose("it does not answer").await,
        }
    }

    /// Until there is a connection again, commits are synchronous.
    async fn lose(&mut self, reason: &str) {
        tracing::warn!(reason, "the connection that flushes the ledger is gone");
        self.seat.set_flushes(false);
        self.connection = None;
        self.announce.memory.lose();
        sleep(Duration::from_millis(20 << self.faults.min(5))).await;
        self.faults = self.faults.saturating_add(1);
    }

    async fn flush(&mut self, due: &[Answered]) -> bool {
        let (Some(connection), Some(last)) = (&mut self.connection, due.iter().max_by_key(|batch| batch.position))
        else {
            return false;
        };
        let flush = sqlx::query(FLUSH).bind(self.seat.writer).bind(signed(last.position)).bind(last.leaf_hash);
        match timeout(STEP, flush.execute(connection)).await {
            Ok(Ok(done)) => done.rows_affected() == 1,
            Ok(Err(error)) => {
                self.lose(&error.to_string()).await;
                false
            }
            Err(_) => {
                self.lose("it is silent").await;
                false
            }
        }
    }

    async fn beat(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let beat = timeout(STEP, sqlx::query(BEAT_SQL).bind(self.seat.writer).execute(connection)).await;
        match beat {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.lose(&error.to_string()).await,
            Err(_) => self.lose("it is silent").await,
        }
    }
}
