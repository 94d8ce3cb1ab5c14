//! How a verb joins the deployment: as one more process beside the servers. Versions make that safe.

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use midwatch_engine::{
    Engine, Opening, Origin,
    deployment::{Outside, cli_actor},
    projector,
    world::World,
};
use midwatch_events::{Actor, id::ProcessId};

use crate::{cli::Globals, failure::Failure};

/// Does something that writes. On an empty database the ledger is made.
pub(crate) async fn write<T>(
    globals: &Globals,
    act: impl AsyncFnOnce(&Engine, &Origin) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let engine = Engine::open(World::system(), opening(globals)?).await?;
    let origin = origin(&engine);
    let acted = act(&engine, &origin).await;
    engine.close().await;
    acted
}

/// Looks at what is so, after the projections were brought up to the head: right also where no server runs.
pub(crate) async fn read<T>(
    globals: &Globals,
    look: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let engine = Engine::open_reader(World::system(), opening(globals)?).await?;
    let looked = async {
        projector::catch_up(&engine).await?;
        for status in projector::status(&engine).await? {
            if let Some((position, error)) = status.stopped {
                tracing::warn!(projection = status.name, position, %error, "stopped: what it shows is old");
            }
        }
        look(&engine).await
    };
    let looked = looked.await;
    engine.close().await;
    looked
}

/// Who acts: the person who typed it.
pub(crate) fn origin(engine: &Engine) -> Origin {
    Origin::of(engine.opening().actor.clone())
}

/// The person on the command line.
pub(crate) fn actor() -> Actor {
    cli_actor(uid())
}

/// How this process joins, from the command line and the environment.
pub(crate) fn opening(globals: &Globals) -> Result<Opening, Failure> {
    let known = ["sqlite:", "postgres:", "postgresql:"];
    if !known.iter().any(|scheme| globals.db.starts_with(scheme)) {
        // Only what stands behind an `@`: in front of it there may be a password.
        let shown = globals.db.split('@').next_back().unwrap_or_default();
        let sentence = format!("`{shown}` is no ledger address; use sqlite://FILE or postgres://USER@HOST/DATABASE");
        return Err(Failure::bad_request("address", sentence));
    }
    Ok(Opening {
        url: globals.db.clone(),
        outside: outside(globals)?,
        process: ProcessId::new(World::system().uuid()),
        actor: actor(),
        repeat_window_s: variable("MIDWATCH_REPEAT_WINDOW").as_deref().map(repeat_window).transpose()?,
        halted: scheduler_off()?,
    })
}

/// What of the deployment lies outside its ledger.
pub(crate) fn outside(globals: &Globals) -> Result<Outside, Failure> {
    let deployment = variable("MIDWATCH_DEPLOYMENT").map(|text| {
        let sentence = "MIDWATCH_DEPLOYMENT is no UUID; take it from `midwatch doctor` of the running deployment";
        text.parse::<ProcessId>().map(ProcessId::uuid).map_err(|_| Failure::bad_request("deployment", sentence))
    });
    Ok(Outside {
        deployment: deployment.transpose()?,
        key: variable("MIDWATCH_KEY"),
        key_file: globals.key_file.clone(),
        state_home: state_home()?.join("midwatch"),
    })
}

/// A variable that is set to something.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The directory for state, as the XDG base directory specification names it.
fn state_home() -> Result<PathBuf, Failure> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    absolute("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        Failure::bad_request("state_home", "there is no place for the deployment's state: set XDG_STATE_HOME or HOME")
    })
}

/// `180s`, `3m`, `1h`, in seconds.
fn repeat_window(text: &str) -> Result<u32, Failure> {
    let parsed = || {
        let unit = match text.as_bytes().last()? {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            _ => return None,
        };
        let number = text.get(..text.len() - 1).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        number.parse::<u32>().ok()?.checked_mul(unit).filter(|seconds| (1..=86_400).contains(seconds))
    };
    parsed().ok_or_else(|| {
        let sentence = format!("MIDWATCH_REPEAT_WINDOW is `{text}`; write a span up to a day, such as 180s or 3m");
        Failure::bad_request("repeat_window", sentence)
    })
}

/// Whether the environment keeps this process from starting anything. An unknown word must not be taken for either.
fn scheduler_off() -> Result<bool, Failure> {
    match variable("MIDWATCH_SCHEDULER").as_deref() {
        None | Some("on") => Ok(false),
        Some("off") => Ok(true),
        Some(other) => {
            Err(Failure::bad_request("scheduler", format!("MIDWATCH_SCHEDULER is `{other}`; write off, or unset it")))
        }
    }
}

/// The user this process runs as; nobody's number where the system does not tell.
fn uid() -> u32 {
    fs::metadata(Path::new("/proc/self")).map_or(u32::MAX, |process| process.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_window_is_a_span_with_its_unit() {
        for (text, seconds) in [("180s", 180), ("3m", 180), ("1h", 3_600), ("24h", 86_400)] {
            assert_eq!(repeat_window(text).unwrap(), seconds);
        }
        for bad in ["", "3", "m", "-3m", "3 m", "0s", "25h", "3d", "99999999999s", "١m"] {
            assert!(repeat_window(bad).is_err(), "{bad}");
        }
    }
}
