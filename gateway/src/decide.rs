//! The path of a call: resolve, count, decide, append the decision, act, append the outcome. Holds promises 3, 5 and 8.
//!
//! Attempt, thresholds and decision are one append, on the conditions that halt, boundary and Bot are at the versions
//! the call was judged by. If that append fails, nothing acts.

use std::time::Duration;

use midwatch_boundary::{BoundaryDoc, Judgement, Unattended, Verdict as Said};
use midwatch_commands::{
    Decider, Refusal,
    bot::Bot,
    boundary::ToolServers,
    repeat::{Attempted, Counted, Repeat, RepeatCommand},
    run::{Run, RunCommand, cycles},
};
use midwatch_engine::{
    EngineError, Origin,
    handle::{Loaded, Plan, TRIES},
    runner::Job,
};
use midwatch_events::{
    Actor, Micros, StreamName,
    id::{ApprovalId, CallId},
    run::{Decision, DecisionKind, RefusalCause, RunContent, Verdict},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    Gateway, act, approval,
    resolve::{Resolved, of_the_bot, resolve},
    tools::{
        granted,
        mcp::{Asked, parts},
    },
};

/// One tool call, as the Bot or the recording asks for it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The tool.
    pub tool: String,
    /// Its arguments; or the text that was no JSON.
    pub arguments: Result<Value, String>,
    /// The recording's step, from 1.
    pub step: Option<u32>,
    /// Whose tool it is.
    pub whose: Whose,
}

/// Whose tool a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One of ours: the gateway carries it out.
    Ours,
    /// The Bot's own, and it asks a person before it goes on. Rules can refuse that, or let it wait for a person; they
    /// cannot say yes in the person's place. The Bot carries it out.
    TheBots,
}

/// What the Bot is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it came out.
    pub kind: AnswerKind,
    /// JSON text for the Bot.
    pub text: String,
    /// One sentence for people, where it did not work.
    pub sentence: Option<String>,
    /// It was refused by a rule about repetition.
    pub circles: bool,
}

/// How a call came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// It acted and worked.
    Done,
    /// It acted and failed.
    Failed,
    /// It never acted.
    Refused,
}

/// Why the run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The run was ended, or taken from this runner.
    #[error("{0}")]
    Lost(Refusal),
    /// The lease is too old to act on.
    #[error("the lease could not be renewed, so nothing may act any more")]
    Lease,
    /// The decision could not be recorded, so nothing acted.
    #[error(transparent)]
    Engine(EngineError),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(refusal) => Self::Lost(refusal),
            other => Self::Engine(other),
        }
    }
}

/// What a call came to at the door.
pub(crate) enum Passed {
    /// It may act now.
    Allowed(Box<Decided>),
    /// It may not.
    Refused(Answer),
}

/// A decision that stands in the ledger.
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(crate) resolved: Resolved,
    pub(crate) sentence: Option<String>,
    pub(crate) event: uuid::Uuid,
    counts: Counts,
    circles: bool,
}

/// What was counted when a call was made. One that is decided again, after a person was asked, is the same attempt.
#[derive(Clone, Copy, Debug)]
struct Counts {
    counted: Counted,
    cycle: u32,
    /// Calls of the run before it.
    calls: u32,
}

/// Everything a decision rests on, with the versions that become its conditions.
struct Basis {
    run: Loaded<Run>,
    bot: Loaded<Bot>,
    halt_version: u64,
    boundary: (Option<String>, u64),
    servers: Loaded<ToolServers>,
    now: Micros,
}

/// One try to decide.
#[derive(Clone, Copy)]
struct Try<'c> {
    job: &'c Job,
    call: &'c Call,
    id: CallId,
    /// What was counted when it was made, where it was decided before.
    counts: Option<Counts>,
    contended: bool,
    /// Why it is refused whatever the rules say: the tool is not what was accepted.
    changed: Option<&'c str>,
}

impl Gateway {
    /// Takes one call through the door. Where a rule says to ask, this waits for the answer.
    ///
    /// # Errors
    /// [`Stop`]: the run cannot go on, and the call did not act.
    pub async fn call(&self, job: &Job, call: Call) -> Result<Answer, Stop> {
        match self.pass(job, &call).await? {
            Passed::Allowed(decided) => act::act(self, job, &call, *decided).await,
            Passed::Refused(answer) => Ok(answer),
        }
    }

