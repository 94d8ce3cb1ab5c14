//! Tables of what is refused, what a rule gives, and how verdicts are reached.

mod expressions;
mod saving;
mod verdicts;

use std::time::Instant;

use crate::{BoundaryDoc, Compiled, Context, Finding, Mode, Rule, Verdict, check};

#[expect(clippy::disallowed_methods, reason = "promises in milliseconds are measured on the real clock")]
fn clock() -> Instant {
    Instant::now()
}

/// A boundary of these rules, enforced, in UTC.
fn boundary(rules: Vec<Rule>) -> BoundaryDoc {
    BoundaryDoc { mode: Mode::Enforce, zone: "UTC".to_owned(), rules }
}

/// A boundary of one deny rule.
fn one(when: &str) -> BoundaryDoc {
    boundary(vec![Rule::new("r", "r", Verdict::Deny, when)])
}

fn compiled(when: &str) -> Compiled {
    check(&one(when)).unwrap_or_else(|findings| panic!("{when} was refused: {}", findings[0]))
}

fn finding(when: &str) -> Finding {
    match check(&one(when)) {
        Ok(_) => panic!("{when} was accepted"),
        Err(findings) => findings.into_iter().next().unwrap(),
    }
}

/// Whether the rule matches, or why it is broken.
fn outcome(when: &str, context: &Context) -> Result<bool, String> {
    let judgement = compiled(when).judge(context);
    match judgement.broken.into_iter().next() {
        Some(broken) => Err(broken.error),
        None => Ok(!judgement.matched.is_empty()),
    }
}
