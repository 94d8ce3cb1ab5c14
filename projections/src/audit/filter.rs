//! The filter language of the audit view; the same in page, API and command line:
//! `bot:ops decision:refused unattended:true since:7d text:"invoice"`.
//!
//! Words stand side by side and all must hold; the same word twice means either (`since:`, `until:` and `text:`: both). A value with spaces stands in double
//! quotes. A filter is conditions on columns, which the store can judge, and texts, which only [`Filter::matches`]
//! judges. `bot:`, `routine:` and `trigger:` take an id or a name; names are left to the caller, who knows the ids:
//! each of [`Filter::names`] is given to [`Filter::resolve`].

use std::fmt;

use midwatch_events::{
    Micros,
    id::{Id, Run},
};

use super::{Audit, AuditRow};
use crate::projection::{Cell, Projection, rfc3339};

/// The words of the language.
pub const WORDS: [&str; 14] = [
    "bot",
    "routine",
    "trigger",
    "run",
    "event",
    "tool",
    "decision",
    "verdict",
    "rule",
    "unattended",
    "outcome",
    "since",
    "until",
    "text",
];

/// The values of `decision:`.
const DECISIONS: [&str; 3] = ["allowed", "refused", "asked"];
/// The values of `verdict:`.
const VERDICTS: [&str; 3] = ["allow", "ask", "deny"];
/// The values of `outcome:`: of runs, of calls, of windows.
const OUTCOMES: [&str; 11] = [
    "succeeded",
    "failed",
    "refused",
    "stopped",
    "timed_out",
    "cancelled",
    "abandoned",
    "finished",
    "unknown",
    "missed",
    "skipped",
];

/// Which rows of the audit view are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// All must hold.
    conditions: Vec<Condition>,
    /// Each must be found in the row's words.
    texts: Vec<Vec<String>>,
    /// Not resolved yet.
    names: Vec<Name>,
}

/// One condition on a column of [`Audit`]; null passes none.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The column.
    pub column: &'static str,
    /// What must be so of it.
    pub is: Op,
}

/// What must be so of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// It is one of these. There is at least one.
    OneOf(Vec<Cell>),
    /// It is this or higher.
    AtLeast(Cell),
    /// It is lower.
    Below(Cell),
}

/// A name that stands for ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// What it names: `bot`, `routine` or `trigger`.
    pub of: &'static str,
    /// The name.
    pub name: String,
}

/// A filter that cannot be understood. Shown, it is one sentence for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter(String);

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFilter {}

impl Filter {
    /// Reads a filter. `now` is what `since:7d` counts back from.
    ///
    /// # Errors
    /// [`BadFilter`] for a word that is none, or a value its word does not take.
    pub fn parse(text: &str, now: Micros) -> Result<Self, BadFilter> {
        let mut filter = Self::default();
        for (word, value) in words(text)? {
            filter.add(&word, value, now)?;
        }
        Ok(filter)
    }

    /// The names that still have to be resolved.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Says which ids a name of [`Filter::names`] stands for.
    ///
    /// # Errors
    /// [`BadFilter`] when there are none.
    pub fn resolve(&mut self, name: &Name, ids: &[String]) -> Result<(), BadFilter> {
        if ids.is_empty() {
            let Name { of, name } = name;
            return Err(BadFilter(format!("there is no {of} with the id or name `{name}`")));
        }
        self.names.retain(|other| other != name);
        ids.iter().for_each(|id| self.either(name.of, Cell::text(id)));
        Ok(())
    }

    /// The conditions a store can judge.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether a row that fulfils the conditions still has to be looked at with [`Filter::matches`].
    #[must_use]
    pub fn reads_rows(&self) -> bool {
        !self.texts.is_empty() || !self.names.is_empty()
    }

    /// Whether a row is wanted. As long as a name is not resolved, none is.
    #[must_use]
    pub fn matches(&self, row: &AuditRow) -> bool {
        let cells = Audit::cells(row);
        let cell = |column| {
            let at = Audit::TABLE.columns.iter().position(|(name, _)| *name == column);
            at.and_then(|at| cells.get(at)).filter(|cell| **cell != Cell::Null)
        };
        let holds = |condition: &Condition| {
            cell(condition.column).is_some_and(|cell| match &condition.is {
                Op::OneOf(cells) => cells.contains(cell),
                Op::AtLeast(least) => cell >= least,
                Op::Below(limit) => cell < limit,
            })
        };
        self.names.is_empty()
            && self.conditions.iter().all(holds)
            && (self.texts.is_empty() || {
                let row = row_words(row);
                self.texts.iter().all(|text| row.iter().any(|words| words.windows(text.len()).any(|run| run == text)))
            })
    }

