//! What executes runs: it takes a while, makes some calls, and now and then fails or hangs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use midwatch_commands::{
    mutant::{Mutant, active},
    run::{Run, RunCommand},
};
use midwatch_engine::{
    EngineError, Origin,
    handle::handle,
    runner::{Ending, Executor, Job},
    world::Boxed,
};
use midwatch_events::{
    Actor, StreamName,
    id::CallId,
    key::Digest,
    run::{CallResult, Decision, DecisionKind, Outcome, Reason, RunContent, Verdict},
};

use crate::{chance::Chance, climate::Climate, stage::locked};

/// See the module.
pub(crate) struct Worker {
    pub(crate) climate: Arc<Climate>,
    pub(crate) chance: Mutex<Chance>,
}

impl Executor for Worker {
    fn execute(&self, job: Job) -> Boxed<'static, Ending> {
        let chance = locked(&self.chance).fork();
        let climate = Arc::clone(&self.climate);
        Box::pin(async move { work(job, chance, climate).await })
    }
}

async fn work(job: Job, mut chance: Chance, climate: Arc<Climate>) -> Ending {
    let clock = Arc::clone(&job.engine.world().clock);
    for _ in 0..chance.pick(&[0, 0, 0, 1, 1, 2]) {
        if let Err(error) = call(&job, &mut chance, &climate).await {
            return ending(Outcome::Failed, Some(Reason::Error), &error.to_string());
        }
    }
    let seconds = match chance.below(100) {
        0..=87 => chance.between(1, 20),
        88..=96 => chance.between(20, 200),
        97 => chance.between(200, 1_200),
        // It hangs.
        _ => 1_000_000,
    };
    // Whoever hangs does not say that it goes on.
    let busy = (seconds < 1_000_000).then(|| job.progress.busy());
    clock.sleep(Duration::from_secs(seconds)).await;
    drop(busy);
    if chance.one_in(12) {
        return ending(Outcome::Failed, Some(Reason::Error), "it could not be done");
    }
    ending(Outcome::Succeeded, None, "done")
}

fn ending(outcome: Outcome, reason: Option<Reason>, headline: &str) -> Ending {
    Ending { outcome, reason, headline: headline.to_owned(), error: None }
}

/// One call: judged, recorded, and only then done.
async fn call(job: &Job, chance: &mut Chance, climate: &Climate) -> Result<(), EngineError> {
    let (run, take) = (job.run, job.take);
    let stream = StreamName::run(run);
    let origin = Origin::of(Actor::Engine).within(&stream);
    let call = CallId::new(job.engine.world().uuid());
    let decided = RunCommand::Decide {
        take,
        decision: Box::new(decision(job, call)),
        content: RunContent::ToolCallDecided {
            arguments: "{}".to_owned(),
            context: "{}".to_owned(),
            fingerprint: "try".to_owned(),
        },
    };
    let clock = &job.engine.world().clock;
    if active(Mutant::ActsBeforeItIsDecided) {
        locked(&climate.inner).checker.acts(run, call);
    }
    handle::<Run>(&job.engine, &stream, &origin, None, |_| Ok(decided.clone())).await?;
    let _busy = job.progress.busy();
    let most_ms = chance.pick(&[100, 3_000, 150_000]);
    clock.sleep(Duration::from_millis(chance.below(most_ms))).await;
    // As the gateway asks, in the same breath as it acts.
    if !active(Mutant::ActsBeforeItIsDecided) && job.alive.may_act(clock.monotonic()) {
        locked(&climate.inner).checker.acts(run, call);
    }
    clock.sleep(Duration::from_millis(chance.below(20_000))).await;
    let ended = RunCommand::EndCall {
        take,
        call,
        result: CallResult::Finished,
        result_digest: Digest([0; 32]),
        result_bytes: 2,
        duration_us: 1,
        content: RunContent::ToolCallEnded { result: Some("ok".to_owned()), blob: None },
    };
    handle::<Run>(&job.engine, &stream, &origin, None, |_| Ok(ended.clone())).await?;
    Ok(())
}

fn decision(job: &Job, call: CallId) -> Decision {
    Decision {
        call,
        ordinal: 0,
        turn: 0,
        step: None,
        tool: "try".to_owned(),
        intent: "try".to_owned(),
        verdict: Verdict::Allow,
        decision: DecisionKind::Allowed,
        refusal: None,
        enforced: true,
        rule: None,
        matched: vec![],
        broken: vec![],
        unattended: true,
        cause: job.opened.cause,
        run: job.run,
        bot: job.opened.bot,
        routine: job.opened.routine,
        trigger: job.opened.trigger,
        boundary: 1,
        fingerprint: Digest([1; 32]),
        repeat_count: 1,
        repeat_same_result: 1,
        repeat_cycle: 0,
        approval: None,
    }
}
