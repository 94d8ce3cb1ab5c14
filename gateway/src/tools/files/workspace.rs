//! One Bot's directory, and the three acts in it.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt, File, Metadata, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt},
};
use midwatch_events::id::BotId;
use serde_json::{Value, json};

use super::{Call, MAX_ENTRIES, MAX_READ_BYTES, WorkspacePath};
use crate::tools::ToolResult;

const OWNER_ONLY_DIRECTORY: u32 = 0o700;
const OWNER_ONLY_FILE: u32 = 0o600;

/// The directory of one Bot. All its paths are opened from this handle.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: Arc<Dir>,
}

/// Why an act did not happen: a sentence for the Bot.
struct Failed(String);

impl Workspace {
    /// Opens, and at first makes, the Bot's directory below `root`, for the owner alone (0700).
    ///
    /// # Errors
    /// The directory cannot be made or opened, or something else has its name (a link, for instance).
    pub fn open(root: &Path, bot: BotId) -> io::Result<Self> {
        Dir::create_ambient_dir_all(root, ambient_authority())?;
        let all = Dir::open_ambient_dir(root, ambient_authority())?;
        let name = bot.to_string();
        match all.create_dir_with(&name, DirBuilder::new().mode(OWNER_ONLY_DIRECTORY)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let root = all.open_dir_nofollow(&name)?;
        root.set_permissions(".", Permissions::from_mode(OWNER_ONLY_DIRECTORY))?;
        Ok(Self { root: Arc::new(root) })
    }

    /// A path that leads to the very directory that was opened, whatever has its name by now; for this process and for
    /// what it starts while that starts.
    #[must_use]
    pub fn handle(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// Carries a call out. Whatever goes wrong is in the answer, for the Bot.
    pub async fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let call = match Call::parse(tool, arguments) {
            Ok(call) => call,
            Err(sentence) => return ToolResult::failed(sentence),
        };
        let workspace = self.clone();
        #[expect(clippy::disallowed_methods, reason = "files block; the gateway is not simulated")]
        let act = tokio::task::spawn_blocking(move || workspace.act(&call));
        act.await.unwrap_or_else(|_| ToolResult::failed("The files tool broke; whether it did anything is not known."))
    }

    fn act(&self, call: &Call) -> ToolResult {
        let done = match call {
            Call::List { path } => self.list(path),
            Call::Read { path } => self.read(path),
            Call::Write { path, contents, append: true } => self.append(path, contents.as_bytes()),
            Call::Write { path, contents, append: false } => self.replace(path, contents.as_bytes()),
        };
        done.map_or_else(|Failed(sentence)| ToolResult::failed(sentence), ToolResult::done)
    }

    fn list(&self, path: &WorkspacePath) -> Result<Value, Failed> {
        let shown = path.text();
        let directory = self.directory(path.parts(), Missing::IsAnError, &shown)?;
        let mut total = 0_usize;
        // Only the first names are kept while reading, so that a huge directory costs no memory.
        let mut first = BTreeMap::new();
        for entry in directory.entries().map_err(|e| failed(&shown, &e))? {
            let entry = entry.map_err(|e| failed(&shown, &e))?;
            total += 1;
            first.insert(entry.file_name(), entry);
            if first.len() > MAX_ENTRIES {
                first.pop_last();
            }
        }
        let entries: Vec<Value> = first
            .iter()
            .map(|(name, entry)| {
                let name = name.to_string_lossy();
                // An entry that went away between the two looks is still shown, by name alone.
                entry.metadata().map_or_else(|_| json!({ "name": name }), |found| describe(&name, &found))
            })
            .collect();
        let mut answer = json!({ "path": shown, "entries": entries });
        if total > MAX_ENTRIES {
            answer["cut"] = json!(format!("The first {MAX_ENTRIES} of {total} names are shown."));
        }
        Ok(answer)
    }

    fn read(&self, path: &WorkspacePath) -> Result<Value, Failed> {
        let shown = path.text();
        let (directory, name) = self.parent(path, Missing::IsAnError, &shown)?;
        let (file, found) = open_file(&directory, name, OpenOptions::new().read(true), &shown)?;
        let size = found.len();
        let mut bytes = Vec::new();
        let limit = u64::try_from(MAX_READ_BYTES).unwrap_or(u64::MAX);
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| failed(&shown, &e))?;
        let cut = bytes.len() > MAX_READ_BYTES;
        bytes.truncate(MAX_READ_BYTES);
        let text = text(bytes, cut)
            .ok_or_else(|| Failed(format!("\"{shown}\" is binary, {size} bytes; only text (UTF-8) is shown.")))?;
        let mut answer = json!({ "path": shown, "size": size, "text": text });
        if cut {
            let length = answer["text"].as_str().map_or(0, str::len);
            answer["cut"] = json!(format!("The first {length} of {size} bytes are shown."));
        }
        Ok(answer)
    }

