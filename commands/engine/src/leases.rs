//! Who works on what, and when to give somebody up.
//!
//! A lease is a row `(run, take, beat)`; its holder raises the beat every [`BEAT`]. Another process closes the run as
//! abandoned only after it has itself read the same beat, or no row, for [`ABANDON_AFTER`] of its own monotonic time
//! over at least [`READS_MIN`] successful reads: no jump of a clock and no outage of the database expires anything.
//! The holder starts no act later than [`ACT_UNTIL`] after its last renewal, so it stops first.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use midwatch_commands::{
    mutant::{Mutant, active},
    run::End,
};
use midwatch_events::{
    Actor,
    id::RunId,
    run::{Outcome, Reason},
};
use midwatch_log::lease;

use crate::{Engine, EngineError, Origin, runs};

/// How often a holder renews, and how often others look.
pub const BEAT: Duration = Duration::from_secs(10);
/// How long a beat must stand still before its run is closed.
pub const ABANDON_AFTER: Duration = Duration::from_secs(60);
/// How often the same beat must have been read before its run is closed.
pub const READS_MIN: u32 = 6;
/// How long after its last renewal a holder may still start to act.
pub const ACT_UNTIL: Duration = Duration::from_secs(45);

/// Whether a holder may still act: shared between whoever renews and whoever acts.
#[derive(Clone, Debug, Default)]
pub struct Alive {
    renewed_ms: Arc<AtomicU64>,
}

impl Alive {
    /// The lease was renewed by a request that was sent at `sent`, in monotonic time.
    pub fn renewed(&self, sent: Duration) {
        self.renewed_ms.store(millis(sent), Ordering::Release);
    }

    /// Whether an act may start at `now`, in monotonic time.
    #[must_use]
    pub fn may_act(&self, now: Duration) -> bool {
        millis(now).saturating_sub(self.renewed_ms.load(Ordering::Acquire)) < millis(ACT_UNTIL)
    }

    /// For how long an act may still start at `now`, in monotonic time.
    #[must_use]
    pub fn left(&self, now: Duration) -> Duration {
        let until = Duration::from_millis(self.renewed_ms.load(Ordering::Acquire)) + ACT_UNTIL;
        until.saturating_sub(now)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// What this process has seen of other processes' leases.
#[derive(Debug, Default)]
pub struct Watchman {
    seen: BTreeMap<RunId, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Take and beat; none where there was no row.
    lease: Option<(u32, u64)>,
    since: Duration,
    reads: u32,
}

impl Watchman {
    /// Takes in one successful read of a run's lease; whether its holder is to be given up.
    pub fn look(&mut self, run: RunId, lease: Option<(u32, u64)>, now: Duration) -> bool {
        let fresh = Seen { lease, since: now, reads: 0 };
        let seen = self.seen.entry(run).or_insert(fresh);
        if seen.lease != lease {
            *seen = fresh;
        }
        seen.reads += 1;
        let given_up_too_soon = active(Mutant::GivesUpTooSoon) && seen.reads >= 2;
        given_up_too_soon || seen.reads >= READS_MIN && now.saturating_sub(seen.since) >= ABANDON_AFTER
    }

    /// Looks at all taken runs but those this process holds, and closes those whose holder is gone.
    ///
    /// # Errors
    /// A fault of the database; what was seen so far stays.
    pub async fn round(&mut self, engine: &Engine, mine: impl Fn(RunId) -> bool) -> Result<(), EngineError> {
        let rows = runs::in_states(engine, &["running"], u32::MAX).await?;
        let leases: BTreeMap<_, _> =
            lease::read_all(engine.log()).await?.into_iter().map(|row| (row.run, (row.take, row.beat))).collect();
        let now = engine.world().clock.monotonic();
        self.seen.retain(|run, _| rows.iter().any(|row| row.id == *run));
        for row in rows.iter().filter(|row| !mine(row.id)) {
            if !self.look(row.id, leases.get(&row.id.uuid()).copied(), now) {
                continue;
            }
            let end = End {
                take: None,
                outcome: Outcome::Abandoned,
                reason: Some(Reason::Lease),
                headline: "Its runner was gone for a minute".to_owned(),
                error: None,
                now: engine.log().store_time().await?,
            };
            match engine.settle(row.id, end, &Origin::of(Actor::Engine)).await {
                Ok(_) | Err(EngineError::Refused(_)) => {}
                // One that cannot be read keeps nobody else from being given up.
                Err(EngineError::Corrupt(error)) => {
                    tracing::error!(run = %row.id, %error, "a run cannot be closed; the others go on");
                    continue;
                }
                Err(error) => return Err(error),
            }
            lease::give_up(engine.log(), &[(row.id.uuid(), u32::MAX)]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunId {
        RunId::new(uuid::Uuid::from_u128(1))
    }

    #[test]
    fn a_beat_that_stands_still_for_a_minute_is_given_up() {
        let mut watchman = Watchman::default();
        let given_up: Vec<_> =
            (0..=7).map(|n| watchman.look(run(), Some((1, 5)), Duration::from_secs(n * 10))).collect();
        assert_eq!(given_up, [false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn a_beat_that_moves_is_never_given_up() {
        let mut watchman = Watchman::default();
        assert!((0..100).all(|n| !watchman.look(run(), Some((1, n / 6)), Duration::from_secs(n * 10))));
    }

    #[test]
    fn time_alone_gives_nobody_up() {
        let mut watchman = Watchman::default();
        assert!(!watchman.look(run(), None, Duration::ZERO));
        assert!(!watchman.look(run(), None, Duration::from_secs(3_600)));
    }

    #[test]
    fn a_holder_stops_before_others_give_it_up() {
        let alive = Alive::default();
        alive.renewed(Duration::from_secs(100));
        assert!(alive.may_act(Duration::from_millis(144_999)));
        assert!(!alive.may_act(Duration::from_secs(145)));
        assert!(ACT_UNTIL < ABANDON_AFTER);
    }
}
