//! Whose ledger this is. Holds promise 7: a restored copy of the database starts nothing.
//!
//! A deployment has an identity in the ledger and outside it, and a key outside it alone whose id is in the ledger.
//! Outside means the environment, or a state directory that is named after the database's own address, so that a copy
//! elsewhere finds none.

use std::{
    fmt, fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_commands::{
    Decider,
    boundary::{Boundary, BoundaryCommand},
    engine::{Engine as Deployment, EngineCommand},
    user::{User, UserCommand},
};
use midwatch_events::{Actor, StreamName, engine::HaltCause, id::UserId, key::hash_parts, user::Access};
use midwatch_log::{Log, Pending};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::{
    EngineError,
    engine::Opening,
    handle::{Folds, Origin, Plan, load},
    secrets::Secrets,
    world::World,
};

/// The window in which equal calls are counted when nothing is said, in seconds.
pub const REPEAT_WINDOW_S: u32 = 180;

/// The boundary a new ledger starts with: everything is allowed, and the page says so.
pub const FIRST_BOUNDARY: &str =
    r#"{"rules":[{"id":"allow-all","name":"Allow everything else","verdict":"allow","when":"true"}]}"#;

/// What of a deployment lies outside its ledger. Shown without the key.
#[derive(Clone)]
pub struct Outside {
    /// The identity, where the environment gives it.
    pub deployment: Option<Uuid>,
    /// The key as base64url, where the environment gives it.
    pub key: Option<String>,
    /// The file that holds the key, where one was named.
    pub key_file: Option<PathBuf>,
    /// The directory of state files: `$XDG_STATE_HOME/midwatch`.
    pub state_home: PathBuf,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deployment, key: _, key_file, state_home } = self;
        let mut shown = f.debug_struct("Outside");
        shown.field("deployment", deployment).field("key_file", key_file).field("state_home", state_home);
        shown.finish_non_exhaustive()
    }
}

/// A deployment that was joined.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) secrets: Secrets,
    pub(crate) state: Deployment,
    /// Why scheduling must halt at once, if it must.
    pub(crate) halt: Option<Found>,
}

/// Something about the ledger that makes it start nothing.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) cause: HaltCause,
    pub(crate) reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct StateFile {
    deployment: Uuid,
    highest_position: u64,
}

/// The directory that belongs to a ledger's address.
#[must_use]
pub fn state_dir(outside: &Outside, url: &str) -> PathBuf {
    let hash = Sha256::digest(place(url).as_bytes());
    outside.state_home.join(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// What names a database: the canonical path of a file, or host, port and name.
fn place(url: &str) -> String {
    if let Some(file) = url.strip_prefix("sqlite:") {
        let file = Path::new(file.trim_start_matches("//").split('?').next().unwrap_or_default());
        let absolute = fs::canonicalize(file).or_else(|_| {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::canonicalize(parent).map(|parent| parent.join(file.file_name().unwrap_or_default()))
        });
        return absolute.unwrap_or_else(|_| file.to_owned()).display().to_string();
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = if host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:5432")
    };
    format!("{host}/{database}")
}

pub(crate) async fn join(log: &Log, world: &World, opening: &Opening) -> Result<Joined, EngineError> {
    let directory = state_dir(&opening.outside, &opening.url);
    if log.head().await? == 0 {
        // Where the identity comes from the environment all makers have the same one, and need not wait for each other.
        let _turn = match opening.outside.deployment {
            Some(_) => None,
            None => Some(turn(world, &directory).await?),
        };
        // Another process may have made the ledger while this one waited.
        if log.head().await? == 0 {
            create(log, world, opening, &directory).await?;
        }
    }
    let state = load::<Deployment>(log, &Folds::default(), &StreamName::engine()).await?.state;
    let secrets = Secrets::derive(&key(&opening.outside, &directory)?);
    if state.key_id != Some(secrets.key_id()) {
        return Err(EngineError::Deployment(
            "the key is not this ledger's: give the deployment's own key by MIDWATCH_KEY or --key-file, or make this \
             copy a deployment of its own with `midwatch halt adopt`"
                .to_owned(),
        ));
    }
    check_window(opening, &state)?;
    let halt = foreign(log, opening, &directory, &state).await?;
    Ok(Joined { secrets, state, halt })
}

/// A window that differs from the running deployment's would count differently in two processes.
fn check_window(opening: &Opening, state: &Deployment) -> Result<(), EngineError> {
    match opening.repeat_window_s {
        Some(asked) if asked != state.repeat_window_s => Err(EngineError::Deployment(format!(
            "MIDWATCH_REPEAT_WINDOW says {asked} s, but this deployment counts repeats over {} s; all its processes \
             must agree",
            state.repeat_window_s
        ))),
        _ => Ok(()),
    }
}

/// Waits until no other process of this machine makes the same deployment; the file is let go when it is dropped.
async fn turn(world: &World, directory: &Path) -> Result<fs::File, EngineError> {
    make_dir(directory)?;
    let path = directory.join("lock");
    let open = || fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = open().map_err(|error| file_error(&path, &error))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => world.clock.sleep(Duration::from_millis(20)).await,
            Err(fs::TryLockError::Error(error)) => return Err(file_error(&path, &error)),
        }
    }
}

