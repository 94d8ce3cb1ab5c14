//! What makes two POSTs the same delivery.

use midwatch_events::{
    id::TriggerId,
    key::{Digest, Key, hash_parts},
};

use super::Posted;

/// The keys one POST may be known under.
///
/// They name the trigger, which has one endpoint for ever: should an endpoint ever be replaced, what came through the
/// old one is still known.
pub(super) struct Keys {
    pub(super) by_id: Option<Key>,
    pub(super) conflict: Key,
    pub(super) by_signed: Option<Key>,
    /// What the body key is made of counts, for the trigger's duplicate window.
    pub(super) for_a_while: bool,
    trigger: String,
    alike: [u8; 32],
}

impl Keys {
    pub(super) fn of(trigger: TriggerId, posted: &Posted) -> Self {
        let trigger = trigger.to_string();
        let body = hash_parts(&[&posted.body]);
        let id = posted.sender_id.as_deref();
        let asked: &[&[u8]] = if posted.id_alone { &[trigger.as_bytes()] } else { &[trigger.as_bytes(), &body] };
        let by_id = id.map(|id| Key::new(&["delivery", &trigger, id], asked));
        let hash = Digest(body).to_string();
        let parts = ["conflict", &trigger, id.unwrap_or_default(), &hash];
        let conflict = Key::new(&parts, &[trigger.as_bytes(), &body]);
        let by_signed = posted
            .signed
            .map(|signed| Key::new(&["signed", &trigger, &Digest(signed).to_string()], &[trigger.as_bytes(), &signed]));
        let for_a_while = id.is_none() && (by_signed.is_none() || posted.alike.is_some());
        Self { by_id, conflict, by_signed, for_a_while, trigger, alike: posted.alike.unwrap_or(body) }
    }

    /// `body/<trigger>/<hash>/<place>`, place 0 at first and, once the window is over, the position of the delivery
    /// before.
    pub(super) fn by_body(&self, place: u64) -> Key {
        let parts = ["body", &self.trigger, &Digest(self.alike).to_string(), &place.to_string()];
        Key::new(&parts, &[self.trigger.as_bytes(), &self.alike])
    }
}
