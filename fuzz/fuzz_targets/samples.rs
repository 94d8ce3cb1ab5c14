//! A pasted sample: any text, any preset. It never verifies, and says why in a sentence.
#![no_main]

mod request;

use libfuzzer_sys::fuzz_target;
use midwatch_events::Micros;
use midwatch_ingress::senders::{self, check};

fuzz_target!(|data: (u8, u8, &str)| {
    let (which, secret, text) = data;
    let presets: Vec<_> = senders::all().collect();
    let preset = &presets[usize::from(which) % presets.len()];
    let Some(held) = request::held(preset, request::SECRETS[usize::from(secret) % request::SECRETS.len()]) else { return };
    let Ok(pasted) = check::paste(text) else { return };
    let now = Micros(1_796_083_784_000_000);
    let chosen = ["/a/0/b".to_owned()];
    let verdict = check::check(preset, &[held], &chosen, &pasted, Some("https://watch.example"), 100_000, now);
    assert!(!verdict.verified && !verdict.sentence.is_empty(), "{}: {verdict:?}", preset.name);
});
