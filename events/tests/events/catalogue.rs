//! `docs/event-catalogue.md` is made from the comments in `events/src`, and says what they say.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use crate::variants;

/// The families, as their files are named, in the order in which a reader meets them.
const FAMILIES: [&str; 9] = ["routine", "run", "trigger", "delivery", "bot", "boundary", "repeat", "engine", "user"];

const HEAD: &str = "\
# The event catalogue

Everything that can happen, by family.
This page is made from the comments in `events/src`: change those, then run
`MIDWATCH_ACCEPT=1 cargo nextest run -p midwatch-events catalogue`.

An event has **facts**, which are never erased, and may have **content**, which can be.
Both are CBOR maps with the names below as keys.
A field that is optional is left out where it is absent.
What every event carries beside them (position, stream, version, time, actor, correlation, causation) is in `events/src/envelope.rs`.
A version behind a slash never changes: another meaning is another version.
";

/// A field of an event or of a part of one.
#[derive(Debug)]
struct Field {
    name: String,
    kind: String,
    says: String,
    /// When it is left out, where that is not when it is absent.
    left_out: &'static str,
}

/// A variant of an event or of a word.
#[derive(Debug)]
struct Variant {
    name: String,
    wire: Option<String>,
    says: String,
    /// The struct that holds its fields, where it does not name them itself.
    holds: Option<String>,
    fields: Vec<Field>,
}

/// A struct or an enum.
#[derive(Debug)]
enum Item {
    Struct { says: String, fields: Vec<Field> },
    Enum { says: String, variants: Vec<Variant> },
}

type Items = BTreeMap<String, Item>;

/// Reads the public structs and enums of a source file. It knows rustfmt's layout and no more Rust than these files
/// have: one field or variant on a line, its comment and attributes above it.
#[derive(Default)]
struct Reader {
    says: Vec<String>,
    wire: Option<String>,
    left_out: &'static str,
    items: Items,
    /// The item that is open, and the variant with named fields that is.
    open: Option<(String, Item)>,
    variant: Option<Variant>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if let Some(comment) = text.strip_prefix("///") {
            self.says.push(comment.trim().to_owned());
        } else if let Some(rest) = text.strip_prefix("#[serde(rename = \"") {
            self.wire = rest.split('"').next().map(str::to_owned);
        } else if text.starts_with('#') {
            // An attribute between a comment and what it is about.
            self.left_out = match text {
                _ if text.contains("Vec::is_empty") => "; left out when empty",
                _ if text.contains("ops::Not::not") => "; left out when false",
                _ => self.left_out,
            };
        } else if line == "}" {
            self.items.extend(self.open.take());
            self.says.clear();
        } else if self.open.is_some() {
            self.inside(text);
        } else if let Some(name) = opens(text, "pub struct ") {
            self.open = Some((name, Item::Struct { says: self.said(), fields: Vec::new() }));
        } else if let Some(name) = opens(text, "pub enum ") {
            self.open = Some((name, Item::Enum { says: self.said(), variants: Vec::new() }));
        } else {
            self.says.clear();
        }
    }

    /// A line of an item: a field, or where a variant opens, closes or stands whole.
    fn inside(&mut self, text: &str) {
        let field = text.strip_prefix("pub ").unwrap_or(text).strip_suffix(',').and_then(|text| text.split_once(": "));
        if let Some((name, kind)) = field
            && self.fields().is_some()
        {
            let left_out = std::mem::take(&mut self.left_out);
            let field = Field { name: name.to_owned(), kind: kind.to_owned(), says: self.said(), left_out };
            self.fields().unwrap().push(field);
            return;
        }
        if text == "}," {
            let closed = self.variant.take();
            self.keep(closed);
            return;
        }
        let name: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
        let rest = &text[name.len()..];
        let holds = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix("),")).map(str::to_owned);
        let variant = Variant { name, wire: self.wire.take(), says: self.said(), holds, fields: Vec::new() };
        if rest == " {" { self.variant = Some(variant) } else { self.keep(Some(variant)) }
    }

    fn fields(&mut self) -> Option<&mut Vec<Field>> {
        match (&mut self.variant, &mut self.open) {
            (Some(variant), _) => Some(&mut variant.fields),
            (None, Some((_, Item::Struct { fields, .. }))) => Some(fields),
            (None, _) => None,
        }
    }

    fn keep(&mut self, variant: Option<Variant>) {
        if let Some((_, Item::Enum { variants, .. })) = &mut self.open {
            variants.extend(variant);
        }
    }

    fn said(&mut self) -> String {
        let text = std::mem::take(&mut self.says).join(" ");
        text.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
    }
}

