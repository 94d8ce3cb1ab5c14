//! The functions a rule may call: the CEL standard, the strings extension in its member forms, and the global
//! `contains` and `matches`, which ignore case.

use crate::attributes::nearest;
use crate::types::Ty;

/// Names of types, for `type(x) == int`.
pub(crate) const TYPE_NAMES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// One overload, in short: `receiver.name(parameters) -> result`; each letter is a type (see [`kind`]).
struct Signature(&'static str, Option<char>, &'static str, char);

/// `t` text, `i` int, `u` uint, `d` double, `b` bool, `y` bytes, `n` timestamp, `s` duration, `l` list,
/// `m` map, `a` anything, `T` a list of texts, `k` a type.
fn kind(letter: char) -> Ty {
    match letter {
        't' => Ty::Text,
        'i' => Ty::Int,
        'u' => Ty::Uint,
        'd' => Ty::Double,
        'b' => Ty::Bool,
        'y' => Ty::Bytes,
        'n' => Ty::Timestamp,
        's' => Ty::Duration,
        'k' => Ty::Type,
        'l' => Ty::List(Box::new(Ty::Dyn)),
        'T' => Ty::List(Box::new(Ty::Text)),
        'm' => Ty::Map(Box::new(Ty::Dyn), Box::new(Ty::Dyn)),
        _ => Ty::Dyn,
    }
}

const STANDARD: [Signature; 36] = [
    Signature("size", None, "t", 'i'),
    Signature("size", None, "y", 'i'),
    Signature("size", None, "l", 'i'),
    Signature("size", None, "m", 'i'),
    Signature("size", Some('t'), "", 'i'),
    Signature("size", Some('y'), "", 'i'),
    Signature("size", Some('l'), "", 'i'),
    Signature("size", Some('m'), "", 'i'),
    Signature("contains", None, "tt", 'b'),
    Signature("matches", None, "tt", 'b'),
    Signature("contains", Some('t'), "t", 'b'),
    Signature("matches", Some('t'), "t", 'b'),
    Signature("startsWith", Some('t'), "t", 'b'),
    Signature("endsWith", Some('t'), "t", 'b'),
    Signature("dyn", None, "a", 'a'),
    Signature("type", None, "a", 'k'),
    Signature("bool", None, "b", 'b'),
    Signature("bool", None, "t", 'b'),
    Signature("bytes", None, "y", 'y'),
    Signature("bytes", None, "t", 'y'),
    Signature("double", None, "d", 'd'),
    Signature("double", None, "i", 'd'),
    Signature("double", None, "u", 'd'),
    Signature("double", None, "t", 'd'),
    Signature("int", None, "i", 'i'),
    Signature("int", None, "u", 'i'),
    Signature("int", None, "d", 'i'),
    Signature("int", None, "t", 'i'),
    Signature("int", None, "n", 'i'),
    Signature("uint", None, "u", 'u'),
    Signature("uint", None, "i", 'u'),
    Signature("uint", None, "d", 'u'),
    Signature("uint", None, "t", 'u'),
    Signature("duration", None, "t", 's'),
    Signature("duration", None, "s", 's'),
    Signature("timestamp", None, "t", 'n'),
];

const CONVERSIONS: [Signature; 10] = [
    Signature("timestamp", None, "n", 'n'),
    Signature("timestamp", None, "i", 'n'),
    Signature("string", None, "t", 't'),
    Signature("string", None, "b", 't'),
    Signature("string", None, "i", 't'),
    Signature("string", None, "u", 't'),
    Signature("string", None, "d", 't'),
    Signature("string", None, "y", 't'),
    Signature("string", None, "n", 't'),
    Signature("string", None, "s", 't'),
];

const STRINGS: [Signature; 19] = [
    Signature("charAt", Some('t'), "i", 't'),
    Signature("indexOf", Some('t'), "t", 'i'),
    Signature("indexOf", Some('t'), "ti", 'i'),
    Signature("lastIndexOf", Some('t'), "t", 'i'),
    Signature("lastIndexOf", Some('t'), "ti", 'i'),
    Signature("join", Some('T'), "", 't'),
    Signature("join", Some('T'), "t", 't'),
    Signature("lowerAscii", Some('t'), "", 't'),
    Signature("upperAscii", Some('t'), "", 't'),
    Signature("trim", Some('t'), "", 't'),
    Signature("replace", Some('t'), "tt", 't'),
    Signature("replace", Some('t'), "tti", 't'),
    Signature("split", Some('t'), "t", 'T'),
    Signature("split", Some('t'), "ti", 'T'),
    Signature("substring", Some('t'), "i", 't'),
    Signature("substring", Some('t'), "ii", 't'),
    Signature("format", Some('t'), "l", 't'),
    Signature("reverse", Some('t'), "", 't'),
    Signature("getMilliseconds", Some('s'), "", 'i'),
];

