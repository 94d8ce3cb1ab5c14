//! A boundary's rules, compiled once, and the order in which they decide.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::attributes::{self, Attribute};
use crate::context::Context;
use crate::document::{Approvers, BoundaryDoc, Effect, Mode, Rule, Unattended, Verdict};
use crate::judgement::{Broken, Judgement};
use crate::limits::{MAX_INPUT, STACK};
use crate::prepared::{Constants, Layout, Prepared, prepare, run};
use crate::syntax::{Finding, Problem, parse};
use crate::types::Checker;
use crate::{arguments, functions};

/// A boundary whose rules are compiled.
///
/// [`Compiled::judge`] is for callers that can wait, on threads with the ordinary 2 MiB of stack; the gateway goes
/// through [`Judge`](crate::Judge), which has more, and a watchdog.
#[derive(Debug)]
pub struct Compiled {
    mode: Mode,
    zone: String,
    rules: Vec<CompiledRule>,
    constants: Constants,
    reads: u64,
}

#[derive(Debug)]
struct CompiledRule {
    id: String,
    verdict: Verdict,
    effect: Effect,
    unattended: Unattended,
    approvers: Approvers,
    /// The rule, or why it cannot run.
    body: Result<Prepared, String>,
}

/// Compiles every rule, as saving a boundary does.
///
/// # Errors
/// One finding for each rule that is refused, in document order.
pub fn check(document: &BoundaryDoc) -> Result<Compiled, Vec<Finding>> {
    let (compiled, findings) = on_a_large_stack(document);
    if findings.is_empty() { Ok(compiled) } else { Err(findings) }
}

/// Compiles every rule; one that [`check`] refuses is broken, and the others work.
#[must_use]
pub fn compile_lenient(document: &BoundaryDoc) -> Compiled {
    on_a_large_stack(document).0
}

/// Refuses rules on arguments that no granted tool has: they would be accepted and never match.
///
/// `granted` holds the argument names of all tools granted to any Bot. Rules that do not parse are left to
/// [`check`].
#[must_use]
pub fn check_args(document: &BoundaryDoc, granted: &BTreeSet<String>) -> Vec<Finding> {
    let look = || {
        let unknown = document.rules.iter().flat_map(|rule| {
            let parsed = parse(&rule.when).ok();
            let names = parsed.map(|parsed| arguments::names(&parsed.written)).unwrap_or_default();
            names.into_iter().filter(|name| !granted.contains(name)).map(move |name| {
                let near = attributes::nearest(&name, granted.iter().map(String::as_str));
                let hint = near.map_or("remove the rule, or grant the tool first".to_owned(), |near| {
                    format!("did you mean `args.{near}`?")
                });
                let sentence = format!("no granted tool has an argument `{name}`, so this never matches; {hint}");
                let at = rule.when.find(&format!("args.{name}")).unwrap_or(0);
                Finding::of(&rule.id, &rule.when, Problem::at(at, sentence))
            })
        });
        unknown.collect()
    };
    large_stack(look).unwrap_or_default()
}

/// Runs `work` on a thread of its own with a large stack; `None` if there is no thread to be had, or it panicked.
pub(crate) fn large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("boundary-compile".to_owned()).stack_size(STACK);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

fn on_a_large_stack(document: &BoundaryDoc) -> (Compiled, Vec<Finding>) {
    large_stack(|| compile(document)).unwrap_or_else(|| {
        let refused = "the rules could not be compiled: no thread with a large stack";
        let bodies = document.rules.iter().map(|_| Err(Problem::at(0, refused.to_owned()))).collect();
        assemble(document, bodies, Constants::new())
    })
}

fn compile(document: &BoundaryDoc) -> (Compiled, Vec<Finding>) {
    let mut constants = Constants::new();
    let bodies = document.rules.iter().map(|rule| compile_rule(rule, &mut constants)).collect();
    assemble(document, bodies, constants)
}

pub(crate) fn compile_rule(rule: &Rule, constants: &mut Constants) -> Result<Prepared, Problem> {
    let parsed = parse(&rule.when)?;
    Checker::check(&parsed)?;
    arguments::check(&parsed)?;
    Ok(prepare(&parsed.expanded?, constants))
}