    /// As [`Gateway::call`], for somebody who may go away while a person is asked: `gone` becomes true then, and what
    /// was asked is withdrawn. What acts by then goes on to its outcome.
    ///
    /// # Errors
    /// [`Stop`]: the run cannot go on, and the call did not act.
    pub async fn call_while(&self, job: &Job, call: Call, gone: watch::Receiver<bool>) -> Result<Answer, Stop> {
        match self.pass_while(job, &call, Some(gone)).await? {
            Passed::Allowed(decided) => act::act(self, job, &call, *decided).await,
            Passed::Refused(answer) => Ok(answer),
        }
    }

    /// Takes one call to its decision, and no further. Where a rule says to ask, this waits for the answer.
    ///
    /// # Errors
    /// [`Stop`]: the run cannot go on.
    pub(crate) async fn pass(&self, job: &Job, call: &Call) -> Result<Passed, Stop> {
        self.pass_while(job, call, None).await
    }

    async fn pass_while(
        &self,
        job: &Job,
        call: &Call,
        mut gone: Option<watch::Receiver<bool>>,
    ) -> Result<Passed, Stop> {
        let id = CallId::new(job.engine.world().uuid());
        let mut counts = None;
        loop {
            let changed = Box::pin(self.changed(job, call)).await?;
            let decided = self.decide(job, call, id, counts, changed.as_deref()).await?;
            match decided.decision.decision {
                DecisionKind::Allowed => return Ok(Passed::Allowed(Box::new(decided))),
                DecisionKind::Refused => return Ok(Passed::Refused(refused(&decided))),
                // Whatever came of asking, the call is judged again: by the boundary that is in force then.
                DecisionKind::Asked => {
                    if !approval::wait_while(job, &decided.decision, gone.as_mut()).await? {
                        return Ok(Passed::Refused(withdrawn(&decided)));
                    }
                }
            }
            counts = Some(decided.counts);
        }
    }

    /// Whether the tool of an MCP server is not what was accepted, in a sentence. Looked at only where the Bot may use
    /// it at all: a server is not even started for one that may not.
    async fn changed(&self, job: &Job, call: &Call) -> Result<Option<String>, Stop> {
        let (Some(mcp), Some(_), Whose::Ours) = (self.mcp(), parts(&call.tool), call.whose) else { return Ok(None) };
        let bot = job.engine.load::<Bot>(&StreamName::bot(job.opened.bot)).await?.state;
        if bot.retired || !granted(&bot.tools, &call.tool, job.opened.unattended) {
            return Ok(None);
        }
        let servers = job.engine.tool_servers().await?.state;
        let Ok(workspace) = self.workspace(job.opened.bot) else { return Ok(None) };
        let asked = Asked { bot: job.opened.bot, name: &call.tool, workspace: &workspace };
        let _busy = job.progress.busy();
        Ok(mcp.changed(&servers, job.engine.secrets()?, asked).await)
    }

    #[tracing::instrument(name = "decide", level = "debug", skip_all)]
    async fn decide(
        &self,
        job: &Job,
        call: &Call,
        id: CallId,
        counts: Option<Counts>,
        changed: Option<&str>,
    ) -> Result<Decided, Stop> {
        let this = Try { job, call, id, counts, contended: false, changed };
        for attempt in 0..TRIES {
            if let Some(decided) = self.decide_once(this).await? {
                return Ok(decided);
            }
            pause(job, attempt).await;
        }
        // Too many processes make the same call at once: refused, and that is recorded too, without the count.
        match self.decide_once(Try { contended: true, ..this }).await? {
            Some(decided) => Ok(decided),
            None => Err(Stop::Engine(EngineError::Fault("the call could not be decided; try again".to_owned()))),
        }
    }

