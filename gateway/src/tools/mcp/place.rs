//! How an MCP server is reached, as it is kept: what anybody may read is JSON, what nobody may is sealed under the
//! deployment's key.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use midwatch_engine::{EngineError, secrets::Secrets};
use serde::{Deserialize, Serialize};

use super::{CALL_MAX, CONNECT_MAX};
use crate::{
    child::Network,
    dialer::{Reach, address},
    redact::redact_text,
};

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A program of this machine, which is started and spoken to over its standard streams.
    Stdio {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// A web address that speaks streamable HTTP.
    Http {
        /// The address.
        url: String,
    },
}

/// What a server is held to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How long it may take to be there, and for each call, in seconds; 30 and 55 where that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// Its program touches nothing but the Bot's workspace and the system's programs, and over the network what this
    /// says: `none` over TCP, or `any`. Where it is not said it may do all that Midwatch's account may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
}

impl Terms {
    fn check(&self, way: &Way) -> Result<(), String> {
        let most = u32::try_from(CALL_MAX.as_secs()).unwrap_or(u32::MAX);
        if self.timeout_s.is_some_and(|timeout| !(1..=most).contains(&timeout)) {
            return Err(format!("a server's time-out is 1 to {most} s"));
        }
        match (&self.confined, way) {
            (None, _) => Ok(()),
            (Some(_), Way::Http { .. }) => Err("only a program of this machine can be confined".to_owned()),
            (Some(network), Way::Stdio { .. }) if Network::parse(network).is_some() => Ok(()),
            (Some(network), Way::Stdio { .. }) => {
                Err(format!("a program is confined to `none` or `any`, not `{network}`"))
            }
        }
    }

    /// How long it may take to be there.
    pub(super) fn connect(&self) -> Duration {
        self.timeout_s.map_or(CONNECT_MAX, |timeout| CONNECT_MAX.min(Duration::from_secs(timeout.into())))
    }

    /// How long a call may take.
    pub(super) fn call(&self) -> Duration {
        self.timeout_s.map_or(CALL_MAX, |timeout| Duration::from_secs(timeout.into()))
    }

    /// What its program may reach over the network, where it is confined. One that cannot be read is confined most.
    pub(super) fn network(&self) -> Option<Network> {
        self.confined.as_deref().map(|word| Network::parse(word).unwrap_or(Network::None))
    }
}

/// A server to make known.
#[derive(Clone, Debug)]
pub struct NewPlace {
    /// How it is reached.
    pub way: Way,
    /// Variables of its program's environment; values are secrets.
    pub environment: BTreeMap<String, String>,
    /// What it is shown as a bearer, over HTTP.
    pub token: Option<String>,
    /// What it is held to.
    pub terms: Terms,
}

/// A server that can be reached.
#[derive(Clone)]
pub struct Place {
    pub(super) way: Way,
    pub(super) terms: Terms,
    pub(super) secret: Secret,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("way", &self.way).finish_non_exhaustive()
    }
}

/// What only the server may know.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Secret {
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) token: Option<String>,
}

/// As it stands in an event.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    way: Way,
    #[serde(flatten)]
    terms: Terms,
    /// The names of the variables, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    variables: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
}

impl NewPlace {
    /// The text that is kept of it.
    ///
    /// # Errors
    /// A sentence: what is wrong with it, or that it holds a secret where it can be read.
    pub fn kept(&self, server: &str, secrets: &Secrets, nonce: [u8; 24]) -> Result<String, String> {
        self.terms.check(&self.way)?;
        match &self.way {
            Way::Stdio { command } => {
                if command.first().is_none_or(|program| program.is_empty()) {
                    return Err("name the program that is the server".to_owned());
                }
                if self.token.is_some() {
                    return Err("a program is given secrets in its environment, not as a token".to_owned());
                }
                if command.iter().any(|word| redact_text(word) != *word) {
                    let sentence = "the command seems to hold a secret; give it in a variable, which is kept sealed";
                    return Err(sentence.to_owned());
                }
            }
            Way::Http { url } => {
                address(url, Reach::Private).map_err(|barred| barred.to_string())?;
                if redact_text(url) != *url {
                    return Err(
                        "the address seems to hold a secret; give it as a token, which is kept sealed".to_owned()
                    );
                }
                if !self.environment.is_empty() {
                    return Err("a web address has no environment; give a token".to_owned());
                }
            }
        }
        let secret = Secret { environment: self.environment.clone(), token: self.token.clone() };
        let sealed = if secret == Secret::default() { None } else { Some(seal(server, &secret, secrets, nonce)?) };
        let variables = self.environment.keys().cloned().collect();
        let kept = Kept { way: self.way.clone(), terms: self.terms.clone(), variables, sealed };
        serde_json::to_string(&kept).map_err(|error| error.to_string())
    }

