//! What a preset says.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use midwatch_events::trigger::Scheme;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{handshake::Handshake, key::KeyForm, place::Place};

/// The longest template, in bytes.
const TEMPLATE_BYTES_MAX: usize = 4_096;

/// The presets, in the order people read them.
const TEXTS: &[(&str, &str)] = &[
    ("bearer", include_str!("presets/bearer.toml")),
    ("standard-webhooks", include_str!("presets/standard-webhooks.toml")),
    ("github", include_str!("presets/github.toml")),
    ("gitlab", include_str!("presets/gitlab.toml")),
    ("gitlab-token", include_str!("presets/gitlab-token.toml")),
    ("stripe", include_str!("presets/stripe.toml")),
    ("slack", include_str!("presets/slack.toml")),
    ("pagerduty", include_str!("presets/pagerduty.toml")),
    ("shopify", include_str!("presets/shopify.toml")),
    ("linear", include_str!("presets/linear.toml")),
    ("sentry", include_str!("presets/sentry.toml")),
    ("grafana", include_str!("presets/grafana.toml")),
    ("alertmanager", include_str!("presets/alertmanager.toml")),
    ("twilio", include_str!("presets/twilio.toml")),
    ("zoom", include_str!("presets/zoom.toml")),
    ("microsoft-graph", include_str!("presets/microsoft-graph.toml")),
    ("meta", include_str!("presets/meta.toml")),
    ("discord", include_str!("presets/discord.toml")),
    ("cloudevents", include_str!("presets/cloudevents.toml")),
    ("template", include_str!("presets/template.toml")),
];

static PRESETS: LazyLock<BTreeMap<&'static str, Arc<Preset>>> = LazyLock::new(|| {
    let read = TEXTS.iter().map(|(name, text)| (*name, Preset::parse(text)));
    // That each of them can be read is a test.
    read.filter_map(|(name, preset)| preset.ok().map(|preset| (name, Arc::new(preset)))).collect()
});

/// A kind of sender.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name in commands and events.
    #[serde(default = "template")]
    pub name: String,
    /// Its name for people.
    #[serde(default)]
    pub title: String,
    /// The sender's documentation that it follows.
    #[serde(default)]
    pub source: String,
    /// What to do at the sender's, in words.
    #[serde(default)]
    pub setup: String,
    /// Who makes the secret.
    #[serde(default)]
    pub secret: Maker,
    /// The forms a key that signs may have; text that is an HMAC key as it stands, if nothing is said.
    #[serde(default)]
    pub(super) key: Vec<KeyForm>,
    /// Where a secret may be sent along; else `signature` says how it signs.
    #[serde(default)]
    pub(super) token: Vec<Place>,
    /// Its signatures: one of them must be right.
    #[serde(default)]
    pub(super) signature: Vec<Signature>,
    pub(super) timestamp: Option<Timestamp>,
    /// Where its own id for a delivery is, best first; several places together are one id.
    #[serde(default)]
    pub(super) id: Vec<Together>,
    /// JSON pointers whose values make two bodies the same, where there is no id.
    #[serde(default)]
    pub(super) alike: Vec<String>,
    /// Where it says what a delivery is about, best first.
    #[serde(default)]
    pub(super) event_type: Vec<Place>,
    /// What is signed of a packed body.
    #[serde(default)]
    pub packed: Packed,
    /// How it checks the address.
    #[serde(default)]
    pub(super) handshake: Vec<Handshake>,
    /// The status it wants for a delivery that was taken in.
    #[serde(default = "accepted")]
    pub answer: u16,
    /// The largest body it sends, in bytes, if that is more than usual.
    pub body_bytes_max: Option<u32>,
}

fn template() -> String {
    "template".to_owned()
}

fn accepted() -> u16 {
    202
}

/// Who makes a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// It is made here and shown once.
    #[default]
    Midwatch,
    /// The sender shows it, and it is given here.
    Sender,
}

/// What a packed body's signature is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packed {
    /// This sender does not pack: 415.
    #[default]
    Refused,
    /// The bytes as they come.
    Bytes,
    /// What they are once unpacked.
    Plain,
}

/// Places whose values are one id together.
#[derive(Clone, Debug)]
pub(super) struct Together(pub(super) Vec<Place>);

impl<'de> Deserialize<'de> for Together {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum OneOrMore {
            One(Place),
            More(Vec<Place>),
        }
        match OneOrMore::deserialize(deserializer)? {
            OneOrMore::One(place) => Ok(Self(vec![place])),
            OneOrMore::More(places) if places.is_empty() => Err(D::Error::custom("an id needs a place")),
            OneOrMore::More(places) => Ok(Self(places)),
        }
    }
}

/// How a key is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Algorithm {
    HmacSha1,
    #[default]
    HmacSha256,
    HmacSha512,
    Ed25519,
}

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Encoding {
    #[default]
    Hex,
    Base64,
}

/// Where a signature is and what it is over.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signature {
    #[serde(deserialize_with = "header_name")]
    pub(super) header: String,
    /// What stands between several values in one line.
    pub(super) split: Option<char>,
    /// How a value begins that counts.
    #[serde(default)]
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) encoding: Encoding,
    #[serde(default)]
    pub(super) algorithm: Algorithm,
    pub(super) signed: Signed,
}

fn header_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?.to_ascii_lowercase();
    let known = axum::http::HeaderName::from_bytes(name.as_bytes());
    known.map(|name| name.as_str().to_owned()).map_err(|_| D::Error::custom(format!("`{name}` is no header's name")))
}

/// When it was sent, and how far from now that may be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timestamp {
    pub(super) place: Place,
    pub(super) split: Option<char>,
    #[serde(default)]
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) unit: Unit,
    #[serde(default = "five_minutes")]
    pub(super) past_s: u32,
    #[serde(default = "five_minutes")]
    pub(super) future_s: u32,
}

