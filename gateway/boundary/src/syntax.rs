//! From a rule's text to its syntax tree, with the place of everything, and the limits on its shape.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use cel_interpreter::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, operators};
use cel_interpreter::{Env, ParseErrors, Program};

use crate::lexical::{Scanned, scan};
use crate::limits::{MAX_DEPTH, MAX_NODES, MAX_SPINE};

/// Why a rule is refused, before it is known whose rule it is; the place is a byte of the source.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) at: usize,
    pub(crate) sentence: String,
    pub(crate) corrected: Option<String>,
}

impl Problem {
    pub(crate) fn at(at: usize, sentence: String) -> Self {
        Self { at, sentence, corrected: None }
    }
}

/// Why a rule cannot be saved: whose, where in its text, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's id.
    pub rule: String,
    /// Line of the rule's text, from 1.
    pub line: usize,
    /// Column of that line in characters, from 1.
    pub column: usize,
    /// What is wrong and what to do.
    pub sentence: String,
    /// The rule's text as it should be, where that can be said.
    pub corrected: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule `{}`, line {}, column {}: {}", self.rule, self.line, self.column, self.sentence)
    }
}

impl Finding {
    pub(crate) fn of(rule: &str, source: &str, problem: Problem) -> Self {
        let before = source.get(..problem.at).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            rule: rule.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            sentence: problem.sentence,
            corrected: problem.corrected,
        }
    }
}

/// A rule's tree as written (macros still calls) and as run (macros expanded).
pub(crate) struct Parsed<'s> {
    pub(crate) scanned: Scanned<'s>,
    pub(crate) written: IdedExpr,
    /// What macros make of it; an error there is told after the checker had its say, which is clearer.
    pub(crate) expanded: Result<IdedExpr, Problem>,
    /// Token index by node id.
    places: Vec<Option<usize>>,
    /// What its names stand for.
    pub(crate) voice: Voice,
}

/// What the names in a text stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A rule: the facts about a call.
    Rule,
    /// A filter: a delivery's `headers`, `body` and `event_type`.
    Filter,
}

/// Parses without expanding macros, so that findings speak of what was written.
static AS_WRITTEN: LazyLock<Env> = LazyLock::new(|| Env::default().with_optional_support(false));
/// Parses with the standard macros.
static EXPANDING: LazyLock<Env> = LazyLock::new(|| Env::stdlib().with_optional_support(false));

/// Parses `source` and checks the limits on its shape. Call it on a thread with a large stack.
pub(crate) fn parse(source: &str) -> Result<Parsed<'_>, Problem> {
    let scanned = scan(source)?;
    // The crate's parser is known to panic on some texts; the checks above leave it none that we know of.
    let parsed = catch_unwind(AssertUnwindSafe(|| (AS_WRITTEN.compile(source), EXPANDING.compile(source))));
    let (written, expanded) = match parsed {
        Ok((Ok(written), expanded)) => (written, expanded),
        Ok((Err(errors), _)) => return Err(syntax_problem(source, &errors)),
        Err(_) => return Err(Problem::at(0, "the rule cannot be read as CEL; simplify it".to_owned())),
    };
    let shape = Shape::of(written.expression());
    if shape.nodes > MAX_NODES {
        let nodes = shape.nodes;
        return Err(Problem::at(
            0,
            format!("the rule has {nodes} parts; at most {MAX_NODES} are allowed, so split it"),
        ));
    }
    if shape.depth > MAX_DEPTH || shape.spine > MAX_SPINE {
        return Err(Problem::at(0, "the rule is nested too deeply; split it".to_owned()));
    }
    let places = places(&scanned, &written);
    let expanded = expanded.map(|program| program.expression().clone());
    let expanded = expanded.map_err(|errors| syntax_problem(source, &errors));
    let written = written.expression().clone();
    Ok(Parsed { scanned, written, expanded, places, voice: Voice::Rule })
}

/// The first of the parser's errors, never through its `Display`, which panics on long lines.
fn syntax_problem(source: &str, errors: &ParseErrors) -> Problem {
    let first = errors.errors.first();
    let (line, column) = first.map_or((1, 1), |error| error.pos);
    let (line, column) = (usize::try_from(line).unwrap_or(1).max(1), usize::try_from(column).unwrap_or(1).max(1));
    let line_start: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = source.get(line_start..).unwrap_or_default();
    let at = line_start + rest.char_indices().nth(column - 1).map_or(rest.len(), |(byte, _)| byte);
    let message = first.map_or("", |error| error.msg.trim_start_matches("Syntax error: "));
    Problem::at(at.min(source.len()), format!("this is not CEL: {}", in_our_words(message)))
}

/// The parser speaks of its grammar; a person wants to know which word is wrong.
fn in_our_words(message: &str) -> String {
    let unexpected = ["mismatched input ", "extraneous input ", "no viable alternative at input "];
    let word = unexpected.iter().find_map(|start| message.strip_prefix(start));
    let short = |text: &str| text.chars().take(100).collect::<String>();
    match word {
        Some(word) if word.starts_with("'<EOF>'") => "the rule stops short; something is missing at its end".to_owned(),
        Some(word) => {
            let word = word.split(" expecting ").next().unwrap_or_default().trim_matches('\'');
            format!("`{}` does not belong here", short(word))
        }
        None => short(message),
    }
}

