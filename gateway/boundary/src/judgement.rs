//! What judging a call gives.

use serde::Serialize;

use crate::document::{Approvers, Unattended, Verdict};

/// A rule that could not be judged on this call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The rule's id.
    pub rule: String,
    /// Why, in one sentence.
    pub error: String,
}

/// The verdict on one call, with everything a decision records about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// What the boundary says.
    pub verdict: Verdict,
    /// False in a dry run: the call goes ahead whatever the verdict.
    pub enforced: bool,
    /// The rule that decided; `None` when nothing matched, which refuses.
    pub rule: Option<String>,
    /// All rules that matched, in document order, shadow ones too, without the broken ones.
    pub matched: Vec<String>,
    /// All rules that could not be judged, in document order.
    pub broken: Vec<Broken>,
    /// For ask: what happens when nobody watches, as the deciding rule says.
    #[serde(skip)]
    pub unattended: Unattended,
    /// For ask: who may answer, as the deciding rule says.
    #[serde(skip)]
    pub approvers: Approvers,
}

impl Judgement {
    /// `{"verdict":…,"enforced":…,"rule":…,"matched":[…],"broken":[{"rule":…,"error":…}]}`
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