pub(crate) fn assemble(
    document: &BoundaryDoc,
    bodies: Vec<Result<Prepared, Problem>>,
    constants: Constants,
) -> (Compiled, Vec<Finding>) {
    let mut findings = Vec::new();
    let rules: Vec<CompiledRule> = document
        .rules
        .iter()
        .zip(bodies)
        .map(|(rule, body)| CompiledRule {
            id: rule.id.clone(),
            verdict: rule.verdict,
            effect: rule.effect,
            unattended: rule.unattended,
            approvers: rule.approvers,
            body: body.map_err(|problem| {
                let finding = Finding::of(&rule.id, &rule.when, problem);
                let sentence = finding.sentence.clone();
                findings.push(finding);
                sentence
            }),
        })
        .collect();
    let reads = rules.iter().filter_map(|rule| rule.body.as_ref().ok()).fold(0, |reads, body| reads | body.reads);
    let compiled = Compiled { mode: document.mode, zone: document.zone.clone(), rules, constants, reads };
    (compiled, findings)
}

impl Compiled {
    /// Judges one call. Never fails: what cannot be judged is broken, and a broken deny denies.
    #[must_use]
    pub fn judge(&self, context: &Context) -> Judgement {
        self.judge_noting(context, &AtomicUsize::new(0))
    }

    /// As [`Compiled::judge`], noting in `progress` the rule it is at, so that a watchdog can name it.
    pub(crate) fn judge_noting(&self, context: &Context, progress: &AtomicUsize) -> Judgement {
        let layout = Layout::new(context, &self.zone, self.reads, &self.constants);
        let mut cel = functions::context();
        cel.set_variable_resolver(&layout);
        let mut matched = Vec::new();
        let mut broken = Vec::new();
        let mut deciding: Option<&CompiledRule> = None;
        for (index, rule) in self.rules.iter().enumerate() {
            progress.store(index, Ordering::Relaxed);
            let outcome = rule.outcome(&layout, &cel);
            let says = match &outcome {
                Ok(matches) => *matches,
                // What cannot be judged is held back; only an allow needs to be sure.
                Err(_) => rule.verdict != Verdict::Allow,
            };
            match outcome {
                Ok(true) => matched.push(rule.id.clone()),
                Ok(false) => {}
                Err(error) => broken.push(Broken { rule: rule.id.clone(), error }),
            }
            let stronger = deciding.is_none_or(|deciding| rule.verdict < deciding.verdict);
            if says && rule.effect == Effect::Enforce && stronger {
                deciding = Some(rule);
            }
        }
        Judgement {
            verdict: deciding.map_or(Verdict::Deny, |rule| rule.verdict),
            enforced: self.mode == Mode::Enforce,
            rule: deciding.map(|rule| rule.id.clone()),
            matched,
            broken,
            unattended: deciding.map(|rule| rule.unattended).unwrap_or_default(),
            approvers: deciding.map(|rule| rule.approvers).unwrap_or_default(),
        }
    }

    /// The refusal for a call that could not be judged; `at` is the rule it stopped at.
    pub(crate) fn refusal(&self, at: Option<usize>, error: &str) -> Judgement {
        let rule = at.and_then(|index| self.rules.get(index)).map(|rule| rule.id.clone());
        let broken = rule.iter().map(|rule| Broken { rule: rule.clone(), error: error.to_owned() }).collect();
        Judgement {
            verdict: Verdict::Deny,
            enforced: self.mode == Mode::Enforce,
            rule,
            matched: Vec::new(),
            broken,
            unattended: Unattended::default(),
            approvers: Approvers::default(),
        }
    }
}

#[cfg(test)]
impl Compiled {
    /// Puts an expression that no text compiles to in a rule's place.
    pub(crate) fn replace_for_tests(&mut self, index: usize, expression: cel_interpreter::common::ast::IdedExpr) {
        self.rules[index].body = Ok(Prepared { expression, reads: 0 });
    }
}

impl CompiledRule {
    fn outcome(&self, layout: &Layout<'_>, cel: &cel_interpreter::Context<'_, '_>) -> Result<bool, String> {
        let body = self.body.as_ref().map_err(Clone::clone)?;
        let oversize = body.reads & layout.oversize;
        if oversize != 0 {
            let name = oversize_name(oversize);
            return Err(format!("the rule reads `{name}`, which is larger than {MAX_INPUT} bytes on this call"));
        }
        // The net under the limits: a panic in the CEL crate must not take the judging thread with it.
        catch_unwind(AssertUnwindSafe(|| run(body, cel)))
            .unwrap_or_else(|_| Err("the expression cannot be evaluated".to_owned()))
    }
}

fn oversize_name(oversize: u64) -> &'static str {
    let first = attributes::names().find(|name| Attribute::named(name).is_some_and(|a| oversize & a.bit() != 0));
    first.unwrap_or_default()
}
