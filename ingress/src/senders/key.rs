//! Keys that signatures are made with.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::preset::{Algorithm, Encoding, Maker, Preset};

/// The longest key, in bytes of its text.
const TEXT_BYTES_MAX: usize = 1_024;

/// What a key looks like and is for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyForm {
    /// How its text begins; no part of a base64 or hex key.
    #[serde(default)]
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) form: Form,
    #[serde(default)]
    pub(super) algorithm: Algorithm,
}

/// How a key's bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Form {
    /// They are the text's own, prefix and all.
    #[default]
    Text,
    Base64,
    Hex,
}

/// A key that can say whether a signature is right. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Key {
    /// For an HMAC: whoever knows it can sign.
    Hmac(Vec<u8>),
    /// A public key: nobody can sign with it.
    Ed25519([u8; 32]),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Hmac(_) => "Hmac",
            Self::Ed25519(_) => "Ed25519",
        })
    }
}

/// Standard base64, whether it is padded or not.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn decoded(encoding: Encoding, text: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Base64 => LENIENT.decode(text).ok(),
        Encoding::Hex => {
            let (pairs, rest) = text.as_chunks::<2>();
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
            if rest.is_empty() { bytes } else { None }
        }
    }
}

pub(super) fn encoded(encoding: Encoding, bytes: &[u8]) -> String {
    match encoding {
        Encoding::Base64 => STANDARD.encode(bytes),
        Encoding::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

impl Preset {
    fn forms(&self) -> &[KeyForm] {
        const TEXT: &[KeyForm] =
            &[KeyForm { prefix: String::new(), form: Form::Text, algorithm: Algorithm::HmacSha256 }];
        if self.key.is_empty() { TEXT } else { &self.key }
    }

    pub(super) fn form_of(&self, text: &str) -> Option<&KeyForm> {
        self.forms().iter().find(|form| text.starts_with(&form.prefix))
    }

    /// The key that a text stands for.
    ///
    /// # Errors
    /// A sentence that says what a key of this sender looks like; it never holds the text.
    pub fn key(&self, text: &str) -> Result<Key, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("an empty secret would let everybody in; give the one that the sender shows".to_owned());
        }
        if text.len() > TEXT_BYTES_MAX || text.contains(char::is_control) {
            return Err(format!("a secret is one line of at most {TEXT_BYTES_MAX} bytes"));
        }
        let looks = || {
            let forms = self.forms().iter().map(|form| match (form.form, form.prefix.as_str()) {
                (Form::Text, prefix) => format!("{prefix}…"),
                (Form::Base64, prefix) => format!("{prefix} and base64"),
                (Form::Hex, prefix) => format!("{prefix}hexadecimal digits"),
            });
            format!("this is no secret of this sender: it looks like {}", forms.collect::<Vec<_>>().join(", or "))
        };
        let form = self.form_of(text).ok_or_else(looks)?;
        let inside = text.strip_prefix(&form.prefix).unwrap_or(text).as_bytes();
        let bytes = match form.form {
            Form::Text => Some(text.as_bytes().to_vec()),
            Form::Base64 => decoded(Encoding::Base64, inside),
            Form::Hex => decoded(Encoding::Hex, inside),
        };
        let bytes = bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(looks)?;
        match form.algorithm {
            Algorithm::HmacSha1 | Algorithm::HmacSha256 | Algorithm::HmacSha512 => Ok(Key::Hmac(bytes)),
            Algorithm::Ed25519 => {
                bytes.try_into().map(Key::Ed25519).map_err(|_| "a public key of Ed25519 has 32 bytes".to_owned())
            }
        }
    }

    /// A new secret of 32 random bytes, where this sender takes one that is made here.
    pub(super) fn made(&self, random: [u8; 32]) -> Option<String> {
        let form = self.forms().iter().find(|form| form.algorithm != Algorithm::Ed25519)?;
        (self.secret == Maker::Midwatch).then(|| match form.form {
            Form::Text => {
                let prefix = if form.prefix.is_empty() { "mw_" } else { &form.prefix };
                format!("{prefix}{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random))
            }
            Form::Base64 => format!("{}{}", form.prefix, STANDARD.encode(random)),
            Form::Hex => format!("{}{}", form.prefix, encoded(Encoding::Hex, &random)),
        })
    }
}

/// The HMAC of parts, one after the other.
pub(super) fn hmac(algorithm: Algorithm, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    match algorithm {
        Algorithm::HmacSha1 => mac::<Hmac<Sha1>>(key, parts),
        Algorithm::HmacSha256 => mac::<Hmac<Sha256>>(key, parts),
        Algorithm::HmacSha512 => mac::<Hmac<Sha512>>(key, parts),
        Algorithm::Ed25519 => Vec::new(),
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes a key of any length, so this cannot fail.
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Vec::new() };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

impl Key {
    /// The key of HMACs; none for a public key.
    pub(super) fn hmac_key(&self) -> Option<&[u8]> {
        match self {
            Self::Hmac(bytes) => Some(bytes),
            Self::Ed25519(_) => None,
        }
    }

    /// Whether a signature by Ed25519 is this key's over these bytes.
    pub(super) fn ed25519(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hmac(_) => false,
            Self::Ed25519(public) => UnparsedPublicKey::new(&ED25519, public).verify(signed, signature).is_ok(),
        }
    }

    /// What proves to a sender that whoever answers has this secret, without showing it: 32 hexadecimal digits.
    #[must_use]
    pub fn verify_token(&self) -> Option<String> {
        let mac = hmac(Algorithm::HmacSha256, self.hmac_key()?, &[b"midwatch verify token"]);
        mac.get(..16).map(|half| encoded(Encoding::Hex, half))
    }
}
