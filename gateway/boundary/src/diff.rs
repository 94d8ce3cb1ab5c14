//! What is different between two boundaries, for people.

use serde::Serialize;

use crate::{BoundaryDoc, Rule};

/// One thing that is different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Difference {
    /// A member of the document or of a rule has another value.
    Changed {
        /// The rule's id; none for the document itself.
        rule: Option<String>,
        /// The member's name.
        member: &'static str,
        /// Its value before.
        from: String,
        /// Its value now.
        to: String,
    },
    /// A rule is there that was not.
    Added(Rule),
    /// A rule is not there any more.
    Removed(Rule),
    /// The rules that both have stand in another order.
    Reordered {
        /// Their ids, as they stand now.
        rules: Vec<String>,
    },
}

/// Everything that is different, the document's own members first, then in the order of the newer rules.
#[must_use]
pub fn differences(old: &BoundaryDoc, new: &BoundaryDoc) -> Vec<Difference> {
    let mut found = Vec::new();
    changed(&mut found, None, "mode", word(old.mode), word(new.mode));
    changed(&mut found, None, "zone", old.zone.clone(), new.zone.clone());
    let of = |document: &BoundaryDoc, id: &str| document.rules.iter().find(|rule| rule.id == id).cloned();
    for rule in &new.rules {
        match of(old, &rule.id) {
            None => found.push(Difference::Added(rule.clone())),
            Some(before) => members(&mut found, &before, rule),
        }
    }
    let gone = old.rules.iter().filter(|rule| of(new, &rule.id).is_none());
    found.extend(gone.cloned().map(Difference::Removed));
    let order = |document: &BoundaryDoc, other: &BoundaryDoc| -> Vec<String> {
        let both = document.rules.iter().filter(|rule| of(other, &rule.id).is_some());
        both.map(|rule| rule.id.clone()).collect()
    };
    let now = order(new, old);
    if order(old, new) != now {
        found.push(Difference::Reordered { rules: now });
    }
    found
}

fn members(found: &mut Vec<Difference>, old: &Rule, new: &Rule) {
    let id = Some(new.id.as_str());
    changed(found, id, "name", old.name.clone(), new.name.clone());
    changed(found, id, "verdict", word(old.verdict), word(new.verdict));
    changed(found, id, "when", old.when.clone(), new.when.clone());
    changed(found, id, "effect", word(old.effect), word(new.effect));
    changed(found, id, "unattended", word(old.unattended), word(new.unattended));
    changed(found, id, "approvers", word(old.approvers), word(new.approvers));
    changed(found, id, "cost", old.cost.clone(), new.cost.clone());
    changed(found, id, "note", old.note.clone(), new.note.clone());
}

fn changed(found: &mut Vec<Difference>, rule: Option<&str>, member: &'static str, from: String, to: String) {
    if from != to {
        found.push(Difference::Changed { rule: rule.map(str::to_owned), member, from, to });
    }
}

/// The word that stands for a value in the document.
fn word(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effect, Mode, Verdict, default_document};

    #[test]
    fn every_difference_is_told_and_nothing_else() {
        let rule = |id: &str| Rule::new(id, id, Verdict::Deny, "true");
        let old = BoundaryDoc { rules: vec![rule("a"), rule("b"), rule("gone")], ..default_document() };
        assert_eq!(differences(&old, &old), []);
        let shadow = Rule { effect: Effect::Shadow, when: "false".to_owned(), ..rule("a") };
        let new = BoundaryDoc { mode: Mode::DryRun, rules: vec![rule("new"), rule("b"), shadow], ..old.clone() };
        let changed = |rule: Option<&str>, member, from: &str, to: &str| Difference::Changed {
            rule: rule.map(str::to_owned),
            member,
            from: from.to_owned(),
            to: to.to_owned(),
        };
        let expected = [
            changed(None, "mode", "enforce", "dry_run"),
            Difference::Added(rule("new")),
            changed(Some("a"), "when", "true", "false"),
            changed(Some("a"), "effect", "enforce", "shadow"),
            Difference::Removed(rule("gone")),
            Difference::Reordered { rules: vec!["b".to_owned(), "a".to_owned()] },
        ];
        assert_eq!(differences(&old, &new), expected);
    }
}
