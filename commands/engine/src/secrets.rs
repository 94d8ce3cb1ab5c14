//! The deployment's key and its subkeys.
//!
//! One key per deployment, outside the ledger. Everything keyed uses a subkey of its own, by HKDF-SHA256 with a stored
//! label, so that all processes agree and no use can be turned into another.

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use midwatch_events::key::Digest;
use sha2::{Digest as _, Sha256};

/// Subkeys derived from the deployment's key. Never shown, never logged.
#[derive(Clone)]
pub struct Secrets {
    key_id: Digest,
    fingerprint: [u8; 32],
    digest: [u8; 32],
    csrf: [u8; 32],
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

    /// The token that a form of this session must carry.
    #[must_use]
    pub fn csrf(&self, session: &Digest) -> Digest {
        mac(&self.csrf, &[&session.0])
    }
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
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secrets::derive(&[7; 32])), "Secrets");
    }
}
