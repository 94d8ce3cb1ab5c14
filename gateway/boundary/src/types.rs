//! The type checker: what is not known, or cannot be true or false, is refused when a rule is saved.

use cel_interpreter::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators};

use crate::attributes::{self, Attribute};
use crate::functions;
use crate::limits::MAX_PATTERNS;
use crate::signatures;
use crate::syntax::{Parsed, Problem, each_node};

/// The type of an expression, as far as it is known when the rule is saved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ty {
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Null,
    Timestamp,
    Duration,
    Type,
    /// Known only when the rule runs: what `args` holds.
    Dyn,
    List(Box<Ty>),
    Map(Box<Ty>, Box<Ty>),
}

impl Ty {
    /// How a sentence calls it.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int => "a whole number",
            Self::Uint => "an unsigned number",
            Self::Double => "a number with a fraction",
            Self::Text => "a text",
            Self::Bytes => "bytes",
            Self::Null => "null",
            Self::Timestamp => "a timestamp",
            Self::Duration => "a duration",
            Self::Type => "a type",
            Self::Dyn => "anything",
            Self::List(_) => "a list",
            Self::Map(_, _) => "a map",
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether a value of one type may stand where the other is wanted.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::List(a), Self::List(b)) => a.fits(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.fits(l) && v.fits(w),
            _ => self == other,
        }
    }

    /// Whether the two can be equal: numbers of different kinds can.
    fn comparable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) => a.comparable(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.comparable(l) && v.comparable(w),
            _ => self.fits(other) || (self.is_number() && other.is_number()),
        }
    }

    /// The type of "one or the other".
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.or(*b))),
            (Self::Map(k, v), Self::Map(l, w)) => Self::Map(Box::new(k.or(*l)), Box::new(v.or(*w))),
            _ => Self::Dyn,
        }
    }
}

/// The comprehensions, as they are written.
const MACROS: [&str; 6] = ["all", "exists", "exists_one", "existsOne", "map", "filter"];

/// Whether `call` is a comprehension as written.
pub(crate) fn is_comprehension(call: &CallExpr) -> bool {
    call.target.is_some() && MACROS.contains(&call.func_name.as_str()) && matches!(call.args.len(), 2 | 3)
}

/// Checks one rule's tree.
pub(crate) struct Checker<'p, 's> {
    parsed: &'p Parsed<'s>,
    /// Loop variables in force, innermost last.
    scope: Vec<(String, Ty)>,
    patterns: usize,
}

impl<'p, 's> Checker<'p, 's> {
    /// Refuses a rule that names what does not exist, mixes types, or is not true or false.
    pub(crate) fn check(parsed: &'p Parsed<'s>) -> Result<(), Problem> {
        let mut checker = Self { parsed, scope: Vec::new(), patterns: 0 };
        let ty = checker.ty(&parsed.written)?;
        if ty.fits(&Ty::Bool) {
            return Ok(());
        }
        let hint = match (&ty, &parsed.written.expr) {
            (Ty::Text, Expr::Literal(_)) => {
                let text = parsed.quote(&parsed.written);
                let text = text.trim_matches('`');
                format!("compare it with something, such as `element.name == {text}`")
            }
            _ => "compare it with something".to_owned(),
        };
        let sentence = format!("the rule is {}, not true or false; {hint}", ty.words());
        Err(parsed.problem(&parsed.written, sentence))
    }

    fn problem<T>(&self, node: &IdedExpr, sentence: String) -> Result<T, Problem> {
        Err(self.parsed.problem(node, sentence))
    }

    fn ty(&mut self, node: &IdedExpr) -> Result<Ty, Problem> {
        match &node.expr {
            Expr::Literal(literal) => Ok(literal_type(literal)),
            Expr::Ident(name) => self.name(node, name),
            Expr::Select(select) => self.select(node, &select.operand, &select.field),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(&map.entries),
            Expr::Call(call) => self.call(node, call),
            Expr::Struct(made) => self.problem(node, format!("there is no message type `{}`", made.type_name)),
            Expr::Comprehension(_) | Expr::Unspecified => self.problem(node, "this cannot be read as CEL".to_owned()),
        }
    }

