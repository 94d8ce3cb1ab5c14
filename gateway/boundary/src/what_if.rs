//! What another boundary would have said to calls that were decided.
//!
//! A decision records everything its rules saw, so any other boundary can be judged on it later. Nothing is read and
//! nothing decided here: whoever asks hands the decisions in.

use std::collections::{BTreeMap, BTreeSet};

use midwatch_events::{
    Micros, Recorded,
    id::{BotId, CallId, RunId},
    run::{Decision, DecisionKind, RefusalCause, RunContent, RunEvent, Verdict as Decided},
};
use serde::{Deserialize, Serialize};

use crate::{BoundaryDoc, Compiled, Context, Verdict, compile_lenient};

/// A recorded decision, and what another boundary says to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Where the decision stands.
    pub position: u64,
    /// When it was recorded, in microseconds since the epoch.
    pub at_us: Micros,
    /// The run.
    pub run: RunId,
    /// The Bot.
    pub bot: BotId,
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What the call acted on, for people.
    pub fingerprint: String,
    /// What was said then.
    pub was: Said,
    /// What would be said; absent where it cannot be worked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_be: Option<Said>,
    /// Why it cannot be worked out, or which rules could not be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unevaluable: Option<String>,
}

/// What a boundary says to a call: `allow` in a dry run, whatever the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// What comes of it.
    pub verdict: Verdict,
    /// The rule that decides.
    pub rule: Option<String>,
}

/// What a boundary would have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// Decisions looked at.
    pub decisions: u64,
    /// Of these, how many would come out as they did.
    pub same: u64,
    /// How many would come out otherwise.
    pub changed: u64,
    /// How many were refused before any rule was asked, and would be again.
    pub before_any_rule: u64,
    /// How many cannot be told.
    pub unevaluable: u64,
    /// How many changed from what to what: `allow → deny`.
    pub changes: BTreeMap<String, u64>,
    /// Each that would come out otherwise, in order.
    pub calls: Vec<Looked>,
    /// Each that cannot be told, in order.
    pub not_told: Vec<Looked>,
}

/// Judges recorded decisions by another boundary.
#[derive(Debug)]
pub struct Trial {
    compiled: Compiled,
    asked: BTreeSet<CallId>,
    found: WhatIf,
}

impl Trial {
    /// A trial of this boundary. A rule that does not compile is broken, as it would be if it were in force.
    #[must_use]
    pub fn new(document: &BoundaryDoc) -> Self {
        Self { compiled: compile_lenient(document), asked: BTreeSet::new(), found: WhatIf::default() }
    }

    /// Looks at one event; whatever is no decision is passed over.
    pub fn look(&mut self, recorded: &Recorded) {
        let Ok(RunEvent::ToolCallDecided(decision)) = recorded.facts::<RunEvent>() else { return };
        let content = recorded.content::<RunEvent>().ok().flatten();
        // A call that waited for a person is decided again when there is an answer: it is one call.
        let again = self.asked.contains(&decision.call);
        if decision.decision == DecisionKind::Asked {
            self.asked.insert(decision.call);
        }
        if !again {
            self.judge(recorded, &decision, content.as_ref());
        }
    }

    /// What was found so far.
    #[must_use]
    pub fn found(self) -> WhatIf {
        self.found
    }

    fn judge(&mut self, recorded: &Recorded, decision: &Decision, content: Option<&RunContent>) {
        self.found.decisions += 1;
        if before_any_rule(decision) {
            self.found.before_any_rule += 1;
            return;
        }
        let was = was(decision);
        let words = match content {
            Some(RunContent::ToolCallDecided { context, fingerprint, .. }) => Ok((context, fingerprint)),
            _ => Err("what the rules saw was erased".to_owned()),
        };
        let judged = words.and_then(|(context, fingerprint)| {
            let judgement = self.compiled.judge(&Context::from_json(context)?);
            Ok((judgement, fingerprint.clone()))
        });
        let (would_be, unevaluable, fingerprint) = match judged {
            Err(why) => (None, Some(why), String::new()),
            Ok((judgement, fingerprint)) => {
                let verdict = if judgement.enforced { judgement.verdict } else { Verdict::Allow };
                let broken: Vec<_> =
                    judgement.broken.iter().map(|broken| format!("{}: {}", broken.rule, broken.error)).collect();
                let broken = (!broken.is_empty()).then(|| broken.join("; "));
                (Some(Said { verdict, rule: judgement.rule }), broken, fingerprint)
            }
        };
        if unevaluable.is_none() && would_be.as_ref().is_some_and(|said| said.verdict == was.verdict) {
            self.found.same += 1;
            return;
        }
        let looked = Looked {
            position: recorded.position,
            at_us: recorded.recorded_at,
            run: decision.run,
            bot: decision.bot,
            call: decision.call,
            tool: decision.tool.clone(),
            fingerprint,
            was,
            would_be,
            unevaluable,
        };
        self.note(looked);
    }

    fn note(&mut self, looked: Looked) {
        match &looked.would_be {
            Some(would_be) if looked.unevaluable.is_none() => {
                let change = format!("{} → {}", word(looked.was.verdict), word(would_be.verdict));
                *self.found.changes.entry(change).or_default() += 1;
                self.found.changed += 1;
                self.found.calls.push(looked);
            }
            _ => {
                self.found.unevaluable += 1;
                self.found.not_told.push(looked);
            }
        }
    }
}

fn before_any_rule(decision: &Decision) -> bool {
    match decision.refusal {
        None
        | Some(
            RefusalCause::Rule
            | RefusalCause::NoRule
            | RefusalCause::AskUnattended
            | RefusalCause::Declined
            | RefusalCause::Expired,
        ) => false,
        Some(
            RefusalCause::UnknownTool
            | RefusalCause::NotGranted
            | RefusalCause::BadArguments
            | RefusalCause::Unjudged
            | RefusalCause::Contended
            | RefusalCause::DefinitionChanged,
        ) => true,
    }
}

fn was(decision: &Decision) -> Said {
    let verdict = match decision.verdict {
        _ if !decision.enforced => Verdict::Allow,
        Decided::Allow => Verdict::Allow,
        Decided::Ask => Verdict::Ask,
        Decided::Deny => Verdict::Deny,
    };
    Said { verdict, rule: decision.rule.clone() }
}

/// The word of a verdict.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

#[cfg(test)]
mod tests;