    /// As it is before it is kept.
    #[must_use]
    pub fn place(&self) -> Place {
        let secret = Secret { environment: self.environment.clone(), token: self.token.clone() };
        Place { way: self.way.clone(), terms: self.terms.clone(), secret }
    }
}

fn seal(server: &str, secret: &Secret, secrets: &Secrets, nonce: [u8; 24]) -> Result<String, String> {
    let text = serde_json::to_string(secret).map_err(|error| error.to_string())?;
    let sealed = secrets.sealed_for_server(server, &text, nonce).map_err(|error| error.to_string())?;
    Ok(STANDARD.encode(sealed))
}

impl Place {
    /// Reads what was kept.
    ///
    /// # Errors
    /// A sentence: it was not kept by this deployment.
    pub fn read(server: &str, kept: &str, secrets: &Secrets) -> Result<Self, String> {
        let kept: Kept = serde_json::from_str(kept).map_err(|error| format!("MCP server {server}: {error}"))?;
        let secret = match kept.sealed {
            None => Secret::default(),
            Some(sealed) => {
                let opened = STANDARD.decode(sealed).map_err(|error| EngineError::Corrupt(error.to_string()));
                let opened = opened.and_then(|bytes| secrets.unsealed_for_server(server, &bytes));
                let text = opened.map_err(|error| error.to_string())?;
                serde_json::from_str(&text).map_err(|error| format!("MCP server {server}: {error}"))?
            }
        };
        Ok(Self { way: kept.way, terms: kept.terms, secret })
    }

    /// How it is reached, for people, of what was kept. No secret stands there.
    #[must_use]
    pub fn shown(kept: &str) -> String {
        match serde_json::from_str::<Kept>(kept) {
            Ok(Kept { way: Way::Stdio { command }, variables, .. }) => {
                let names: Vec<_> = variables.iter().map(|name| format!("{name}=…")).collect();
                [names, command].concat().join(" ")
            }
            Ok(Kept { way: Way::Http { url }, .. }) => url,
            Err(_) => "(cannot be read)".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(way: Way) -> NewPlace {
        NewPlace { way, environment: BTreeMap::new(), token: None, terms: Terms::default() }
    }

    #[test]
    fn what_is_kept_shows_no_secret_and_can_be_read_again() {
        let secrets = Secrets::derive(&[1; 32]);
        let way = Way::Stdio { command: vec!["server".to_owned(), ".".to_owned()] };
        let mut place = new(way);
        place.environment.insert("API_KEY".to_owned(), "hunter2-hunter2".to_owned());
        let kept = place.kept("s", &secrets, [7; 24]).unwrap();
        assert!(!kept.contains("hunter2") && Place::shown(&kept) == "API_KEY=… server .", "{kept}");
        let read = Place::read("s", &kept, &secrets).unwrap();
        assert_eq!(read.secret.environment["API_KEY"], "hunter2-hunter2");
        assert!(!format!("{read:?}").contains("hunter2"));
        // Under another server's name, or with another key, it is nothing.
        assert!(Place::read("t", &kept, &secrets).is_err());
        assert!(Place::read("s", &kept, &Secrets::derive(&[2; 32])).is_err());
    }

    #[test]
    fn secrets_do_not_stand_where_anybody_reads() {
        let secrets = Secrets::derive(&[1; 32]);
        let refused = |way| new(way).kept("s", &secrets, [0; 24]).is_err();
        let token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
        assert!(refused(Way::Stdio { command: vec!["s".to_owned(), format!("--token={token}")] }));
        assert!(refused(Way::Http { url: format!("https://mcp.example/?token={token}") }));
        assert!(refused(Way::Http { url: "https://u:p@mcp.example/".to_owned() }));
        assert!(refused(Way::Http { url: "ftp://mcp.example/".to_owned() }));
        assert!(refused(Way::Stdio { command: vec![] }));
    }

    #[test]
    fn terms_are_kept_and_what_cannot_be_held_is_refused() {
        let secrets = Secrets::derive(&[1; 32]);
        let program = || Way::Stdio { command: vec!["server".to_owned()] };
        let web = || Way::Http { url: "https://mcp.example/".to_owned() };
        let terms = |timeout_s, confined: Option<&str>| Terms { timeout_s, confined: confined.map(str::to_owned) };
        let kept = |way, terms| NewPlace { terms, ..new(way) }.kept("s", &secrets, [0; 24]);
        let good = kept(program(), terms(Some(5), Some("none"))).unwrap();
        let place = Place::read("s", &good, &secrets).unwrap();
        assert_eq!((place.terms.connect(), place.terms.network()), (Duration::from_secs(5), Some(Network::None)));
        assert!(kept(program(), Terms::default()).unwrap().len() < good.len());
        assert!(kept(program(), terms(Some(0), None)).is_err() && kept(program(), terms(Some(56), None)).is_err());
        assert!(kept(program(), terms(None, Some("some"))).is_err() && kept(web(), terms(None, Some("any"))).is_err());
    }
}
