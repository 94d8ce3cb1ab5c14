//! Asking a person: what exactly is asked, and waiting for the answer.
//!
//! An approval is bound to a digest of everything the call is made of, the boundary's version included: whatever
//! changes, it is another call, and asked about anew. Once there is an answer the call is judged again, and a yes is
//! spent by the event that lets the call through.

use std::time::Duration;

use midwatch_boundary::Approvers as Said;
use midwatch_commands::run::{Asking, Run};
use midwatch_engine::{EngineError, runner::Job};
use midwatch_events::{
    Micros, StreamName,
    id::ApprovalId,
    key::Digest,
    run::{ApprovalRequested, Approvers, Decision, DecisionKind, RefusalCause, RunContent},
};

use tokio::sync::watch;

use crate::{
    canonical::canonical,
    decide::{Call, Stop, Weighed},
    resolve::Resolved,
};

/// Events that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);
/// How long nothing may wake us before we look by ourselves.
const LOOK: Duration = Duration::from_secs(5);

/// What an approval of this call would be bound to: Bot, tool, the tool's definition, target, arguments and boundary.
pub(crate) fn digest(job: &Job, call: &Call, resolved: &Resolved, boundary: u64) -> Result<Digest, EngineError> {
    let arguments = match &call.arguments {
        Ok(arguments) => canonical(arguments),
        Err(text) => text.clone(),
    };
    Ok(job.engine.secrets()?.fingerprint(&[
        b"approval",
        job.opened.bot.uuid().as_bytes(),
        call.tool.as_bytes(),
        resolved.definition.as_deref().unwrap_or_default().as_bytes(),
        &resolved.fingerprint.0,
        arguments.as_bytes(),
        &boundary.to_be_bytes(),
    ]))
}

/// What asking comes to in this run so far; whether a person must be asked anew.
pub(crate) fn weigh(run: &Run, digest: &Digest, job: &Job, weighed: &mut Weighed) -> bool {
    if weighed.decision != DecisionKind::Asked {
        return false;
    }
    let (approval, anew) = match run.asking(digest) {
        Asking::Anew => (ApprovalId::new(job.engine.world().uuid()), true),
        Asking::Join(approval) => (approval, false),
        Asking::Spend(approval) => {
            weighed.decision = DecisionKind::Allowed;
            (approval, false)
        }
        Asking::Declined(approval) => {
            refuse(weighed, RefusalCause::Declined, "a person was asked and said no");
            (approval, false)
        }
        Asking::Expired(approval) => {
            refuse(weighed, RefusalCause::Expired, "a person was asked and nobody answered in time");
            (approval, false)
        }
    };
    weighed.approval = Some(approval);
    anew
}

fn refuse(weighed: &mut Weighed, cause: RefusalCause, sentence: &str) {
    weighed.decision = DecisionKind::Refused;
    weighed.refusal = Some(cause);
    weighed.sentence = Some(sentence.to_owned());
}

/// What is asked about a decision that waits.
pub(crate) fn request(
    job: &Job,
    decision: &Decision,
    digest: Digest,
    approvers: Said,
    expires_us: Micros,
) -> ApprovalRequested {
    ApprovalRequested {
        approval: decision.approval.unwrap_or_else(|| ApprovalId::new(job.engine.world().uuid())),
        call: decision.call,
        digest,
        tool: decision.tool.clone(),
        rule: decision.rule.clone().unwrap_or_default(),
        boundary: decision.boundary,
        approvers: match approvers {
            Said::Any => Approvers::Any,
            Said::NotOwner => Approvers::NotOwner,
        },
        owner: job.opened.owner,
        unattended: decision.unattended,
        run: decision.run,
        bot: decision.bot,
        routine: decision.routine,
        trigger: decision.trigger,
        expires_us,
    }
}

/// The words of what is asked: target and arguments, secrets redacted.
pub(crate) fn words(resolved: &Resolved) -> RunContent {
    RunContent::ApprovalRequested { fingerprint: resolved.readable.clone(), arguments: resolved.recorded.to_string() }
}

/// As [`wait`]; false when whoever made the call is gone meanwhile, and what it asked is withdrawn.
///
/// # Errors
/// [`Stop`]: the run has ended meanwhile.
pub(crate) async fn wait_while(
    job: &Job,
    decision: &Decision,
    gone: Option<&mut watch::Receiver<bool>>,
) -> Result<bool, Stop> {
    let Some(gone) = gone else { return wait(job, decision).await.map(|()| true) };
    tokio::select! {
        biased;
        () = told(gone) => {}
        waited = wait(job, decision) => return waited.map(|()| true),
    }
    job.engine.withdraw_call(job.run, job.take, decision.call).await?;
    Ok(false)
}

/// Comes back when it became true; who could say so being gone is that too.
pub(crate) async fn told(said: &mut watch::Receiver<bool>) {
    let _ = said.wait_for(|said| *said).await;
}

/// Comes back when the call has to be judged again: there is an answer, time is up, or another boundary is in force.
///
/// # Errors
/// [`Stop`]: the run has ended meanwhile.
pub(crate) async fn wait(job: &Job, decision: &Decision) -> Result<(), Stop> {
    let Some(id) = decision.approval else { return Ok(()) };
    let engine = &job.engine;
    let clock = &engine.world().clock;
    let mut head = engine.log().follow();
    loop {
        head.borrow_and_update();
        let run = engine.load::<Run>(&StreamName::run(job.run)).await?.state;
        run.live().map_err(Stop::Lost)?;
        let approval = run.approval(id).map_err(Stop::Lost)?;
        if approval.answer.is_some() || engine.boundary().await?.1 != decision.boundary {
            return Ok(());
        }
        let now = engine.log().store_time().await.map_err(EngineError::from)?;
        let left = approval.asked.expires_us.since(now);
        if left <= 0 {
            engine.expire_approval(job.run, id).await?;
            continue;
        }
        let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
        tokio::select! {
            biased;
            () = clock.sleep(left.min(LOOK)) => {}
            _ = head.changed() => clock.sleep(SETTLE).await,
        }
    }
}
