//! The boundary as a document: what is published, stored and shown.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_RULES;

/// What a rule says about the calls it matches. Judged in this order: deny, then ask, then allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call is refused.
    Deny,
    /// A person is asked first.
    Ask,
    /// The call goes ahead.
    Allow,
}

/// Whether the boundary holds calls back, or only records what it would have said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Verdicts are enforced.
    #[default]
    Enforce,
    /// Every call goes ahead; the would-be verdict is recorded with `enforced: false`.
    DryRun,
}

/// Whether one rule takes part in deciding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It decides.
    #[default]
    Enforce,
    /// It never decides and only appears among the matches.
    Shadow,
}

/// What an ask rule does when nobody watches the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unattended {
    /// Refuse at once.
    #[default]
    Refuse,
    /// Wait for an answer.
    Wait,
}

/// Who may answer an ask rule's question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approvers {
    /// Admins and the routine's owner.
    #[default]
    Any,
    /// Admins who do not own the routine.
    NotOwner,
}

/// One rule of a boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Names the rule in decisions; unique in the document, at most 100 characters, no blanks.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// What it says about the calls it matches.
    pub verdict: Verdict,
    /// The CEL expression that matches calls.
    pub when: String,
    /// Whether it takes part in deciding.
    #[serde(default)]
    pub effect: Effect,
    /// For ask rules: what happens when nobody watches.
    #[serde(default)]
    pub unattended: Unattended,
    /// For ask rules: who may answer.
    #[serde(default)]
    pub approvers: Approvers,
    /// What the rule costs, in words.
    #[serde(default)]
    pub cost: String,
    /// Anything its author wants to say.
    #[serde(default)]
    pub note: String,
}

impl Rule {
    /// A rule with every default: enforced, refuse when unattended, any approver, no cost, no note.
    #[must_use]
    pub fn new(id: &str, name: &str, verdict: Verdict, when: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            verdict,
            when: when.to_owned(),
            effect: Effect::default(),
            unattended: Unattended::default(),
            approvers: Approvers::default(),
            cost: String::new(),
            note: String::new(),
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A boundary: the set of rules that every tool call is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundaryDoc {
    /// Whether verdicts are enforced.
    #[serde(default)]
    pub mode: Mode,
    /// The IANA time zone that rules read as `zone`.
    #[serde(default = "utc")]
    pub zone: String,
    /// The rules, in the order they are shown and matched.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// A boundary document, under the name callers parse it by: `Boundary::parse(text)`.
pub type Boundary = BoundaryDoc;

/// Why a text is not a boundary document: one sentence, with the rule and the place where they are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct DocumentError {
    /// The id of the rule at fault.
    pub rule: Option<String>,
    /// Line of the JSON text, from 1; 0 where the fault is not one place in the text.
    pub line: usize,
    /// Column of the JSON text, from 1; 0 where the fault is not one place in the text.
    pub column: usize,
    /// What is wrong and what to do.
    pub sentence: String,
}

impl DocumentError {
    fn of(rule: Option<&str>, sentence: String) -> Self {
        Self { rule: rule.map(str::to_owned), line: 0, column: 0, sentence }
    }
}

impl BoundaryDoc {
    /// Reads a document. Its rules are compiled by [`check`](crate::check), not here.
    ///
    /// # Errors
    /// One sentence for the first fault: not JSON, an unknown member, a wrong or missing value, a duplicate id,
    /// an unknown time zone, too many rules.
    pub fn parse(json: &str) -> Result<Self, DocumentError> {
        let document: Self = serde_json::from_str(json).map_err(|error| unreadable(json, &error))?;
        // serde also reads a struct from a list of its members in order; a document has names.
        let shape: serde_json::Value = serde_json::from_str(json).map_err(|error| unreadable(json, &error))?;
        let rules = shape.get("rules").and_then(|rules| rules.as_array());
        if !shape.is_object() || rules.is_some_and(|rules| !rules.iter().all(|rule| rule.is_object())) {
            let sentence = "a boundary is a JSON object, and so is each of its rules".to_owned();
            return Err(DocumentError::of(None, sentence));
        }
        document.validate()?;
        Ok(document)
    }

    /// The document as canonical JSON: every member written, in the order of the documentation, no blanks.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Checks what the shape of the JSON cannot say.
    ///
    /// # Errors
    /// As [`BoundaryDoc::parse`].
    pub fn validate(&self) -> Result<(), DocumentError> {
        if self.zone.parse::<chrono_tz::Tz>().is_err() {
            let sentence = format!("`{}` is not an IANA time zone; write one such as `Europe/Berlin`", self.zone);
            return Err(DocumentError::of(None, sentence));
        }
        if self.rules.len() > MAX_RULES {
            let sentence = format!("a boundary has at most {MAX_RULES} rules; this one has {}", self.rules.len());
            return Err(DocumentError::of(None, sentence));
        }
        let mut seen = BTreeSet::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let number = index + 1;
            if rule.id.is_empty() || rule.id.chars().count() > 100 || rule.id.chars().any(unfit_for_an_id) {
                let sentence = format!("rule number {number} needs an `id` of 1 to 100 characters without blanks");
                return Err(DocumentError::of(Some(&rule.id), sentence));
            }
            if rule.name.trim().is_empty() || rule.name.chars().count() > 200 {
                let sentence = format!("rule `{}` needs a `name` of 1 to 200 characters", rule.id);
                return Err(DocumentError::of(Some(&rule.id), sentence));
            }
            if !seen.insert(rule.id.as_str()) {
                let sentence = format!("rule number {number} has the id `{}`, which an earlier rule has", rule.id);
                return Err(DocumentError::of(Some(&rule.id), sentence));
            }
        }
        Ok(())
    }
}

/// The boundary a new deployment starts with: one rule that allows everything, so that it is seen.
#[must_use]
pub fn default_document() -> BoundaryDoc {
    let mut rule = Rule::new("allow-all", "Allow everything", Verdict::Allow, "true");
    rule.cost = "Nothing is held back: every granted tool may be called with any arguments.".to_owned();
    BoundaryDoc { mode: Mode::Enforce, zone: utc(), rules: vec![rule] }
}

fn unfit_for_an_id(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// Turns serde's error into a sentence with the rule it is about.
fn unreadable(json: &str, error: &serde_json::Error) -> DocumentError {
    let (line, column) = (error.line(), error.column());
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default().to_owned();
    let value: Option<serde_json::Value> = serde_json::from_str(json).ok();
    let rules = value.as_ref().and_then(|v| v.get("rules")).and_then(|v| v.as_array());
    let faulty = rules.and_then(|rules| {
        let at = rules.iter().position(|rule| serde_json::from_value::<Rule>(rule.clone()).is_err())?;
        Some((at + 1, rules[at].get("id").and_then(|id| id.as_str()).map(str::to_owned)))
    });
    let (rule, whose) = match faulty {
        Some((_, Some(id))) => (Some(id.clone()), format!("rule `{id}`")),
        Some((number, None)) => (None, format!("rule number {number}")),
        None => (None, "the boundary".to_owned()),
    };
    DocumentError { rule, line, column, sentence: format!("{whose}: {what} (line {line}, column {column})") }
}
