//! What rules call: the CEL standard, and our own forms of what the CEL crate would do without a limit.
//!
//! Its `matches` compiles its pattern at each call, its `replace` can fill the memory and its `indexOf` takes
//! quadratic time, so calls of those are rewritten to the functions here, whose names start with `@` and so
//! cannot be written in a rule.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use cel_interpreter::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use cel_interpreter::common::functions::Function;
use cel_interpreter::common::types::{self, CelBool, CelInt, CelList, CelMap, CelMapKey, CelString, Kind, Type};
use cel_interpreter::common::value::{CowVal, StaticVal, Val};
use cel_interpreter::{Context, DeclarationError, Env, ExecutionError, Value, extensions};
use regex::{Regex, RegexBuilder};

use crate::limits::{MAX_INPUT, MAX_LOOP_WORK, MAX_PARTS, MAX_RANGE, MAX_REGEX};

type Called<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The environment every rule runs in; `None` only if the CEL crate refused one of our declarations.
static ENV: LazyLock<Option<Arc<Env>>> = LazyLock::new(|| environment().ok().map(Arc::new));

/// An empty context over the rules' environment.
pub(crate) fn context<'p, 'v>() -> Context<'p, 'v> {
    match &*ENV {
        Some(env) => Context::with_env(Arc::clone(env)),
        // Without our functions every rule that uses one is broken, and a broken deny denies.
        None => Context::default(),
    }
}

fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::stdlib().with_optional_support(false);
    env.add_extension(extensions::strings)?;
    for (name, id, parameters, function) in OVERLOADS {
        env.add_overload(name, id, parameters.chars().map(parameter).collect(), function)?;
    }
    #[cfg(test)]
    env.add_overload("@stall", "stall", vec![types::INT_TYPE], stall)?;
    Ok(env)
}

/// Each of our functions: name, id, parameters (see [`parameter`]).
const OVERLOADS: [(&str, &str, &str, Function); 14] = [
    ("contains", "contains_ignoring_case", "tt", contains),
    ("@matches", "matches", "ta", matches),
    ("@range", "range", "ai", range),
    ("@format", "format", "t", capped),
    ("@join", "join", "a", join),
    ("@join", "join_with", "at", join),
    ("@split", "split", "tt", split),
    ("@split", "split_n", "tti", split),
    ("@indexOf", "index_of", "tt", index_of),
    ("@indexOf", "index_of_from", "tti", index_of),
    ("@lastIndexOf", "last_index_of", "tt", last_index_of),
    ("@lastIndexOf", "last_index_of_from", "tti", last_index_of),
    ("@replace", "replace", "ttt", replace),
    ("@replace", "replace_n", "ttti", replace),
];

/// `t` a text, `i` an int, else anything.
fn parameter(letter: char) -> Type {
    match letter {
        't' => types::STRING_TYPE,
        'i' => types::INT_TYPE,
        _ => types::DYN_TYPE,
    }
}

/// Members that calls of are rewritten to `@…`.
pub(crate) const OURS: [&str; 5] = ["indexOf", "lastIndexOf", "replace", "split", "join"];

static PATTERN_TYPE: Type = Type::new_unspecified_type("pattern");

/// A compiled regular expression, as a value that `@matches` takes.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN_TYPE
    }
    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self(self.0.clone()))
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}

/// Compiles a pattern within its limits.
pub(crate) fn pattern(text: &str, ignore_case: bool) -> Result<Pattern, String> {
    let built = RegexBuilder::new(text)
        .case_insensitive(ignore_case)
        .size_limit(MAX_REGEX)
        .dfa_size_limit(4 * MAX_REGEX)
        .nest_limit(32)
        .build();
    built.map(Pattern).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!("the pattern is larger than {MAX_REGEX} bytes once compiled"),
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            let what = last.trim_start_matches("error: ");
            format!("the pattern is not a regular expression: {what}")
        }
    })
}

/// The sentence for a call with literal arguments that fails whatever the call it judges.
pub(crate) fn fails_always(call: &CallExpr) -> Option<String> {
    let text = |node: &IdedExpr| match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner().to_owned()),
        _ => None,
    };
    let [argument] = call.args.as_slice() else { return None };
    let literal = text(argument)?;
    let converts = ["timestamp", "duration", "int", "uint", "double", "bool"].contains(&call.func_name.as_str());
    if call.target.is_none() && converts {
        let node = IdedExpr { id: 0, expr: Expr::Call(call.clone()) };
        return Value::resolve_val(&node, &context()).err().map(|error| explain(&error));
    }
    if call.target.is_some() && call.func_name.starts_with("get") {
        let known =
            literal.parse::<chrono_tz::Tz>().is_ok() || literal.starts_with(['+', '-']) || literal.contains(':');
        return (!known).then(|| format!("`{literal}` is not a time zone"));
    }
    None
}