    /// One try; none when something it rests on has changed meanwhile.
    async fn decide_once(&self, this: Try<'_>) -> Result<Option<Decided>, Stop> {
        let Try { job, call, id, .. } = this;
        let basis = basis(job, call).await?;
        let mut resolved = self.look(&this, &basis)?;
        let stream = StreamName::repeat(job.opened.bot, &resolved.fingerprint.0);
        // Equal calls of one process follow each other here, and each is counted with those before it. A call that is
        // decided again was counted when it was made.
        let turn = match this.counts {
            Some(_) => None,
            None => Some(job.engine.enter::<Repeat>(&stream).await?),
        };
        let counts = match (&turn, this.counts) {
            (Some(turn), None) => counted(job, &basis, &resolved, &turn.loaded().state),
            (_, Some(counts)) => counts,
            (None, None) => return Ok(None),
        };
        self.fill(job, &basis, counts, &mut resolved);
        let judgement = self.judged(&basis, &resolved).await;
        let mut weighed = weigh(job.opened.unattended, call.whose, &resolved, judgement.as_ref());
        let digest = approval::digest(job, call, &resolved, basis.boundary.1)?;
        let anew = approval::weigh(&basis.run.state, &digest, job, &mut weighed);
        let decision = decision(&this, &basis, &resolved, counts, judgement.as_ref(), &weighed);

        let run_stream = StreamName::run(job.run);
        let origin = Origin::of(Actor::Bot(job.opened.bot)).within(&run_stream);
        let world = job.engine.world();
        let mut plan = Plan::default();
        let mut attempts = Vec::new();
        if let Some(turn) = turn.as_ref().filter(|_| !this.contended) {
            let attempted = attempted(job, id, &basis, &resolved);
            let command = RepeatCommand::Attempt(Box::new(attempted));
            attempts = turn.loaded().state.decide(command).map_err(Stop::Lost)?;
            plan.add(world, &stream, turn.expected(), &attempts, &origin)?;
        }
        let content = RunContent::ToolCallDecided {
            arguments: resolved.recorded.to_string(),
            context: resolved.context.to_json(),
            fingerprint: resolved.readable.clone(),
        };
        let (take, boxed) = (job.take, Box::new(decision.clone()));
        let command = match judgement.as_ref().filter(|_| anew) {
            None => RunCommand::Decide { take, decision: boxed, content },
            Some(judgement) => {
                let expires = basis.now.plus_s(self.approval_s());
                let asked = Box::new(approval::request(job, &decision, digest, judgement.approvers, expires));
                RunCommand::Ask { take, decision: boxed, content, asked, words: approval::words(&resolved) }
            }
        };
        let events = basis.run.state.decide(command).map_err(Stop::Lost)?;
        let event = plan.add(world, &run_stream, basis.run.version, &events, &origin)?;
        plan.condition(StreamName::halt(), basis.halt_version);
        plan.condition(StreamName::boundary(), basis.boundary.1);
        plan.condition(StreamName::bot(job.opened.bot), basis.bot.version);
        if parts(&call.tool).is_some() {
            plan.condition(StreamName::tools(), basis.servers.version);
        }
        let committed = match turn {
            Some(turn) => turn.submit(plan, &attempts).await?,
            None => plan.commit(job.engine.log()).await?,
        };
        let circles = circles(&decision, basis.boundary.0.as_deref());
        let (sentence, event) = (weighed.sentence, event.unwrap_or_default());
        Ok(committed.map(|_| Decided { decision, resolved, sentence, event, counts, circles }))
    }

    /// What the call is about, and why it can be refused before any rule is asked.
    fn look(&self, this: &Try<'_>, basis: &Basis) -> Result<Resolved, Stop> {
        let Try { job, call, .. } = *this;
        let bot = &basis.bot.state;
        let granted = granted(&bot.tools, &call.tool, job.opened.unattended) && !bot.retired;
        let secrets = job.engine.secrets()?;
        let mut resolved = match call.whose {
            Whose::Ours => {
                let tools = self.tools(&basis.servers.state);
                resolve(&tools, secrets, &call.tool, &call.arguments, granted)
            }
            Whose::TheBots => of_the_bot(secrets, &call.tool, &call.arguments),
        };
        if let Some(sentence) = this.changed {
            resolved.refusal.get_or_insert((RefusalCause::DefinitionChanged, sentence.to_owned()));
        }
        if this.contended {
            let sentence = "too many processes make this call at once".to_owned();
            resolved.refusal = Some((RefusalCause::Contended, sentence));
        }
        Ok(resolved)
    }

    /// What rules can read besides the target.
    fn fill(&self, job: &Job, basis: &Basis, counts: Counts, resolved: &mut Resolved) {
        let opened = &job.opened;
        let context = &mut resolved.context;
        let shown = |id: Option<String>| id.unwrap_or_default();
        context.bot_id = opened.bot.to_string();
        context.bot_name.clone_from(&basis.bot.state.name);
        context.actor_id = Actor::Bot(opened.bot).to_string();
        context.run_id = job.run.to_string();
        context.run_cause = word(&opened.cause);
        context.run_unattended = opened.unattended;
        context.run_turn = i64::from(basis.run.state.turn);
        context.run_tool_calls = i64::from(counts.calls);
        context.routine_id = shown(opened.routine.map(|id| id.to_string()));
        context.trigger_id = shown(opened.trigger.map(|id| id.to_string()));
        context.trigger_event_type = opened.event_type.clone().unwrap_or_default();
        context.repeat_count = i64::from(counts.counted.count);
        context.repeat_same_result = i64::from(counts.counted.same_result);
        context.repeat_cycle = i64::from(counts.cycle);
        context.now = basis.now;
    }

