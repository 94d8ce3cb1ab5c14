//! From what an admin chose to what a trigger is made of.

use std::sync::Arc;

use midwatch_engine::triggers::NewSecret;
use midwatch_events::trigger::Scheme;

use super::preset::{Preset, find, of_scheme};

/// The most JSON pointers an id is made of.
const POINTERS_MAX: usize = 8;

/// A sender that a trigger can be made for.
#[derive(Clone)]
pub struct Prepared {
    /// Its preset.
    pub preset: Arc<Preset>,
    /// What the trigger's events say of it.
    pub scheme: Option<Scheme>,
    /// The secret to keep.
    pub secret: NewSecret,
    /// A signing secret that was made here, to be shown once.
    pub made: Option<String>,
    /// The token that some senders ask for beside the secret.
    pub verify_token: Option<String>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { preset, scheme, secret, made: _, verify_token: _ } = self;
        let mut shown = f.debug_struct("Prepared");
        shown.field("preset", &preset.name).field("scheme", scheme).field("secret", secret).finish_non_exhaustive()
    }
}

/// Prepares a new trigger's sender.
///
/// # Errors
/// A sentence: an unknown preset, a template that cannot be read, a secret that is missing or none of this sender's.
pub fn prepare(
    preset: &str,
    template: Option<&str>,
    given: Option<&str>,
    random: [u8; 32],
) -> Result<Prepared, String> {
    let template = template.filter(|text| !text.trim().is_empty());
    let (found, scheme) = match (preset, template) {
        ("template", None) => return Err("write the template: how this sender signs".to_owned()),
        ("template", Some(text)) => (Arc::new(Preset::parse(text)?), Some(text.to_owned())),
        (_, Some(_)) => return Err("a template goes with the preset `template` alone".to_owned()),
        (name, None) => (find(name).map_err(|error| error.to_string())?, None),
    };
    let scheme = (preset != "bearer").then(|| Scheme { preset: preset.to_owned(), template: scheme });
    with_secret(found, scheme, given, random)
}

/// Prepares another secret for a trigger's sender.
///
/// # Errors
/// As [`prepare`].
pub fn renew(scheme: Option<&Scheme>, given: Option<&str>, random: [u8; 32]) -> Result<Prepared, String> {
    with_secret(of_scheme(scheme)?, scheme.cloned(), given, random)
}

fn with_secret(
    preset: Arc<Preset>,
    scheme: Option<Scheme>,
    given: Option<&str>,
    random: [u8; 32],
) -> Result<Prepared, String> {
    let given = given.map(str::trim).filter(|text| !text.is_empty());
    if !preset.signs() {
        if given.is_some() {
            return Err("this sender sends a secret along that is made here: leave the secret out".to_owned());
        }
        return Ok(Prepared { preset, scheme, secret: NewSecret::Made, made: None, verify_token: None });
    }
    let made =
        match given {
            Some(_) => None,
            None => Some(preset.made(random).ok_or_else(|| {
                "give the secret that this sender signs with: it is the sender who shows it".to_owned()
            })?),
        };
    let text = made.as_deref().or(given).unwrap_or_default().to_owned();
    let key = preset.key(&text)?;
    let verify_token = key.verify_token().filter(|_| preset.has_verify_token());
    Ok(Prepared { preset, scheme, secret: NewSecret::Signing(text), made, verify_token })
}

/// JSON pointers that an admin chose for a trigger's ids.
///
/// # Errors
/// A sentence: too many, or no pointer.
pub fn id_pointers(given: &[String]) -> Result<Vec<String>, String> {
    if given.len() > POINTERS_MAX {
        return Err(format!("an id is made of at most {POINTERS_MAX} JSON pointers"));
    }
    match given.iter().find(|text| !super::is_pointer(text)) {
        Some(wrong) => Err(format!("`{wrong}` is no JSON pointer; one looks like /order/id")),
        None => Ok(given.to_vec()),
    }
}