/// The token each node stands at.
fn places(scanned: &Scanned<'_>, program: &Program) -> Vec<Option<usize>> {
    let mut places = Vec::new();
    let mut note = |node: &IdedExpr| {
        let id = usize::try_from(node.id).unwrap_or(0);
        if places.len() <= id {
            places.resize(id + 1, None);
        }
        let byte = program.source_info().offset_for(node.id).and_then(|(start, _)| usize::try_from(start).ok());
        places[id] = byte.and_then(|byte| scanned.tokens.binary_search_by_key(&byte, |token| token.start).ok());
    };
    each_node(program.expression(), &mut note);
    places
}

/// Calls `visit` on `node` and everything below it, as written (no comprehensions there).
pub(crate) fn each_node<'e>(node: &'e IdedExpr, visit: &mut impl FnMut(&'e IdedExpr)) {
    visit(node);
    for child in children(node) {
        each_node(child, visit);
    }
}

/// The direct parts of a node.
pub(crate) fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => {
            vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => entries(&map.entries),
        Expr::Select(select) => vec![&select.operand],
        Expr::Struct(made) => entries(&made.entries),
    }
}

fn entries(entries: &[cel_interpreter::common::ast::IdedEntryExpr]) -> Vec<&IdedExpr> {
    entries
        .iter()
        .flat_map(|entry| match &entry.expr {
            EntryExpr::StructField(field) => vec![&field.value],
            EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        })
        .collect()
}

/// How large a tree is.
struct Shape {
    nodes: usize,
    depth: usize,
    spine: usize,
}

impl Shape {
    fn of(node: &IdedExpr) -> Self {
        let mut shape = Self { nodes: 1, depth: 1, spine: 1 };
        for (index, child) in children(node).into_iter().enumerate() {
            let below = Self::of(child);
            shape.nodes += below.nodes;
            shape.depth = shape.depth.max(below.depth + 1);
            shape.spine = shape.spine.max(if index == 0 { below.spine + 1 } else { below.spine });
        }
        shape
    }
}

impl<'s> Parsed<'s> {
    fn token(&self, node: &IdedExpr) -> Option<usize> {
        self.places.get(usize::try_from(node.id).ok()?).copied().flatten()
    }

    /// The first and last token of what `node` was written as, brackets around its parts included.
    pub(crate) fn span(&self, node: &IdedExpr) -> Option<(usize, usize)> {
        let token = self.token(node)?;
        let (mut first, mut last) = match &node.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Comprehension(_) | Expr::Struct(_) => (token, token),
            Expr::Literal(_) if token > 0 && self.scanned.word(token) == "-" => (token, token + 1),
            Expr::Literal(_) => (token, token),
            Expr::List(_) | Expr::Map(_) => (token, self.scanned.partner(token)?),
            Expr::Select(select) => (self.span(&select.operand)?.0, token + 1),
            Expr::Call(call) => self.call_span(call, token)?,
        };
        loop {
            let partners = (first..=last).filter_map(|t| self.scanned.partner(t));
            let (low, high) = partners.fold((first, last), |(low, high), p| (low.min(p), high.max(p)));
            if (low, high) == (first, last) {
                return Some((first, last));
            }
            (first, last) = (low, high);
        }
    }

    fn call_span(&self, call: &CallExpr, token: usize) -> Option<(usize, usize)> {
        let last_argument = || self.span(call.args.last()?).map(|(_, last)| last);
        match (&call.target, call.func_name.as_str()) {
            (Some(target), _) => Some((self.span(target)?.0, self.scanned.partner(token)?)),
            (None, operators::INDEX) => Some((self.span(call.args.first()?)?.0, self.scanned.partner(token)?)),
            (None, operators::LOGICAL_NOT | operators::NEGATE) => Some((token, last_argument()?)),
            (None, name) if is_operator(name) => Some((self.span(call.args.first()?)?.0, last_argument()?)),
            (None, _) => Some((token.checked_sub(1)?, self.scanned.partner(token)?)),
        }
    }

    /// The byte where `node` begins.
    pub(crate) fn start(&self, node: &IdedExpr) -> usize {
        let first = self.span(node).map(|(first, _)| first).or_else(|| self.token(node));
        first.and_then(|first| self.scanned.tokens.get(first)).map_or(0, |token| token.start)
    }

    /// The bytes `node` was written as.
    pub(crate) fn bytes(&self, node: &IdedExpr) -> Option<(usize, usize)> {
        let (first, last) = self.span(node)?;
        Some((self.scanned.tokens.get(first)?.start, self.scanned.tokens.get(last)?.end))
    }

    /// What `node` was written as, shortened, for a sentence.
    pub(crate) fn quote(&self, node: &IdedExpr) -> String {
        let text = self.bytes(node).and_then(|(start, end)| self.scanned.text.get(start..end)).unwrap_or_default();
        let mut short: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if short.chars().count() > 60 {
            short = short.chars().take(59).chain(['…']).collect();
        }
        format!("`{short}`")
    }

    pub(crate) fn problem(&self, node: &IdedExpr, sentence: String) -> Problem {
        Problem::at(self.start(node), sentence)
    }
}

/// Whether a call's name is an operator's, as the parser names them.
pub(crate) fn is_operator(name: &str) -> bool {
    const OPERATORS: [&str; 18] = [
        operators::CONDITIONAL,
        operators::LOGICAL_AND,
        operators::LOGICAL_OR,
        operators::LOGICAL_NOT,
        operators::SUBSTRACT,
        operators::ADD,
        operators::MULTIPLY,
        operators::DIVIDE,
        operators::MODULO,
        operators::EQUALS,
        operators::NOT_EQUALS,
        operators::GREATER_EQUALS,
        operators::LESS_EQUALS,
        operators::GREATER,
        operators::LESS,
        operators::NEGATE,
        operators::INDEX,
        operators::IN,
    ];
    OPERATORS.contains(&name)
}
