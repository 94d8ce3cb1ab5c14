//! Style, scripts and icon: part of the binary, served with fixed types and revalidated by their hash.

use axum::{
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest as _, Sha256};

use crate::error::Problem;

/// One embedded file: its name, its type and its bytes.
type Asset = (&'static str, &'static str, &'static [u8]);

const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

const FILES: [Asset; 9] = [
    ("midwatch.css", CSS, include_bytes!("../../assets/midwatch.css")),
    ("forms.css", CSS, include_bytes!("../../assets/forms.css")),
    ("pages.css", CSS, include_bytes!("../../assets/pages.css")),
    ("routines.css", CSS, include_bytes!("../../assets/routines.css")),
    ("midwatch.js", JS, include_bytes!("../../assets/midwatch.js")),
    ("htmx.min.js", JS, include_bytes!("../../assets/htmx.min.js")),
    ("hx-sse.min.js", JS, include_bytes!("../../assets/hx-sse.min.js")),
    ("LICENSE-htmx", "text/plain; charset=utf-8", include_bytes!("../../assets/LICENSE-htmx")),
    ("midwatch.svg", "image/svg+xml", include_bytes!("../../assets/midwatch.svg")),
];

/// `GET /assets/{file}`.
pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(file, ..)| *file == name);
    let (_, content_type, bytes) = found.ok_or_else(|| Problem::not_found("file"))?;
    let etag = etag(bytes);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    // The same name holds other bytes after an upgrade, so a browser asks each time and is told 304.
    let caching = [(header::ETAG, etag.clone()), (header::CACHE_CONTROL, "no-cache".to_owned())];
    if known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == etag)) {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    Ok((caching, [(header::CONTENT_TYPE, *content_type)], *bytes).into_response())
}

fn etag(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}
