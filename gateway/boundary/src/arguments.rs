//! `args.x` must stand behind `has(args.x) &&`: most calls have no such argument, and a deny rule that errors on
//! them would refuse them all.

use std::collections::BTreeSet;

use cel_interpreter::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

use crate::filter;
use crate::syntax::{Parsed, Problem, Voice, children, each_node, parse};

/// A path below `args`, such as `args.header.kind`.
type Path = Vec<String>;

/// The names of arguments a rule reads, first level only.
pub(crate) fn names(written: &IdedExpr) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    each_node(written, &mut |node| {
        if let Some([name, ..]) = path(node).as_deref() {
            names.insert(name.clone());
        }
        if let Some(asked) = membership(node) {
            names.extend(asked.first().cloned());
        }
    });
    names
}

/// Refuses the first argument that is read without its `has()`, with the corrected text of the whole rule.
pub(crate) fn check(parsed: &Parsed<'_>) -> Result<(), Problem> {
    let Some(bare) = first_bare(parsed)? else { return Ok(()) };
    let shown = shown(&bare.path, parsed.voice);
    let corrected = correct(parsed.scanned.text, parsed.voice);
    let guard = guard(&bare.path, parsed.voice);
    let on = match parsed.voice {
        Voice::Rule => "call",
        Voice::Filter => "delivery",
    };
    let mut sentence = format!("`{shown}` is not there on every {on}; put `{guard} &&` before it");
    if let Some(text) = &corrected {
        sentence.push_str(&format!(": {text}"));
    }
    Err(Problem { at: bare.at, sentence, corrected })
}

/// The rule with every missing `has()` put in.
fn correct(source: &str, voice: Voice) -> Option<String> {
    let mut text = source.to_owned();
    for _ in 0..32 {
        let parsed = match voice {
            Voice::Rule => parse(&text).ok()?,
            Voice::Filter => filter::parse(&text).ok()?,
        };
        match first_bare(&parsed).ok()? {
            None => return Some(text),
            Some(bare) => {
                let (start, end) = bare.clause?;
                let clause = text.get(start..end)?;
                let guarded = format!("{} && {clause}", guard(&bare.path, voice));
                let before = text[..start].trim_end();
                let after = text[end..].trim_start();
                let joins = (before.is_empty() || before.ends_with("&&") || before.ends_with('('))
                    && (after.is_empty() || after.starts_with("&&") || after.starts_with(')'));
                let fixed = if joins { guarded } else { format!("({guarded})") };
                text.replace_range(start..end, &fixed);
            }
        }
    }
    None
}

/// An argument read without its `has()`.
struct Bare {
    path: Path,
    at: usize,
    /// The bytes of the true-or-false part it stands in.
    clause: Option<(usize, usize)>,
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A path as a rule writes it.
fn shown(path: &[String], voice: Voice) -> String {
    let (mut shown, path) = match (voice, path.split_first()) {
        (Voice::Filter, Some((root, path))) => (root.clone(), path),
        (Voice::Rule, _) | (Voice::Filter, None) => ("args".to_owned(), path),
    };
    for name in path {
        match is_name(name) {
            true => shown.push_str(&format!(".{name}")),
            false => shown.push_str(&format!("[{name:?}]")),
        }
    }
    shown
}

/// What asks whether a path is there.
fn guard(path: &[String], voice: Voice) -> String {
    match path.split_last() {
        Some((name, before)) if !is_name(name) => format!("{name:?} in {}", shown(before, voice)),
        _ => format!("has({})", shown(path, voice)),
    }
}

/// The path that `node` spells, if it is one below `args`: `args.a.b`, `args["a"].b`.
fn path(node: &IdedExpr) -> Option<Path> {
    match &node.expr {
        Expr::Ident(name) => (name == "args").then(Vec::new),
        Expr::Select(select) => {
            let mut path = path(&select.operand)?;
            path.push(select.field.clone());
            Some(path)
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [of, at] = call.args.as_slice() else { return None };
            let Expr::Literal(LiteralValue::String(name)) = &at.expr else { return None };
            let mut path = path(of)?;
            path.push(name.inner().to_owned());
            Some(path)
        }
        _ => None,
    }
}

/// The path whose presence `node` asks for: `has(args.a)` or `"a" in args`.
fn membership(node: &IdedExpr) -> Option<Path> {
    let Expr::Call(call) = &node.expr else { return None };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::HAS, [asked]) if call.target.is_none() => path(asked).filter(|path| !path.is_empty()),
        (operators::IN, [name, of]) => {
            let Expr::Literal(LiteralValue::String(name)) = &name.expr else { return None };
            let mut path = path(of)?;
            path.push(name.inner().to_owned());
            Some(path)
        }
        _ => None,
    }
}

