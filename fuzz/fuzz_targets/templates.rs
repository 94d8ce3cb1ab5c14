//! Templates that an admin writes: any text is a preset or a sentence, and no preset lets a stranger in.
#![no_main]

mod request;

use libfuzzer_sys::fuzz_target;
use midwatch_events::Micros;
use midwatch_ingress::senders::{self, Preset, Request};

fuzz_target!(|data: (&str, &[u8])| {
    let (text, bytes) = data;
    let preset = match Preset::parse(text) {
        Ok(preset) => preset,
        Err(sentence) => {
            assert!(!sentence.is_empty());
            return;
        }
    };
    let Some(held) = request::held(&preset, request::SECRETS[3]) else { return };
    let (headers, body) = request::request(bytes);
    let request = Request { headers: &headers, query: Some("a=b"), url: Some("https://x"), body, body_bytes_max: 100_000 };
    assert!(senders::judge(&preset, &[held], &request, Micros(1_796_083_784_000_000)).is_err(), "{text}");
});