fn five_minutes() -> u32 {
    300
}

/// What a timestamp counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    #[default]
    S,
    Ms,
}

/// What is signed, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signed(pub(super) Vec<Part>);

/// A part of what is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Id,
    Timestamp,
    Body,
    /// The public address, with its query.
    Url,
    /// The form's fields, sorted by name, each name and value; nothing where the address holds the body's hash instead.
    Form,
}

impl Signed {
    pub(super) fn holds(&self, part: &Part) -> bool {
        self.0.contains(part)
    }
}

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (before, after) = rest.split_once('{').unwrap_or((rest, ""));
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            if before.len() == rest.len() {
                break;
            }
            let (name, after) = after.split_once('}').ok_or_else(|| D::Error::custom("a `{` has no `}`"))?;
            parts.push(match name {
                "id" => Part::Id,
                "timestamp" => Part::Timestamp,
                "body" => Part::Body,
                "url" => Part::Url,
                "form" => Part::Form,
                other => {
                    let sentence =
                        format!("`{{{other}}}` is none of {{id}}, {{timestamp}}, {{body}}, {{url}}, {{form}}");
                    return Err(D::Error::custom(sentence));
                }
            });
            rest = after;
        }
        if !parts.contains(&Part::Body) && !parts.contains(&Part::Form) {
            return Err(D::Error::custom(
                "what is signed must hold {body} or {form}: else anybody could change the body",
            ));
        }
        Ok(Self(parts))
    }
}

/// There is no such preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no preset `{0}`; there are {names}", names = names().collect::<Vec<_>>().join(", "))]
pub struct Unknown(pub String);

/// The presets' names, in the order people read them.
pub fn names() -> impl Iterator<Item = &'static str> {
    TEXTS.iter().map(|(name, _)| *name)
}

/// The text of a preset, which a template can start from.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(found, _)| *found == name).map(|(_, text)| *text)
}

/// A preset by its name.
///
/// # Errors
/// [`Unknown`].
pub fn find(name: &str) -> Result<Arc<Preset>, Unknown> {
    PRESETS.get(name).cloned().ok_or_else(|| Unknown(name.to_owned()))
}

/// All presets, in the order people read them.
pub fn all() -> impl Iterator<Item = Arc<Preset>> {
    names().filter_map(|name| find(name).ok())
}

/// The preset that a trigger's scheme names; `bearer` without one.
///
/// # Errors
/// A sentence: a preset that this version does not know, or a template that it cannot read.
pub fn of_scheme(scheme: Option<&Scheme>) -> Result<Arc<Preset>, String> {
    match scheme {
        None => find("bearer").map_err(|error| error.to_string()),
        Some(Scheme { template: Some(text), .. }) => Preset::parse(text).map(Arc::new),
        Some(scheme) => find(&scheme.preset).map_err(|error| error.to_string()),
    }
}

impl Preset {
    /// Reads a preset, or a template.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("a template has at most {TEMPLATE_BYTES_MAX} bytes"));
        }
        let preset: Self = toml::from_str(text).map_err(|error| error.to_string().trim().replace('\n', " "))?;
        preset.makes_sense()?;
        Ok(preset)
    }

    fn makes_sense(&self) -> Result<(), String> {
        match (self.token.is_empty(), self.signature.is_empty()) {
            (true, true) => {
                return Err("say where the sender's `token` is, or how its `[[signature]]` is made".to_owned());
            }
            (false, false) => return Err("give either `token` or `[[signature]]`, not both".to_owned()),
            (true, false) | (false, true) => {}
        }
        let holds = |part| self.signature.iter().any(|signature| signature.signed.holds(part));
        if holds(&Part::Timestamp) && self.timestamp.is_none() {
            return Err("{timestamp} is signed: say in `[timestamp]` where it is".to_owned());
        }
        if holds(&Part::Id) && self.signed_id().is_none() {
            return Err("{id} is signed: say in `id` which header it is in, first".to_owned());
        }
        let pointers = self.alike.iter().all(|text| text.is_empty() || super::is_pointer(text));
        if !pointers || self.alike.len() > 16 {
            return Err("`alike` is at most 16 JSON pointers, such as /group/key".to_owned());
        }
        if !matches!(self.answer, 200 | 202 | 204) {
            return Err("`answer` is 200, 202 or 204".to_owned());
        }
        if self.signature.len() > 4 || self.token.len() > 4 || self.key.len() > 4 || self.handshake.len() > 4 {
            return Err("at most four of a kind".to_owned());
        }
        Ok(())
    }

    /// The headers that hold the secret itself.
    #[must_use]
    pub fn secret_headers(&self) -> Vec<&str> {
        let headers = self.token.iter().filter_map(Place::header);
        headers.collect()
    }

    /// Whether its deliveries are signed; else a secret is sent along.
    #[must_use]
    pub fn signs(&self) -> bool {
        !self.signature.is_empty()
    }

    /// Whether it signs the address it posts to, so that `--public-url` must be known.
    #[must_use]
    pub fn signs_url(&self) -> bool {
        self.signature.iter().any(|signature| signature.signed.holds(&Part::Url))
    }

    /// The same, whatever the time.
    #[must_use]
    pub fn timeless(&self) -> Self {
        let timestamp =
            self.timestamp.clone().map(|timestamp| Timestamp { past_s: u32::MAX, future_s: u32::MAX, ..timestamp });
        Self { timestamp, ..self.clone() }
    }

    /// The header of the id that is signed.
    pub(super) fn signed_id(&self) -> Option<&str> {
        match self.id.first()?.0.as_slice() {
            [Place::Header(name)] => Some(name),
            _ => None,
        }
    }
}
