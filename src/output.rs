//! What is printed: JSON for programs, aligned text for people; never a character that moves somebody's terminal.

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write as _},
};

use serde::Serialize;

use crate::failure::Failure;

/// Where answers go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// For programs.
    pub(crate) json: bool,
}

impl Output {
    /// One answer: the JSON document, or the text.
    pub(crate) fn answer(self, json: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json {
            return self.json_line(json);
        }
        let text = text();
        let lines: Vec<String> = text.lines().map(clean).collect();
        print(&lines.join("\n"))
    }

    /// One document on a line of its own.
    pub(crate) fn json_line(self, json: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(json).map_err(|error| Failure::fault("json", error.to_string()))?;
        print(&escaped(&text))
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // Whoever read it has seen enough (`| head`), and there is nothing left to do here: writes come before answers.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::fault("output", format!("standard output cannot be written: {error}"))),
    }
}

/// Text in which nothing moves the cursor, rings, recolours or turns the direction of reading.
pub(crate) fn clean(text: &str) -> String {
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
fn escaped(json: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_a_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\nd\u{9b}"), "a\\u{1b}[31mb\\u{202e}c\\nd\\u{9b}");
        assert_eq!(clean("Grüße, 東京 🙂"), "Grüße, 東京 🙂");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({ "a": "x\u{1b}\u{202e}\u{9b}\n\u{7f}" });
        let text = escaped(&value.to_string());
        assert!(text.chars().all(|c| c.is_ascii_graphic()), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
