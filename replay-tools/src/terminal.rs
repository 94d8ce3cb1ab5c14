//! Text that cannot take over a terminal: what Bots and senders wrote is shown, never obeyed.

/// Text on one line in which nothing moves the cursor, rings, recolours or turns the direction of reading.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if unseen(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// JSON text with the same characters as escapes; it means the same.
#[must_use]
pub fn clean_json(json: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if unseen(c) {
            // All of them are in the basic plane. Writing to a string cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters, and those that change direction, join or break lines without being seen.
fn unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// The longest text shown for people, in characters. JSON always has all of it.
const CHARS_MAX: usize = 2_000;

/// Text of several lines, each cleaned and set in by `indent` spaces; cut where it is long, and the cut is said.
pub(crate) fn block(text: &str, indent: usize) -> String {
    let total = text.chars().count();
    let cut: String = text.chars().take(CHARS_MAX).collect();
    let mut out = String::new();
    for line in cut.lines() {
        out.push_str(&" ".repeat(indent));
        out.push_str(&clean(line));
        out.push('\n');
    }
    if total > CHARS_MAX {
        out.push_str(&" ".repeat(indent));
        out.push_str(&format!("[cut: {CHARS_MAX} of {total} characters; --json has all]\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_a_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\nd\u{9b}"), "a\\u{1b}[31mb\\u{202e}c\\nd\\u{9b}");
        assert_eq!(clean("Grüße, 東京 🙂"), "Grüße, 東京 🙂");
        assert_eq!(block("a\r\nb\u{7}", 2), "  a\n  b\\u{7}\n");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({ "a": "x\u{1b}\u{202e}\u{9b}\n\u{7f}" });
        let text = clean_json(&value.to_string());
        assert!(text.chars().all(|c| c.is_ascii_graphic()), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_long_text_says_that_it_was_cut() {
        let text = block(&"ä".repeat(9_000), 0);
        assert!(text.ends_with("[cut: 2000 of 9000 characters; --json has all]\n"));
        assert_eq!(text.matches('ä').count(), 2_000);
    }
}