/// An evaluation error in one short sentence. The crate's own texts print whole values.
pub(crate) fn explain(error: &ExecutionError) -> String {
    let sentence = match error {
        ExecutionError::NoSuchKey(key) => format!("there is no `{key}`"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "divides by zero".to_owned(),
        ExecutionError::Overflow(..) => "a number left its range".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "the list has no element there".to_owned(),
        ExecutionError::UnexpectedType { got, want } => format!("{want} was needed, not {got}"),
        ExecutionError::NoSuchOverload(overload) => {
            format!(
                "`{}` cannot take {}",
                overload.function().trim_matches(['_', '@']),
                overload.argument_types().join(" and ")
            )
        }
        ExecutionError::UndeclaredReference(name) => format!("there is no `{name}`"),
        ExecutionError::FunctionError { function, message } => {
            format!("`{}`: {message}", function.trim_start_matches('@'))
        }
        ExecutionError::UnsupportedBinaryOperator(operator, ..) => format!("`{operator}` cannot take these values"),
        ExecutionError::ValuesNotComparable(..) => "these values cannot be compared".to_owned(),
        ExecutionError::DuplicateKey(_) => "a map has one key twice".to_owned(),
        _ => "the expression cannot be evaluated".to_owned(),
    };
    sentence.chars().take(300).collect()
}

fn fault(function: &str, sentence: String) -> ExecutionError {
    ExecutionError::function_error(function, sentence)
}

/// The text at `index`; the overload's types say that it is one.
fn text<'x>(arguments: &'x [CowVal<'_, '_>], index: usize) -> Result<&'x str, ExecutionError> {
    let value = arguments.get(index).and_then(|value| value.downcast_ref::<CelString>());
    value.map(CelString::inner).ok_or_else(|| fault("call", "a text was needed".to_owned()))
}

fn int(arguments: &[CowVal<'_, '_>], index: usize) -> Option<i64> {
    arguments.get(index).and_then(|value| value.downcast_ref::<CelInt>()).map(|value| *value.inner())
}

fn limited<'b, 'v>(function: &str, made: String) -> Called<'b, 'v> {
    if made.len() > MAX_INPUT {
        return Err(too_long(function));
    }
    Ok(CowVal::owned(CelString::from(made)))
}

fn too_long(function: &str) -> ExecutionError {
    fault(function, format!("the result is longer than {MAX_INPUT} bytes"))
}

/// A text as `contains` compares it: case folded both ways, so that `ſ`, `ς` and `ß` meet `S`, `Σ` and `SS`.
fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Global `contains(text, part)`: ignores case.
fn contains<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let (whole, part) = (text(&arguments, 0)?, text(&arguments, 1)?);
    Ok(CowVal::owned(CelBool::from(folded(whole).contains(&folded(part)))))
}

fn matches<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let pattern = arguments.get(1).and_then(|value| value.downcast_ref::<Pattern>());
    let pattern = pattern.ok_or_else(|| fault("matches", "its pattern is not known".to_owned()))?;
    Ok(CowVal::owned(CelBool::from(pattern.0.is_match(text(&arguments, 0)?))))
}

/// `@range(list, bytes)`: what a comprehension goes through, within its limits. `bytes` is what one round may
/// read. A map becomes its sorted keys, so that the same call always gives the same answer.
fn range<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let work = int(&arguments, 1).unwrap_or(i64::MAX);
    let mut arguments = arguments.into_iter();
    let Some(value) = arguments.next() else { return Err(ExecutionError::missing_argument_or_target()) };
    let size = match value.get_type().kind() {
        Kind::List | Kind::Map => value.as_sizer().map_or(0, |sizer| *sizer.size().inner()),
        _ => return Err(fault("loop", "a list or a map was needed".to_owned())),
    };
    if usize::try_from(size).map_or(true, |size| size > MAX_RANGE) {
        return Err(fault("loop", format!("the list has {size} elements; at most {MAX_RANGE} are gone through")));
    }
    if size.saturating_mul(work) > MAX_LOOP_WORK {
        return Err(fault("loop", format!("going through {size} elements would read too much text")));
    }
    let Some(map) = value.downcast_ref::<CelMap>() else { return Ok(value) };
    let mut keys: Vec<CelMapKey<'v>> = map.inner().keys().cloned().collect();
    keys.sort();
    let keys: Vec<Box<dyn Val + 'v>> = keys.iter().map(|key| key.inner().clone_as_boxed()).collect();
    Ok(CowVal::owned(CelList::from(keys)))
}

/// `format`'s result, unless it is too long: nested calls could double it each time.
fn capped<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    if text(&arguments, 0)?.len() > MAX_INPUT {
        return Err(too_long("format"));
    }
    arguments.into_iter().next().ok_or_else(ExecutionError::missing_argument_or_target)
}