    /// The boundary's verdict; none where the call is refused before any rule, or no verdict came.
    async fn judged(&self, basis: &Basis, resolved: &Resolved) -> Option<Judgement> {
        if resolved.refusal.is_some() {
            return None;
        }
        // No boundary at all: everything is refused.
        let document = basis.boundary.0.as_ref()?;
        let compiled = match self.compiled(basis.boundary.1, document) {
            Ok(compiled) => compiled,
            // What cannot be judged is refused, and that is recorded.
            Err(error) => {
                tracing::error!(%error, version = basis.boundary.1, "every call is refused");
                return None;
            }
        };
        self.judge(compiled, resolved.context.clone()).await
    }
}

async fn basis(job: &Job, call: &Call) -> Result<Basis, Stop> {
    let engine = &job.engine;
    let (run, bot) = (StreamName::run(job.run), StreamName::bot(job.opened.bot));
    let now = async { engine.log().store_time().await.map_err(EngineError::from) };
    // Read only where it matters: most calls are of our own tools.
    let servers = async {
        match parts(&call.tool) {
            Some(_) => engine.tool_servers().await,
            None => Ok(Loaded::default()),
        }
    };
    let (run, bot, halt, boundary, servers, now) = tokio::try_join!(
        engine.load::<Run>(&run),
        engine.load::<Bot>(&bot),
        engine.halt(),
        engine.boundary(),
        servers,
        now
    )?;
    Ok(Basis { run, bot, halt_version: halt.version, boundary, servers, now })
}

fn counted(job: &Job, basis: &Basis, resolved: &Resolved, repeats: &Repeat) -> Counts {
    let mut calls = basis.run.state.fingerprints.clone();
    calls.push(resolved.fingerprint);
    let counted = repeats.count(basis.now, job.engine.repeat_window_s());
    Counts { counted, cycle: cycles(&calls), calls: basis.run.state.calls }
}

/// A decision, as it is recorded.
fn decision(
    this: &Try<'_>,
    basis: &Basis,
    resolved: &Resolved,
    counts: Counts,
    judgement: Option<&Judgement>,
    weighed: &Weighed,
) -> Decision {
    let Try { job, call, id, .. } = *this;
    Decision {
        call: id,
        // Both are set by the run's decider, which knows.
        ordinal: 0,
        turn: 0,
        step: call.step,
        tool: resolved.context.tool_name.clone(),
        intent: resolved.intent.to_owned(),
        verdict: weighed.verdict,
        decision: weighed.decision,
        refusal: weighed.refusal,
        enforced: weighed.enforced,
        rule: judgement.and_then(|judgement| judgement.rule.clone()),
        matched: judgement.map(|judgement| judgement.matched.clone()).unwrap_or_default(),
        broken: judgement
            .map(|judgement| judgement.broken.iter().map(|broken| broken.rule.clone()).collect())
            .unwrap_or_default(),
        unattended: job.opened.unattended,
        cause: job.opened.cause,
        run: job.run,
        bot: job.opened.bot,
        routine: job.opened.routine,
        trigger: job.opened.trigger,
        boundary: basis.boundary.1,
        fingerprint: resolved.fingerprint,
        repeat_count: counts.counted.count,
        repeat_same_result: counts.counted.same_result,
        repeat_cycle: counts.cycle,
        approval: weighed.approval,
    }
}

/// What a judgement comes to.
pub(crate) struct Weighed {
    verdict: Verdict,
    pub(crate) decision: DecisionKind,
    enforced: bool,
    pub(crate) refusal: Option<RefusalCause>,
    /// Why, in one sentence, where it is a refusal.
    pub(crate) sentence: Option<String>,
    pub(crate) approval: Option<ApprovalId>,
}

impl Weighed {
    fn refused(verdict: Verdict, cause: RefusalCause, sentence: String) -> Self {
        Self {
            verdict,
            decision: DecisionKind::Refused,
            enforced: true,
            refusal: Some(cause),
            sentence: Some(sentence),
            approval: None,
        }
    }

    fn let_through(verdict: Verdict, enforced: bool) -> Self {
        let decision = DecisionKind::Allowed;
        Self { verdict, decision, enforced, refusal: None, sentence: None, approval: None }
    }
}

