//! The lock of a door: how its sender shows who it is, and the secrets that are good.

use std::sync::Arc;

use axum::http::HeaderMap;
use midwatch_commands::trigger::{Secret, Trigger};
use midwatch_engine::{Engine, EngineError, secrets::hashed};
use midwatch_events::{Micros, id::TriggerId};
use subtle::{Choice, ConstantTimeEq as _};

use crate::{
    auth::bearer,
    senders::{Held, Key, Preset, of_scheme},
};

/// What opens a door.
#[derive(Clone, Debug)]
pub struct Lock {
    /// How its sender shows who it is.
    pub preset: Arc<Preset>,
    current: Option<Held>,
    /// The secret before, and until when it is good.
    old: Option<(Held, Micros)>,
}

impl Lock {
    /// The lock of a trigger as it is.
    ///
    /// # Errors
    /// A preset that this version does not know, or a key that was sealed by another deployment.
    pub fn of(engine: &Engine, trigger: TriggerId, state: &Trigger) -> Result<Self, EngineError> {
        let preset = of_scheme(state.scheme.as_ref()).map_err(|error| {
            EngineError::Fault(format!("this version cannot check what trigger {trigger} is sent: {error}"))
        })?;
        let held = |secret: &Secret| -> Result<Held, EngineError> {
            let key = match (&secret.sealed, preset.signs()) {
                (Some(sealed), true) => {
                    let text = engine.secrets()?.unsealed(trigger, &sealed.0)?;
                    Some(
                        preset
                            .key(&text)
                            .map_err(|error| EngineError::Corrupt(format!("trigger {trigger}: {error}")))?,
                    )
                }
                (None, _) | (_, false) => None,
            };
            Ok(Held { digest: secret.digest, key })
        };
        let current = state.secret.as_ref().map(held).transpose()?;
        let old = state.old_secret.as_ref().map(|(secret, until)| Ok::<_, EngineError>((held(secret)?, *until)));
        Ok(Self { current, old: old.transpose()?, preset })
    }

    /// The secrets that are good at this instant.
    #[must_use]
    pub fn held(&self, now: Micros) -> Vec<Held> {
        let old = self.old.as_ref().filter(|(_, until)| now < *until).map(|(held, _)| held);
        self.current.iter().chain(old).cloned().collect()
    }

    /// Every secret that is kept, by what it is called, whether or not it is good by now.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &Held)> {
        let current = self.current.iter().map(|held| ("current", held));
        current.chain(self.old.iter().map(|(held, _)| ("previous", held)))
    }

    /// Whether `Authorization: Bearer` holds one of the secrets themselves, whatever the sender does with it otherwise:
    /// whoever asks what became of a delivery has nothing to sign.
    pub(super) fn opened_by_secret(&self, engine: &Engine, sent: &HeaderMap, now: Micros) -> Result<bool, EngineError> {
        let Some(given) = bearer(sent) else { return Ok(false) };
        let mut right = Choice::from(0);
        for held in self.held(now) {
            let digest = match &held.key {
                None => hashed(given),
                // Everybody has a public key.
                Some(Key::Ed25519(_)) => continue,
                Some(Key::Hmac(_)) => engine.secrets()?.recognised(given),
            };
            right |= digest.0.ct_eq(&held.digest.0);
        }
        Ok(right.into())
    }
}
