//! A cheap look at a rule's words before the CEL crate's parser sees it.
//!
//! It counts what makes that parser slow or its stack deep (length, brackets, operators in a row) and keeps the
//! places of words and brackets, so that findings can point at them.

use crate::limits::{MAX_BRACKETS, MAX_CONDITIONALS, MAX_SOURCE, MAX_SPINE, MAX_TOKENS};
use crate::syntax::Problem;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    Text,
    Sign,
}

/// One word, number, text or sign; places are bytes of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A rule's text cut into tokens, with each bracket's partner.
pub(crate) struct Scanned<'s> {
    pub(crate) text: &'s str,
    pub(crate) tokens: Vec<Token>,
    partners: Vec<Option<usize>>,
}

impl<'s> Scanned<'s> {
    pub(crate) fn word(&self, token: usize) -> &'s str {
        self.tokens.get(token).map_or("", |t| &self.text[t.start..t.end])
    }

    /// The index of the bracket that closes or opens the one at `token`.
    pub(crate) fn partner(&self, token: usize) -> Option<usize> {
        self.partners.get(token).copied().flatten()
    }
}

const PAIRS: [&str; 6] = ["&&", "||", "==", "!=", "<=", ">="];
const SINGLES: &str = "+-*/%<>!?:,.()[]{}";

/// Cuts `source` into tokens and refuses what the parser must not see.
pub(crate) fn scan(source: &str) -> Result<Scanned<'_>, Problem> {
    if source.len() > MAX_SOURCE {
        let bytes = source.len();
        return Err(Problem::at(0, format!("the rule is {bytes} bytes long; at most {MAX_SOURCE} are allowed")));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        if c.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (kind, length) = token(rest).map_err(|sentence| Problem::at(at, sentence))?;
        tokens.push(Token { kind, start: at, end: at + length });
        if tokens.len() > MAX_TOKENS {
            return Err(Problem::at(at, format!("the rule has more than {MAX_TOKENS} words and signs; split it")));
        }
        at += length;
    }
    if tokens.is_empty() {
        return Err(Problem::at(0, "the rule is empty; write `true` to match every call".to_owned()));
    }
    let partners = pair_brackets(source, &tokens)?;
    let scanned = Scanned { text: source, tokens, partners };
    count_operators(&scanned)?;
    Ok(scanned)
}

/// The kind and length of the token that `rest` starts with.
fn token(rest: &str) -> Result<(Kind, usize), String> {
    if let Some(length) = text_literal(rest)? {
        return Ok((Kind::Text, length));
    }
    let mut chars = rest.chars();
    let first = chars.next().unwrap_or_default();
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        return Ok((Kind::Word, length));
    }
    let leading_point = first == '.' && chars.next().is_some_and(|c| c.is_ascii_digit());
    if first.is_ascii_digit() || leading_point {
        return Ok((Kind::Number, number_length(rest)));
    }
    if PAIRS.iter().any(|pair| rest.starts_with(pair)) {
        return Ok((Kind::Sign, 2));
    }
    match first {
        '=' => Err("`=` compares nothing; write `==`".to_owned()),
        '&' => Err("`&` has no meaning in a rule; write `&&`".to_owned()),
        '|' => Err("`|` has no meaning in a rule; write `||`".to_owned()),
        _ if SINGLES.contains(first) => Ok((Kind::Sign, 1)),
        _ => Err(format!("`{}` has no meaning in a rule; texts stand in quotes", first.escape_debug())),
    }
}

/// Digits, a fraction, an exponent, `0x…`, `u`: the parser judges the rest.
fn number_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let sign_of_exponent =
            (byte == b'+' || byte == b'-') && at > 0 && matches!(bytes[at - 1], b'e' | b'E') && !rest.starts_with("0x");
        let point = byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !byte.is_ascii_alphanumeric() && !sign_of_exponent && !point {
            break;
        }
        at += 1;
    }
    at
}

/// The length of the quoted text that `rest` starts with, prefix included.
fn text_literal(rest: &str) -> Result<Option<usize>, String> {
    let prefix = rest.len() - rest.trim_start_matches(['r', 'R', 'b', 'B']).len();
    let quote = match rest[prefix..].chars().next() {
        Some(quote @ ('"' | '\'')) if prefix <= 2 => quote,
        _ => return Ok(None),
    };
    let raw = rest[..prefix].contains(['r', 'R']);
    let triple = quote.to_string().repeat(3);
    let long = rest[prefix..].starts_with(&triple);
    let fence = if long { triple.as_str() } else { &triple[..1] };
    let mut at = prefix + fence.len();
    while let Some(c) = rest[at..].chars().next() {
        if rest[at..].starts_with(fence) {
            return Ok(Some(at + fence.len()));
        }
        if c == '\n' && !long {
            break;
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += rest[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    Err(format!("this text is not closed; add {fence} where it ends"))
}

fn pair_brackets(source: &str, tokens: &[Token]) -> Result<Vec<Option<usize>>, Problem> {
    let mut partners = vec![None; tokens.len()];
    let mut open: Vec<(usize, char)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        if token.kind != Kind::Sign {
            continue;
        }
        let sign = &source[token.start..token.end];
        match sign {
            "(" => open.push((index, ')')),
            "[" => open.push((index, ']')),
            "{" => open.push((index, '}')),
            ")" | "]" | "}" => match open.pop() {
                Some((opener, closing)) if sign.starts_with(closing) => {
                    partners[opener] = Some(index);
                    partners[index] = Some(opener);
                }
                Some((_, closing)) => {
                    return Err(Problem::at(token.start, format!("`{sign}` closes nothing; `{closing}` was expected")));
                }
                None => return Err(Problem::at(token.start, format!("`{sign}` closes nothing; remove it"))),
            },
            _ => {}
        }
        if open.len() > MAX_BRACKETS {
            let sentence = format!("brackets stand more than {MAX_BRACKETS} deep; split the rule");
            return Err(Problem::at(token.start, sentence));
        }
    }
    match open.pop() {
        Some((opener, closing)) => {
            let start = tokens[opener].start;
            let sign = &source[start..=start];
            Err(Problem::at(start, format!("this `{sign}` is never closed; add `{closing}`")))
        }
        None => Ok(partners),
    }
}

/// Refuses chains that would make the parser's tree deep: it recurses along them.
fn count_operators(scanned: &Scanned<'_>) -> Result<(), Problem> {
    // One count for each bracket that is open.
    let mut chains = vec![0_usize];
    let mut conditionals = 0;
    for (index, token) in scanned.tokens.iter().enumerate() {
        let innermost = chains.len() - 1;
        match scanned.word(index) {
            "&&" | "||" | ":" | "," => chains[innermost] = 0,
            "?" => {
                conditionals += 1;
                chains[innermost] = 0;
            }
            "+" | "-" | "*" | "/" | "%" | "<" | "<=" | ">" | ">=" | "==" | "!=" | "." | "in" => chains[innermost] += 1,
            "(" | "[" | "{" => {
                chains[innermost] += 1;
                chains.push(0);
            }
            // The brackets are paired, so the outermost count stays.
            ")" | "]" | "}" => drop(chains.pop()),
            _ => continue,
        }
        if chains.iter().rev().take(2).any(|chain| *chain > MAX_SPINE) {
            let sentence = format!("more than {MAX_SPINE} operators in a row; split the rule or compare with a list");
            return Err(Problem::at(token.start, sentence));
        }
        if conditionals > MAX_CONDITIONALS {
            return Err(Problem::at(token.start, format!("more than {MAX_CONDITIONALS} `? :` in one rule; split it")));
        }
    }
    Ok(())
}
