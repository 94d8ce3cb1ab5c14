//! Read-only connections, each used on a thread that may wait for the disk.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{blocking, files::ToRead, read::failed};
use crate::log::LogError;

/// Read-only connections at once.
const READERS: u32 = 4;

/// The pool; connections are opened when they are needed.
#[derive(Debug)]
pub(crate) struct Readers {
    to_read: ToRead,
    idle: Arc<Mutex<Vec<Connection>>>,
    free: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(to_read: ToRead) -> Self {
        Self { to_read, idle: Arc::default(), free: Arc::new(Semaphore::new(READERS as usize)) }
    }

    /// Does `work` on one of the connections. One on which something failed is not used again.
    ///
    /// # Errors
    /// As `work`, and [`LogError::Unavailable`] where there is no connection.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let closed = |reason: String| LogError::Unavailable { operation, reason };
        let free = Arc::clone(&self.free).acquire_owned().await;
        let permit = free.map_err(|_| closed("the ledger was closed".to_owned()))?;
        let (to_read, idle) = (self.to_read.clone(), Arc::clone(&self.idle));
        let done = blocking(move || {
            let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match taken {
                Some(connection) => connection,
                None => to_read.connect().map_err(failed(operation))?,
            };
            let done = work(&connection);
            if matches!(done, Ok(_) | Err(LogError::Corrupt { .. })) {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
            drop(permit);
            done
        });
        done.await.unwrap_or_else(|error| Err(closed(error.to_string())))
    }

    /// Waits for those that read, and closes all.
    pub(super) async fn close(&self) {
        if self.free.acquire_many(READERS).await.is_ok() {
            self.free.close();
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