/// Makes the ledger a deployment: identity, key, first boundary, first admin. What lies outside is written first: a
/// process that dies on the way leaves an empty ledger, and never one whose key or identity nobody has.
async fn create(log: &Log, world: &World, opening: &Opening, directory: &Path) -> Result<(), EngineError> {
    let key = match given_key(&opening.outside)? {
        Some(key) => key,
        None => make_key(world, &key_path(&opening.outside, directory))?,
    };
    let deployment = opening
        .outside
        .deployment
        .unwrap_or_else(|| uuid::Builder::from_random_bytes(world.random::<16>()).into_uuid());
    let secrets = Secrets::derive(&key);
    let origin = Origin::of(opening.actor.clone());
    let repeat_window_s = opening.repeat_window_s.unwrap_or(REPEAT_WINDOW_S);
    let created = EngineCommand::CreateLedger { deployment, key_id: secrets.key_id(), repeat_window_s };
    let published = BoundaryCommand::Publish { document: FIRST_BOUNDARY.to_owned(), note: String::new() };
    let admin = first_admin(deployment);
    let invited = UserCommand::Invite { user: admin, name: "First admin".to_owned(), role: Access::Admin };

    let mut plan = Plan::default();
    plan.add(world, &StreamName::engine(), 0, &Deployment::default().decide(created)?, &origin)?;
    plan.add(world, &StreamName::boundary(), 0, &Boundary::default().decide(published)?, &origin)?;
    plan.add(world, &StreamName::user(admin), 0, &User::default().decide(invited)?, &origin)?;
    if opening.outside.deployment.is_none() {
        write_state(world, directory, &StateFile { deployment, highest_position: 0 })?;
    }
    // A conflict means that another machine made the ledger meanwhile; what it made is read next.
    plan.commit(log).await?;
    Ok(())
}

/// The admin that is made with the ledger.
#[must_use]
pub fn first_admin(namespace: Uuid) -> UserId {
    UserId::derived(namespace, &hash_parts(&[b"user", b"first"]))
}

