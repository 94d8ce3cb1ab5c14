//! Everything a rule can read, once: name, type, place in the layout.

use crate::types::Ty;

/// One attribute. Text attributes come first, then numbers: their place is also their index in the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribute(pub(crate) u8);

/// The text attributes, in layout order.
pub(crate) const TEXTS: [&str; 25] = [
    "tool.name",
    "intent",
    "bot.id",
    "bot.name",
    "actor.id",
    "page.url",
    "page.host",
    "element.ref",
    "element.role",
    "element.name",
    "element.type",
    "key",
    "file.path",
    "file.name",
    "file.extension",
    "command",
    "mcp.server",
    "mcp.tool",
    "mcp.effect",
    "run.cause",
    "run.id",
    "routine.id",
    "trigger.id",
    "trigger.event_type",
    "zone",
];

/// The number attributes, in layout order.
pub(crate) const NUMBERS: [&str; 7] =
    ["run.turn", "run.tool_calls", "repeat.count", "repeat.same_result", "repeat.cycle", "run.tokens", "run.cost"];

const FIRST_NUMBER: u8 = TEXTS.len() as u8;
/// `run.unattended`.
pub(crate) const UNATTENDED: Attribute = Attribute(FIRST_NUMBER + NUMBERS.len() as u8);
/// `now`.
pub(crate) const NOW: Attribute = Attribute(UNATTENDED.0 + 1);
/// `args`.
pub(crate) const ARGS: Attribute = Attribute(NOW.0 + 1);

/// Where an attribute's value lies in the layout.
pub(crate) enum Slot {
    Text(usize),
    Number(usize),
    Unattended,
    Now,
    Args,
}

impl Attribute {
    /// The attribute called `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "run.unattended" => return Some(UNATTENDED),
            "now" => return Some(NOW),
            "args" => return Some(ARGS),
            _ => {}
        }
        let at = TEXTS.iter().chain(&NUMBERS).position(|known| *known == name)?;
        u8::try_from(at).ok().map(Self)
    }

    pub(crate) fn slot(self) -> Slot {
        match self {
            UNATTENDED => Slot::Unattended,
            NOW => Slot::Now,
            ARGS => Slot::Args,
            Self(index) if index < FIRST_NUMBER => Slot::Text(usize::from(index)),
            Self(index) => Slot::Number(usize::from(index - FIRST_NUMBER)),
        }
    }

    pub(crate) fn ty(self) -> Ty {
        match self.slot() {
            Slot::Text(_) => Ty::Text,
            Slot::Number(_) => Ty::Int,
            Slot::Unattended => Ty::Bool,
            Slot::Now => Ty::Timestamp,
            Slot::Args => Ty::Map(Box::new(Ty::Text), Box::new(Ty::Dyn)),
        }
    }

    pub(crate) fn bit(self) -> u64 {
        1 << self.0
    }
}

/// Every name, for suggestions.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TEXTS.into_iter().chain(NUMBERS).chain(["run.unattended", "now", "args"])
}

/// Whether `word` begins the name of attributes: `run` of `run.turn`.
pub(crate) fn is_group(word: &str) -> bool {
    names().any(|name| name.split_once('.').is_some_and(|(group, _)| group == word))
}

/// The names of a group, for the sentence that explains it.
pub(crate) fn members(group: &str) -> String {
    let of_group = names().filter(|name| name.split_once('.').is_some_and(|(first, _)| first == group));
    of_group.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The candidate nearest to `word`, if it is near enough to have been meant.
pub(crate) fn nearest<'n>(word: &str, candidates: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let (distance, best) = candidates.map(|known| (edits(word, known), known)).min()?;
    (distance <= ((word.chars().count() + 1) / 3).clamp(1, 3)).then_some(best)
}

/// How many letters must be changed, added or removed to get from one word to the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