fn opens(text: &str, what: &str) -> Option<String> {
    let name = text.strip_prefix(what)?.strip_suffix(" {")?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| name.to_owned())
}

fn read(source: &str) -> Items {
    let mut reader = Reader::default();
    source.lines().for_each(|line| reader.line(line));
    reader.items
}

/// A field's type, for a reader who knows no Rust.
fn shown(kind: &str, items: &Items) -> String {
    if let Some(inner) = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("{}, optional", shown(inner, items));
    }
    if let Some(inner) = kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("list of {}", shown(inner, items));
    }
    let last = kind.rsplit("::").next().unwrap_or(kind);
    match last {
        "String" => "text".to_owned(),
        "(String, String)" => "pairs of text".to_owned(),
        "bool" => "true or false".to_owned(),
        "u16" | "u32" | "u64" => "number".to_owned(),
        "Micros" => "instant, µs UTC".to_owned(),
        "Digest" => "32 bytes".to_owned(),
        "Bytes" => "bytes".to_owned(),
        "Uuid" => "id".to_owned(),
        _ if items.contains_key(last) => format!("[{last}](#{})", last.to_lowercase()),
        _ if last.ends_with("Id") => "id".to_owned(),
        _ => panic!("the catalogue has no words for the type {kind}"),
    }
}

fn table(out: &mut String, fields: &[Field], items: &Items) {
    let _ = writeln!(out, "| field | type | meaning |\n|---|---|---|");
    for field in fields {
        let kind = shown(&field.kind, items);
        let _ = writeln!(out, "| `{}` | {kind}{} | {} |", field.name, field.left_out, field.says);
    }
}

/// The fields of a variant, whether it names them itself or a struct does.
fn fields<'a>(variant: &'a Variant, items: &'a Items) -> &'a [Field] {
    let Some(held) = &variant.holds else { return &variant.fields };
    match items.get(held) {
        Some(Item::Struct { fields, .. }) => fields,
        Some(Item::Enum { .. }) | None => panic!("{} holds {held}, which is no struct", variant.name),
    }
}

fn variants_of<'a>(name: &str, items: &'a Items) -> &'a [Variant] {
    match items.get(name) {
        Some(Item::Enum { variants, .. }) => variants,
        Some(Item::Struct { .. }) | None => &[],
    }
}

fn family(out: &mut String, name: &str, source: &str, items: &Items) {
    let title = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
    let _ = writeln!(out, "\n## {title}\n");
    for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
        let _ = writeln!(out, "{}", line.trim().replace("[`", "`").replace("`]", "`"));
    }
    let content = variants_of(&format!("{title}Content"), items);
    for event in variants_of(&format!("{title}Event"), items) {
        let wire = event.wire.as_deref().unwrap_or_else(|| panic!("{title}Event::{} has no wire name", event.name));
        let _ = writeln!(out, "\n### `{wire}`\n\n{}", event.says);
        let facts = fields(event, items);
        if facts.is_empty() {
            let _ = writeln!(out, "\nFacts: none but what every event carries.");
        } else {
            let _ = writeln!(out, "\nFacts:\n");
            table(out, facts, items);
        }
        if let Some(beside) = content.iter().find(|beside| beside.wire == event.wire) {
            let _ = writeln!(out, "\nContent:\n");
            table(out, fields(beside, items), items);
        }
    }
}

