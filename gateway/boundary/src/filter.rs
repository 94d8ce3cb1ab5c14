//! A condition on deliveries: CEL over `headers`, `body` and `event_type`, under the limits that rules have.
//!
//! A filter is a rule about other facts, and is judged by the same code: `headers` and `body` are read where a rule
//! reads its arguments, `event_type` where it reads that of a trigger. Whatever cannot be judged is broken, never a no.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel_interpreter::common::ast::{EntryExpr, Expr, IdedExpr, SelectExpr};
use serde_json::{Map, Value};

use crate::compiled::{Compiled, assemble, compile_rule, large_stack};
use crate::context::Context;
use crate::document::{BoundaryDoc, Mode, Rule, Verdict};
use crate::judgement::Judgement;
use crate::prepared::{Constants, Prepared, prepare};
use crate::syntax::{self, Finding, Parsed, Problem, Voice, each_node};
use crate::types::Checker;
use crate::{arguments, attributes};

const FILTER: &str = "filter";
/// Matches always: where it did not, nothing was judged to its end.
const JUDGED: &str = "judged";

/// A filter, ready to run.
#[derive(Clone, Debug)]
pub struct Filter {
    compiled: Arc<Compiled>,
    reads_body: bool,
    reads_headers: bool,
}

/// What came of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passes {
    /// The delivery meets it.
    Yes,
    /// It does not.
    No,
    /// It cannot be said, and why.
    Broken(String),
}

impl Filter {
    /// Compiles a filter, as saving it does.
    ///
    /// # Errors
    /// What is wrong with it, where, and what to do.
    pub fn compile(source: &str) -> Result<Self, Finding> {
        let nothing = || Problem::at(0, "the filter could not be compiled: no thread with a large stack".to_owned());
        let compiled = large_stack(|| compile(source)).unwrap_or_else(|| Err(nothing()));
        compiled.map_err(|problem| {
            let mut finding = Finding::of(FILTER, source, problem);
            finding.sentence = finding.sentence.replace("the rule", "the filter");
            finding
        })
    }

    /// The facts about one delivery, as this filter reads them. `headers` are names in lower case and values, in the
    /// order they came; what it does not read is not looked at.
    ///
    /// # Errors
    /// Why it cannot be judged: a body that is no text, or a whole number in it that 64 bits cannot hold.
    pub fn facts(
        &self,
        headers: &[(String, String)],
        body: &[u8],
        event_type: Option<&str>,
    ) -> Result<Context, String> {
        let mut args = Map::new();
        if self.reads_headers {
            let mut lines: BTreeMap<&str, String> = BTreeMap::new();
            for (name, value) in headers {
                let line = lines.entry(name).or_default();
                if !line.is_empty() {
                    line.push_str(", ");
                }
                line.push_str(value);
            }
            let lines = lines.into_iter().map(|(name, value)| (name.to_owned(), Value::String(value)));
            args.insert("headers".to_owned(), Value::Object(lines.collect()));
        }
        if self.reads_body {
            args.insert("body".to_owned(), read(body)?);
        }
        let trigger_event_type = event_type.unwrap_or_default().to_owned();
        Ok(Context { trigger_event_type, args, ..Context::default() })
    }

    /// What [`Judge`](crate::Judge) judges.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// What a judgement of [`Filter::compiled`] says.
    #[must_use]
    pub fn verdict(judgement: &Judgement) -> Passes {
        if let Some(broken) = judgement.broken.first() {
            return Passes::Broken(broken.error.replace("the rule", "the filter").replace("on this call", "here"));
        }
        let matched = |rule: &str| judgement.matched.iter().any(|matched| matched == rule);
        match (matched(JUDGED), matched(FILTER)) {
            (true, true) => Passes::Yes,
            (true, false) => Passes::No,
            (false, _) => Passes::Broken("too many filters take too long; it was not evaluated".to_owned()),
        }
    }
}

/// A body as a filter reads it: JSON, else text.
fn read(body: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is no text".to_owned())?;
    let Ok(value) = serde_json::from_str(text) else { return Ok(Value::String(text.to_owned())) };
    match beyond_64_bits(text) {
        None => Ok(value),
        Some(number) => Err(format!("the body holds the whole number {number}, which 64 bits cannot hold")),
    }
}

