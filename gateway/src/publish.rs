//! What a boundary must pass before it is published.

use midwatch_boundary::{BoundaryDoc, Finding, check, check_args};

use crate::tools::{argument_names, built_in};

/// Why a boundary is not published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unpublishable {
    /// It is no boundary document; the sentence says where and why.
    Document(String),
    /// These rules are refused, each with its place.
    Rules(Vec<Finding>),
}

/// Reads, compiles and checks a document, also against the arguments of the tools there are, and gives its canonical
/// form.
///
/// # Errors
/// [`Unpublishable`], with a sentence for each thing that is wrong.
pub fn publishable(document: &str) -> Result<BoundaryDoc, Unpublishable> {
    let document = BoundaryDoc::parse(document).map_err(|error| Unpublishable::Document(error.to_string()))?;
    check(&document).map_err(Unpublishable::Rules)?;
    let findings = check_args(&document, &argument_names(&built_in()));
    if findings.is_empty() { Ok(document) } else { Err(Unpublishable::Rules(findings)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(when: &str) -> Result<BoundaryDoc, Unpublishable> {
        let rules = serde_json::json!({"rules": [{"id": "r", "name": "R", "verdict": "deny", "when": when}]});
        publishable(&rules.to_string())
    }

    #[test]
    fn a_rule_on_an_argument_that_no_tool_takes_is_refused() {
        assert!(rule("has(args.path) && args.path == \"a\"").is_ok());
        let refused = rule("has(args.pth) && args.pth == \"a\"");
        assert!(matches!(&refused, Err(Unpublishable::Rules(findings)) if findings[0].rule == "r"), "{refused:?}");
        assert!(matches!(publishable("{"), Err(Unpublishable::Document(_))));
    }
}
