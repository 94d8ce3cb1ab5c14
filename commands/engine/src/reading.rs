//! A body as its sender means it. The bytes are kept as they came; this is a view on them: unpacked, and a form as JSON.

use std::{borrow::Cow, io::Read as _};

use flate2::read::MultiGzDecoder;
use serde_json::{Map, Value};

/// The longest body there may be once unpacked, in bytes.
pub const UNPACKED_BYTES_MAX: usize = 25_000_000;
/// Fields of a form; more of them make it unreadable.
const FIELDS_MAX: usize = 1_000;

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Only gzip is known.
    #[error("it is packed in a way that is not known here: only gzip is")]
    Encoding,
    /// It is not what it says.
    #[error("it is not the gzip that its header says")]
    Broken,
    /// It grows beyond what may be.
    #[error("it is too long once unpacked")]
    TooLong,
}

/// The body, unpacked, and as JSON where it is a form: what stands in its field `payload` if that is JSON, else an
/// object of its fields.
///
/// # Errors
/// [`Unreadable`]. Memory never exceeds `unpacked_max`.
pub fn read<'a>(
    content_type: Option<&str>,
    content_encoding: Option<&str>,
    body: &'a [u8],
    unpacked_max: usize,
) -> Result<Cow<'a, [u8]>, Unreadable> {
    let plain = unpack(content_encoding, body, unpacked_max)?;
    if is_form(content_type)
        && let Some(json) = form(&plain)
    {
        return Ok(Cow::Owned(json));
    }
    Ok(plain)
}

/// The body without its `Content-Encoding`.
///
/// # Errors
/// [`Unreadable`]. Memory never exceeds `unpacked_max`.
pub fn unpack<'a>(encoding: Option<&str>, body: &'a [u8], unpacked_max: usize) -> Result<Cow<'a, [u8]>, Unreadable> {
    match encoding.map(|encoding| encoding.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(Cow::Borrowed(body)),
        Some("gzip" | "x-gzip") => {
            let mut plain = Vec::new();
            // One byte more than may be, so that exactly the most is still whole.
            let limit = unpacked_max as u64 + 1;
            MultiGzDecoder::new(body).take(limit).read_to_end(&mut plain).map_err(|_| Unreadable::Broken)?;
            if plain.len() > unpacked_max { Err(Unreadable::TooLong) } else { Ok(Cow::Owned(plain)) }
        }
        Some(_) => Err(Unreadable::Encoding),
    }
}

/// Whether a body says that it is a form.
#[must_use]
pub fn is_form(content_type: Option<&str>) -> bool {
    let kind = content_type.and_then(|text| text.split(';').next()).unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The fields of a form in the order they came; none where there are too many.
#[must_use]
pub fn fields(body: &[u8]) -> Option<Vec<(Cow<'_, str>, Cow<'_, str>)>> {
    let fields: Vec<_> = form_urlencoded::parse(body).take(FIELDS_MAX + 1).collect();
    (fields.len() <= FIELDS_MAX).then_some(fields)
}

fn form(body: &[u8]) -> Option<Vec<u8>> {
    let fields = fields(body)?;
    if let Some((_, payload)) = fields.iter().find(|(name, _)| name == "payload")
        && serde_json::from_str::<&serde_json::value::RawValue>(payload).is_ok()
    {
        return Some(payload.clone().into_owned().into_bytes());
    }
    let mut object = Map::new();
    for (name, value) in fields {
        // The first of a name counts, as it does where a form is signed by its fields.
        object.entry(name).or_insert_with(|| Value::String(value.into_owned()));
    }
    serde_json::to_vec(&Value::Object(object)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const FORM: Option<&str> = Some("application/x-www-form-urlencoded; charset=utf-8");

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    fn text(content_type: Option<&str>, body: &[u8]) -> String {
        String::from_utf8(read(content_type, None, body, 1_000).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn a_form_is_its_payload_or_its_fields() {
        assert_eq!(text(FORM, b"payload=%7B%22n%22%3A1524831183200260097%7D"), r#"{"n":1524831183200260097}"#);
        assert_eq!(
            text(FORM, b"command=%2Fdeploy&text=now+please&text=2"),
            r#"{"command":"/deploy","text":"now please"}"#
        );
        assert_eq!(text(FORM, b"payload=no+json"), r#"{"payload":"no json"}"#);
        assert_eq!(text(FORM, b""), "{}");
        assert_eq!(text(None, b"payload=1"), "payload=1");
        assert_eq!(text(FORM, "&".repeat(900).as_bytes()), "{}");
        let many = "a=1&".repeat(1_001);
        assert_eq!(read(FORM, None, many.as_bytes(), 10_000).unwrap(), many.as_bytes());
    }

    #[test]
    fn packed_bytes_are_unpacked_up_to_the_most_there_may_be() {
        let packed = gzip(&[b'x'; 100]);
        assert_eq!(unpack(Some(" GZIP "), &packed, 100).unwrap(), &[b'x'; 100][..]);
        assert_eq!(unpack(Some("gzip"), &packed, 99), Err(Unreadable::TooLong));
        assert_eq!(unpack(Some("gzip"), b"no gzip", 100), Err(Unreadable::Broken));
        assert_eq!(unpack(Some("gzip"), &packed[..packed.len() - 9], 100), Err(Unreadable::Broken));
        assert_eq!(unpack(Some("br"), &packed, 100), Err(Unreadable::Encoding));
        assert_eq!(unpack(Some("gzip, gzip"), &packed, 100), Err(Unreadable::Encoding));
        assert_eq!(unpack(Some("identity"), b"x", 1).unwrap(), &b"x"[..]);
        let bomb = gzip(&vec![0; 50_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(unpack(Some("gzip"), &bomb, 1_000_000), Err(Unreadable::TooLong));
    }
}
