//! The scheduling halt: nothing starts until it is lifted.

use midwatch_commands::{
    engine::{Engine as Deployment, EngineCommand},
    run::End,
};
use midwatch_events::{
    Actor, StreamName,
    engine::HaltCause,
    id::RunId,
    run::{Outcome, Reason},
};

use crate::{Done, Engine, EngineError, Origin, Request, deployment::Found, handle::handle};

impl Engine {
    /// Halts scheduling. From the answer on nothing is claimed: every claim carries the halt's version as a condition.
    ///
    /// # Errors
    /// It is halted already, or a fault.
    pub async fn halt_scheduling(
        &self,
        origin: &Origin,
        reason: &str,
        request: Option<&Request>,
    ) -> Result<Done<()>, EngineError> {
        handle::<Deployment>(self, &StreamName::halt(), origin, request, |_| {
            Ok(EngineCommand::Halt { cause: HaltCause::Person, reason: reason.to_owned() })
        })
        .await
    }

    /// Lifts the halt. Windows that lay in it do not exist.
    ///
    /// # Errors
    /// It is not halted, or the ledger is a copy that was not adopted, or a fault.
    pub async fn lift_halt(&self, origin: &Origin, request: Option<&Request>) -> Result<Done<()>, EngineError> {
        handle::<Deployment>(self, &StreamName::halt(), origin, request, |_| Ok(EngineCommand::Lift { adopted: false }))
            .await
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

    /// Ends what is live, because scheduling was halted. Deliveries that wait stay where they are.
    ///
    /// # Errors
    /// A fault of the database. What was ended until then stays so; ask again.
    pub async fn stop_runs(&self, origin: &Origin) -> Result<Vec<RunId>, EngineError> {
        // What was claimed before the halt is found once the projections have it.
        crate::projector::catch_up(self).await?;
        let mut stopped = Vec::new();
        for run in self.live_runs().await? {
            let end = End {
                take: None,
                outcome: Outcome::Cancelled,
                reason: Some(Reason::Halt),
                headline: "Scheduling was halted and live runs were stopped".to_owned(),
                error: None,
                now: self.log().store_time().await?,
            };
            match self.settle(run, end, origin).await {
                Ok(_) => stopped.push(run),
                Err(EngineError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(stopped)
    }

    /// Runs that are live, for a halt's answer: a halt lets them finish.
    ///
    /// # Errors
    /// A fault of the database.
    pub async fn live_runs(&self) -> Result<Vec<RunId>, EngineError> {
        let rows = crate::runs::live(self).await?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    }
}
