//! Archive segments: files that hold the ledger up to a position, and can be verified on their own, by anybody.
//!
//! Nothing is dropped from the database for them. A segment is a file `<first>-<last>.midwatch`, positions in 20 digits,
//! and a CBOR sequence (RFC 8742) of
//!
//! 1. a header, a map of `"format": "midwatch-archive/1"`, `"first"` and `"last"` (positions), and `"previous"`: the
//!    digest of the segment before it, null in the first;
//! 2. for each event, in order of position, an array of its leaf as a byte string (`midwatch_events::leaf`: every column
//!    and the hashes of its append's keys), its content and its salt, each null where there is none or it was erased;
//! 3. a trailer, a map of `"digest"`: SHA-256 over the header's bytes and then the hash of each leaf,
//!    SHA-256(0x00 ‖ leaf).
//!
//! Integers are in their shortest form and lengths definite, so that a segment has one form. The digest binds all that
//! is never erased, and through the commitment in each leaf what content is left; so the chain of segments survives an
//! erasure ([`erase`]). Whoever holds the files can make all of them anew: what signs their end is not here.

mod cbor;
mod segment;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use midwatch_events::{Micros, StreamName, leaf};

use crate::{
    log::{Filter, Log, LogError},
    verify::Bad,
};
use segment::{Header, Source, Writer};

/// Events of a segment, where there are as many.
const EVENTS: u64 = 65_536;
/// Events that are read in one go.
const PAGE: u32 = 1_024;
const SUFFIX: &str = ".midwatch";

/// Why segments could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The ledger could not be read, or does not hold what it should.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A file or the directory.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A segment that is there does not hold; nothing is added to it.
    #[error("{path} does not hold: {reason}")]
    Broken {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The ledger does not reach that far.
    #[error("the ledger ends at {head}, before {upto}")]
    Short {
        /// Where it ends.
        head: u64,
        /// What was asked for.
        upto: u64,
    },
}

/// What [`verify`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Segments that hold, from the first on.
    pub segments: u64,
    /// The positions in them; none in an empty directory.
    pub positions: Option<(u64, u64)>,
    /// Events whose content was erased.
    pub erased: u64,
    /// Digest of the last segment that holds.
    pub digest: Option<[u8; 32]>,
    /// The first thing that does not hold, and the file it is in.
    pub first_bad: Option<(PathBuf, Bad)>,
}

/// Writes the events up to `upto` that `directory` does not hold yet, as one or more segments; gives their files.
///
/// A segment appears under its name once it is whole and flushed. What was left half-written is written again.
///
/// # Errors
/// [`ArchiveError`]; segments that were finished before it stay.
pub async fn write(log: &Log, directory: &Path, upto: u64) -> Result<Vec<PathBuf>, ArchiveError> {
    let head = log.head().await?;
    if head < upto {
        return Err(ArchiveError::Short { head, upto });
    }
    fs::create_dir_all(directory).map_err(|error| file(directory, error))?;
    let (mut last, mut previous) = match files(directory)?.last_key_value() {
        Some((_, path)) => {
            let end = segment::end(path).map_err(|reason| broken(path, reason))?;
            (end.last, Some(end.digest))
        }
        None => (0, None),
    };
    let mut written = Vec::new();
    while last < upto {
        let header = Header { first: last + 1, last: upto.min(last + EVENTS), previous };
        let path = directory.join(name(&header));
        previous = Some(write_one(log, &path, &header).await?);
        last = header.last;
        written.push(path);
    }
    Ok(written)
}

async fn write_one(log: &Log, path: &Path, header: &Header) -> Result<[u8; 32], ArchiveError> {
    let partial = partial(path);
    let made = File::create(&partial).map_err(|error| file(&partial, error))?;
    let mut writer = Writer::begin(made, header).map_err(|error| file(&partial, error))?;
    let mut after = header.first - 1;
    while after < header.last {
        let most = u32::try_from(header.last - after).unwrap_or(PAGE).min(PAGE);
        let (events, end) = log.read_all(after, most, &Filter::default()).await?;
        let mut keys: HashMap<u64, Vec<[u8; 32]>> = HashMap::new();
        for (position, hash) in log.keys_between(after + 1, end).await? {
            keys.entry(position).or_default().push(hash);
        }
        for event in &events {
            let own = keys.remove(&event.position).unwrap_or_default();
            if event.position != after + 1 || leaf::leaf_hash(event, &own) != event.leaf_hash {
                let reason = "it is not what was written, and does not go to an archive".to_owned();
                return Err(LogError::Corrupt { position: after + 1, reason }.into());
            }
            writer.event(event, &own).map_err(|error| file(&partial, error))?;
            after = event.position;
        }
        if events.is_empty() {
            return Err(ArchiveError::Short { head: after, upto: header.last });
        }
    }
    let digest = finish(writer, &partial, path)?;
    Ok(digest)
}

/// Flushes a whole segment, and gives it its name.
fn finish(writer: Writer<File>, partial: &Path, path: &Path) -> Result<[u8; 32], ArchiveError> {
    let (digest, mut made) = writer.end().map_err(|error| file(partial, error))?;
    made.flush().and_then(|()| made.sync_all()).map_err(|error| file(partial, error))?;
    fs::rename(partial, path).map_err(|error| file(path, error))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(|error| file(directory, error))?;
    Ok(digest)
}

