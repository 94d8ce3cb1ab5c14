//! Approvals: what persons are asked, and their answers.

use midwatch_commands::{
    Decider, Refusal,
    run::{Answerer, Run, RunCommand},
};
use midwatch_events::{
    Actor, Micros, StreamName,
    id::{ApprovalId, CallId, RunId},
    key::Digest,
};
use midwatch_log::{
    Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::run_approvals::{ApprovalRow, Approvals};

use crate::{
    Done, Engine, EngineError, Origin, Request,
    handle::{Plan, TRIES, handle},
    projector,
};

const PAGE: u32 = 500;

/// An answer as somebody gives it.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The approval.
    pub approval: ApprovalId,
    /// The digest they were shown.
    pub digest: Digest,
    /// Yes or no.
    pub yes: bool,
    /// Who they are.
    pub by: Answerer,
}

impl Engine {
    /// Answers an approval: once, and for exactly what was shown.
    ///
    /// # Errors
    /// There is no such approval, it was answered already, has expired or was withdrawn, they may not answer it, what
    /// they were shown is not what waits, the boundary was changed meanwhile; or a fault.
    pub fn answer_approval<'a>(
        &'a self,
        answer: Answer,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let row = self.approval(answer.approval).await?;
            let stream = StreamName::run(row.run);
            let origin = origin.clone().within(&stream);
            for _ in 0..TRIES {
                let run = self.load::<Run>(&stream).await?;
                let (_, boundary) = self.boundary().await?;
                let now = self.log().store_time().await?;
                let Answer { approval, digest, yes, by } = answer;
                let command = RunCommand::AnswerApproval { approval, digest, yes, by, now };
                let events = match run.state.decide(command) {
                    Ok(events) => events,
                    Err(refusal) => return self.seen(request, refusal).await,
                };
                // A yes to what an older boundary asked would let nothing through: the call is judged by the new one.
                if yes && boundary != row.boundary {
                    let sentence = "the boundary was changed since; the call is judged again by the new one";
                    return self.seen(request, Refusal::AlreadySo(sentence)).await;
                }
                let mut plan = Plan::default();
                plan.add(self.world(), &stream, run.version, &events, &origin)?;
                if yes {
                    plan.condition(StreamName::boundary(), boundary);
                }
                if let Some(request) = request {
                    plan.key(request.key);
                }
                if let Some(appended) = plan.commit(self.log()).await? {
                    return Ok(Done { value: (), position: appended.last(), duplicate: appended.duplicate });
                }
            }
            Err(EngineError::Fault(format!("{stream} is changed by too many processes at once; try again")))
        })
    }

    /// An approval as the projection has it.
    ///
    /// # Errors
    /// There is no such one, or a fault.
    pub fn approval(&self, id: ApprovalId) -> Pending<'_, ApprovalRow, EngineError> {
        Box::pin(async move {
            let row = projector::get::<Approvals>(self, &id.to_string()).await?;
            row.ok_or_else(|| Refusal::NotFound("approval").into())
        })
    }

    /// Records that nobody answered in time; the clock says so, never a person. One that has its answer keeps it.
    ///
    /// # Errors
    /// A fault.
    pub fn expire_approval(&self, run: RunId, approval: ApprovalId) -> Pending<'_, (), EngineError> {
        Box::pin(async move {
            let (stream, now) = (StreamName::run(run), self.log().store_time().await?);
            let origin = Origin::of(Actor::Clock).within(&stream);
            let expired =
                handle::<Run>(self, &stream, &origin, None, |_| Ok(RunCommand::ExpireApproval { approval, now })).await;
            match expired {
                Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// Withdraws what a call asks: whoever made it waits no more. What has its answer keeps it.
    ///
    /// # Errors
    /// A fault.
    pub fn withdraw_call(&self, run: RunId, take: u32, call: CallId) -> Pending<'_, (), EngineError> {
        Box::pin(async move {
            let stream = StreamName::run(run);
            let origin = Origin::of(Actor::Engine).within(&stream);
            let withdraw = |_: &Run| Ok(RunCommand::WithdrawCall { take, call });
            match handle::<Run>(self, &stream, &origin, None, withdraw).await {
                Ok(_) | Err(EngineError::Refused(_)) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }
}

/// Lets all approvals expire that nobody answered in time. Whoever waits for one does so too; this is for those whose
/// caller went away.
///
/// # Errors
/// A fault.
pub fn sweep(engine: &Engine, now: Micros) -> Pending<'_, (), EngineError> {
    Box::pin(async move {
        let filters = vec![
            Condition { column: "state", is: Test::Eq(Cell::Text("open".to_owned())) },
            Condition { column: "expires_at", is: Test::Le(Cell::Int(now.0)) },
        ];
        let order = Order { column: "expires_at", descending: false };
        for (row, _) in projector::page::<Approvals>(engine, filters, order, PAGE, None).await? {
            engine.expire_approval(row.run, row.id).await?;
        }
        Ok(())
    })
}