/// The paths known to be there once `node` has come out as `outcome`.
fn known(node: &IdedExpr, outcome: bool) -> BTreeSet<Path> {
    if outcome && let Some(path) = membership(node) {
        return BTreeSet::from([path]);
    }
    let Expr::Call(call) = &node.expr else { return BTreeSet::new() };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::LOGICAL_NOT, [one]) => known(one, !outcome),
        (operators::LOGICAL_AND, [a, b]) if outcome => &known(a, true) | &known(b, true),
        (operators::LOGICAL_OR, [a, b]) if !outcome => &known(a, false) | &known(b, false),
        _ => BTreeSet::new(),
    }
}

fn first_bare(parsed: &Parsed<'_>) -> Result<Option<Bare>, Problem> {
    Walk { parsed }.node(&parsed.written, &BTreeSet::new(), &parsed.written)
}

struct Walk<'p, 's> {
    parsed: &'p Parsed<'s>,
}

impl Walk<'_, '_> {
    /// `clause` is the true-or-false part that `node` belongs to.
    fn node(&self, node: &IdedExpr, there: &BTreeSet<Path>, clause: &IdedExpr) -> Result<Option<Bare>, Problem> {
        if let Some(path) = path(node) {
            return self.reading(node, &path, there, clause);
        }
        if let Expr::Call(call) = &node.expr {
            return self.call(node, call, there, clause);
        }
        self.each(children(node), there, clause)
    }

    fn each(&self, nodes: Vec<&IdedExpr>, there: &BTreeSet<Path>, clause: &IdedExpr) -> Result<Option<Bare>, Problem> {
        for node in nodes {
            if let Some(bare) = self.node(node, there, clause)? {
                return Ok(Some(bare));
            }
        }
        Ok(None)
    }

    /// A path is read: every step of it must be known to be there.
    fn reading(
        &self,
        node: &IdedExpr,
        path: &Path,
        there: &BTreeSet<Path>,
        clause: &IdedExpr,
    ) -> Result<Option<Bare>, Problem> {
        // Headers and body are always there, whatever is in them.
        let always = match self.parsed.voice {
            Voice::Rule => 0,
            Voice::Filter => 1,
        };
        for steps in always + 1..=path.len() {
            let step = path[..steps].to_vec();
            if !there.contains(&step) {
                let at = self.parsed.start(node);
                return Ok(Some(Bare { path: step, at, clause: self.parsed.bytes(clause) }));
            }
        }
        Ok(None)
    }

    fn call(
        &self,
        node: &IdedExpr,
        call: &CallExpr,
        there: &BTreeSet<Path>,
        clause: &IdedExpr,
    ) -> Result<Option<Bare>, Problem> {
        let boolean = std::ptr::eq(node, clause);
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::HAS, [asked]) if call.target.is_none() => match &asked.expr {
                // `has(args.a.b)` reads `args.a`.
                Expr::Select(select) => self.node(&select.operand, there, clause),
                _ => Ok(None),
            },
            (operators::INDEX, [of, at]) => {
                if path(of).is_some_and(|path| path.is_empty()) {
                    let sentence = "`args[…]` needs the argument's name as a text, such as `args[\"path\"]`";
                    return Err(self.parsed.problem(at, sentence.to_owned()));
                }
                self.each(vec![of, at], there, clause)
            }
            (operators::LOGICAL_NOT, [one]) => self.node(one, there, one),
            (name @ (operators::LOGICAL_AND | operators::LOGICAL_OR), [left, right]) => {
                if let Some(bare) = self.node(left, there, left)? {
                    return Ok(Some(bare));
                }
                let there = there | &known(left, name == operators::LOGICAL_AND);
                self.node(right, &there, right)
            }
            (operators::CONDITIONAL, [cond, yes, no]) => {
                if let Some(bare) = self.node(cond, there, cond)? {
                    return Ok(Some(bare));
                }
                let (yes_clause, no_clause) = if boolean { (yes, no) } else { (clause, clause) };
                if let Some(bare) = self.node(yes, &(there | &known(cond, true)), yes_clause)? {
                    return Ok(Some(bare));
                }
                self.node(no, &(there | &known(cond, false)), no_clause)
            }
            _ => self.each(children(node), there, clause),
        }
    }
}
