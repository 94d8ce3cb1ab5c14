//! `midwatch boundary`: the rules that every tool call is judged by.

use std::process::ExitCode;

use clap::Subcommand;
use midwatch_boundary::{
    BoundaryDoc, Context, DocumentError, Finding, check, compile_lenient,
    diff::{Difference, differences},
    presets,
};
use midwatch_commands::Refusal;
use midwatch_gateway::publish::{Unpublishable, publishable};
use midwatch_log::views::Order;
use midwatch_projections::boundaries::{Boundaries, BoundaryRow};
use serde_json::{Value, json};

use super::{all, equal_int};
use crate::{
    cli::Globals,
    failure::Failure,
    joining,
    table::{Table, dash, hint, word},
    typed::{read_file, text_or_file},
};

/// What a check without a ledger leaves out.
const LEFT_OUT: &str = "not looked at: whether any granted tool has the arguments that rules read; that needs a ledger";

#[derive(Debug, Subcommand)]
pub(crate) enum Boundary {
    /// The boundary in force, or one that was
    Show {
        /// Which version [default: the one in force]
        #[arg(long, value_name = "N")]
        version: Option<u64>,
    },
    /// Check a boundary and put it in force
    Publish {
        #[arg(value_name = "FILE")]
        file: String,
        /// Why; recorded
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        /// Refuse when another version than this is in force
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
    },
    /// All published boundaries, newest first
    Versions,
    /// What is different between two published boundaries
    Diff {
        #[arg(value_name = "FROM")]
        from: u64,
        #[arg(value_name = "TO")]
        to: u64,
    },
    /// Whether a file could be published; needs no ledger. Exits with 1 where not
    Check {
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// What a boundary would say to one call; needs no ledger
    Eval {
        #[arg(long, value_name = "FILE")]
        boundary: String,
        /// What differs from neutral, such as {"intent":"activate","run":{"unattended":true}}
        #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
        context: String,
    },
    /// Rules ready to take over, each with its cost
    Presets,
}

impl Boundary {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        match self {
            Self::Show { version } => show(globals, version).await,
            Self::Publish { file, note, expect } => publish(globals, &file, &note, expect).await,
            Self::Versions => versions(globals).await,
            Self::Diff { from, to } => diff(globals, from, to).await,
            Self::Check { file } => checked(globals, &file),
            Self::Eval { boundary, context } => eval(globals, &boundary, &context),
            Self::Presets => offered(globals),
        }
    }
}

impl From<DocumentError> for Failure {
    fn from(error: DocumentError) -> Self {
        Self::bad_request("boundary", error.to_string())
    }
}

