//! In which zone somebody reads: what the URL says (`tz`), else what was chosen before, else UTC.
//!
//! The page's script chooses the browser's own zone once, where nothing was chosen; the form chooses without a script.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderValue, header, request::Parts},
    response::{IntoResponse as _, Redirect},
};
use midwatch_commands::calendar::Zone;

use super::{
    fields::Fields,
    frame::{Failure, Page},
    visitor::Posted,
};
use crate::{app::App, auth::cookie, error::Problem};

/// The cookie a choice is kept in. It is no secret, and the page's script may set it.
const ZONE_COOKIE: &str = "midwatch_zone";
/// How long a choice is kept, in seconds: a year.
const KEPT_S: u32 = 31_536_000;

/// A reader's zone.
#[derive(Clone, Debug)]
pub(crate) struct Viewing {
    pub(crate) zone: Zone,
    /// Whether somebody said so; else it is UTC until the script has looked.
    pub(crate) chosen: bool,
}

impl Viewing {
    fn new(asked: Option<&str>, kept: Option<&str>) -> Option<Self> {
        let known = [asked, kept].into_iter().flatten().find_map(|name| Zone::named(name).ok());
        let chosen = known.is_some();
        Some(Self { zone: known.map_or_else(|| Zone::named("UTC").ok(), Some)?, chosen })
    }
}

impl FromRequestParts<App> for Viewing {
    type Rejection = Failure;

    /// A zone that is not known is as none.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let Ok::<_, Infallible>(query) = Fields::from_request_parts(parts, app).await;
        let utc = || Failure(Problem::bad("unknown_zone", "the zone data has no UTC"));
        Self::new(query.filled("tz"), cookie(&parts.headers, ZONE_COOKIE)).ok_or_else(utc)
    }
}

/// `POST /viewing`: keeps a zone, and goes back to the page it was chosen on.
pub(super) async fn choose(State(_): State<App>, posted: Posted) -> Page {
    let zone = Zone::named(posted.fields.get("zone")).map_err(Problem::from)?;
    let back = Some(posted.fields.get("back")).filter(|path| is_ours(path)).unwrap_or("/");
    let mut response = Redirect::to(back).into_response();
    let cookie = format!("{ZONE_COOKIE}={}; Path=/; Max-Age={KEPT_S}; SameSite=Lax", zone.name());
    // IANA names are letters, digits and `/_+-`.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// A path of ours: nobody is sent elsewhere by a form that somebody else wrote.
fn is_ours(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_counts_more_than_what_was_kept() {
        let zone =
            |asked, kept| Viewing::new(asked, kept).map(|viewing| (viewing.zone.name().to_owned(), viewing.chosen));
        assert_eq!(zone(Some("Asia/Tokyo"), Some("Europe/Berlin")), Some(("Asia/Tokyo".into(), true)));
        assert_eq!(zone(Some("Mars"), Some("Europe/Berlin")), Some(("Europe/Berlin".into(), true)));
        assert_eq!(zone(None, Some("<script>")), Some(("UTC".into(), false)));
    }

    #[test]
    fn the_way_back_is_a_path_of_ours() {
        assert!(is_ours("/routines/1?tz=UTC"));
        for elsewhere in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a b", "/\u{e9}"] {
            assert!(!is_ours(elsewhere), "{elsewhere}");
        }
    }
}
