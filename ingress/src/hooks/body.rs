//! Reading a body: counted, in time, and never more memory than the cap.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody as _},
    http::{HeaderMap, StatusCode, header},
};
use http_body_util::BodyExt as _;

use crate::error::{Kind, Problem};

/// How long the rest of a refused body is read and thrown away, so that the sender gets to read our answer instead of a
/// cut connection; as long as something comes at least every [`DRAIN_IDLE`].
const DRAIN: Duration = Duration::from_secs(30);
const DRAIN_IDLE: Duration = Duration::from_secs(5);
/// How much of it, in bytes: a sender that still has not looked for an answer then is no sender.
const DRAIN_BYTES: usize = 128 << 20;
/// Pieces that a body may come in, beside one for each [`PIECE_BYTES`] of it. A piece costs work, however short it is: a
/// megabyte in chunks of one byte would cost as much as a thousand deliveries.
const PIECES: usize = 16_384;
const PIECE_BYTES: usize = 64;

/// The length a sender declares.
pub(super) fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Refuses by its declared length alone what is too long; before a byte of it is read, so that a sender who asked by
/// `Expect: 100-continue` never sends it.
pub(super) fn check_declared(headers: &HeaderMap, cap: u32) -> Result<(), Problem> {
    if declared(headers).is_some_and(|length| length > u64::from(cap)) { Err(too_long(cap)) } else { Ok(()) }
}

/// The body, byte for byte.
///
/// The bytes that come are what counts, whatever was declared. Memory grows with them and never beyond `cap`.
///
/// # Errors
/// 413 above `cap`, or in too many pieces; 408 when it is not whole after `deadline`; 400 when it breaks off.
pub(super) async fn read(body: &mut Body, cap: u32, deadline: Duration) -> Result<Vec<u8>, Problem> {
    let slow = || {
        let sentence = format!("the body was not whole after {} s", deadline.as_secs());
        let problem = Problem::new(StatusCode::REQUEST_TIMEOUT, Kind::BadRequest, "too_slow", sentence);
        problem.header(header::CONNECTION, "close")
    };
    tokio::time::timeout(deadline, collect(body, cap)).await.unwrap_or_else(|_| Err(slow()))
}

async fn collect(body: &mut Body, cap: u32) -> Result<Vec<u8>, Problem> {
    let cap_bytes = cap as usize;
    let mut bytes: Vec<u8> = Vec::new();
    let mut pieces = 0;
    while let Some(frame) = body.frame().await {
        pieces += 1;
        if too_many(pieces, bytes.len()) {
            let sentence = "the body comes in too many pieces; send it in larger chunks";
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Kind::BadRequest, "too_many_pieces", sentence));
        }
        let frame = frame.map_err(|_| Problem::bad("broken_off", "the body broke off before its end"))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > cap_bytes {
            return Err(too_long(cap));
        }
        if length > bytes.capacity() {
            // A vector left to itself would double beyond the cap.
            let room = length.max(bytes.capacity() * 2).min(cap_bytes);
            bytes.reserve_exact(room - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn too_many(pieces: usize, bytes: usize) -> bool {
    pieces > PIECES + bytes / PIECE_BYTES
}

pub(super) fn too_long(cap: u32) -> Problem {
    let sentence = format!("the body is longer than the {cap} bytes that this trigger takes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Kind::BadRequest, "too_large", sentence)
}

/// Reads the rest of a refused body and throws it away, beside the answer, within limits. Not after
/// `Expect: 100-continue`: whoever waits for our word sends nothing.
pub(super) fn drain(headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(header::EXPECT) || body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(DRAIN, async move {
        let (mut pieces, mut bytes) = (0, 0);
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_IDLE, body.frame()).await {
            pieces += 1;
            bytes += frame.data_ref().map_or(0, |data| data.len());
            if bytes > DRAIN_BYTES || too_many(pieces, bytes) {
                break;
            }
        }
    }));
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures_util::stream;

    use super::*;

    fn chunks(count: usize, bytes: usize) -> Body {
        let chunks = (0..count).map(move |_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes])));
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn memory_never_exceeds_the_cap() {
        let read = read(&mut chunks(99, 1_000), 100_000, Duration::from_secs(5)).await.unwrap();
        assert_eq!(read.len(), 99_000);
        assert!(read.capacity() <= 100_000, "{}", read.capacity());
    }

    #[tokio::test]
    async fn pieces_are_counted() {
        let read =
            |count, bytes| async move { read(&mut chunks(count, bytes), 1_000_000, Duration::from_secs(5)).await };
        assert_eq!(read(16_384, 1).await.unwrap().len(), 16_384);
        assert_eq!(read(15_625, 64).await.unwrap().len(), 1_000_000);
        let refused = read(20_000, 1).await.unwrap_err();
        assert_eq!((refused.status, refused.code), (StatusCode::PAYLOAD_TOO_LARGE, "too_many_pieces"));
    }

    #[tokio::test]
    async fn exactly_the_cap_is_whole_and_one_more_is_refused() {
        assert_eq!(read(&mut chunks(1, 100), 100, Duration::from_secs(5)).await.unwrap().len(), 100);
        let refused = read(&mut chunks(2, 51), 101, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