/// The first whole number in a JSON text that neither a signed nor an unsigned integer of 64 bits can hold: read as a
/// fraction it would lose digits, and two of them could be taken for equal.
fn beyond_64_bits(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let (mut at, mut quoted) = (0, false);
    while at < bytes.len() {
        match (quoted, bytes[at]) {
            (true, b'\\') => at += 1,
            (_, b'"') => quoted = !quoted,
            (false, b'-' | b'0'..=b'9') => {
                let part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let end = bytes[at..].iter().position(|byte| !part(byte)).map_or(bytes.len(), |length| at + length);
                let number = &json[at..end];
                let whole = !number.contains(['.', 'e', 'E']);
                if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
                at = end;
                continue;
            }
            (_, _) => {}
        }
        at += 1;
    }
    None
}

fn compile(source: &str) -> Result<Filter, Problem> {
    let mut constants = Constants::new();
    let judged = Rule::new(JUDGED, JUDGED, Verdict::Allow, "true");
    let parsed = parse(source)?;
    let reads = |wanted: &str| {
        let mut found = false;
        each_node(&parsed.written, &mut |node| found |= args_member(node) == Some(wanted));
        found
    };
    let (reads_body, reads_headers) = (reads("body"), reads("headers"));
    let bodies: Vec<Result<Prepared, Problem>> =
        vec![Ok(prepared(parsed, &mut constants)?), compile_rule(&judged, &mut constants)];
    let rules = vec![Rule::new(FILTER, FILTER, Verdict::Allow, source), judged];
    let document = BoundaryDoc { mode: Mode::Enforce, zone: String::new(), rules };
    let compiled = Arc::new(assemble(&document, bodies, constants).0);
    Ok(Filter { compiled, reads_body, reads_headers })
}

fn prepared(parsed: Parsed<'_>, constants: &mut Constants) -> Result<Prepared, Problem> {
    Checker::check(&parsed)?;
    arguments::check(&parsed)?;
    Ok(prepare(&parsed.expanded?, constants))
}

/// Parses a filter, its names put where a rule has them.
pub(crate) fn parse(source: &str) -> Result<Parsed<'_>, Problem> {
    let mut parsed = syntax::parse(source)?;
    let mut stranger = None;
    each_node(&parsed.written, &mut |node| {
        if let Expr::Ident(name) = &node.expr
            && (attributes::is_group(name) || attributes::Attribute::named(name).is_some())
        {
            stranger.get_or_insert((node.clone(), name.clone()));
        }
    });
    if let Some((node, name)) = stranger {
        let sentence = format!("there is no `{name}` here; a filter reads `headers`, `body` and `event_type`");
        return Err(parsed.problem(&node, sentence));
    }
    place(&mut parsed.written);
    if let Ok(expanded) = &mut parsed.expanded {
        place(expanded);
    }
    parsed.voice = Voice::Filter;
    Ok(parsed)
}

/// `body` of `args.body`, where `node` is that.
fn args_member(node: &IdedExpr) -> Option<&str> {
    let Expr::Select(select) = &node.expr else { return None };
    matches!(&select.operand.expr, Expr::Ident(name) if name == "args").then_some(select.field.as_str())
}

/// Puts every name of a filter where a rule has it.
fn place(node: &mut IdedExpr) {
    let below = match &mut node.expr {
        Expr::Ident(name) => {
            let place = match name.as_str() {
                "headers" | "body" => Some(("args", name.clone())),
                "event_type" => Some(("trigger", name.clone())),
                _ => None,
            };
            if let Some((root, field)) = place {
                let operand = Box::new(IdedExpr { id: node.id, expr: Expr::Ident(root.to_owned()) });
                node.expr = Expr::Select(SelectExpr { operand, field, test: false });
            }
            return;
        }
        Expr::Unspecified | Expr::Literal(_) => return,
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(&mut call.args).collect::<Vec<_>>(),
        Expr::Comprehension(c) => {
            vec![&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
        }
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => map.entries.iter_mut().flat_map(|entry| entries(&mut entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter_mut().flat_map(|entry| entries(&mut entry.expr)).collect(),
        Expr::Select(select) => vec![&mut *select.operand],
    };
    below.into_iter().for_each(place);
}

fn entries(entry: &mut EntryExpr) -> Vec<&mut IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
    }
}

#[cfg(test)]
mod tests;
