//! A rule made ready to run: names become places in the layout, patterns are compiled, loops are limited.

use std::collections::HashMap;

use cel_interpreter::Value;
use cel_interpreter::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel_interpreter::common::types::{CelBool, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp};
use cel_interpreter::common::types::{CelDouble, CelUInt};
use cel_interpreter::common::value::{CowVal, Val};
use cel_interpreter::context::VariableResolver;

use crate::attributes::{ARGS, Attribute, NOW, NUMBERS, Slot, TEXTS, is_group};
use crate::context::Context;
use crate::functions;
use crate::limits::MAX_INPUT;
use crate::syntax::children;

/// A rule's tree, rewritten, and what it reads.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) expression: IdedExpr,
    /// One bit per attribute.
    pub(crate) reads: u64,
}

/// What the rules of a boundary share: compiled patterns and constant lists.
pub(crate) type Constants = Vec<Box<dyn Val>>;

// Names that a rule cannot contain, so nothing in a rule can stand for them.
const ATTRIBUTE: u8 = b'a';
const CONSTANT: u8 = b'c';
const LOOP: u8 = b'w';

/// The letters from which attribute indexes are counted; 35 attributes stay within printable ASCII.
const BASE: u8 = b'0';

/// Rewrites a checked rule's expanded tree.
pub(crate) fn prepare(expanded: &IdedExpr, constants: &mut Constants) -> Prepared {
    let mut rewriter = Rewriter { constants, reads: 0 };
    let expression = rewriter.node(expanded);
    Prepared { expression, reads: rewriter.reads }
}

struct Rewriter<'c> {
    constants: &'c mut Constants,
    reads: u64,
}

fn ident(name: String) -> Expr {
    Expr::Ident(name)
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args })
}

impl Rewriter<'_> {
    fn node(&mut self, node: &IdedExpr) -> IdedExpr {
        let expr = match &node.expr {
            Expr::Ident(name) => match Attribute::named(name) {
                Some(attribute) => self.attribute(attribute),
                None => node.expr.clone(),
            },
            Expr::Select(select) => {
                let name = match &select.operand.expr {
                    Expr::Ident(group) if is_group(group) => Attribute::named(&format!("{group}.{}", select.field)),
                    _ => None,
                };
                match name {
                    Some(attribute) => self.attribute(attribute),
                    None => {
                        let mut select = select.clone();
                        select.operand = Box::new(self.node(&select.operand));
                        Expr::Select(select)
                    }
                }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) if list.elements.iter().all(|e| matches!(e.expr, Expr::Literal(_))) => self.constant(node),
            Expr::List(list) => {
                let mut list = list.clone();
                list.elements = list.elements.iter().map(|element| self.node(element)).collect();
                Expr::List(list)
            }
            Expr::Map(map) => {
                let mut map = map.clone();
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        (entry.key, entry.value) = (self.node(&entry.key), self.node(&entry.value));
                    }
                }
                Expr::Map(map)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => node.expr.clone(),
        };
        IdedExpr { id: node.id, expr }
    }

    fn attribute(&mut self, attribute: Attribute) -> Expr {
        self.reads |= attribute.bit();
        ident(format!("@{}{}", char::from(ATTRIBUTE), char::from(BASE + attribute.0)))
    }

    /// A list of literals, made once instead of at each judgement.
    fn constant(&mut self, node: &IdedExpr) -> Expr {
        match Value::resolve_val(node, &functions::context()) {
            Ok(value) => {
                let value = value.into_owned();
                match value.downcast_ref::<CelList>() {
                    Some(list) => {
                        let elements: Vec<Box<dyn Val>> =
                            list.inner().iter().filter_map(|e| lasting(e.as_ref())).collect();
                        if elements.len() == list.inner().len() {
                            return self.share(Box::new(CelList::from(elements)));
                        }
                        node.expr.clone()
                    }
                    None => node.expr.clone(),
                }
            }
            Err(_) => node.expr.clone(),
        }
    }

    fn share(&mut self, value: Box<dyn Val>) -> Expr {
        self.constants.push(value);
        ident(format!("@{}{}", char::from(CONSTANT), self.constants.len() - 1))
    }

    fn call(&mut self, written: &CallExpr) -> Expr {
        let name = written.func_name.as_str();
        if name == "matches"
            && let Some(Expr::Literal(LiteralValue::String(text))) = written.args.last().map(|arg| &arg.expr)
            && let Ok(pattern) = functions::pattern(text.inner(), written.target.is_none())
        {
            let subject = written.target.as_deref().or(written.args.first());
            let subject = subject.map(|subject| self.node(subject)).unwrap_or_default();
            let pattern = IdedExpr { id: 0, expr: self.share(Box::new(pattern)) };
            return call("@matches", vec![subject, pattern]);
        }
        let args: Vec<IdedExpr> = written.args.iter().map(|argument| self.node(argument)).collect();
        let Some(target) = &written.target else {
            return Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args });
        };
        let target = self.node(target);
        if functions::OURS.contains(&name) {
            return call(&format!("@{name}"), std::iter::once(target).chain(args).collect());
        }
        let made = Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(Box::new(target)), args });
        match name {
            "format" => call("@format", vec![IdedExpr { id: 0, expr: made }]),
            _ => made,
        }
    }

    fn comprehension(&mut self, written: &ComprehensionExpr) -> Expr {
        let mut made = written.clone();
        let range = self.node(&written.iter_range);
        let outside = std::mem::take(&mut self.reads);
        made.loop_cond = self.node(&written.loop_cond);
        made.loop_step = self.node(&written.loop_step);
        made.result = self.node(&written.result);
        made.accu_init = self.node(&written.accu_init);
        let work = format!("@{}{}.{}", char::from(LOOP), self.reads, calls(&made.loop_step));
        let work = IdedExpr { id: 0, expr: ident(work) };
        made.iter_range = IdedExpr { id: 0, expr: call("@range", vec![range, work]) };
        self.reads |= outside;
        Expr::Comprehension(Box::new(made))
    }
}

