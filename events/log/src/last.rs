//! The last events that pass a filter.

use midwatch_events::Recorded;

use crate::{Filter, Log, LogError, Pending};

/// Positions looked at first, for each event that is wanted: most events are of other kinds.
const SPREAD: u64 = 8;
const PAGE: u32 = 1_000;

impl Log {
    /// The last `limit` events above position `after` that pass `filter`, in order. Looks back from the head as far as
    /// it has to and no further.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_last<'a>(&'a self, after: u64, limit: u32, filter: &'a Filter) -> Pending<'a, Vec<Recorded>> {
        Box::pin(async move {
            let head = self.head().await?;
            let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
            let mut span = u64::from(limit).saturating_mul(SPREAD).max(u64::from(PAGE));
            let (mut until, mut found) = (head, Vec::new());
            while until > after && found.len() < wanted {
                let from = until.saturating_sub(span).max(after);
                let mut earlier = self.between(from, until, filter).await?;
                earlier.append(&mut found);
                (found, until, span) = (earlier, from, span.saturating_mul(2));
            }
            Ok(found.split_off(found.len().saturating_sub(wanted)))
        })
    }

    /// The events above `from` and up to `until` that pass.
    async fn between(&self, from: u64, until: u64, filter: &Filter) -> Result<Vec<Recorded>, LogError> {
        let (mut found, mut after) = (Vec::new(), from);
        while after < until {
            let (page, scanned) = self.read_all(after, PAGE, filter).await?;
            let full = page.len() >= PAGE as usize;
            found.extend(page.into_iter().filter(|event| event.position <= until));
            if !full || scanned <= after {
                break;
            }
            after = scanned;
        }
        Ok(found)
    }
}