fn join<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let between = if arguments.len() > 1 { text(&arguments, 1)? } else { "" };
    let list = arguments.first().and_then(|list| list.downcast_ref::<CelList>());
    let list = list.ok_or_else(|| fault("join", "a list of texts was needed".to_owned()))?;
    let mut made = String::new();
    for (index, element) in list.inner().iter().enumerate() {
        let element = element.downcast_ref::<CelString>();
        let element = element.ok_or_else(|| fault("join", "a list of texts was needed".to_owned()))?;
        if index > 0 {
            made.push_str(between);
        }
        made.push_str(element.inner());
        if made.len() > MAX_INPUT {
            return Err(too_long("join"));
        }
    }
    limited("join", made)
}

/// An empty separator splits between characters; a limit leaves the rest in the last part; none for 0.
fn split<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let (whole, separator) = (text(&arguments, 0)?, text(&arguments, 1)?);
    let most = usize::try_from(int(&arguments, 2).unwrap_or(-1)).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = Some(whole);
    while let Some(text) = rest.take() {
        if most == 0 || (separator.is_empty() && text.is_empty()) {
            break;
        }
        let next = match separator {
            "" => text.chars().next().map(|c| text.split_at(c.len_utf8())),
            _ => text.split_once(separator),
        };
        match next {
            Some((part, after)) if parts.len() + 1 < most => {
                parts.push(part);
                rest = Some(after);
            }
            _ => parts.push(text),
        }
        if parts.len() > MAX_PARTS {
            return Err(fault("split", format!("the text has more than {MAX_PARTS} parts")));
        }
    }
    let parts: Vec<Box<dyn Val + 'v>> =
        parts.into_iter().map(|part| Box::new(CelString::from(part.to_owned())) as Box<dyn Val + 'v>).collect();
    Ok(CowVal::owned(CelList::from(parts)))
}

/// The byte where character `index` starts; the end for the index just after the last.
fn byte_of(whole: &str, index: usize) -> Option<usize> {
    let ends = std::iter::once(whole.len());
    whole.char_indices().map(|(byte, _)| byte).chain(ends).nth(index)
}

fn place<'b, 'v>(whole: &str, byte: Option<usize>) -> Called<'b, 'v> {
    let index = byte.map_or(-1, |byte| i64::try_from(whole[..byte].chars().count()).unwrap_or(i64::MAX));
    Ok(CowVal::owned(CelInt::from(index)))
}

/// Where a search starts, or where an empty part is found.
fn offset(
    function: &str,
    arguments: &[CowVal<'_, '_>],
    whole: &str,
    part: &str,
) -> Result<Option<usize>, ExecutionError> {
    let Some(offset) = int(arguments, 2) else { return Ok(None) };
    let out_of_range = || fault(function, format!("index out of range: {offset}"));
    let index = usize::try_from(offset).map_err(|_| out_of_range())?;
    match byte_of(whole, index) {
        Some(byte) if byte < whole.len() || part.is_empty() => Ok(Some(byte)),
        None if part.is_empty() => Ok(Some(whole.len())),
        _ => Err(out_of_range()),
    }
}

fn index_of<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let (whole, part) = (text(&arguments, 0)?, text(&arguments, 1)?);
    let from = offset("indexOf", &arguments, whole, part)?.unwrap_or(0);
    place(whole, whole[from..].find(part).map(|byte| byte + from))
}

fn last_index_of<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let (whole, part) = (text(&arguments, 0)?, text(&arguments, 1)?);
    let until = match offset("lastIndexOf", &arguments, whole, part)? {
        Some(from) => whole.len().min(from + part.len()),
        None => whole.len(),
    };
    // No match ends inside a character.
    let until = (0..=until).rev().find(|byte| whole.is_char_boundary(*byte)).unwrap_or(0);
    let found = whole[..until].rfind(part);
    place(whole, found)
}

fn replace<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let (whole, from, to) = (text(&arguments, 0)?, text(&arguments, 1)?, text(&arguments, 2)?);
    let most = usize::try_from(int(&arguments, 3).unwrap_or(-1)).unwrap_or(usize::MAX);
    let count = whole.matches(from).count().min(most);
    if count.saturating_mul(to.len()).saturating_add(whole.len()) > 2 * MAX_INPUT {
        return Err(too_long("replace"));
    }
    limited("replace", whole.replacen(from, to, most))
}

/// Keeps its thread for so many milliseconds: what the watchdog is for, and no rule can say.
#[cfg(test)]
fn stall<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Called<'b, 'v> {
    let milliseconds = int(&arguments, 0).and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
    Ok(CowVal::owned(CelBool::from(true)))
}

/// Bytes a value takes, for the limit on what a rule may read.
pub(crate) fn weight(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => 8,
        serde_json::Value::String(text) => text.len() + 2,
        serde_json::Value::Array(list) => list.iter().map(weight).sum::<usize>() + 2,
        serde_json::Value::Object(map) => {
            map.iter().map(|(key, value)| key.len() + 3 + weight(value)).sum::<usize>() + 2
        }
    }
}
