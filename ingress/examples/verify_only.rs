//! The least that a receiver of webhooks can do, to measure ours beside it: reads the body, checks GitHub's signature,
//! answers 202, and stores nothing. `verify_only ADDRESS SECRET`
#![expect(clippy::unwrap_used, reason = "a benchmark's peer has nobody to explain anything to")]

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

async fn receive(State(secret): State<Arc<String>>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let given = headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given: Option<Vec<u8>> = given
        .strip_prefix("sha256=")
        .filter(|hex| hex.len() == 64)
        .and_then(|hex| (0..32).map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()).collect());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(&body);
    match given.is_some_and(|given| mac.verify_slice(&given).is_ok()) {
        true => (StatusCode::ACCEPTED, r#"{"status":"accepted"}"#),
        false => (StatusCode::UNAUTHORIZED, ""),
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (address, secret) = (arguments.next().unwrap(), arguments.next().unwrap());
    let router = Router::new().route("/hooks/{endpoint}", post(receive)).with_state(Arc::new(secret));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    axum::serve(listener, router).await.unwrap();
}
