//! What a request asks: its body, who sent it, under which key, and on which version.

use axum::{
    RequestPartsExt as _,
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, HeaderName, StatusCode, header, request::Parts},
};
use midwatch_engine::{Origin, Request as Repeatable};
use serde::de::DeserializeOwned;

use super::header_text;
use crate::{
    app::App,
    auth::Caller,
    error::{Kind, Problem},
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const KEY_CHARS_MAX: usize = 255;

/// A change somebody asks for. No body is the same as `{}`.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    /// Who.
    pub(crate) caller: Caller,
    /// The same key with the same content is the same request, for ever.
    pub(crate) request: Option<Repeatable>,
    /// The version that what is changed must still have.
    pub(crate) if_match: Option<u64>,
    /// What.
    pub(crate) body: T,
}

impl<T> Asked<T> {
    pub(crate) fn origin(&self) -> Origin {
        self.caller.origin()
    }
}

impl<T: DeserializeOwned> FromRequest<App> for Asked<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let caller: Caller = parts.extract_with_state(app).await?;
        let key = key(&parts.headers)?;
        let if_match = if_match(&parts.headers)?;
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let json = is_json(&parts.headers);
        let bytes = Bytes::from_request(Request::from_parts(parts, body), app)
            .await
            .map_err(|rejection| Problem::new(rejection.status(), Kind::BadRequest, "body", rejection.body_text()))?;
        if !bytes.is_empty() && !json {
            let sentence = "send the body as Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::BadRequest, "not_json", sentence));
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let body = serde_json::from_slice(text)
            .map_err(|error| Problem::bad("invalid", format!("the body cannot be read: {error}")))?;
        let request = key.map(|key| {
            let actor = caller.actor.to_string();
            Repeatable::new(&key, &[method.as_str().as_bytes(), path.as_bytes(), &bytes, actor.as_bytes()])
        });
        Ok(Self { caller, request, if_match, body })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    match header_text(headers, &IDEMPOTENCY_KEY)? {
        Some(key) if key.is_empty() || key.chars().count() > KEY_CHARS_MAX => {
            let sentence = format!("an Idempotency-Key has 1 to {KEY_CHARS_MAX} characters");
            Err(Problem::bad("invalid_key", sentence))
        }
        key => Ok(key.map(str::to_owned)),
    }
}

/// `If-Match`: a version as our ETags write it. `*` is any.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    match header_text(headers, &header::IF_MATCH)? {
        None | Some("*") => Ok(None),
        Some(tag) => {
            let version = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            version.and_then(|version| version.parse().ok()).map(Some).ok_or_else(|| {
                let sentence = format!("`{tag}` is no ETag of ours; send the one that came with what you change");
                Problem::bad("invalid_etag", sentence)
            })
        }
    }
}

/// As [`axum::extract::Path`]; an id that is none names nothing.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(found)) => Ok(Self(found)),
            Err(_) => {
                let sentence = "the address holds no id";
                Err(Problem::new(StatusCode::NOT_FOUND, Kind::Refusal, "not_found", sentence))
            }
        }
    }
}

/// As [`axum::extract::Query`], with our own sentence for what cannot be read.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(found) = axum::extract::Query::<T>::from_request_parts(parts, state).await?;
        Ok(Self(found))
    }
}