    /// Replaces the whole file or leaves it as it was: never half of each.
    fn replace(&self, path: &WorkspacePath, contents: &[u8]) -> Result<Value, Failed> {
        let shown = path.text();
        let (directory, name) = self.parent(path, Missing::IsMade, &shown)?;
        let mode = match directory.symlink_metadata(name) {
            Ok(found) if found.is_file() => found.permissions(),
            Ok(found) => return Err(not_a_file(&shown, &found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Permissions::from_mode(OWNER_ONLY_FILE),
            Err(error) => return Err(failed(&shown, &error)),
        };
        let (draft, mut file) = new_draft(&directory).map_err(|e| failed(&shown, &e))?;
        let written = file
            .write_all(contents)
            .and_then(|()| file.set_permissions(mode))
            .and_then(|()| file.sync_all())
            // Renaming over a link replaces the link, so a link put there meanwhile leads nowhere.
            .and_then(|()| directory.rename(&draft, &directory, name))
            .and_then(|()| sync(&directory));
        if let Err(error) = written {
            let _ = directory.remove_file(&draft);
            return Err(failed(&shown, &error));
        }
        Ok(json!({ "path": shown, "size": contents.len() }))
    }

    fn append(&self, path: &WorkspacePath, contents: &[u8]) -> Result<Value, Failed> {
        let shown = path.text();
        let (directory, name) = self.parent(path, Missing::IsMade, &shown)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(OWNER_ONLY_FILE);
        let (mut file, _) = open_file(&directory, name, &mut options, &shown)?;
        let size = file
            .write_all(contents)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync(&directory))
            .and_then(|()| file.metadata())
            .map_err(|e| failed(&shown, &e))?
            .len();
        Ok(json!({ "path": shown, "appended": contents.len(), "size": size }))
    }

    fn parent<'p>(&self, path: &'p WorkspacePath, missing: Missing, shown: &str) -> Result<(Dir, &'p str), Failed> {
        let (parents, name) =
            path.parent_and_name().ok_or_else(|| Failed(format!("\"{shown}\" is the workspace itself.")))?;
        Ok((self.directory(parents, missing, shown)?, name))
    }

    /// Walks down one part at a time, each opened from its parent's handle and never through a link.
    fn directory(&self, parts: &[String], missing: Missing, shown: &str) -> Result<Dir, Failed> {
        let mut directory = self.root.try_clone().map_err(|e| failed(shown, &e))?;
        for part in parts {
            let opened = match directory.open_dir_nofollow(part) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::IsMade => {
                    make_directory(&directory, part)
                }
                opened => opened,
            };
            directory = opened.map_err(|error| match directory.symlink_metadata(part) {
                Ok(found) if found.is_symlink() => linked(shown),
                Ok(found) if !found.is_dir() => Failed(format!("\"{part}\" in \"{shown}\" is not a directory.")),
                _ => failed(shown, &error),
            })?;
        }
        Ok(directory)
    }
}

/// What to do about a directory that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    IsAnError,
    IsMade,
}

fn make_directory(parent: &Dir, name: &str) -> io::Result<Dir> {
    match parent.create_dir_with(name, DirBuilder::new().mode(OWNER_ONLY_DIRECTORY)) {
        Ok(()) => sync(parent)?,
        // Another call made it meanwhile, or put something else there: opening it tells.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    parent.open_dir_nofollow(name)
}

/// Opens a regular file and nothing else. The kind is asked of the handle, so nothing can be swapped meanwhile, and the
/// open does not block, so a FIFO nobody writes to is answered too.
fn open_file(directory: &Dir, name: &str, options: &mut OpenOptions, shown: &str) -> Result<(File, Metadata), Failed> {
    let opened = directory.open_with(name, options.follow(FollowSymlinks::No).nonblock(true));
    let file = opened.map_err(|error| match directory.symlink_metadata(name) {
        Ok(found) if !found.is_file() => not_a_file(shown, &found),
        _ => failed(shown, &error),
    })?;
    let found = file.metadata().map_err(|e| failed(shown, &e))?;
    if found.is_file() { Ok((file, found)) } else { Err(not_a_file(shown, &found)) }
}

/// A new file beside the one it will replace. Processes share a workspace, so a taken name means: the next one.
fn new_draft(directory: &Dir) -> io::Result<(String, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!(".midwatch-{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        match directory.open_with(&name, OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return Ok((name, file)),
        }
    }
}

/// Makes a new or renamed name durable.
fn sync(directory: &Dir) -> io::Result<()> {
    directory.open(".")?.sync_all()
}

/// The bytes as text, unless they are binary. A character that the cut went through is left out.
fn text(bytes: Vec<u8>, cut: bool) -> Option<String> {
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if cut && error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            String::from_utf8(bytes).ok()
        }
        Err(_) => None,
    }
    .filter(|text| !text.contains('\0'))
}

fn describe(name: &str, found: &Metadata) -> Value {
    if found.is_file() {
        json!({ "name": name, "type": "file", "size": found.len() })
    } else {
        json!({ "name": name, "type": kind(found) })
    }
}

fn kind(found: &Metadata) -> &'static str {
    if found.is_dir() {
        "directory"
    } else if found.is_symlink() {
        "link"
    } else if found.is_file() {
        "file"
    } else {
        "special"
    }
}

fn not_a_file(shown: &str, found: &Metadata) -> Failed {
    match kind(found) {
        "directory" => Failed(format!("\"{shown}\" is a directory, not a file.")),
        "link" => linked(shown),
        _ => Failed(format!("\"{shown}\" is a device, a pipe or a socket, not a file.")),
    }
}

fn linked(shown: &str) -> Failed {
    Failed(format!("\"{shown}\" leads through a symbolic link; links are not followed."))
}

fn failed(shown: &str, error: &io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::NotFound => Failed(format!("\"{shown}\" does not exist.")),
        io::ErrorKind::PermissionDenied => Failed(format!("\"{shown}\" may not be opened.")),
        _ => Failed(format!("\"{shown}\": {error}.")),
    }
}
