//! The deployment's key and its subkeys.
//!
//! One key per deployment, outside the ledger. Everything keyed uses a subkey of its own, by HKDF-SHA256 with a stored
//! label, so that all processes agree and no use can be turned into another.

use chacha20poly1305::{
    Key, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, KeyInit as _, Payload},
};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use midwatch_events::{
    id::{ReceiverId, TriggerId},
    key::Digest,
};
use sha2::{Digest as _, Sha256};

use crate::EngineError;

/// Subkeys derived from the deployment's key. Never shown, never logged.
#[derive(Clone)]
pub struct Secrets {
    key_id: Digest,
    fingerprint: [u8; 32],
    digest: [u8; 32],
    csrf: [u8; 32],
    notice: [u8; 32],
    recognise: [u8; 32],
    seal: [u8; 32],
    snapshot: [u8; 32],
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Derives all subkeys. The labels are stored practice: never change one.
    #[must_use]
    pub fn derive(key: &[u8; 32]) -> Self {
        let subkey = |label: &str| {
            let mut out = [0; 32];
            // 32 bytes are far below HKDF's limit of 255 hashes, the only error there is.
            let _ = Hkdf::<Sha256>::new(None, key).expand(label.as_bytes(), &mut out);
            out
        };
        Self {
            key_id: mac(&subkey("midwatch/key-id/1"), &[b"midwatch"]),
            fingerprint: subkey("midwatch/fingerprint/1"),
            digest: subkey("midwatch/digest/1"),
            csrf: subkey("midwatch/csrf/1"),
            notice: subkey("midwatch/notice/1"),
            recognise: subkey("midwatch/recognise/1"),
            seal: subkey("midwatch/seal/1"),
            snapshot: subkey("midwatch/snapshot/1"),
        }
    }

    /// Recognises the key without revealing it; stands in the ledger.
    #[must_use]
    pub fn key_id(&self) -> Digest {
        self.key_id
    }

    /// What makes two tool calls the same call, over its parts.
    #[must_use]
    pub fn fingerprint(&self, parts: &[&[u8]]) -> Digest {
        mac(&self.fingerprint, parts)
    }

    /// A digest of something that could be guessed: typed text, bodies, results.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        mac(&self.digest, &[bytes])
    }

    /// What a key that signs is recognised by. A sender may have chosen it, so it could be guessed from a plain hash.
    #[must_use]
    pub fn recognised(&self, key: &str) -> Digest {
        mac(&self.recognise, &[key.as_bytes()])
    }

    /// Seals a trigger's signing key with XChaCha20-Poly1305, bound to the trigger: one format byte, the nonce, the
    /// sealed text and its tag. `nonce` is random and used once.
    ///
    /// # Errors
    /// [`EngineError::Fault`], for a key far longer than any.
    pub fn sealed(&self, trigger: TriggerId, key: &str, nonce: [u8; NONCE]) -> Result<Vec<u8>, EngineError> {
        self.seal(&bound_to(trigger), key, nonce)
    }

    /// Seals what an MCP server has to know, bound to its name, as [`Secrets::sealed`] does.
    ///
    /// # Errors
    /// [`EngineError::Fault`], for a text far longer than any.
    pub fn sealed_for_server(&self, server: &str, text: &str, nonce: [u8; NONCE]) -> Result<Vec<u8>, EngineError> {
        self.seal(format!("midwatch/tool-server/{server}").as_bytes(), text, nonce)
    }

    /// What was sealed for this server by this deployment.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`], when it was not, or was changed since.
    pub fn unsealed_for_server(&self, server: &str, sealed: &[u8]) -> Result<String, EngineError> {
        self.unseal(format!("midwatch/tool-server/{server}").as_bytes(), sealed).ok_or_else(|| {
            let sentence = format!("what MCP server {server} has to know was not sealed by this deployment's key");
            EngineError::Corrupt(sentence)
        })
    }

    fn seal(&self, bound: &[u8], text: &str, nonce: [u8; NONCE]) -> Result<Vec<u8>, EngineError> {
        let sealed = self.sealer().encrypt(&XNonce::from(nonce), Payload { msg: text.as_bytes(), aad: bound });
        let sealed = sealed.map_err(|_| EngineError::Fault("this key cannot be sealed".to_owned()))?;
        Ok([&[SEALED_1], &nonce[..], &sealed[..]].concat())
    }

    fn unseal(&self, bound: &[u8], sealed: &[u8]) -> Option<String> {
        let opened = match sealed.split_first() {
            Some((&SEALED_1, rest)) => rest.split_first_chunk::<NONCE>().and_then(|(nonce, msg)| {
                self.sealer().decrypt(&XNonce::from(*nonce), Payload { msg, aad: bound }).ok()
            }),
            Some(_) | None => None,
        };
        opened.and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// A signing key that was sealed for this trigger by this deployment.
    ///
    /// # Errors
    /// [`EngineError::Corrupt`], when it was not, or was changed since.
    pub fn unsealed(&self, trigger: TriggerId, sealed: &[u8]) -> Result<String, EngineError> {
        self.unseal(&bound_to(trigger), sealed).ok_or_else(|| {
            EngineError::Corrupt(format!(
                "the signing key of trigger {trigger} was not sealed by this deployment's key"
            ))
        })
    }

    fn sealer(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(self.seal))
    }

    /// Seals a kept state: who has the database alone cannot make one.
    #[must_use]
    pub(crate) fn snapshot(&self, parts: &[&[u8]]) -> Digest {
        mac(&self.snapshot, parts)
    }

    /// The key that a receiver's notices are signed with.
    #[must_use]
    pub fn notice(&self, receiver: ReceiverId) -> [u8; 32] {
        mac(&self.notice, &[receiver.uuid().as_bytes()]).0
    }

    /// The token that a form of this session must carry.
    #[must_use]
    pub fn csrf(&self, session: &Digest) -> Digest {
        mac(&self.csrf, &[&session.0])
    }
}