    fn in_scope(&self, name: &str) -> Option<&Ty> {
        self.scope.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty)
    }

    fn name(&self, node: &IdedExpr, name: &str) -> Result<Ty, Problem> {
        if let Some(ty) = self.in_scope(name) {
            return Ok(ty.clone());
        }
        if let Some(attribute) = Attribute::named(name) {
            return Ok(attribute.ty());
        }
        if signatures::TYPE_NAMES.contains(&name) {
            return Ok(Ty::Type);
        }
        if attributes::is_group(name) {
            let members = attributes::members(name);
            return self.problem(node, format!("`{name}` alone has no value; write one of {members}"));
        }
        self.unknown(node, name)
    }

    fn unknown<T>(&self, node: &IdedExpr, name: &str) -> Result<T, Problem> {
        let mut candidates: Vec<&str> = attributes::names().collect();
        candidates.extend(self.scope.iter().map(|(known, _)| known.as_str()));
        let hint = match attributes::nearest(name, candidates.into_iter()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "a text stands in quotes".to_owned(),
        };
        self.problem(node, format!("there is no `{name}`; {hint}"))
    }

    /// The attribute that `operand.field` spells, unless a loop variable hides it.
    fn attribute(&self, operand: &IdedExpr, field: &str) -> Option<(String, Option<Attribute>)> {
        let Expr::Ident(group) = &operand.expr else { return None };
        if self.in_scope(group).is_some() || !attributes::is_group(group) {
            return None;
        }
        let name = format!("{group}.{field}");
        let attribute = Attribute::named(&name);
        Some((name, attribute))
    }

    fn select(&mut self, node: &IdedExpr, operand: &IdedExpr, field: &str) -> Result<Ty, Problem> {
        match self.attribute(operand, field) {
            Some((_, Some(attribute))) => return Ok(attribute.ty()),
            Some((name, None)) => return self.unknown(node, &name),
            None => {}
        }
        match self.ty(operand)? {
            Ty::Dyn => Ok(Ty::Dyn),
            Ty::Map(key, value) if key.fits(&Ty::Text) => Ok(*value),
            other => {
                let quote = self.parsed.quote(operand);
                self.problem(node, format!("{quote} is {}, which has no `{field}`", other.words()))
            }
        }
    }

    fn list(&mut self, list: &ListExpr) -> Result<Ty, Problem> {
        let mut of: Option<Ty> = None;
        for element in &list.elements {
            let ty = self.ty(element)?;
            of = Some(of.map_or(ty.clone(), |known| known.or(ty)));
        }
        Ok(Ty::List(Box::new(of.unwrap_or(Ty::Dyn))))
    }

    fn map(&mut self, entries: &[cel_interpreter::common::ast::IdedEntryExpr]) -> Result<Ty, Problem> {
        let mut of: Option<(Ty, Ty)> = None;
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let (key, value) = (self.ty(&entry.key)?, self.ty(&entry.value)?);
            if !matches!(key, Ty::Bool | Ty::Int | Ty::Uint | Ty::Text | Ty::Dyn) {
                return self.problem(&entry.key, format!("{} cannot be a map's key", key.words()));
            }
            of = Some(match of {
                Some((keys, values)) => (keys.or(key), values.or(value)),
                None => (key, value),
            });
        }
        let (key, value) = of.unwrap_or((Ty::Dyn, Ty::Dyn));
        Ok(Ty::Map(Box::new(key), Box::new(value)))
    }

    fn call(&mut self, node: &IdedExpr, call: &CallExpr) -> Result<Ty, Problem> {
        let name = call.func_name.as_str();
        if is_comprehension(call) {
            return self.comprehension(node, call);
        }
        match (&call.target, call.args.as_slice()) {
            (None, [argument]) if name == operators::HAS => self.has(node, argument),
            (None, [cond, yes, no]) if name == operators::CONDITIONAL => self.conditional(cond, yes, no),
            (None, [one]) if name == operators::LOGICAL_NOT => self.logical(name, &[one]),
            (None, [one]) if name == operators::NEGATE => {
                let ty = self.ty(one)?;
                match ty {
                    Ty::Int | Ty::Double | Ty::Dyn => Ok(ty),
                    _ => {
                        self.problem(node, format!("`-` needs a number; {} is {}", self.parsed.quote(one), ty.words()))
                    }
                }
            }
            (None, [left, right]) if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) => {
                self.logical(name, &[left, right])
            }
            (None, [left, right]) if crate::syntax::is_operator(name) => self.binary(node, name, left, right),
            _ => self.function(node, call),
        }
    }

    fn has(&mut self, node: &IdedExpr, argument: &IdedExpr) -> Result<Ty, Problem> {
        let Expr::Select(select) = &argument.expr else {
            return self.problem(node, "`has()` asks for a member, such as `has(args.path)`".to_owned());
        };
        if let Some((name, Some(_))) = self.attribute(&select.operand, &select.field) {
            let sentence = format!(
                "`{name}` is always there, so `has({name})` is always true; compare it with its neutral value (\"\", 0 or false)"
            );
            return self.problem(node, sentence);
        }
        self.ty(argument)?;
        Ok(Ty::Bool)
    }

    fn logical(&mut self, name: &str, operands: &[&IdedExpr]) -> Result<Ty, Problem> {
        let sign = sign(name);
        for operand in operands {
            let ty = self.ty(operand)?;
            if !ty.fits(&Ty::Bool) {
                let quote = self.parsed.quote(operand);
                let sentence =
                    format!("`{sign}` needs true or false; {quote} is {}, so compare it with something", ty.words());
                return self.problem(operand, sentence);
            }
        }
        Ok(Ty::Bool)
    }

    fn conditional(&mut self, cond: &IdedExpr, yes: &IdedExpr, no: &IdedExpr) -> Result<Ty, Problem> {
        self.logical("?", &[cond])?;
        let (a, b) = (self.ty(yes)?, self.ty(no)?);
        if !a.fits(&b) {
            let sentence = format!("`? :` gives {} or {}; both sides must be of one kind", a.words(), b.words());
            return self.problem(yes, sentence);
        }
        Ok(a.or(b))
    }

    fn binary(&mut self, node: &IdedExpr, name: &str, left: &IdedExpr, right: &IdedExpr) -> Result<Ty, Problem> {
        let (a, b) = (self.ty(left)?, self.ty(right)?);
        let result = match name {
            operators::EQUALS | operators::NOT_EQUALS => a.comparable(&b).then_some(Ty::Bool),
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
                let ordered = |ty: &Ty| !matches!(ty, Ty::List(_) | Ty::Map(_, _) | Ty::Null | Ty::Type);
                (a.comparable(&b) && ordered(&a) && ordered(&b)).then_some(Ty::Bool)
            }
            operators::IN => membership(&a, &b).then_some(Ty::Bool),
            operators::INDEX => index(&a, &b),
            _ => arithmetic(name, &a, &b),
        };
        if let Some(ty) = result {
            return Ok(ty);
        }
        let (quoted_left, quoted_right) = (self.parsed.quote(left), self.parsed.quote(right));
        let mut sentence =
            format!("`{}` cannot take {quoted_left} ({}) and {quoted_right} ({})", sign(name), a.words(), b.words());
        for (number, text) in [(&a, right), (&b, left)] {
            if let (true, Some(digits)) = (number.is_number(), numeric_text(text)) {
                sentence.push_str(&format!("; write {digits} without quotes"));
            }
        }
        self.problem(node, sentence)
    }

    fn comprehension(&mut self, node: &IdedExpr, call: &CallExpr) -> Result<Ty, Problem> {
        let name = call.func_name.as_str();
        let (Some(range), Some((variable, bodies))) = (&call.target, call.args.split_first()) else {
            return self.problem(node, format!("`{name}` needs a list before it and a variable"));
        };
        self.plain_loop(name, range, bodies)?;
        let Expr::Ident(variable_name) = &variable.expr else {
            return self.problem(variable, format!("`{name}` needs a simple name first, as in `list.{name}(x, …)`"));
        };
        let taken = Attribute::named(variable_name).is_some()
            || attributes::is_group(variable_name)
            || signatures::TYPE_NAMES.contains(&variable_name.as_str())
            || variable_name.starts_with('.');
        if taken {
            return self.problem(variable, format!("`{variable_name}` has a meaning already; use another name"));
        }
        let element = match self.ty(range)? {
            Ty::List(of) => *of,
            Ty::Map(key, _) => *key,
            Ty::Dyn => Ty::Dyn,
            other => {
                let quote = self.parsed.quote(range);
                let sentence = format!("`{name}` goes through a list or a map; {quote} is {}", other.words());
                return self.problem(range, sentence);
            }
        };
        if bodies.len() == 2 && name != "map" {
            return self.problem(node, format!("`{name}` takes a name and one condition"));
        }
        self.scope.push((variable_name.clone(), element.clone()));
        let result = self.bodies(name, bodies, element);
        self.scope.pop();
        result
    }

    fn bodies(&mut self, name: &str, bodies: &[IdedExpr], element: Ty) -> Result<Ty, Problem> {
        match (name, bodies) {
            ("map", [made]) => Ok(Ty::List(Box::new(self.ty(made)?))),
            ("map", [condition, made]) => {
                self.logical("map", &[condition])?;
                Ok(Ty::List(Box::new(self.ty(made)?)))
            }
            (_, bodies) => {
                let conditions: Vec<&IdedExpr> = bodies.iter().collect();
                self.logical(name, &conditions)?;
                Ok(if name == "filter" { Ty::List(Box::new(element)) } else { Ty::Bool })
            }
        }
    }

    /// Refuses what would multiply a loop's work or let its result grow.
    fn plain_loop(&self, name: &str, range: &IdedExpr, bodies: &[IdedExpr]) -> Result<(), Problem> {
        let mut faults = Vec::new();
        for (part, is_body) in std::iter::once((range, false)).chain(bodies.iter().map(|body| (body, true))) {
            each_node(part, &mut |node| {
                let Expr::Call(call) = &node.expr else { return };
                if is_comprehension(call) {
                    faults.push((node, format!("`{}` inside `{name}` would multiply its work", call.func_name)));
                } else if is_body && call.target.is_none() && call.func_name == operators::ADD {
                    faults.push((node, format!("`+` inside `{name}` would let its result grow")));
                }
            });
        }
        match faults.into_iter().next() {
            Some((node, sentence)) => self.problem(node, format!("{sentence}; split the rule")),
            None => Ok(()),
        }
    }

    fn function(&mut self, node: &IdedExpr, call: &CallExpr) -> Result<Ty, Problem> {
        let name = call.func_name.as_str();
        let target = match &call.target {
            Some(target) => Some(self.ty(target)?),
            None => None,
        };
        let arguments = call.args.iter().map(|argument| self.ty(argument)).collect::<Result<Vec<_>, _>>()?;
        let ty = signatures::result(name, target.as_ref(), &arguments)
            .map_err(|sentence| self.parsed.problem(node, sentence))?;
        if name == "matches" {
            self.literal_pattern(call)?;
        }
        if let Some(sentence) = functions::fails_always(call) {
            return self.problem(node, format!("{} can never work: {sentence}", self.parsed.quote(node)));
        }
        Ok(ty)
    }

    /// A pattern must be known when the rule is saved: compiling one for each call is slow, and may be refused.
    fn literal_pattern(&mut self, call: &CallExpr) -> Result<(), Problem> {
        let Some(pattern) = call.args.last() else { return Ok(()) };
        let Expr::Literal(LiteralValue::String(text)) = &pattern.expr else {
            let sentence = "`matches` needs its pattern written out as a text, so that it can be checked now";
            return self.problem(pattern, sentence.to_owned());
        };
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            let sentence = format!("a rule has at most {MAX_PATTERNS} patterns; join them with `|`");
            return self.problem(pattern, sentence);
        }
        functions::pattern(text.inner(), call.target.is_none())
            .map(|_| ())
            .map_err(|sentence| self.parsed.problem(pattern, sentence))
    }
}