/// Whether this is another deployment's ledger, or one that went back in time.
async fn foreign(
    log: &Log,
    opening: &Opening,
    directory: &Path,
    state: &Deployment,
) -> Result<Option<Found>, EngineError> {
    let Some(file) = read_state(directory)? else {
        // The identity may come from the environment alone; without both, the key would have been missing too,
        // unless it was carried along: then this is a copy somewhere else.
        return Ok(match opening.outside.deployment {
            Some(identity) if Some(identity) == state.deployment => None,
            Some(_) => Some(other_deployment()),
            None => {
                return Err(EngineError::Deployment(format!(
                    "the identity of this deployment is missing: {} does not exist and MIDWATCH_DEPLOYMENT is not \
                     set; set it, or make this copy a deployment of its own with `midwatch halt adopt`",
                    directory.join("state.json").display()
                )));
            }
        });
    };
    let identity = opening.outside.deployment.unwrap_or(file.deployment);
    if Some(identity) != state.deployment {
        return Ok(Some(other_deployment()));
    }
    let head = log.head().await?;
    if head < file.highest_position {
        return Ok(Some(Found {
            cause: HaltCause::LedgerWentBack,
            reason: format!(
                "the ledger ends at position {head}, but this deployment has seen {}: it was restored from an older \
                 copy. `midwatch halt adopt` goes on from here",
                file.highest_position
            ),
        }));
    }
    Ok(None)
}

fn other_deployment() -> Found {
    Found {
        cause: HaltCause::ForeignDeployment,
        reason: "this ledger belongs to another deployment: it is a restored copy. `midwatch halt adopt` makes it one \
                 of its own"
            .to_owned(),
    }
}

/// Makes a copy of a ledger a deployment of its own: a new identity, and a key if it has none here. A halt that came of
/// its being a copy is lifted by the same append; one that a person asked for stays.
///
/// # Errors
/// There is no ledger, or the state directory cannot be written.
pub fn adopt<'a>(world: &'a World, opening: &'a Opening) -> Pending<'a, Uuid, EngineError> {
    Box::pin(async move {
        let log = Log::open(&opening.url, midwatch_log::Open::ReadWrite).await?;
        let directory = state_dir(&opening.outside, &opening.url);
        let folds = Folds::default();
        let loaded = load::<Deployment>(&log, &folds, &StreamName::engine()).await?;
        let key = match given_key(&opening.outside)? {
            Some(key) => key,
            None => make_key(world, &key_path(&opening.outside, &directory))?,
        };
        let deployment = opening
            .outside
            .deployment
            .unwrap_or_else(|| uuid::Builder::from_random_bytes(world.random::<16>()).into_uuid());
        let command = EngineCommand::Adopt { deployment, key_id: Secrets::derive(&key).key_id() };
        let mut plan = Plan::default();
        let origin = Origin::of(opening.actor.clone());
        plan.add(world, &StreamName::engine(), loaded.version, &loaded.state.decide(command)?, &origin)?;
        let halt = load::<Deployment>(&log, &folds, &StreamName::halt()).await?;
        let lifted = match halt.state.halted {
            Some(HaltCause::ForeignDeployment | HaltCause::LedgerWentBack) => {
                halt.state.decide(EngineCommand::Lift { adopted: true })?
            }
            Some(HaltCause::Person) | None => vec![],
        };
        plan.add(world, &StreamName::halt(), halt.version, &lifted, &origin)?;
        let appended = plan
            .commit(&log)
            .await?
            .ok_or_else(|| EngineError::Fault("another process adopted this ledger just now; try again".to_owned()))?;
        write_state(world, &directory, &StateFile { deployment, highest_position: appended.last() })?;
        log.close().await;
        Ok(deployment)
    })
}

/// Keeps the highest position seen; a failure to do so costs a warning some other day, and nothing now.
pub(crate) fn remember(world: &World, opening: &Opening, head: u64) {
    let directory = state_dir(&opening.outside, &opening.url);
    let Ok(Some(file)) = read_state(&directory) else { return };
    if head > file.highest_position
        && let Err(error) = write_state(world, &directory, &StateFile { highest_position: head, ..file })
    {
        tracing::warn!(%error, "the highest position seen could not be kept");
    }
}

fn key_path(outside: &Outside, directory: &Path) -> PathBuf {
    outside.key_file.clone().unwrap_or_else(|| directory.join("key"))
}