const TIMES: [Signature; 23] = [
    Signature("getHours", Some('s'), "", 'i'),
    Signature("getMinutes", Some('s'), "", 'i'),
    Signature("getSeconds", Some('s'), "", 'i'),
    Signature("getFullYear", Some('n'), "", 'i'),
    Signature("getMonth", Some('n'), "", 'i'),
    Signature("getDayOfYear", Some('n'), "", 'i'),
    Signature("getDayOfMonth", Some('n'), "", 'i'),
    Signature("getDate", Some('n'), "", 'i'),
    Signature("getDayOfWeek", Some('n'), "", 'i'),
    Signature("getHours", Some('n'), "", 'i'),
    Signature("getMinutes", Some('n'), "", 'i'),
    Signature("getSeconds", Some('n'), "", 'i'),
    Signature("getMilliseconds", Some('n'), "", 'i'),
    Signature("getFullYear", Some('n'), "t", 'i'),
    Signature("getMonth", Some('n'), "t", 'i'),
    Signature("getDayOfYear", Some('n'), "t", 'i'),
    Signature("getDayOfMonth", Some('n'), "t", 'i'),
    Signature("getDate", Some('n'), "t", 'i'),
    Signature("getDayOfWeek", Some('n'), "t", 'i'),
    Signature("getHours", Some('n'), "t", 'i'),
    Signature("getMinutes", Some('n'), "t", 'i'),
    Signature("getSeconds", Some('n'), "t", 'i'),
    Signature("getMilliseconds", Some('n'), "t", 'i'),
];

fn all() -> impl Iterator<Item = &'static Signature> {
    STANDARD.iter().chain(&CONVERSIONS).chain(&STRINGS).chain(&TIMES)
}

/// The type of a call, or the sentence that says why there is none.
pub(crate) fn result(name: &str, receiver: Option<&Ty>, arguments: &[Ty]) -> Result<Ty, String> {
    let mut results = all().filter(|signature| {
        signature.0 == name
            && match (signature.1, receiver) {
                (None, None) => true,
                (Some(letter), Some(ty)) => kind(letter).fits(ty),
                _ => false,
            }
            && signature.2.len() == arguments.len()
            && signature.2.chars().zip(arguments).all(|(letter, ty)| kind(letter).fits(ty))
    });
    match results.next() {
        Some(first) if results.all(|other| other.3 == first.3) => Ok(kind(first.3)),
        Some(_) => Ok(Ty::Dyn),
        None => Err(refusal(name, receiver, arguments)),
    }
}

fn refusal(name: &str, receiver: Option<&Ty>, arguments: &[Ty]) -> String {
    let forms: Vec<String> = all().filter(|signature| signature.0 == name).map(shown).collect();
    if forms.is_empty() {
        let hint = match nearest(name, all().map(|signature| signature.0)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "rules have the CEL standard functions and the strings extension".to_owned(),
        };
        return format!("there is no function `{name}`; {hint}");
    }
    let given: Vec<&str> = arguments.iter().map(Ty::words).collect();
    let given = if given.is_empty() { "nothing".to_owned() } else { given.join(" and ") };
    let on = receiver.map_or(String::new(), |ty| format!(" on {}", ty.words()));
    let mut shown_forms = forms;
    shown_forms.truncate(4);
    format!("`{name}`{on} cannot take {given}; write {}", shown_forms.join(" or "))
}

fn shown(signature: &Signature) -> String {
    let word = |letter: char| match kind(letter) {
        Ty::Text => "text",
        Ty::Int => "int",
        Ty::Uint => "uint",
        Ty::Double => "double",
        Ty::Bool => "bool",
        Ty::Bytes => "bytes",
        Ty::Timestamp => "timestamp",
        Ty::Duration => "duration",
        Ty::List(_) => "list",
        Ty::Map(_, _) => "map",
        Ty::Null | Ty::Type | Ty::Dyn => "value",
    };
    let parameters: Vec<&str> = signature.2.chars().map(word).collect();
    let receiver = signature.1.map_or(String::new(), |letter| format!("{}.", word(letter)));
    format!("`{receiver}{}({})`", signature.0, parameters.join(", "))
}