fn literal_type(literal: &LiteralValue) -> Ty {
    match literal {
        LiteralValue::Boolean(_) => Ty::Bool,
        LiteralValue::Bytes(_) => Ty::Bytes,
        LiteralValue::Double(_) => Ty::Double,
        LiteralValue::Int(_) => Ty::Int,
        LiteralValue::Null => Ty::Null,
        LiteralValue::String(_) => Ty::Text,
        LiteralValue::UInt(_) => Ty::Uint,
    }
}

/// The digits of a text literal that is a number in quotes.
fn numeric_text(node: &IdedExpr) -> Option<String> {
    let Expr::Literal(LiteralValue::String(text)) = &node.expr else { return None };
    let text = text.inner().trim();
    text.parse::<f64>().is_ok().then(|| text.to_owned())
}

/// An operator as it is written.
fn sign(name: &str) -> &str {
    match name {
        operators::IN => "in",
        operators::INDEX => "[…]",
        _ => name.trim_matches('_'),
    }
}

fn membership(element: &Ty, range: &Ty) -> bool {
    match range {
        Ty::Dyn => true,
        Ty::List(of) => element.comparable(of),
        Ty::Map(key, _) => element.comparable(key),
        _ => false,
    }
}

fn index(of: &Ty, at: &Ty) -> Option<Ty> {
    match of {
        Ty::Dyn => Some(Ty::Dyn),
        Ty::List(element) if at.is_number() || *at == Ty::Dyn => Some((**element).clone()),
        Ty::Map(key, value) if key.comparable(at) => Some((**value).clone()),
        _ => None,
    }
}

