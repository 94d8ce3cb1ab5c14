//! One segment's bytes, written and read as a stream.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::Path,
};

use midwatch_events::{Micros, Recorded, StreamName, leaf};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::cbor::{self, ARRAY, MAP, Malformed, Reader, UNSIGNED, malformed, there};

const FORMAT: &str = "midwatch-archive/1";

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) previous: Option<[u8; 32]>,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        cbor::head(&mut out, MAP, 4);
        cbor::text(&mut out, "format");
        cbor::text(&mut out, FORMAT);
        cbor::text(&mut out, "first");
        cbor::head(&mut out, UNSIGNED, self.first);
        cbor::text(&mut out, "last");
        cbor::head(&mut out, UNSIGNED, self.last);
        cbor::text(&mut out, "previous");
        cbor::bytes(&mut out, self.previous.as_ref().map(<[u8; 32]>::as_slice));
        out
    }
}

/// An event as it lies in a segment.
pub(super) struct Entry {
    pub(super) leaf: Vec<u8>,
    pub(super) content: Option<Vec<u8>>,
    pub(super) salt: Option<[u8; 16]>,
}

impl Entry {
    fn leaf_hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update([0]);
        hasher.update(&self.leaf);
        hasher.finalize().into()
    }

    /// The event, and the hashes of its append's keys.
    pub(super) fn event(&self) -> Result<(Recorded, Vec<[u8; 32]>), Malformed> {
        let mut leaf = Reader::new(self.leaf.as_slice());
        if leaf.head(ARRAY)? != 13 {
            return malformed("a leaf has thirteen parts");
        }
        let mut event = Recorded {
            position: leaf.head(UNSIGNED)?,
            stream: StreamName::stored(there(leaf.text()?)?),
            version: leaf.head(UNSIGNED)?,
            event_id: Uuid::from_bytes(there(leaf.array()?)?),
            event_type: there(leaf.text()?)?,
            schema: u16::try_from(leaf.head(UNSIGNED)?).or_else(|_| malformed("a schema is too large"))?,
            recorded_at: Micros(leaf.integer()?),
            actor: there(leaf.text()?)?,
            correlation_id: leaf.text()?,
            causation_id: leaf.array()?.map(Uuid::from_bytes),
            facts: Vec::new(),
            content: self.content.clone(),
            salt: self.salt,
            commitment: None,
            leaf_hash: self.leaf_hash(),
        };
        let mut keys = Vec::new();
        for _ in 0..leaf.head(ARRAY)? {
            keys.push(there(leaf.array()?)?);
        }
        event.facts = there(leaf.bytes()?)?;
        event.commitment = leaf.array()?;
        if leaf.at_end()? { Ok((event, keys)) } else { malformed("a leaf has something after its end") }
    }
}

/// Writes a segment.
pub(super) struct Writer<W: Write> {
    out: BufWriter<W>,
    hasher: Sha256,
    item: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(out: W, header: &Header) -> io::Result<Self> {
        let (mut out, header) = (BufWriter::with_capacity(1 << 18, out), header.encode());
        out.write_all(&header)?;
        Ok(Self { out, hasher: Sha256::new().chain_update(header), item: Vec::new() })
    }

    pub(super) fn event(&mut self, event: &Recorded, keys: &[[u8; 32]]) -> io::Result<()> {
        self.entry(&Entry { leaf: leaf::leaf(event, keys), content: event.content.clone(), salt: event.salt })
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.hasher.update(entry.leaf_hash());
        self.item.clear();
        cbor::head(&mut self.item, ARRAY, 3);
        cbor::bytes(&mut self.item, Some(&entry.leaf));
        cbor::bytes(&mut self.item, entry.content.as_deref());
        cbor::bytes(&mut self.item, entry.salt.as_ref().map(<[u8; 16]>::as_slice));
        self.out.write_all(&self.item)
    }

    /// Over what was written so far.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.hasher.clone().finalize().into()
    }

    pub(super) fn end(mut self) -> io::Result<([u8; 32], W)> {
        let digest = self.digest();
        let mut trailer = Vec::new();
        cbor::head(&mut trailer, MAP, 1);
        cbor::text(&mut trailer, "digest");
        cbor::bytes(&mut trailer, Some(&digest));
        self.out.write_all(&trailer)?;
        Ok((digest, self.out.into_inner().map_err(io::IntoInnerError::into_error)?))
    }
}

/// Reads a segment.
pub(super) struct Source {
    reader: Reader<BufReader<File>>,
    hasher: Sha256,
}

impl Source {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = BufReader::with_capacity(1 << 18, File::open(path)?);
        Ok(Self { reader: Reader::new(file), hasher: Sha256::new() })
    }

    pub(super) fn header(&mut self) -> Result<Header, Malformed> {
        let is_ours = self.reader.head(MAP)? == 4
            && self.reader.text()?.as_deref() == Some("format")
            && self.reader.text()?.as_deref() == Some(FORMAT);
        if !is_ours {
            return malformed("it is no segment of an archive that this midwatch knows");
        }
        self.name("first")?;
        let first = self.reader.head(UNSIGNED)?;
        self.name("last")?;
        let last = self.reader.head(UNSIGNED)?;
        self.name("previous")?;
        let previous = self.reader.array()?;
        if first == 0 || last < first {
            return malformed("its positions are none");
        }
        self.hasher.update(&self.reader.taken);
        Ok(Header { first, last, previous })
    }

    pub(super) fn entry(&mut self) -> Result<Entry, Malformed> {
        self.reader.taken.clear();
        if self.reader.head(ARRAY)? != 3 {
            return malformed("an event has three parts");
        }
        let entry =
            Entry { leaf: there(self.reader.bytes()?)?, content: self.reader.bytes()?, salt: self.reader.array()? };
        self.hasher.update(entry.leaf_hash());
        Ok(entry)
    }

    /// The digest over what was read so far.
    pub(super) fn computed(&self) -> [u8; 32] {
        self.hasher.clone().finalize().into()
    }

    pub(super) fn trailer(&mut self) -> Result<[u8; 32], Malformed> {
        if self.reader.head(MAP)? != 1 {
            return malformed("its trailer is missing");
        }
        self.name("digest")?;
        let digest = there(self.reader.array()?)?;
        if self.reader.at_end()? { Ok(digest) } else { malformed("something follows on its trailer") }
    }

    fn name(&mut self, name: &str) -> Result<(), Malformed> {
        if self.reader.text()?.as_deref() == Some(name) { Ok(()) } else { malformed("a name is missing") }
    }
}

/// Where a segment ends that is there already.
pub(super) struct End {
    pub(super) last: u64,
    pub(super) digest: [u8; 32],
}

/// Reads a whole segment, so that nothing follows on one that does not hold.
pub(super) fn end(path: &Path) -> Result<End, String> {
    let read = || {
        let mut source = Source::open(path)?;
        let header = source.header()?;
        for _ in header.first..=header.last {
            source.entry()?;
        }
        let computed = source.computed();
        let digest = source.trailer()?;
        if digest == computed {
            Ok(End { last: header.last, digest })
        } else {
            malformed("its digest is not that of its events")
        }
    };
    read().map_err(|error: Malformed| error.0)
}
