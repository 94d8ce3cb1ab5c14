//! What a store can rely on.

use std::collections::BTreeSet;

use midwatch_projections::View;

fn is_name(name: &str) -> bool {
    name.len() <= 40
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[test]
fn tables_have_names_that_stand_in_a_statement() {
    let names: BTreeSet<_> = View::ALL.iter().map(|view| view.name()).collect();
    assert_eq!(names.len(), View::ALL.len());
    for view in View::ALL {
        let table = view.table();
        let columns: BTreeSet<_> = table.columns.iter().map(|(name, _)| *name).collect();
        assert!(is_name(table.name) && table.version >= 1, "{table:?}");
        assert_eq!(columns.len(), table.columns.len(), "{table:?}");
        for name in &columns {
            assert!(is_name(name) && !["key", "doc"].contains(name), "{table:?}");
        }
        for index in table.indexes {
            assert!(!index.is_empty() && index.iter().all(|column| columns.contains(column)), "{table:?} {index:?}");
        }
    }
}
