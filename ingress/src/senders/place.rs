//! Where something stands in a request.

use axum::http::{HeaderMap, HeaderName, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{is_pointer, pointer};

/// A place in a request, written `header:NAME`, `query:NAME`, `body:/POINTER`, `bearer` or `basic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Header(String),
    Query(String),
    /// A JSON pointer into the body; a `*` stands for every item of a list.
    Body(String),
    /// `Authorization: Bearer …`.
    Bearer,
    /// The password of `Authorization: Basic …`.
    Basic,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong =
            || D::Error::custom(format!("`{text}` is no place: header:NAME, query:NAME, body:/POINTER, bearer, basic"));
        match text.split_once(':') {
            None if text == "bearer" => Ok(Self::Bearer),
            None if text == "basic" => Ok(Self::Basic),
            Some(("header", name)) => {
                let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes()).map_err(|_| wrong())?;
                Ok(Self::Header(name.as_str().to_owned()))
            }
            Some(("query", name)) if !name.is_empty() => Ok(Self::Query(name.to_owned())),
            Some(("body", at)) if is_pointer(at) => Ok(Self::Body(at.to_owned())),
            None | Some(_) => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(name) => write!(f, "the header `{name}`"),
            Self::Query(name) => write!(f, "the query parameter `{name}`"),
            Self::Body(at) => write!(f, "`{at}` in the body"),
            Self::Bearer => f.write_str("`Authorization: Bearer`"),
            Self::Basic => f.write_str("the password of `Authorization: Basic`"),
        }
    }
}

/// Every line of a header, without the space around it.
pub(super) fn lines<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).into_iter().map(|value| value.as_bytes().trim_ascii())
}

/// The values of a query parameter.
pub(super) fn parameters<'a>(query: Option<&'a str>, name: &str) -> impl Iterator<Item = String> + 'a {
    let name = name.to_owned();
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.filter(move |(found, _)| *found == *name).map(|(_, value)| value.into_owned())
}

impl Place {
    /// The header it is, if it is one.
    pub(super) fn header(&self) -> Option<&str> {
        match self {
            Self::Header(name) => Some(name),
            Self::Query(_) | Self::Body(_) | Self::Bearer | Self::Basic => None,
        }
    }

    /// What a secret that is sent along may be: every value at this place.
    pub(super) fn secrets(&self, headers: &HeaderMap, query: Option<&str>, body: &[u8]) -> Vec<Vec<u8>> {
        let authorization = |scheme: &'static [u8]| {
            lines(headers, header::AUTHORIZATION.as_str()).filter_map(move |line| {
                let (found, rest) = line.split_at_checked(scheme.len() + 1)?;
                let (name, space) = found.split_at(scheme.len());
                (name.eq_ignore_ascii_case(scheme) && space == b" ").then(|| rest.trim_ascii().to_vec())
            })
        };
        match self {
            Self::Header(name) => lines(headers, name).map(<[u8]>::to_vec).collect(),
            Self::Query(name) => parameters(query, name).map(String::into_bytes).collect(),
            Self::Bearer => authorization(b"bearer").collect(),
            Self::Basic => authorization(b"basic")
                .filter_map(|line| STANDARD.decode(line).ok())
                .filter_map(|pair| {
                    pair.iter().position(|byte| *byte == b':').and_then(|at| pair.get(at + 1..).map(<[u8]>::to_vec))
                })
                .collect(),
            Self::Body(at) => {
                let found = std::str::from_utf8(body).map(|json| pointer::at(json, at)).unwrap_or_default();
                let mut texts: Vec<_> =
                    found.iter().filter_map(|raw| pointer::text(raw)).map(String::into_bytes).collect();
                // Every item of a list must carry the same one: a stranger's among ours would come in with them.
                texts.dedup();
                if texts.len() == 1 && pointer::whole(at, found.len(), body) { texts } else { Vec::new() }
            }
        }
    }

    /// The first value here, as text or a number; an empty one is none.
    pub(super) fn first(&self, headers: &HeaderMap, query: Option<&str>, json: Option<&str>) -> Option<Vec<u8>> {
        let found = match self {
            Self::Header(name) => lines(headers, name).next().map(<[u8]>::to_vec),
            Self::Query(name) => parameters(query, name).next().map(String::into_bytes),
            Self::Body(at) => {
                pointer::at(json?, at).first().and_then(|raw| pointer::scalar(raw)).map(String::into_bytes)
            }
            Self::Bearer | Self::Basic => None,
        };
        found.filter(|value| !value.trim_ascii().is_empty())
    }
}
