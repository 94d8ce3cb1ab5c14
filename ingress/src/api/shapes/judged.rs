//! What was asked of persons, and what another boundary would have said.

use utoipa::ToSchema;

/// What a person was asked, and what came of it.
#[derive(ToSchema)]
pub(crate) struct Approval {
    /// The approval.
    #[schema(format = Uuid)]
    id: String,
    /// `approved`, `declined`, `expired` or `withdrawn`; null while it waits.
    answer: Option<String>,
    /// The run.
    #[schema(format = Uuid)]
    run: String,
    /// The call that asked first.
    #[schema(format = Uuid)]
    call: String,
    /// The Bot.
    #[schema(format = Uuid)]
    bot: String,
    /// The routine.
    #[schema(format = Uuid)]
    routine: Option<String>,
    /// The trigger.
    #[schema(format = Uuid)]
    trigger: Option<String>,
    /// Whose rights the run has.
    #[schema(format = Uuid)]
    owner: String,
    /// The tool.
    tool: String,
    /// The rule that says to ask.
    rule: String,
    /// The boundary's version.
    boundary: u64,
    /// What is answered, as 64 hex digits: send it back with the answer.
    digest: String,
    /// `any` or `not_owner`.
    approvers: String,
    /// Whether nobody was watching.
    unattended: bool,
    /// What the call would act on.
    fingerprint: Option<String>,
    /// Its arguments as JSON text, secrets redacted; null for whoever may not read them.
    arguments: Option<String>,
    /// When it was asked.
    #[schema(format = DateTime)]
    asked_at: String,
    /// When it expires.
    #[schema(format = DateTime)]
    expires_at: String,
    /// When it was answered.
    #[schema(format = DateTime)]
    answered_at: Option<String>,
    /// Who answered: a person, the clock, the engine.
    answered_by: Option<String>,
    /// The call that it let through.
    #[schema(format = Uuid)]
    spent_by: Option<String>,
    /// The position of its last event.
    position: u64,
}

/// What a boundary would have changed.
#[derive(ToSchema)]
pub(crate) struct WhatIf {
    /// Decisions looked at.
    decisions: u64,
    /// Of these, how many would come out as they did.
    same: u64,
    /// How many would come out otherwise.
    changed: u64,
    /// How many were refused before any rule was asked, and would be again.
    before_any_rule: u64,
    /// How many cannot be told.
    unevaluable: u64,
    /// How many changed from what to what: `allow → deny`.
    #[schema(value_type = Object)]
    changes: std::collections::BTreeMap<String, u64>,
    /// Each that would come out otherwise.
    calls: Vec<TriedCall>,
    /// Each that cannot be told.
    not_told: Vec<TriedCall>,
}

/// A decided call, and what another boundary says to it.
#[derive(ToSchema)]
pub(crate) struct TriedCall {
    /// Where the decision stands.
    position: u64,
    /// When it was recorded, in microseconds since the epoch.
    at_us: i64,
    /// The run.
    #[schema(format = Uuid)]
    run: String,
    /// The Bot.
    #[schema(format = Uuid)]
    bot: String,
    /// The call.
    #[schema(format = Uuid)]
    call: String,
    /// The tool.
    tool: String,
    /// What the call acted on, for people.
    fingerprint: String,
    /// What was said then.
    was: SaidOfCall,
    /// What would be said; absent where it cannot be worked out.
    would_be: Option<SaidOfCall>,
    /// Why it cannot be worked out, or which rules could not be judged.
    unevaluable: Option<String>,
}

/// What a boundary says to a call.
#[derive(ToSchema)]
pub(crate) struct SaidOfCall {
    /// `allow`, `ask` or `deny`; `allow` in a dry run, whatever the verdict.
    verdict: String,
    /// The rule that decides.
    rule: Option<String>,
}

/// A published boundary.
#[derive(ToSchema)]
pub(crate) struct BoundaryVersion {
    /// Its version, from 1.
    version: u64,
    /// Who published it.
    author: String,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Where in the ledger.
    position: u64,
    /// Why, in its author's words.
    note: Option<String>,
    /// The whole document, as JSON text.
    document: String,
}
