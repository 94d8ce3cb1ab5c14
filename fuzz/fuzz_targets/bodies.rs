//! What an authentic sender may send: packed or not, a form or JSON or neither. It is read or left unread, with a reason,
//! and never longer than its cap.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midwatch_engine::reading;
use midwatch_ingress::{senders, unparsed};

const CAP: usize = 65_536;

fuzz_target!(|data: (u8, &[u8])| {
    let (how, body) = data;
    let kind = [None, Some("application/json"), Some("application/x-www-form-urlencoded"), Some("text/plain; x=\"")];
    let coding = [None, Some("gzip"), Some("deflate"), Some("identity")];
    let (kind, coding) = (kind[usize::from(how) & 3], coding[usize::from(how >> 2) & 3]);
    let Ok(read) = reading::read(kind, coding, body, CAP) else { return };
    if coding.is_some_and(|coding| coding != "identity") {
        assert!(read.len() <= CAP.max(body.len()) * 7, "{}", read.len());
    }
    let reason = unparsed(&read);
    let Ok(text) = std::str::from_utf8(&read) else {
        assert!(reason.is_some());
        return;
    };
    let headers = axum::http::HeaderMap::new();
    let request = senders::Request { headers: &headers, query: None, url: None, body, body_bytes_max: CAP };
    for preset in senders::all() {
        let text = Some(text).filter(|_| reason.is_none());
        let _ = senders::look(&preset, &["/".to_owned(), "/a~1b/*/0".to_owned()], &request, text);
    }
});