/// What stands under the name of a struct or of an enum of words.
fn part(name: &str, item: &Item, items: &Items) -> String {
    let (Item::Struct { says, .. } | Item::Enum { says, .. }) = item;
    let mut out = format!("\n### {name}\n\n{says}\n\n");
    match item {
        Item::Struct { fields, .. } => table(&mut out, fields, items),
        Item::Enum { variants, .. } => {
            let _ = writeln!(out, "| word | meaning |\n|---|---|");
            for variant in variants {
                let _ = writeln!(out, "| `{}` | {} |", snake(&variant.name), variant.says);
            }
        }
    }
    out
}

/// The structs and enums that fields name, and those that theirs name, each once.
fn parts(events: &str, items: &Items) -> String {
    let mut parts: BTreeMap<&str, String> = BTreeMap::new();
    loop {
        let said = parts.values().fold(events.to_owned(), |said, part| said + part);
        let wanted = |name: &str| said.contains(&format!("(#{})", name.to_lowercase()));
        let next = items.iter().find(|(name, _)| !parts.contains_key(name.as_str()) && wanted(name));
        let Some((name, item)) = next else { break };
        parts.insert(name, part(name, item, items));
    }
    let parts: String = parts.into_values().collect();
    format!("\n## Parts and words\n\nWhat the tables above name.\n{parts}")
}

/// serde's `snake_case`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn catalogue() -> String {
    let source = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{name}.rs"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let sources: Vec<(&str, String)> = FAMILIES.iter().map(|name| (*name, source(name))).collect();
    let items: Items = sources.iter().flat_map(|(_, source)| read(source)).collect();
    let mut out = HEAD.to_owned();
    for (name, source) in &sources {
        family(&mut out, name, source, &items);
    }
    let parts = parts(&out, &items);
    out + &parts
}

#[test]
fn the_catalogue_says_what_the_source_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/event-catalogue.md");
    let made = catalogue();
    if std::env::var_os("MIDWATCH_ACCEPT").is_some_and(|accept| accept == "1") {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let stale = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(made == kept, "docs/event-catalogue.md is stale, at {stale:?}: write it with MIDWATCH_ACCEPT=1");
}

#[test]
fn the_catalogue_leaves_no_event_out() {
    let made = catalogue();
    let (events, content) = variants::all();
    for wire in &events {
        assert!(made.contains(&format!("\n### `{wire}`\n")), "{wire} is not in the catalogue");
    }
    assert_eq!(made.matches("\nContent:\n").count(), content.len());
    let silent = made.lines().find(|line| line.ends_with("|  |"));
    assert_eq!(silent, None, "a field without a meaning");
}

#[test]
fn a_source_is_read_line_by_line() {
    let items = read(concat!(
        "/// A thing.\n#[derive(Debug)]\npub enum ThingEvent {\n    /// It began,\n    /// at last.\n",
        "    #[serde(rename = \"thing.begun/1\")]\n    Begun {\n        /// Whose it is.\n        owner: Option<UserId>,\n",
        "    },\n    /// It ended.\n    #[serde(rename = \"thing.ended/1\")]\n    Ended(Ended),\n}\n\nimpl Family for ThingEvent {}\n",
    ));
    let begun = &variants_of("ThingEvent", &items)[0];
    assert_eq!((begun.wire.as_deref(), begun.says.as_str()), (Some("thing.begun/1"), "It began, at last."));
    assert_eq!((begun.fields[0].name.as_str(), begun.fields[0].says.as_str()), ("owner", "Whose it is."));
    assert_eq!(shown(&begun.fields[0].kind, &items), "id, optional");
    assert_eq!(variants_of("ThingEvent", &items)[1].holds.as_deref(), Some("Ended"));
    assert_eq!(snake("TimedOut"), "timed_out");
}