async fn show(globals: &Globals, version: Option<u64>) -> Result<ExitCode, Failure> {
    let row = joining::read(globals, async |engine| {
        let order = Order { column: "version", descending: true };
        let filters = version.map(|version| equal_int("version", version)).into_iter().collect();
        let found = all::<Boundaries>(engine, filters, order, Some(1)).await?;
        Ok(found.into_iter().next().ok_or(Refusal::NotFound("boundary"))?)
    });
    let row: BoundaryRow = row.await?;
    let document: Value = serde_json::from_str(&row.document).unwrap_or_default();
    let answer = json!({
        "version": row.version,
        "author": row.author,
        "at": row.at.to_string(),
        "note": row.note,
        "document": document,
    });
    globals.output().answer(&answer, || {
        let pretty = serde_json::to_string_pretty(&document).unwrap_or_default();
        let note = row.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
        format!("Version {}, published {} by {}{note}\n{pretty}", row.version, row.at, row.author)
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn publish(globals: &Globals, file: &str, note: &str, expect: Option<u64>) -> Result<ExitCode, Failure> {
    let document = publishable(&read_file(file)?).map_err(|why| unpublishable(file, &why))?;
    let done = joining::write(globals, async |engine, origin| {
        let done = engine.publish_boundary(&document.to_json(), note, expect, origin, None).await?;
        Ok((done.position, engine.boundary().await?.1))
    });
    let (position, version) = done.await?;
    globals.output().answer(&json!({ "version": version, "position": position }), || {
        format!("Version {version} is in force, at position {position}")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn unpublishable(file: &str, why: &Unpublishable) -> Failure {
    let sentence = match why {
        Unpublishable::Document(sentence) => sentence.clone(),
        Unpublishable::Rules(findings) => {
            let first = findings.first().map(Finding::to_string).unwrap_or_default();
            match findings.len() {
                0 | 1 => first,
                many => format!("{first} (and {} more; `midwatch boundary check {file}` shows them)", many - 1),
            }
        }
    };
    Failure::bad_request("boundary", sentence)
}

async fn versions(globals: &Globals) -> Result<ExitCode, Failure> {
    let rows = joining::read(globals, async |engine| {
        all::<Boundaries>(engine, Vec::new(), Order { column: "version", descending: true }, None).await
    });
    let rows = rows.await?;
    let shown = rows.iter().map(|row| {
        json!({
            "version": row.version,
            "author": row.author,
            "at": row.at.to_string(),
            "position": row.position,
            "note": row.note,
        })
    });
    globals.output().answer(&shown.collect::<Vec<Value>>(), || {
        let mut table = Table::new(&["VERSION", "PUBLISHED", "BY", "POSITION", "NOTE"]);
        for row in &rows {
            table.row(vec![
                row.version.to_string(),
                row.at.to_string(),
                row.author.clone(),
                row.position.to_string(),
                dash(row.note.as_deref()),
            ]);
        }
        table.or("No boundary was published yet.")
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn published(globals: &Globals, version: u64) -> Result<BoundaryDoc, Failure> {
    let row = joining::read(globals, async |engine| {
        let order = Order { column: "version", descending: true };
        let found = all::<Boundaries>(engine, vec![equal_int("version", version)], order, Some(1)).await?;
        Ok(found.into_iter().next().ok_or(Refusal::NotFound("boundary"))?)
    });
    Ok(BoundaryDoc::parse(&row.await?.document)?)
}

async fn diff(globals: &Globals, from: u64, to: u64) -> Result<ExitCode, Failure> {
    let found = differences(&published(globals, from).await?, &published(globals, to).await?);
    globals.output().answer(&found, || {
        let line = |difference: &Difference| match difference {
            Difference::Changed { rule, member, from, to } => {
                let of = rule.as_deref().map(|rule| format!(" of {rule}")).unwrap_or_default();
                format!("{member}{of}\n  - {from}\n  + {to}\n")
            }
            Difference::Added(rule) => format!("{} is new\n  + {}\n", rule.id, rule.when),
            Difference::Removed(rule) => format!("{} is gone\n  - {}\n", rule.id, rule.when),
            Difference::Reordered { rules } => format!("the order is now {}\n", rules.join(", ")),
        };
        if found.is_empty() { "Nothing is different.".to_owned() } else { found.iter().map(line).collect() }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn checked(globals: &Globals, file: &str) -> Result<ExitCode, Failure> {
    let text = read_file(file)?;
    let findings: Vec<(Value, String)> = match BoundaryDoc::parse(&text) {
        Err(error) => {
            let (line, column) = (error.line, error.column);
            let place = json!({ "rule": error.rule, "line": line, "column": column, "message": error.sentence });
            vec![(place, error.to_string())]
        }
        Ok(document) => check(&document).err().unwrap_or_default().iter().map(found).collect(),
    };
    let ok = findings.is_empty();
    let shown: Vec<&Value> = findings.iter().map(|(json, _)| json).collect();
    globals.output().answer(&json!({ "ok": ok, "findings": shown, "left_out": LEFT_OUT }), || {
        let lines: Vec<_> = findings.iter().map(|(_, line)| format!("{file}: {line}")).collect();
        if ok { format!("{file}: every rule is fine") } else { lines.join("\n") }
    })?;
    if !globals.json {
        hint(LEFT_OUT);
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn found(finding: &Finding) -> (Value, String) {
    let json = json!({
        "rule": finding.rule,
        "line": finding.line,
        "column": finding.column,
        "message": finding.sentence,
        "corrected": finding.corrected,
    });
    (json, finding.to_string())
}

fn eval(globals: &Globals, file: &str, context: &str) -> Result<ExitCode, Failure> {
    let document = BoundaryDoc::parse(&read_file(file)?)?;
    let context = Context::from_json(&text_or_file(context)?);
    let context = context.map_err(|sentence| Failure::bad_request("context", sentence))?;
    let judgement = compile_lenient(&document).judge(&context);
    globals.output().answer(&judgement, || {
        let rule = judgement.rule.as_deref().map_or("no rule matched".to_owned(), |rule| format!("by {rule}"));
        let enforced = if judgement.enforced { "" } else { " (dry run: the call goes ahead)" };
        let mut text = format!("{}, {rule}{enforced}\n", word(judgement.verdict));
        if !judgement.matched.is_empty() {
            text.push_str(&format!("matched: {}\n", judgement.matched.join(", ")));
        }
        for broken in &judgement.broken {
            text.push_str(&format!("broken: {}: {}\n", broken.rule, broken.error));
        }
        text
    })?;
    if !globals.json {
        hint(LEFT_OUT);
    }
    Ok(ExitCode::SUCCESS)
}

fn offered(globals: &Globals) -> Result<ExitCode, Failure> {
    let presets = presets();
    globals.output().answer(&presets, || {
        let shown = presets.iter().map(|rule| {
            format!(
                "{}: {} ({})\n  when  {}\n  cost  {}\n",
                rule.id,
                rule.name,
                word(rule.verdict),
                rule.when,
                rule.cost
            )
        });
        shown.collect::<Vec<_>>().join("\n")
    })?;
    Ok(ExitCode::SUCCESS)
}
