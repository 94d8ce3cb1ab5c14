//! Every signing scheme, with requests that anybody could send. Nobody gets in who does not know the key; and what its
//! sender signs gets in, whatever the body holds, but not once a byte was changed.
#![no_main]

mod request;

use libfuzzer_sys::fuzz_target;
use midwatch_events::Micros;
use midwatch_ingress::senders::{self, Request, Unsigned, check::SAMPLE_BYTES_MAX};

const NOW: Micros = Micros(1_796_083_784_000_000);
const URL: &str = "https://watch.example/hooks/AZaz09-_AZaz09-_AZaz09-_";

fuzz_target!(|data: &[u8]| {
    let [which, secret, flip, rest @ ..] = data else { return };
    let presets: Vec<_> = senders::all().collect();
    let preset = &presets[usize::from(*which) % presets.len()];
    let secret = request::SECRETS[usize::from(*secret) % request::SECRETS.len()];
    let Some(held) = request::held(preset, secret) else { return };
    let (headers, body) = request::request(rest);
    let asked =
        Request { headers: &headers, query: None, url: Some(URL), body, body_bytes_max: SAMPLE_BYTES_MAX };
    let held = [held];
    if let Ok(genuine) = senders::judge(preset, &held, &asked, NOW) {
        // Without the key, a fuzzer cannot sign; a secret that is sent along is not in its dictionary.
        panic!("{} let in a stranger: {genuine:?}", preset.name);
    }
    let _ = senders::look(preset, &["/id".to_owned()], &asked, std::str::from_utf8(body).ok());
    let _ = senders::before(preset, None);
    let _ = senders::with(preset, held.first(), std::str::from_utf8(body).unwrap_or_default());

    let content_type = if preset.name == "twilio" { "application/x-www-form-urlencoded" } else { "application/json" };
    let unsigned = Unsigned { secret, body, content_type, id: "id", event_type: None, url: URL, now: NOW };
    if !preset.signs() {
        return;
    }
    let Ok(mut out) = senders::sign(preset, &unsigned) else { return };
    let mut signed = axum::http::HeaderMap::new();
    for (name, value) in &out.headers {
        let (Ok(name), Ok(value)) =
            (name.parse::<axum::http::HeaderName>(), axum::http::HeaderValue::from_str(value))
        else {
            return;
        };
        signed.append(name, value);
    }
    let ask = |body: &[u8]| {
        let asked = Request { headers: &signed, query: None, url: Some(URL), body, body_bytes_max: SAMPLE_BYTES_MAX };
        senders::judge(preset, &held, &asked, NOW).is_ok()
    };
    // A public key signs nothing.
    let genuine = ask(&out.body);
    if !secret.starts_with("whpk_") && preset.name != "discord" {
        assert!(genuine, "{}: what its sender signs is refused", preset.name);
    }
    // Of a form, its fields are signed and not how they are written.
    if !out.body.is_empty() && preset.name != "twilio" {
        let at = usize::from(*flip) % out.body.len();
        out.body[at] ^= 1;
        assert!(!ask(&out.body), "{}: a changed body is let in", preset.name);
    }
});
