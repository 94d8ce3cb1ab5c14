//! The scheduling halt: nothing starts until it is lifted.

use midwatch_commands::{
    Refusal,
    engine::{Engine as Deployment, EngineCommand},
};
use midwatch_events::{Actor, StreamName, engine::HaltCause, id::RunId};

use crate::{Done, Engine, EngineError, Origin, Request, deployment::Found, handle::handle, runs::Stopped};
use midwatch_log::Pending;

impl Engine {
    /// Halts scheduling. From the answer on nothing is claimed: every claim carries the halt's version as a condition.
    ///
    /// # Errors
    /// It is halted already, or a fault.
    pub fn halt_scheduling<'a>(
        &'a self,
        origin: &'a Origin,
        reason: &'a str,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let done = handle::<Deployment>(self, &StreamName::halt(), origin, request, |_| {
                Ok(EngineCommand::Halt { cause: HaltCause::Person, reason: reason.to_owned() })
            })
            .await?;
            self.see_halt().await;
            Ok(done)
        })
    }

    /// What this process remembers of the halt is no older than what it said of it.
    async fn see_halt(&self) {
        if let Err(error) = self.halt().await {
            tracing::debug!(%error, "the halt is looked at again by whoever needs it");
        }
    }

    /// Halts scheduling, unless it is halted, and calls off every run that is live: from the answer on nothing starts
    /// and no call is decided. Calls that had been decided are listed.
    ///
    /// # Errors
    /// A fault.
    pub fn stop_everything<'a>(
        &'a self,
        origin: &'a Origin,
        reason: &'a str,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<Stopped>, EngineError> {
        Box::pin(async move {
            let halted = match self.halt_scheduling(origin, reason, request).await {
                Ok(done) => done.position,
                Err(EngineError::Refused(Refusal::AlreadySo(_))) => 0,
                Err(error) => return Err(error),
            };
            let mut done = self.stop_runs(origin).await?;
            done.position = done.position.max(halted);
            Ok(done)
        })
    }

    /// Lifts the halt. Windows that lay in it do not exist.
    ///
    /// # Errors
    /// It is not halted, or the ledger is a copy that was not adopted, or a fault.
    pub fn lift_halt<'a>(
        &'a self,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let lift = |_: &Deployment| Ok(EngineCommand::Lift { adopted: false });
            let done = handle::<Deployment>(self, &StreamName::halt(), origin, request, lift).await?;
            self.see_halt().await;
            Ok(done)
        })
    }

    /// Halts because of what the ledger turned out to be; nothing more if it is halted already.
    pub(crate) async fn halt_because(&self, found: Found) -> Result<(), EngineError> {
        if self.load::<Deployment>(&StreamName::halt()).await?.state.halted.is_some() {
            return Ok(());
        }
        let origin = Origin::of(Actor::Engine);
        let halted = handle::<Deployment>(self, &StreamName::halt(), &origin, None, |_| {
            Ok(EngineCommand::Halt { cause: found.cause, reason: found.reason.clone() })
        })
        .await;
        match halted {
            Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Runs that are live, for a halt's answer: a halt lets them finish.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn live_runs(&self) -> Pending<'_, Vec<RunId>, EngineError> {
        Box::pin(async move {
            let rows = crate::runs::live(self).await?;
            Ok(rows.into_iter().map(|row| row.id).collect())
        })
    }
}