fn arithmetic(name: &str, a: &Ty, b: &Ty) -> Option<Ty> {
    let same = a.fits(b);
    let known = if *a == Ty::Dyn { b } else { a };
    match (name, a, b) {
        (_, Ty::Dyn, Ty::Dyn) => Some(Ty::Dyn),
        (operators::ADD, Ty::Timestamp, Ty::Duration) | (operators::ADD, Ty::Duration, Ty::Timestamp) => {
            Some(Ty::Timestamp)
        }
        (operators::SUBSTRACT, Ty::Timestamp, Ty::Duration) => Some(Ty::Timestamp),
        (operators::SUBSTRACT, Ty::Timestamp, Ty::Timestamp) => Some(Ty::Duration),
        (_, Ty::Dyn, Ty::Timestamp | Ty::Duration) | (_, Ty::Timestamp | Ty::Duration, Ty::Dyn) => {
            matches!(name, operators::ADD | operators::SUBSTRACT).then_some(Ty::Dyn)
        }
        (operators::ADD, _, _) if same => match known {
            Ty::Int | Ty::Uint | Ty::Double | Ty::Text | Ty::Bytes | Ty::Duration => Some(known.clone()),
            Ty::List(_) => Some(a.clone().or(b.clone())),
            _ => None,
        },
        (operators::SUBSTRACT, _, _) if same && (known.is_number() || *known == Ty::Duration) => Some(known.clone()),
        (operators::MULTIPLY | operators::DIVIDE, _, _) if same && known.is_number() => Some(known.clone()),
        (operators::MODULO, _, _) if same && matches!(known, Ty::Int | Ty::Uint) => Some(known.clone()),
        _ => None,
    }
}