/// How often a loop's body goes over the texts it reads; a pattern counts more.
fn calls(body: &IdedExpr) -> i64 {
    let own = match &body.expr {
        Expr::Call(call) if call.func_name == "@matches" => 8,
        Expr::Call(_) => 1,
        _ => 0,
    };
    own + children(body).into_iter().map(calls).sum::<i64>()
}

/// A literal's value with nothing borrowed.
fn lasting(value: &dyn Val) -> Option<Box<dyn Val>> {
    if let Some(text) = value.downcast_ref::<CelString>() {
        return Some(Box::new(CelString::from(text.inner().to_owned())));
    }
    if let Some(int) = value.downcast_ref::<CelInt>() {
        return Some(Box::new(CelInt::from(*int.inner())));
    }
    let bool = value.downcast_ref::<CelBool>();
    bool.map(|bool| Box::new(CelBool::from(*bool.inner())) as Box<dyn Val>)
}

/// One call's facts as the rules read them: made once per judgement, shared by all rules.
pub(crate) struct Layout<'a> {
    texts: [CelString<'a>; TEXTS.len()],
    numbers: [CelInt; NUMBERS.len()],
    unattended: CelBool,
    now: CelTimestamp,
    args: CelMap<'a>,
    args_bytes: usize,
    constants: &'a Constants,
    /// One bit per attribute that is larger than a rule may read.
    pub(crate) oversize: u64,
}

impl<'a> Layout<'a> {
    /// Lays `context` out for rules that read `reads`; `zone` is the boundary's.
    pub(crate) fn new(context: &'a Context, zone: &'a str, reads: u64, constants: &'a Constants) -> Self {
        let mut texts = context.texts();
        if let Some(last) = texts.last_mut()
            && last.is_empty()
        {
            *last = zone;
        }
        let mut oversize = 0;
        for (index, text) in texts.iter().enumerate() {
            if text.len() > MAX_INPUT {
                oversize |= 1_u64 << index;
            }
        }
        let reads_args = reads & ARGS.bit() != 0;
        let args_bytes =
            if reads_args { context.args.iter().map(|(k, v)| k.len() + functions::weight(v)).sum() } else { 0 };
        if args_bytes > MAX_INPUT {
            oversize |= ARGS.bit();
        }
        let args = if reads_args && args_bytes <= MAX_INPUT { object(&context.args) } else { CelMap::default() };
        let micros = if reads & NOW.bit() != 0 { context.now.0 } else { 0 };
        let now = chrono::DateTime::from_timestamp_micros(micros).unwrap_or_default();
        Self {
            texts: texts.map(CelString::from),
            numbers: context.numbers().map(CelInt::from),
            unattended: CelBool::from(context.run_unattended),
            now: CelTimestamp::from(now.fixed_offset()),
            args,
            args_bytes,
            constants,
            oversize,
        }
    }