fn weigh(unattended: bool, whose: Whose, resolved: &Resolved, judgement: Option<&Judgement>) -> Weighed {
    if let Some((cause, sentence)) = &resolved.refusal {
        return Weighed::refused(Verdict::Deny, *cause, sentence.clone());
    }
    let Some(judgement) = judgement else {
        let sentence = "the boundary could not be judged, so the call is refused".to_owned();
        return Weighed::refused(Verdict::Deny, RefusalCause::Unjudged, sentence);
    };
    let verdict = match judgement.verdict {
        Said::Allow => Verdict::Allow,
        Said::Deny => Verdict::Deny,
        Said::Ask => Verdict::Ask,
    };
    // The Bot itself wants a person's word; no rule and no dry run gives it.
    if whose == Whose::TheBots && (verdict == Verdict::Allow || !judgement.enforced) {
        if !unattended {
            return Weighed { decision: DecisionKind::Asked, ..Weighed::let_through(Verdict::Ask, true) };
        }
        let sentence = "the Bot asks for a person's word, and nobody is watching".to_owned();
        return Weighed::refused(Verdict::Ask, RefusalCause::AskUnattended, sentence);
    }
    // A dry run lets everything through, and records what the verdict would have been.
    if !judgement.enforced {
        return Weighed::let_through(verdict, false);
    }
    match (judgement.verdict, judgement.rule.as_deref()) {
        (Said::Allow, _) => Weighed::let_through(verdict, true),
        (Said::Deny, Some(rule)) => {
            Weighed::refused(verdict, RefusalCause::Rule, format!("the rule `{rule}` refuses it"))
        }
        (Said::Deny, None) => Weighed::refused(verdict, RefusalCause::NoRule, "no rule allows it".to_owned()),
        (Said::Ask, rule) if unattended && judgement.unattended == Unattended::Refuse => {
            let rule = rule.unwrap_or_default();
            let sentence = format!("the rule `{rule}` says to ask a person, and nobody is watching");
            Weighed::refused(verdict, RefusalCause::AskUnattended, sentence)
        }
        (Said::Ask, _) => Weighed { decision: DecisionKind::Asked, ..Weighed::let_through(verdict, true) },
    }
}

fn attempted(job: &Job, id: CallId, basis: &Basis, resolved: &Resolved) -> Attempted {
    Attempted {
        bot: job.opened.bot,
        run: job.run,
        call: id,
        // Cut: it came from a model and can be anything.
        tool: resolved.context.tool_name.clone(),
        read: resolved.read,
        unattended: job.opened.unattended,
        routine: job.opened.routine,
        trigger: job.opened.trigger,
        fingerprint: resolved.readable.clone(),
        now: basis.now,
        window_s: job.engine.repeat_window_s(),
    }
}

/// Whoever asked went away before a person answered.
fn withdrawn(decided: &Decided) -> Answer {
    let reason = "the call was withdrawn while it waited for a person, because whoever made it went away".to_owned();
    let text = json!({"ok": false, "refused": true, "reason": reason, "rule": decided.decision.rule}).to_string();
    Answer { kind: AnswerKind::Refused, text, sentence: Some(reason), circles: false }
}

/// A refusal reaches the Bot as a result it can read.
fn refused(decided: &Decided) -> Answer {
    let reason = decided.sentence.clone().unwrap_or_default();
    let text = json!({"ok": false, "refused": true, "reason": reason, "rule": decided.decision.rule});
    let (text, circles) = (text.to_string(), decided.circles);
    Answer { kind: AnswerKind::Refused, text, sentence: Some(reason), circles }
}

/// Whether a call was refused by a rule that reads how often it was made.
fn circles(decision: &Decision, document: Option<&str>) -> bool {
    let (Some(RefusalCause::Rule), Some(decided), Some(document)) = (decision.refusal, &decision.rule, document) else {
        return false;
    };
    let document = BoundaryDoc::parse(document).ok();
    let rule = document.as_ref().and_then(|document| document.rules.iter().find(|rule| rule.id == *decided));
    rule.is_some_and(|rule| rule.when.contains("repeat."))
}

/// The word that stands for a value on the wire.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Waits a little, and by chance, before a contended call is counted again.
pub(crate) async fn pause(job: &Job, attempt: u32) {
    let [chance] = job.engine.world().random::<1>();
    let most_ms = 1_u64 << attempt.min(6);
    let span = Duration::from_micros(most_ms * u64::from(chance) * 4);
    job.engine.world().clock.sleep(span).await;
}

#[cfg(test)]
mod tests;
