//! Who asks, and what they may do.
//!
//! A person comes with the cookie [`SESSION_COOKIE`], a program with `Authorization: Bearer mwt_…`; where both are
//! there the token counts. What a browser sends by itself proves nothing: an unsafe method with a cookie must come from
//! our own pages ([`Caller`] looks at that) and carry the session's CSRF token ([`Caller::check_csrf`]). A token is
//! sent by nobody's browser and needs neither.

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts, Request, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::Response,
};
use midwatch_engine::Origin;
use midwatch_events::{Actor, id::UserId, key::Digest, user::Access};
use subtle::ConstantTimeEq as _;

use crate::{
    app::App,
    error::{Kind, Problem},
};

/// The cookie that holds a session's secret.
pub const SESSION_COOKIE: &str = "midwatch_session";
/// The header that carries the CSRF token; forms use a field instead.
pub const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
/// The form field that carries the CSRF token.
pub const CSRF_FIELD: &str = "csrf";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who a request comes from. As an extractor it is a 401 for nobody, and a 403 for an unsafe method with a cookie that
/// another site may have sent; `Option<Caller>` is none for nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The actor of what they do.
    pub actor: Actor,
    /// What they may do.
    pub role: Access,
    /// Their session; none for a token.
    pub session: Option<Digest>,
    csrf: Option<String>,
}

impl Caller {
    /// The origin of what they do.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin::of(self.actor.clone())
    }

    /// The person, if it is one.
    #[must_use]
    pub fn user(&self) -> Option<UserId> {
        match self.actor {
            Actor::User(user) => Some(user),
            Actor::Token(_)
            | Actor::Cli(_)
            | Actor::Mcp(_)
            | Actor::Trigger(_)
            | Actor::Clock
            | Actor::Bot(_)
            | Actor::Engine => None,
        }
    }

    /// The token that forms of this session carry; none for a token's bearer, who needs none.
    #[must_use]
    pub fn csrf(&self) -> Option<&str> {
        self.csrf.as_deref()
    }

    /// Admins only.
    ///
    /// # Errors
    /// 403 for everybody else.
    pub fn must_be_admin(&self) -> Result<(), Problem> {
        match self.role {
            Access::Admin => Ok(()),
            Access::Member | Access::Auditor => Err(Problem::forbidden("only an admin may do this")),
        }
    }

    /// Whoever reads everything: admins and auditors.
    ///
    /// # Errors
    /// 403 for members.
    pub fn must_read_all(&self) -> Result<(), Problem> {
        if self.reads_all() { Ok(()) } else { Err(Problem::forbidden("only an admin or auditor may see this")) }
    }

    /// Whoever may read what senders sent: a permission of its own.
    ///
    /// # Errors
    /// 403 for everybody else.
    pub async fn must_read_evidence(&self, app: &App) -> Result<(), Problem> {
        self.must_read_all()?;
        if app.engine.reads_evidence(&self.actor).await? {
            return Ok(());
        }
        Err(Problem::forbidden(
            "you may not read what senders sent; an admin grants that with `midwatch user evidence`",
        ))
    }

    /// Whoever may change anything at all: admins and members.
    ///
    /// # Errors
    /// 403 for auditors.
    pub fn must_change(&self) -> Result<(), Problem> {
        match self.role {
            Access::Admin | Access::Member => Ok(()),
            Access::Auditor => Err(Problem::forbidden("an auditor reads everything and changes nothing")),
        }
    }

    /// Whether they see what belongs to others.
    #[must_use]
    pub fn reads_all(&self) -> bool {
        match self.role {
            Access::Admin | Access::Auditor => true,
            Access::Member => false,
        }
    }

    /// Whether they see what belongs to `owner`. What they do not see does not exist for them: answer 404, not 403.
    #[must_use]
    pub fn sees(&self, owner: UserId) -> bool {
        self.reads_all() || self.user() == Some(owner)
    }

    /// Compares a CSRF token in constant time. Whoever came with a token of their own needs none.
    ///
    /// # Errors
    /// 403 for a missing or wrong one.
    pub fn check_csrf(&self, given: Option<&str>) -> Result<(), Problem> {
        let Some(wanted) = &self.csrf else { return Ok(()) };
        let given = given.unwrap_or_default();
        if wanted.as_bytes().ct_eq(given.as_bytes()).into() {
            return Ok(());
        }
        let sentence = "the request carries no CSRF token of this session; reload the page and try again";
        Err(Problem::new(StatusCode::FORBIDDEN, Kind::Refusal, "csrf", sentence))
    }
}

