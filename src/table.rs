//! How people read what is so: aligned, with a dash for what is absent.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use serde::Serialize;

use midwatch_replay::terminal::clean;

/// Says something beside the answer, on standard error: a hint that programs may ignore.
pub(crate) fn hint(text: &str) {
    // Nobody reads standard error: there is nobody left to tell.
    let _ = writeln!(io::stderr(), "midwatch: {}", clean(text));
}

/// Rows under a heading, aligned.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| clean(cell)).collect());
    }

    /// The rows as text, or `empty` where there are none.
    pub(crate) fn or(&self, empty: &str) -> String {
        if self.rows.len() == 1 { empty.to_owned() } else { self.text() }
    }

    fn text(&self) -> String {
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                // Writing to a string cannot fail.
                let _ = write!(line, "{cell:<0$}  ", width(column).unwrap_or(0));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Names and values, one pair a line, aligned; what is absent is left out.
pub(crate) fn pairs(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(format!("{name:<width$}  {}\n", clean(value)))
    });
    lines.collect()
}

/// A value, or a dash.
pub(crate) fn dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The word an enum stands for in JSON.
pub(crate) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new(&["NAME", "STATE"]);
        assert_eq!(table.or("none"), "none");
        table.row(vec!["größer".to_owned(), "active".to_owned()]);
        assert_eq!(table.or("none"), "NAME    STATE\ngrößer  active\n");
    }
}
