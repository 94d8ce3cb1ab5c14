//! Words, and what somebody else wrote, made visible and harmless.

use std::fmt;

use serde::Serialize;

/// Text that a Bot, a sender or another person wrote. Characters that would reorder or hide other text, and control
/// characters, are shown by their names; markup is escaped by the template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown(String);

impl Shown {
    /// One line: line breaks are shown too.
    pub(crate) fn line(text: &str) -> Self {
        Self(visible(text, false))
    }

    /// Several lines, for a `pre`.
    pub(crate) fn lines(text: &str) -> Self {
        Self(visible(text, true))
    }

    /// One line of at most `most` characters.
    pub(crate) fn short(text: &str, most: usize) -> Self {
        if text.chars().count() <= most {
            return Self::line(text);
        }
        let cut: String = text.chars().take(most.saturating_sub(1)).collect();
        Self(format!("{}…", visible(&cut, false)))
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn visible(text: &str, lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' if lines => out.push(c),
            '\r' if lines => {}
            _ if c.is_control() || reorders_or_hides(c) => out.push_str(&format!("⟨U+{:04X}⟩", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}

/// Bidirectional controls (Unicode TR 36, 2.3) and characters without width that make two names look alike; not the
/// joiners, which Persian, Hindi and emoji are written with.
fn reorders_or_hides(c: char) -> bool {
    matches!(
        c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// The word that stands for a value on the wire, such as `timed_out`.
pub(crate) fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The same for people: `timed out`.
pub(crate) fn spaced(value: impl Serialize) -> String {
    word(value).replace('_', " ")
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(number)) }
}

/// `12 345`, with a thin space that does not break.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `512 bytes`, `48.2 kB`.
pub(crate) fn bytes(number: u64) -> String {
    match number {
        0..1_000 => counted(number, "byte", "bytes"),
        1_000..1_000_000 => format!("{}.{} kB", number / 1_000, number / 100 % 10),
        _ => format!("{}.{} MB", number / 1_000_000, number / 100_000 % 10),
    }
}

/// The start of an id, enough to tell it from its neighbours: UUIDv7 differ at their ends.
pub(crate) fn short_id(id: impl fmt::Display) -> String {
    let id = id.to_string();
    let tail = id.len().saturating_sub(8);
    id.get(tail..).unwrap_or(&id).to_owned()
}

/// A value for a URL's query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// JSON with line breaks, and nothing else changed: members keep their order and numbers their digits. What is no JSON
/// stays as it is.
pub(crate) fn indented(json: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(json).is_err() {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for c in json.chars().filter(|c| *c != '\r') {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\n' => continue,
            '"' => in_text = true,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !out.ends_with(['{', '[']) {
                    new_line(&mut out, depth);
                }
            }
            _ if out.ends_with(['{', '[']) => new_line(&mut out, depth),
            _ => {}
        }
        if c == '"' && out.ends_with(['{', '[']) {
            new_line(&mut out, depth);
        }
        out.push(c);
        match c {
            '{' | '[' => depth += 1,
            ',' => new_line(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reorders_or_hides_is_named() {
        assert_eq!(Shown::line("gpj.\u{202e}exe").to_string(), "gpj.⟨U+202E⟩exe");
        assert_eq!(Shown::line("a\u{200b}b\nc").to_string(), "a⟨U+200B⟩b⟨U+000A⟩c");
        assert_eq!(Shown::lines("a\r\nb\u{1b}[31m").to_string(), "a\nb⟨U+001B⟩[31m");
        assert_eq!(Shown::line("Zürich 東京 العربية 👩‍🚀").to_string(), "Zürich 東京 العربية 👩‍🚀");
        assert_eq!(Shown::short("abcdef", 4).to_string(), "abc…");
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(encoded("bot:a b&c=\"ü\""), "bot:a+b%26c%3D%22%C3%BC%22");
    }

    #[test]
    fn json_is_indented_and_otherwise_kept() {
        let json = r#"{"b":[1,{}],"a":{"n":12345678901234567890123,"t":"a, \"{ \\"}, "e":[]}"#;
        let shown = indented(json);
        let lines = [
            "{",
            "  \"b\": [",
            "    1,",
            "    {}",
            "  ],",
            "  \"a\": {",
            "    \"n\": 12345678901234567890123,",
            r#"    "t": "a, \"{ \\""#,
            "  },",
            "  \"e\": []",
            "}",
        ];
        assert_eq!(shown, lines.join("\n"));
        assert_eq!(indented(&shown), shown);
        assert_eq!(indented("{\"a\":"), "{\"a\":");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(counted(1, "run", "runs"), "1 run");
        assert_eq!(bytes(48_213), "48.2 kB");
    }
}