/// Who a request with these headers comes from; none for nobody. Looks at nothing but their secret.
///
/// # Errors
/// A fault of the database.
pub async fn caller(app: &App, headers: &HeaderMap) -> Result<Option<Caller>, Problem> {
    if let Some(secret) = bearer(headers) {
        let found = app.engine.caller_by_token(secret).await?;
        return Ok(found.map(|found| Caller { actor: found.actor, role: found.role, session: None, csrf: None }));
    }
    let Some(secret) = cookie(headers, SESSION_COOKIE) else { return Ok(None) };
    let Some(found) = app.engine.caller_by_session(secret).await? else { return Ok(None) };
    let Some(session) = found.session else { return Ok(None) };
    let csrf = app.engine.secrets()?.csrf(&session).to_string();
    Ok(Some(Caller { actor: found.actor, role: found.role, session: Some(session), csrf: Some(csrf) }))
}

/// Whether a request that a browser made came from our own pages: `Sec-Fetch-Site` says so, or, where the browser does
/// not send it, `Origin` is the address the request came to (or the one we are known by).
///
/// # Errors
/// 403 for any other, and for one that says neither.
pub fn same_origin(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let same = match (headers.get(SEC_FETCH_SITE), headers.get(header::ORIGIN)) {
        (Some(site), _) => site == "same-origin",
        (None, Some(_)) => text(header::ORIGIN).is_some_and(|origin| {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            let public = app.settings.public_url.as_deref().map(|url| url.trim_end_matches('/'));
            (authority.is_some() && authority == text(header::HOST)) || Some(origin) == public
        }),
        (None, None) => false,
    };
    if same {
        return Ok(());
    }
    let sentence = "this request does not come from a page of this server";
    Err(Problem::new(StatusCode::FORBIDDEN, Kind::Refusal, "cross_site", sentence))
}

/// Stands before the whole API: nobody passes without a secret, and no unsafe method passes on a cookie alone.
pub(crate) async fn api_guard(State(app): State<App>, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let caller = authentic(&mut parts, &app).await?;
    if !is_safe(&parts.method) {
        let given = parts.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        caller.check_csrf(given)?;
    }
    parts.extensions.insert(caller);
    Ok(next.run(Request::from_parts(parts, body)).await)
}

async fn authentic(parts: &mut Parts, app: &App) -> Result<Caller, Problem> {
    if let Some(caller) = parts.extensions.get::<Caller>() {
        return Ok(caller.clone());
    }
    let Some(caller) = caller(app, &parts.headers).await? else {
        let sentence = "sign in, or send an API token as `Authorization: Bearer mwt_…`";
        let problem = Problem::new(StatusCode::UNAUTHORIZED, Kind::Refusal, "unauthenticated", sentence);
        return Err(problem.header(header::WWW_AUTHENTICATE, "Bearer"));
    };
    if caller.session.is_some() && !is_safe(&parts.method) {
        same_origin(app, &parts.headers)?;
    }
    Ok(caller)
}

/// RFC 9110, 9.2.1; of the safe ones we serve these.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        authentic(parts, app).await
    }
}

impl OptionalFromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Option<Self>, Problem> {
        match authentic(parts, app).await {
            Ok(caller) => Ok(Some(caller)),
            Err(problem) if problem.status == StatusCode::UNAUTHORIZED => Ok(None),
            Err(problem) => Err(problem),
        }
    }
}

/// What stands behind `Authorization: Bearer`, whatever the scheme's case (RFC 9110, 11.1).
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// A cookie's value.
#[must_use]
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| {
        let (found, value) = pair.trim().split_once('=')?;
        (found == name).then_some(value)
    })
}

#[cfg(test)]
mod tests;