    fn add(&mut self, word: &str, value: String, now: Micros) -> Result<(), BadFilter> {
        let bad = |wants: &str| BadFilter(format!("`{word}:{value}` cannot be read: {word} wants {wants}"));
        if value.is_empty() {
            return Err(bad("a value"));
        }
        match word {
            "bot" => self.named("bot", value),
            "routine" => self.named("routine", value),
            "trigger" => self.named("trigger", value),
            "run" => {
                let run: Id<Run> = value.parse().map_err(|_| bad("a run's id"))?;
                self.either("run", Cell::Text(run.to_string()));
            }
            "event" if value.contains('.') => self.either("event", Cell::text(&value)),
            "event" => return Err(bad("an event's type, such as run.ended")),
            "tool" => self.either("tool", Cell::text(&value)),
            "rule" => self.either("rule", Cell::text(&value)),
            "decision" => self.either("decision", one_of(&DECISIONS, &value).ok_or_else(|| bad(&list(&DECISIONS)))?),
            "verdict" => self.either("verdict", one_of(&VERDICTS, &value).ok_or_else(|| bad(&list(&VERDICTS)))?),
            "outcome" => self.either("outcome", one_of(&OUTCOMES, &value).ok_or_else(|| bad(&list(&OUTCOMES)))?),
            "unattended" => match value.as_str() {
                "true" => self.either("unattended", Cell::Int(1)),
                "false" => self.either("unattended", Cell::Int(0)),
                _ => return Err(bad("true or false")),
            },
            "since" => {
                let at = instant(&value, now).ok_or_else(|| bad(INSTANTS))?;
                self.conditions.push(Condition { column: "at", is: Op::AtLeast(Cell::Int(at.0)) });
            }
            "until" => {
                let at = instant(&value, now).ok_or_else(|| bad(INSTANTS))?;
                self.conditions.push(Condition { column: "at", is: Op::Below(Cell::Int(at.0)) });
            }
            "text" => {
                let words = split(&value);
                if words.is_empty() {
                    return Err(bad("letters or digits"));
                }
                self.texts.push(words);
            }
            _ => {
                return Err(BadFilter(format!("`{word}` is no word of a filter; there are {}", list(&WORDS))));
            }
        }
        Ok(())
    }

    fn named(&mut self, of: &'static str, value: String) {
        match value.parse::<Id<()>>() {
            Ok(id) => self.either(of, Cell::Text(id.to_string())),
            Err(_) => self.names.push(Name { of, name: value }),
        }
    }

    /// One more value that the column may have.
    fn either(&mut self, column: &'static str, cell: Cell) {
        for condition in &mut self.conditions {
            if let (true, Op::OneOf(cells)) = (condition.column == column, &mut condition.is) {
                cells.push(cell);
                return;
            }
        }
        self.conditions.push(Condition { column, is: Op::OneOf(vec![cell]) });
    }
}

const INSTANTS: &str = "an age such as 30m, 12h or 7d, or an instant such as 2026-12-01T00:00:00Z";

fn list(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

fn one_of(words: &[&str], value: &str) -> Option<Cell> {
    words.contains(&value).then(|| Cell::text(value))
}

fn instant(value: &str, now: Micros) -> Option<Micros> {
    let seconds = match value.as_bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3_600,
        b'd' => 86_400,
        b'w' => 604_800,
        _ => return rfc3339::parse(value),
    };
    let number = value.get(..value.len() - 1).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    let number: i64 = number.parse().ok()?;
    Some(now.plus_s(number.checked_mul(seconds)?.checked_neg()?))
}

/// The `word:value` pairs of a filter.
fn words(text: &str) -> Result<Vec<(String, String)>, BadFilter> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let Some(after) = after.strip_prefix(':') else {
            return Err(BadFilter(format!(
                "`{word}` stands alone; write word:value, such as text:{word}, with one of {}",
                list(&WORDS)
            )));
        };
        let (value, after) = match after.strip_prefix('"') {
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
            Some(quoted) => quoted
                .split_once('"')
                .ok_or_else(|| BadFilter(format!("the double quote after `{word}:` is not closed")))?,
        };
        if !after.is_empty() && !after.starts_with(char::is_whitespace) {
            return Err(BadFilter(format!("there must be a space after `{word}:\"{value}\"`")));
        }
        pairs.push((word.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// Whole words, in lower case.
fn split(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

fn row_words(row: &AuditRow) -> Vec<Vec<String>> {
    let texts = [&row.subject, &row.fingerprint, &row.tool, &row.rule, &row.reason];
    texts.into_iter().flatten().map(|text| split(text)).collect()
}

#[cfg(test)]
mod tests;
