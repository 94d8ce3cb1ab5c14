//! Pages of a list, by a cursor that stands in the URL.

use midwatch_log::views::{Cell, Cursor};

use super::{fields::Fields, text::encoded};

/// Rows on a page.
pub(crate) const ROWS: u32 = 50;

/// The place that `after=` in a query names.
pub(crate) fn after(query: &Fields) -> Option<Cursor> {
    let (key, cell) = query.filled("after")?.split_once('~')?;
    let cell = match cell.split_at_checked(1)? {
        ("n", "") => Cell::Null,
        ("i", number) => Cell::Int(number.parse().ok()?),
        ("t", text) => Cell::Text(text.to_owned()),
        _ => return None,
    };
    Some(Cursor { cell, key: key.to_owned() })
}

/// The same place as `after=`, with the rest of the query kept.
pub(crate) fn next(path: &str, query: &Fields, cursor: &Cursor) -> String {
    let cell = match &cursor.cell {
        Cell::Null => "n".to_owned(),
        Cell::Int(number) => format!("i{number}"),
        Cell::Text(text) => format!("t{text}"),
    };
    let kept = query.pairs().iter().filter(|(name, _)| !["after", "done"].contains(&name.as_str()));
    let kept: String = kept.map(|(name, value)| format!("{}={}&", encoded(name), encoded(value))).collect();
    format!("{path}?{kept}after={}", encoded(&format!("{}~{cell}", cursor.key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_from_its_url() {
        for cell in [Cell::Null, Cell::Int(-7), Cell::Text("a~b c".to_owned())] {
            let cursor = Cursor { cell, key: "0198".to_owned() };
            let url = next("/runs", &Fields::new(vec![("state".to_owned(), "ended".to_owned())]), &cursor);
            let (_, query) = url.split_once("?state=ended&after=").expect("the query is kept");
            let decoded = query.replace("%7E", "~").replace('+', " ");
            let back = after(&Fields::new(vec![("after".to_owned(), decoded)]));
            assert_eq!(back, Some(cursor));
        }
        assert_eq!(after(&Fields::new(vec![("after".to_owned(), "nonsense".to_owned())])), None);
    }
}
