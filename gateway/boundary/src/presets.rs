//! Rules ready to take over, each with its cost in words.

use crate::document::{Rule, Verdict};

/// The presets, in the order they are offered.
#[must_use]
pub fn presets() -> Vec<Rule> {
    let rule = |id: &str, name: &str, when: &str, cost: &str| {
        let mut rule = Rule::new(id, name, Verdict::Deny, when);
        rule.cost = cost.to_owned();
        rule
    };
    vec![
        rule(
            "no-submit",
            "Never submit a form",
            r#"intent == "activate" && (contains(element.name, "submit") || element.type == "submit")"#,
            "A Bot can fill in a form but a person has to send it; buttons that submit under another name, \
             such as \"Save\", are not caught by their name alone.",
        ),
        rule(
            "no-password",
            "Never type into a password field",
            r#"intent == "type" && element.type == "password""#,
            "A Bot cannot sign in by itself; someone has to sign its browser profile in beforehand. \
             A site that draws its own password field as plain text is not recognised.",
        ),
        rule(
            "no-social-media",
            "Stay off social media",
            r#"matches(page.host, "(^|\\.)(facebook\\.com|instagram\\.com|linkedin\\.com|reddit\\.com|threads\\.net|tiktok\\.com|twitter\\.com|x\\.com|bsky\\.app|youtube\\.com|pinterest\\.com|snapchat\\.com)$")"#,
            "Nothing can be read or posted there, sign-in through such a site included; \
             sites that are not on the list stay open.",
        ),
        rule(
            "no-repeats",
            "Stop a Bot repeating itself",
            r#"repeat.count >= 10 && !(intent in ["read", "read_file", "list_files", "read_tool"])"#,
            "Work that honestly needs the same action ten times within the repeat window is stopped too.",
        ),
        rule(
            "look-never-press",
            "Let an unattended run look, never press",
            r#"run.unattended && intent == "activate""#,
            "An unattended run cannot press a button, follow a link by clicking it or send a form; \
             it can read, type and go to addresses.",
        ),
    ]
}