/// The key, from wherever it is.
fn key(outside: &Outside, directory: &Path) -> Result<[u8; 32], EngineError> {
    if let Some(key) = given_key(outside)? {
        return Ok(key);
    }
    let path = key_path(outside, directory);
    read_key(&path)?.ok_or_else(|| {
        EngineError::Deployment(format!(
            "the deployment's key is missing: {} does not exist and MIDWATCH_KEY is not set. Give the key, or make this \
             copy a deployment of its own with `midwatch halt adopt`",
            path.display()
        ))
    })
}

fn given_key(outside: &Outside) -> Result<Option<[u8; 32]>, EngineError> {
    outside.key.as_deref().map(|text| decode_key(text, "MIDWATCH_KEY")).transpose()
}

fn decode_key(text: &str, place: &str) -> Result<[u8; 32], EngineError> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
        EngineError::Deployment(format!("{place} is not a key: it must be 32 bytes as base64url (43 characters)"))
    })
}

fn read_key(path: &Path) -> Result<Option<[u8; 32]>, EngineError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error(path, &error)),
    };
    let mode = fs::metadata(path).map_err(|error| file_error(path, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(EngineError::Deployment(format!(
            "others can read the key {}: `chmod 600` it first",
            path.display()
        )));
    }
    decode_key(&text, &path.display().to_string()).map(Some)
}

/// Makes a key file that only its owner can read, or reads the one that is there.
fn make_key(world: &World, path: &Path) -> Result<[u8; 32], EngineError> {
    if let Some(key) = read_key(path)? {
        return Ok(key);
    }
    make_dir(path.parent().unwrap_or(Path::new(".")))?;
    let key = world.random::<32>();
    // Written whole under another name and then linked: a process that comes second reads a whole key.
    let draft = path.with_extension(format!("{}", world.uuid().simple()));
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(URL_SAFE_NO_PAD.encode(key).as_bytes())?;
        file.sync_all()?;
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft)?;
        linked
    };
    match write() {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| file_error(path, &error))
        }
        Err(error) => Err(file_error(path, &error)),
    }
}

fn read_state(directory: &Path) -> Result<Option<StateFile>, EngineError> {
    let path = directory.join("state.json");
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| EngineError::Deployment(format!("{} is not a state file: {error}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(&path, &error)),
    }
}

fn write_state(world: &World, directory: &Path, state: &StateFile) -> Result<(), EngineError> {
    make_dir(directory)?;
    let path = directory.join("state.json");
    // A name of its own: processes that share the directory, in containers too, never write into one draft.
    let draft = directory.join(format!("state.{}.json", world.uuid().simple()));
    let bytes = serde_json::to_vec(state).map_err(|error| EngineError::Fault(error.to_string()))?;
    let write = || {
        let mut file = fs::File::create(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    };
    write().map_err(|error| file_error(&path, &error))
}

fn make_dir(directory: &Path) -> Result<(), EngineError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| file_error(directory, &error))
}

fn file_error(path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::Deployment(format!("cannot use {}: {error}", path.display()))
}

/// The actor of a person on the command line.
#[must_use]
pub fn cli_actor(uid: u32) -> Actor {
    Actor::Cli(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_by_host_port_and_name_only() {
        assert_eq!(place("postgres://me:secret@db/mw?sslmode=require"), "db:5432/mw");
        assert_eq!(place("postgresql://db:6000/mw"), "db:6000/mw");
    }

    #[test]
    fn a_file_is_named_by_its_canonical_path() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("a/../mw.db");
        fs::create_dir(directory.path().join("a")).unwrap();
        let canonical = fs::canonicalize(directory.path()).unwrap().join("mw.db");
        assert_eq!(place(&format!("sqlite://{}", inside.display())), canonical.display().to_string());
    }

    #[test]
    fn a_key_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = make_key(&World::system(), &path).unwrap();
        assert_eq!(make_key(&World::system(), &path).unwrap(), key);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_key(&path), Err(EngineError::Deployment(_))));
    }
}
