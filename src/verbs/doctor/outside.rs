//! What of the deployment lies outside its ledger: identity and key, and where they must not lie.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_commands::engine::Engine as Deployment;
use midwatch_engine::{Engine, Opening, deployment::state_dir, secrets::Secrets};
use midwatch_events::{StreamName, key::Digest};

use super::Check;
use crate::failure::Failure;

/// Files beside a database that are looked into; in a directory with more of them, the rest is left alone.
const FILES_MAX: usize = 1_000;
/// A key is 43 characters; longer files are no keys.
const KEY_BYTES_MAX: u64 = 64;

pub(super) async fn look(engine: &Engine, opening: &Opening) -> Result<Vec<Check>, Failure> {
    let deployment = engine.load::<Deployment>(&StreamName::engine()).await?.state;
    let directory = state_dir(&opening.outside, &opening.url);
    Ok(vec![
        identity(opening, &directory, &deployment),
        key(opening, &directory, deployment.key_id),
        beside(&opening.url, deployment.key_id),
    ])
}

fn identity(opening: &Opening, directory: &Path, deployment: &Deployment) -> Check {
    let path = directory.join("state.json");
    let in_file = fs::read(&path).ok().and_then(|bytes| {
        let state: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        state.get("deployment")?.as_str().map(str::to_owned)
    });
    let outside = opening.outside.deployment.map(|id| id.to_string()).or(in_file);
    let inside = deployment.deployment.map(|id| id.to_string()).unwrap_or_default();
    match outside {
        Some(outside) if outside == inside => Check::ok("identity", format!("deployment {inside}")),
        Some(outside) => {
            let sentence = format!("the ledger is of deployment {inside}, this machine's is {outside}: it is a copy");
            Check::fail("identity", format!("{sentence}; `midwatch halt adopt` makes it one of its own"))
        }
        None => {
            let path = path.display();
            Check::fail("identity", format!("{path} does not exist and MIDWATCH_DEPLOYMENT is not set"))
        }
    }
}

fn key(opening: &Opening, directory: &Path, key_id: Option<Digest>) -> Check {
    if let Some(text) = &opening.outside.key {
        return match decoded(text) {
            Some(key) if Some(key_id_of(&key)) == key_id => Check::ok("key", "MIDWATCH_KEY is this ledger's"),
            Some(_) => Check::fail("key", "MIDWATCH_KEY is another ledger's key"),
            None => Check::fail("key", "MIDWATCH_KEY is not 32 bytes as base64url"),
        };
    }
    let path = opening.outside.key_file.clone().unwrap_or_else(|| directory.join("key"));
    let shown = path.display();
    let (text, mode) = match (fs::read_to_string(&path), fs::metadata(&path)) {
        (Ok(text), Ok(metadata)) => (text, metadata.permissions().mode()),
        (Err(error), _) | (_, Err(error)) => return Check::fail("key", format!("{shown} cannot be read: {error}")),
    };
    if mode & 0o077 != 0 {
        return Check::fail("key", format!("others can read {shown}: `chmod 600` it"));
    }
    match decoded(&text) {
        Some(key) if Some(key_id_of(&key)) == key_id => Check::ok("key", format!("{shown} is this ledger's")),
        Some(_) => Check::fail("key", format!("{shown} is another ledger's key")),
        None => Check::fail("key", format!("{shown} is not a key")),
    }
}

/// A key that lies beside its database is in every backup of that directory.
fn beside(url: &str, key_id: Option<Digest>) -> Check {
    let Some(file) = url.strip_prefix("sqlite:") else {
        return Check::ok("key beside database", "the database is on a server");
    };
    let file = Path::new(file.trim_start_matches("//").split('?').next().unwrap_or_default());
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = fs::read_dir(directory).into_iter().flatten().flatten().take(FILES_MAX).map(|entry| entry.path());
    let holds_key = |path: &PathBuf| {
        let small = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= KEY_BYTES_MAX);
        let key = small.then(|| fs::read_to_string(path).ok()).flatten().and_then(|text| decoded(&text));
        key.is_some_and(|key| Some(key_id_of(&key)) == key_id)
    };
    match files.into_iter().find(holds_key) {
        Some(path) => {
            let sentence = "the key lies beside the database: a backup of both opens everything; move it";
            Check::warn("key beside database", format!("{}: {sentence}", path.display()))
        }
        None => Check::ok("key beside database", "no key lies beside the database"),
    }
}

fn decoded(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('=')).ok()?.try_into().ok()
}

fn key_id_of(key: &[u8; 32]) -> Digest {
    Secrets::derive(key).key_id()
}