/// Bytes of a nonce.
const NONCE: usize = 24;
/// The first byte of what is sealed as it is today.
const SEALED_1: u8 = 1;

fn bound_to(trigger: TriggerId) -> Vec<u8> {
    format!("midwatch/trigger-key/{trigger}").into_bytes()
}

/// SHA-256 of a secret of 32 random bytes: what is stored of links, sessions, tokens and bearer secrets.
#[must_use]
pub fn hashed(secret: &str) -> Digest {
    Digest(Sha256::digest(secret.as_bytes()).into())
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> Digest {
    // HMAC takes a key of any length, so this cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Digest([0; 32]) };
    for part in parts {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        mac.update(&length.to_be_bytes());
        mac.update(part);
    }
    Digest(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subkeys_differ_from_each_other_and_between_deployments() {
        let (one, two) = (Secrets::derive(&[1; 32]), Secrets::derive(&[2; 32]));
        assert_ne!(one.key_id(), two.key_id());
        assert_ne!(one.digest(b"x"), two.digest(b"x"));
        assert_ne!(one.digest(b"x"), one.fingerprint(&[b"x"]));
        assert_eq!(one.digest(b"x"), Secrets::derive(&[1; 32]).digest(b"x"));
    }

    #[test]
    fn parts_never_run_together() {
        let secrets = Secrets::derive(&[1; 32]);
        assert_ne!(secrets.fingerprint(&[b"ab", b"c"]), secrets.fingerprint(&[b"a", b"bc"]));
    }

    #[test]
    fn a_key_is_unsealed_by_its_own_deployment_for_its_own_trigger() {
        let (one, two) = (Secrets::derive(&[1; 32]), Secrets::derive(&[2; 32]));
        let [mine, other] = [1, 2].map(|n| TriggerId::new(uuid::Uuid::from_u128(n)));
        let sealed = one.sealed(mine, "whsec_x", [7; 24]).unwrap();
        assert_eq!(sealed.len(), 1 + 24 + 7 + 16);
        assert!(!sealed.windows(7).any(|window| window == b"whsec_x"));
        assert_eq!(one.unsealed(mine, &sealed).unwrap(), "whsec_x");
        assert!(one.unsealed(other, &sealed).is_err());
        assert!(two.unsealed(mine, &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(one.unsealed(mine, &changed).is_err(), "byte {at}");
            assert!(one.unsealed(mine, &sealed[..at]).is_err(), "cut at {at}");
        }
        assert_ne!(one.recognised("x"), one.digest(b"x"));
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secrets::derive(&[7; 32])), "Secrets");
    }
}
