//! The little CBOR that a segment is made of (RFC 8949): definite lengths and shortest heads, which is all that is taken
//! back, so that every segment has one form.

use std::io::{self, Read};

pub(super) const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
pub(super) const ARRAY: u8 = 4;
pub(super) const MAP: u8 = 5;
const NULL: u8 = 0xf6;
/// No item of a segment is longer: an event has at most 64 KiB, and its key hashes go with it.
const LONGEST: u64 = 4 << 20;

pub(super) fn head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let bytes = argument.to_be_bytes();
    let (info, from) = match argument {
        0..=23 => (bytes[7], 8),
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    out.push(major << 5 | info);
    out.extend_from_slice(&bytes[from..]);
}

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    head(out, TEXT, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else { return out.push(NULL) };
    head(out, BYTES, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What cannot be read, in a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

impl From<io::Error> for Malformed {
    fn from(error: io::Error) -> Self {
        Self(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
            _ => error.to_string(),
        })
    }
}

pub(super) fn malformed<T>(reason: &str) -> Result<T, Malformed> {
    Err(Malformed(reason.to_owned()))
}

/// Reads item after item, and keeps count of the bytes.
pub(super) struct Reader<R> {
    from: R,
    /// What was read since it was last cleared.
    pub(super) taken: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, taken: Vec::new() }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], Malformed> {
        let start = self.taken.len();
        self.taken.resize(start + count, 0);
        self.from.read_exact(&mut self.taken[start..])?;
        Ok(&self.taken[start..])
    }

    /// A head that is not null: major type and argument.
    fn any(&mut self) -> Result<Option<(u8, u64)>, Malformed> {
        let first = self.take(1)?[0];
        if first == NULL {
            return Ok(None);
        }
        let (major, info) = (first >> 5, first & 31);
        let (length, least) = match info {
            0..=23 => return Ok(Some((major, u64::from(info)))),
            24 => (1, 24),
            25 => (2, 0x100),
            26 => (4, 0x1_0000),
            27 => (8, 0x1_0000_0000),
            _ => return malformed("a length is not definite"),
        };
        let argument = self.take(length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if argument < least {
            return malformed("a number is not in its shortest form");
        }
        Ok(Some((major, argument)))
    }

    pub(super) fn head(&mut self, major: u8) -> Result<u64, Malformed> {
        match self.any()? {
            Some((found, argument)) if found == major => Ok(argument),
            _ => malformed("an item is of another type than it should be"),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, Malformed> {
        match self.any()? {
            Some((UNSIGNED, argument)) if let Ok(number) = i64::try_from(argument) => Ok(number),
            Some((NEGATIVE, argument)) if argument <= i64::MAX.unsigned_abs() => Ok((!argument).cast_signed()),
            _ => malformed("an integer is missing, or too large"),
        }
    }

    fn string(&mut self, major: u8) -> Result<Option<Vec<u8>>, Malformed> {
        match self.any()? {
            None => Ok(None),
            Some((found, length)) if found == major && length <= LONGEST => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                self.take(length).map(|bytes| Some(bytes.to_vec()))
            }
            Some(_) => malformed("a string is of another type than it should be, or too long"),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        self.string(BYTES)
    }

    pub(super) fn text(&mut self) -> Result<Option<String>, Malformed> {
        match self.string(TEXT)?.map(String::from_utf8).transpose() {
            Ok(text) => Ok(text),
            Err(_) => malformed("a text is not UTF-8"),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Malformed> {
        match self.bytes()?.map(<[u8; N]>::try_from).transpose() {
            Ok(array) => Ok(array),
            Err(_) => malformed("a hash, a salt or an id has another length"),
        }
    }

    /// Whether nothing follows.
    pub(super) fn at_end(&mut self) -> Result<bool, Malformed> {
        Ok(self.from.read(&mut [0])? == 0)
    }
}

/// An item that may not be null.
pub(super) fn there<T>(item: Option<T>) -> Result<T, Malformed> {
    item.ok_or_else(|| Malformed("something is null that may not be".to_owned()))
}