    /// The bytes of the attributes in `reads`.
    fn bytes(&self, reads: u64) -> usize {
        let texts = self.texts.iter().enumerate().filter(|(index, _)| reads & (1 << index) != 0);
        let texts: usize = texts.map(|(_, text)| text.inner().len()).sum();
        texts + if reads & ARGS.bit() != 0 { self.args_bytes } else { 0 }
    }

    fn attribute<'b>(&'b self, attribute: Attribute) -> CowVal<'b, 'b> {
        match attribute.slot() {
            Slot::Text(index) => CowVal::Borrowed(&self.texts[index]),
            Slot::Number(index) => CowVal::Borrowed(&self.numbers[index]),
            Slot::Unattended => CowVal::Borrowed(&self.unattended),
            Slot::Now => CowVal::Borrowed(&self.now),
            Slot::Args => CowVal::Borrowed(&self.args),
        }
    }
}

impl VariableResolver for Layout<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        match name.as_bytes() {
            [b'@', ATTRIBUTE, index] => Some(self.attribute(Attribute(index.checked_sub(BASE)?))),
            [b'@', CONSTANT, ..] => {
                let constant = self.constants.get(name.get(2..)?.parse::<usize>().ok()?)?;
                Some(CowVal::Borrowed(constant.as_ref()))
            }
            [b'@', LOOP, ..] => {
                let (reads, calls) = name.get(2..)?.split_once('.')?;
                let bytes = i64::try_from(self.bytes(reads.parse().ok()?)).ok()?;
                Some(CowVal::owned(CelInt::from(bytes.saturating_mul(calls.parse().ok()?))))
            }
            _ => None,
        }
    }
}

fn object<'a>(map: &'a serde_json::Map<String, serde_json::Value>) -> CelMap<'a> {
    let entries: HashMap<CelMapKey<'a>, Box<dyn Val + 'a>> =
        map.iter().map(|(key, value)| (CelMapKey::from(key.as_str()), json(value))).collect();
    CelMap::from(entries)
}

/// JSON as CEL: whole numbers are int (`1.0` is `1`), others double.
fn json(value: &serde_json::Value) -> Box<dyn Val + '_> {
    match value {
        serde_json::Value::Null => Box::new(CelNull),
        serde_json::Value::Bool(bool) => Box::new(CelBool::from(*bool)),
        serde_json::Value::String(text) => Box::new(CelString::from(text.as_str())),
        serde_json::Value::Array(list) => {
            Box::new(CelList::from(list.iter().map(json).collect::<Vec<Box<dyn Val + '_>>>()))
        }
        serde_json::Value::Object(map) => Box::new(object(map)),
        serde_json::Value::Number(number) => {
            if let Some(int) = number.as_i64() {
                return Box::new(CelInt::from(int));
            }
            if let Some(uint) = number.as_u64() {
                return Box::new(CelUInt::from(uint));
            }
            let double = number.as_f64().unwrap_or(f64::NAN);
            // Beyond 2^53 a double no longer says which whole number it is.
            if double.fract() == 0.0 && double.abs() < 9_007_199_254_740_992.0 {
                return Box::new(CelInt::from(double as i64));
            }
            Box::new(CelDouble::from(double))
        }
    }
}

/// Whether the rule matches this layout, or why it cannot be said.
pub(crate) fn run(prepared: &Prepared, context: &cel_interpreter::Context<'_, '_>) -> Result<bool, String> {
    // Not `resolve_val`: that one is inlined here and then recurses unoptimised in a debug build.
    match Value::resolve(&prepared.expression, context) {
        Ok(Value::Bool(matches)) => Ok(matches),
        Ok(other) => Err(format!("the rule gave a value of type {}, not true or false", other.type_of())),
        Err(error) => Err(functions::explain(&error)),
    }
}