/// Verifies one segment, or a directory of them: that each is whole, that every leaf hashes to what its segment's digest
/// was made over, that what content is left is what its commitment was made over, and that positions, versions, times
/// and segments follow on each other. Streams that begin before the first segment are taken as they are found.
///
/// # Errors
/// [`ArchiveError::File`] where nothing can be read; what does not hold is no error but an answer.
pub fn verify(path: &Path) -> Result<Archived, ArchiveError> {
    let segments = if path.is_dir() { files(path)?.into_values().collect() } else { vec![path.to_owned()] };
    let mut check = Check::default();
    let mut archived = Archived { segments: 0, positions: None, erased: 0, digest: None, first_bad: None };
    for path in segments {
        let source = Source::open(&path).map_err(|error| file(&path, error))?;
        match check.segment(source, &path) {
            Ok(()) => {
                archived.segments += 1;
                archived.positions = check.first.map(|first| (first, check.last));
                (archived.erased, archived.digest) = (check.erased, check.digest);
            }
            Err(error) => {
                archived.first_bad = Some((path, Bad { position: check.last + 1, error }));
                break;
            }
        }
    }
    Ok(archived)
}

/// Takes content and salt of the events at these positions out of the segments in `directory`; gives how many had some.
/// Leaves, digests and the chain stay as they are.
///
/// # Errors
/// [`ArchiveError`]; also where a segment that has to be written again does not hold.
pub fn erase(directory: &Path, positions: &[u64]) -> Result<u64, ArchiveError> {
    let mut erased = 0;
    for ((first, last), path) in files(directory)? {
        if !positions.iter().any(|position| (first..=last).contains(position)) {
            continue;
        }
        let mut source = Source::open(&path).map_err(|error| file(&path, error))?;
        let header = source.header().map_err(|error| broken(&path, error.0))?;
        let partial = partial(&path);
        let made = File::create(&partial).map_err(|error| file(&partial, error))?;
        let mut writer = Writer::begin(made, &header).map_err(|error| file(&partial, error))?;
        for position in header.first..=header.last {
            let mut entry = source.entry().map_err(|error| broken(&path, error.0))?;
            if positions.contains(&position) && entry.content.take().is_some() {
                erased += 1;
            }
            entry.salt = entry.salt.filter(|_| entry.content.is_some());
            writer.entry(&entry).map_err(|error| file(&partial, error))?;
        }
        let digest = source.trailer().map_err(|error| broken(&path, error.0))?;
        if writer.digest() != digest {
            return Err(broken(&path, "its digest is not that of its events".to_owned()));
        }
        finish(writer, &partial, &path)?;
    }
    Ok(erased)
}

/// What has been seen of a chain of segments.
#[derive(Default)]
struct Check {
    first: Option<u64>,
    last: u64,
    erased: u64,
    recorded_at: Option<Micros>,
    versions: HashMap<StreamName, u64>,
    digest: Option<[u8; 32]>,
}

impl Check {
    fn segment(&mut self, mut source: Source, path: &Path) -> Result<(), String> {
        let header = source.header().map_err(|error| error.0)?;
        if path.file_name().and_then(|found| found.to_str()) != Some(name(&header).as_str()) {
            return Err(format!("its header says that it is {}", name(&header)));
        }
        match self.first {
            None => (self.first, self.last) = (Some(header.first), header.first - 1),
            Some(_) if header.first != self.last + 1 => return Err(format!("position {} is missing", self.last + 1)),
            Some(_) if header.previous != self.digest => {
                return Err("it does not follow on the segment before it".to_owned());
            }
            Some(_) => {}
        }
        if (header.first == 1) != header.previous.is_none() {
            return Err("only the first segment follows on none".to_owned());
        }
        for position in header.first..=header.last {
            self.event(position, &mut source)?;
        }
        let digest = source.computed();
        if source.trailer().map_err(|error| error.0)? != digest {
            return Err("its digest is not that of its events".to_owned());
        }
        self.digest = Some(digest);
        Ok(())
    }

    fn event(&mut self, position: u64, source: &mut Source) -> Result<(), String> {
        let entry = source.entry().map_err(|error| error.0)?;
        let (event, _) = entry.event().map_err(|error| error.0)?;
        if event.position != position {
            return Err(format!("it says to be position {}", event.position));
        }
        let begun = self.first == Some(1);
        let version = self.versions.entry(event.stream.clone()).or_insert(0);
        if event.version != *version + 1 && (begun || *version != 0) {
            return Err(format!("{} has version {} after {version}", event.stream, event.version));
        }
        *version = event.version;
        if self.recorded_at.is_some_and(|before| event.recorded_at < before) {
            return Err("it was recorded before the event before it".to_owned());
        }
        match (&event.content, &event.salt, &event.commitment) {
            (None, None, sealed) => self.erased += u64::from(sealed.is_some()),
            (Some(content), Some(salt), Some(sealed)) if leaf::commitment(salt, content) == *sealed => {}
            _ => return Err("its content is not what its commitment was made over".to_owned()),
        }
        (self.last, self.recorded_at) = (position, Some(event.recorded_at));
        Ok(())
    }
}

/// The segments of a directory, by first and last position.
fn files(directory: &Path) -> Result<BTreeMap<(u64, u64), PathBuf>, ArchiveError> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(|error| file(directory, error))? {
        let path = entry.map_err(|error| file(directory, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(SUFFIX));
        let positions = name.and_then(|name| name.split_once('-'));
        if let Some((first, last)) = positions
            && let (Ok(first), Ok(last)) = (first.parse(), last.parse())
        {
            found.insert((first, last), path);
        }
    }
    Ok(found)
}

fn name(header: &Header) -> String {
    format!("{:020}-{:020}{SUFFIX}", header.first, header.last)
}

fn partial(path: &Path) -> PathBuf {
    path.with_extension("partial")
}

fn file(path: &Path, error: io::Error) -> ArchiveError {
    ArchiveError::File { path: path.to_owned(), error }
}

fn broken(path: &Path, reason: String) -> ArchiveError {
    ArchiveError::Broken { path: path.to_owned(), reason }
}
