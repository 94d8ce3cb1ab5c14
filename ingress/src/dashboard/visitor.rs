//! Who looks at a page, and who posts a form.

use axum::{
    Form,
    extract::{FromRequest, FromRequestParts, Request},
    http::request::Parts,
    response::{IntoResponse, Redirect, Response},
};
use midwatch_engine::{Request as Asked, projector};
use midwatch_events::key::hash_parts;

use super::{
    fields::Fields,
    frame::{Failure, Page},
    sign_in,
};
use crate::{
    app::App,
    auth::{self, CSRF_FIELD, Caller},
    error::Problem,
};

/// A signed-in person. Everybody else is told how to sign in.
#[derive(Clone, Debug)]
pub(crate) struct Visitor(pub(crate) Caller);

impl FromRequestParts<App> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        match auth::caller(app, &parts.headers).await {
            // Pages are for people: a program's token reads the API.
            Ok(Some(caller)) if caller.session.is_some() => Ok(Self(caller)),
            Ok(_) => Err(sign_in::needed()),
            Err(problem) => Err(Failure(problem).into_response()),
        }
    }
}

/// A form that a signed-in person posted from one of our own pages.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) caller: Caller,
    pub(crate) fields: Fields,
    /// Sent again it is the same request: what the page's own id and its fields make of it.
    pub(crate) request: Option<Asked>,
}

impl FromRequest<App> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let Visitor(caller) = Visitor::from_request_parts(&mut parts, app).await?;
        let fail = |problem: Problem| Failure(problem).into_response();
        auth::same_origin(app, &parts.headers).map_err(fail)?;
        let path = parts.uri.path().to_owned();
        let form = Form::<Vec<(String, String)>>::from_request(Request::from_parts(parts, body), app).await;
        let Form(pairs) = form.map_err(|rejection| fail(Problem::bad("form", rejection.body_text())))?;
        let fields = Fields::new(pairs);
        caller.check_csrf(Some(fields.get(CSRF_FIELD))).map_err(fail)?;
        let request = fields.filled("request").map(|id| asked(&path, id, &fields));
        Ok(Self { caller, fields, request })
    }
}

/// A form that was sent twice by accident is one request; one that was corrected and sent again is another.
fn asked(path: &str, id: &str, fields: &Fields) -> Asked {
    let parts: Vec<&[u8]> =
        fields.pairs().iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]).collect();
    let digest = hash_parts(&parts);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Asked::new(&format!("{id}/{hex}"), &[b"POST", path.as_bytes(), &digest])
}

impl Posted {
    /// Only an admin goes on.
    pub(crate) fn admin(self) -> Result<Self, Failure> {
        self.caller.must_be_admin()?;
        Ok(self)
    }
}

/// Goes on to `path` once `position` can be seen there, so that people read their own writes.
pub(crate) async fn seen(app: &App, position: u64, path: &str) -> Page {
    projector::wait_for(&app.engine, position).await;
    Ok(Redirect::to(path).into_response())
}
