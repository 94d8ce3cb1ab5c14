//! Signing in by a one-time link, and out.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use midwatch_engine::{people::SESSION_S, projector};

use super::{
    frame::{Failure, Page, html, ok},
    visitor::Posted,
};
use crate::{
    app::App,
    auth::{self, SESSION_COOKIE},
};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    /// The link's secret; none on the page that says how to get one.
    link: Option<&'a str>,
    error: Option<String>,
}

/// Says how to sign in, with 401.
pub(crate) fn needed() -> Response {
    let page = SignInPage { link: None, error: None };
    html(StatusCode::UNAUTHORIZED, &page).unwrap_or_else(IntoResponse::into_response)
}

/// `GET /sign-in`.
pub(super) async fn how() -> Page {
    ok(&SignInPage { link: None, error: None })
}

/// `GET /sign-in/{link}`: only a button, so that whoever previews a link does not use it up.
pub(super) async fn ask(Path(link): Path<String>) -> Page {
    ok(&SignInPage { link: Some(&link), error: None })
}

/// `POST /sign-in/{link}`.
pub(super) async fn sign_in(State(app): State<App>, Path(link): Path<String>, headers: HeaderMap) -> Page {
    // Else another site could sign somebody in as somebody else.
    auth::same_origin(&app, &headers)?;
    match app.engine.sign_in(&link).await {
        Ok(done) => {
            projector::wait_for(&app.engine, done.position).await;
            Ok(with_cookie(&app, &done.value.secret, SESSION_S, Redirect::to("/").into_response()))
        }
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            html(status, &SignInPage { link: None, error: Some(sentence) })
        }
    }
}

/// `POST /sign-out`.
pub(super) async fn sign_out(State(app): State<App>, posted: Posted) -> Page {
    if let (Some(user), Some(session)) = (posted.caller.user(), posted.caller.session) {
        app.engine.sign_out(user, session).await?;
    }
    Ok(with_cookie(&app, "", 0, Redirect::to("/sign-in").into_response()))
}

fn with_cookie(app: &App, value: &str, seconds: i64, mut response: Response) -> Response {
    let public = app.settings.public_url.as_deref();
    let secure = if public.is_some_and(|url| url.starts_with("https://")) { "; Secure" } else { "" };
    let cookie = format!("{SESSION_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    // Secrets are base64url, so every byte of it may stand in a header.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
