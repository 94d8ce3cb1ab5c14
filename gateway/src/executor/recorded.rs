//! A recording: the whole plan is checked before step 1, then each step goes through the gateway like any other call.

use midwatch_commands::recording::Recording;
use midwatch_engine::runner::{Ending, Job};
use midwatch_events::run::{Outcome, Reason};
use serde_json::Value;

use super::{circling, failed, instruction};
use crate::{
    Gateway,
    decide::{AnswerKind, Call, Stop, Whose},
    redact::redact_text,
};

pub(super) async fn run(gateway: &Gateway, job: &Job) -> Result<Ending, Stop> {
    let plan = match plan(gateway, job).await? {
        Ok(plan) => plan,
        Err(sentence) => return Ok(failed(Reason::Error, sentence)),
    };
    let total = plan.steps.len();
    for (at, step) in plan.steps.into_iter().enumerate() {
        let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let call =
            Call { tool: step.tool.clone(), arguments: Ok(step.arguments), step: Some(number), whose: Whose::Ours };
        let answer = gateway.call(job, call).await?;
        let sentence = answer.sentence.unwrap_or_default();
        match answer.kind {
            AnswerKind::Done => {}
            AnswerKind::Failed => {
                let error = redact_text(&sentence);
                let over = HandOver { goal: plan.goal, number, total, purpose: step.purpose, tool: step.tool, error };
                return Box::pin(instruction::take_over(gateway, job, &over.text())).await;
            }
            AnswerKind::Refused => {
                let purpose = step.purpose.map(|purpose| format!(" ({purpose})")).unwrap_or_default();
                let error = redact_text(&format!("Step {number} of {total}{purpose} was refused: {sentence}"));
                if answer.circles {
                    return Ok(circling(error));
                }
                return Ok(Ending {
                    outcome: Outcome::Refused,
                    reason: None,
                    headline: super::headline(&error),
                    error: Some(error),
                });
            }
        }
    }
    let headline = plan.goal.map_or_else(|| format!("All {total} steps are done"), |goal| super::headline(&goal));
    Ok(Ending { outcome: Outcome::Succeeded, reason: None, headline, error: None })
}

/// What the Bot is told when it takes over from a recording.
struct HandOver {
    goal: Option<String>,
    number: u32,
    total: usize,
    purpose: Option<String>,
    tool: String,
    error: String,
}

impl HandOver {
    fn text(&self) -> String {
        let Self { goal, number, total, purpose, tool, error } = self;
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "(not said)".to_owned());
        format!(
            "Step {number} of {total} of a recording failed.\n\
             purpose: {}\ntool: {tool}\nerror: {error}\ngoal: {}\n\
             Earlier steps are done, finish from here.",
            or_none(purpose),
            or_none(goal),
        )
    }
}

struct Plan {
    goal: Option<String>,
    steps: Vec<midwatch_commands::recording::Step>,
}

/// All steps with their values, or why the recording cannot run.
async fn plan(gateway: &Gateway, job: &Job) -> Result<Result<Plan, String>, Stop> {
    let Some(text) = &job.work.recording else { return Ok(Err("The recording was erased.".to_owned())) };
    let body = match job.opened.delivery {
        None => None,
        Some(delivery) => job.engine.reading(delivery).await?,
    };
    let body: Option<Value> = body.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let tools = gateway.tools(&job.engine.tool_servers().await?.state);
    let planned = Recording::parse(text).and_then(|recording| {
        let unknown = |step: &&midwatch_commands::recording::Step| tools.iter().all(|known| known.name != step.tool);
        if let Some(step) = recording.steps.iter().find(unknown) {
            return Err(format!("there is no tool `{}`", step.tool));
        }
        Ok(Plan { steps: recording.plan(body.as_ref())?, goal: recording.goal })
    });
    Ok(planned.map_err(|sentence| format!("Nothing was done: {sentence}.")))
}
