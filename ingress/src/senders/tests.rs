//! Presets, signatures and what may be wrong with them. The senders' own libraries sign in the whole-program tests.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use midwatch_engine::secrets::hashed;
use midwatch_events::{Micros, key::Digest};

use super::*;

const NOW: Micros = Micros(1_796_049_917_000_000);
const URL: &str = "https://watch.example/hooks/AAAAAAAAAAAAAAAAAAAAAAAA";
/// A key of Ed25519 from RFC 8032, 7.1, test 1.
const PRIVATE: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    lines.iter().map(line).collect()
}

/// A secret of a preset as its sender uses it to sign, and as it is given here.
fn secrets(preset: &Preset) -> (String, String) {
    match preset.name.as_str() {
        "discord" => (PRIVATE.to_owned(), PUBLIC.to_owned()),
        "standard-webhooks" | "gitlab" => ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"; 2].map(str::to_owned).into(),
        _ => ["mw_some-secret"; 2].map(str::to_owned).into(),
    }
}

fn held(preset: &Preset, secret: &str) -> Held {
    if preset.signs() {
        Held { digest: Digest([1; 32]), key: Some(preset.key(secret).unwrap()) }
    } else {
        Held { digest: hashed(secret), key: None }
    }
}

/// A request that a preset's sender sends, and the body it sends.
fn sent(preset: &Preset, secret: &str) -> Outgoing {
    let (body, content_type) = match preset.name.as_str() {
        "twilio" => ("To=%2B1&Body=caf%C3%A9&From=2", "application/x-www-form-urlencoded"),
        "microsoft-graph" => (r#"{"value":[{"changeType":"created"},{"changeType":"updated"}]}"#, "application/json"),
        _ => (r#"{"id":"evt_1","type":"a.b","n":1524831183200260097}"#, "application/json"),
    };
    let body = body.as_bytes();
    sign(preset, &Unsigned { secret, body, content_type, id: "id_1", event_type: Some("push"), url: URL, now: NOW })
        .unwrap()
}

fn judged(preset: &Preset, held: &[Held], out: &Outgoing, now: Micros) -> Result<Genuine, Failed> {
    let lines: Vec<_> = out.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let headers = headers(&lines);
    let query = out.query.as_deref();
    judge(
        preset,
        held,
        &Request { headers: &headers, query, url: Some(URL), body: &out.body, body_bytes_max: 1_000 },
        now,
    )
}

fn later(seconds: i64) -> Micros {
    Micros(NOW.0 + seconds * 1_000_000)
}

#[test]
fn every_preset_can_be_read_and_says_where_it_comes_from() {
    assert_eq!(all().count(), names().count());
    for name in names() {
        let preset = Preset::parse(text(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(preset.name, name);
        assert!(!preset.title.is_empty() && !preset.setup.is_empty(), "{name}");
        assert!(preset.source.starts_with("https://") || name == "template", "{name}: {}", preset.source);
    }
    assert!(find("nobody").unwrap_err().to_string().contains("github, gitlab"));
}

#[test]
fn what_a_sender_sends_is_genuine_and_what_was_changed_is_not() {
    for preset in all() {
        let name = &preset.name;
        let (signing, given) = secrets(&preset);
        let held = held(&preset, &given);
        let out = sent(&preset, &signing);
        let genuine =
            judged(&preset, std::slice::from_ref(&held), &out, NOW).unwrap_or_else(|failed| panic!("{name}: {failed}"));
        assert_eq!(genuine.secret, held.digest, "{name}");
        assert_eq!(genuine.signed.is_some(), preset.signs(), "{name}");

        let other = match name.as_str() {
            "discord" => Held { digest: Digest([2; 32]), key: Some(Key::Ed25519([7; 32])) },
            "standard-webhooks" | "gitlab" => self::held(&preset, "whsec_AAAA"),
            _ => self::held(&preset, "mw_another-secret"),
        };
        let refused = |held: &[Held], out: &Outgoing, now, step| {
            let failed = judged(&preset, held, out, now).unwrap_err();
            assert_eq!(failed.step, step, "{name}: {failed}");
        };
        let unknown = if preset.signs() { Step::Signature } else { Step::Secret };
        refused(std::slice::from_ref(&other), &out, NOW, unknown);
        refused(&[], &out, NOW, unknown);
        // Beside another one, as in an overlap, it is good.
        assert_eq!(judged(&preset, &[other, held.clone()], &out, NOW).unwrap().secret, held.digest, "{name}");
        refused(
            std::slice::from_ref(&held),
            &Outgoing { headers: vec![], ..out.clone() },
            NOW,
            match name.as_str() {
                "microsoft-graph" => continue,
                "standard-webhooks" | "gitlab" | "template" => Step::Id,
                "twilio" => Step::Form,
                _ if preset.timestamp.as_ref().is_some_and(|at| matches!(at.place, place::Place::Header(_))) => {
                    Step::Timestamp
                }
                _ if preset.signs() => Step::Header,
                _ => Step::Secret,
            },
        );
        if !preset.signs() {
            continue;
        }
        let mut changed = out.clone();
        *changed.body.last_mut().unwrap() ^= 1;
        refused(std::slice::from_ref(&held), &changed, NOW, Step::Signature);
        let Some(timestamp) = &preset.timestamp else { continue };
        let (past, future) = (i64::from(timestamp.past_s), i64::from(timestamp.future_s));
        let fine = |now| judged(&preset, std::slice::from_ref(&held), &out, now).is_ok();
        assert!(fine(later(past)) && fine(later(-future)), "{name}");
        refused(std::slice::from_ref(&held), &out, later(past + 1), Step::Timestamp);
        refused(std::slice::from_ref(&held), &out, later(-future - 1), Step::Timestamp);
    }
}

/// The public vectors of GitHub and of Standard Webhooks.
#[test]
fn public_vectors_verify() {
    let github = find("github").unwrap();
    let mut out = Outgoing {
        headers: vec![(
            "x-hub-signature-256".to_owned(),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".to_owned(),
        )],
        body: b"Hello, World!".to_vec(),
        query: None,
    };
    let key = held(&github, "It's a Secret to Everybody");
    judged(&github, std::slice::from_ref(&key), &out, NOW).unwrap();
    out.body.push(b'\n');
    assert_eq!(judged(&github, &[key], &out, NOW).unwrap_err().step, Step::Signature);

    let standard = find("standard-webhooks").unwrap();
    let key = held(&standard, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    let out = Outgoing {
        headers: [
            ("webhook-id", "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk"),
            ("webhook-timestamp", "1649367553"),
            ("webhook-signature", "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        body: br#"{"email":"test@example.com","username":"test_user"}"#.to_vec(),
        query: None,
    };
    judged(&standard, std::slice::from_ref(&key), &out, Micros(1_649_367_553_000_000)).unwrap();
    assert_eq!(judged(&standard, &[key], &out, NOW).unwrap_err().step, Step::Timestamp);
}

// W21 of the cases that broke receivers.
#[test]
fn w21_strange_timestamps_and_many_signatures() {
    let preset = find("standard-webhooks").unwrap();
    let (secret, _) = secrets(&preset);
    let held = [held(&preset, &secret)];
    let good = sent(&preset, &secret);
    let with = |name: &str, value: &str| {
        let mut out = good.clone();
        out.headers.iter_mut().find(|(found, _)| found == name).unwrap().1 = value.to_owned();
        out
    };
    for timestamp in [
        "-9223372036854775808",
        "9223372036854775807",
        "+1796049917",
        " ",
        "",
        "1796049917.0",
        "0x6b0d5a7d",
        "1e9",
        "١٧٩٦",
    ] {
        let failed = judged(&preset, &held, &with("webhook-timestamp", timestamp), NOW).unwrap_err();
        assert_eq!(failed.step, Step::Timestamp, "{timestamp}");
    }
    let right = &good.headers.iter().find(|(name, _)| name == "webhook-signature").unwrap().1;
    let wrong = "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";
    for lines in [
        vec![format!("{wrong} {right}")],
        vec![wrong.to_owned(), right.clone()],
        vec![format!("v2,x v1a,AAAA v1,! {right}")],
    ] {
        let mut out = good.clone();
        out.headers.retain(|(name, _)| name != "webhook-signature");
        out.headers.extend(lines.iter().map(|line| ("webhook-signature".to_owned(), line.clone())));
        judged(&preset, &held, &out, NOW).unwrap_or_else(|failed| panic!("{lines:?}: {failed}"));
    }
    for (signature, step) in [
        (wrong.to_owned(), Step::Signature),
        ("v1,!".to_owned(), Step::Encoding),
        (right.trim_start_matches("v1,").to_owned(), Step::Header),
        (vec![wrong; 1_000].join(" ") + " " + right, Step::Signature),
    ] {
        assert_eq!(judged(&preset, &held, &with("webhook-signature", &signature), NOW).unwrap_err().step, step);
    }
    for key in ["whsec_", "whsec_!", "", " ", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "whpk_AAAA"] {
        let error = preset.key(key).unwrap_err();
        assert!(key.trim().is_empty() || !error.contains(key) || key == "whsec_", "{error}");
    }
}

#[test]
fn ed25519_signs_standard_webhooks_too() {
    use base64::Engine as _;
    let preset = find("standard-webhooks").unwrap();
    let base64 = |hex: &str| {
        base64::engine::general_purpose::STANDARD.encode(key::decoded(preset::Encoding::Hex, hex.as_bytes()).unwrap())
    };
    let held = [held(&preset, &format!("whpk_{}", base64(PUBLIC)))];
    let out = sent(&preset, &format!("whsk_{}", base64(PRIVATE)));
    assert!(
        out.headers.iter().any(|(name, value)| name == "webhook-signature" && value.starts_with("v1a,")),
        "{out:?}"
    );
    judged(&preset, &held, &out, NOW).unwrap();
    // A public key makes no HMAC key of itself.
    let forged = sent(&preset, &format!("whsec_{}", base64(PUBLIC)));
    assert_eq!(judged(&preset, &held, &forged, NOW).unwrap_err().step, Step::Signature);
}

#[test]
fn a_template_says_what_is_wrong_with_it() {
    let usual = text("template").unwrap();
    for (from, to, said) in [
        ("{id}.{timestamp}.{body}", "{id}.{timestamp}", "{body} or {form}"),
        ("{id}.{timestamp}.{body}", "{id}.{time}.{body}", "`{time}` is none of"),
        ("{id}.{timestamp}.{body}", "{id", "a `{` has no `}`"),
        ("id = [\"header:x-webhook-id\"]", "", "which header it is in"),
        ("header:x-webhook-timestamp", "x-webhook-timestamp", "is no place"),
        ("hmac-sha256\"", "md5\"", "unknown variant"),
        ("packed = \"refused\"", "pakced = 1", "unknown field"),
        ("x-webhook-signature\"", "no header\"", "no header's name"),
    ] {
        let error = Preset::parse(&usual.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(said), "{to}: {error}");
    }
    assert!(Preset::parse("").unwrap_err().contains("token"));
    let own =
        "[[signature]]\nheader = \"X-Sig\"\nsigned = \"{body}\"\nalgorithm = \"hmac-sha512\"\nencoding = \"base64\"";
    let preset = Preset::parse(own).unwrap();
    let out = sent(&preset, "k");
    judged(&preset, &[held(&preset, "k")], &out, NOW).unwrap();
}

#[test]
fn what_a_request_says_of_itself() {
    let of = |preset: &str, chosen: &[&str], lines: &[(&str, &str)], body: &str| {
        let headers = headers(lines);
        let request =
            Request { headers: &headers, query: None, url: None, body: body.as_bytes(), body_bytes_max: 1_000 };
        let chosen: Vec<_> = chosen.iter().map(|text| (*text).to_owned()).collect();
        look(&find(preset).unwrap(), &chosen, &request, Some(body))
    };
    for (lines, id) in [
        (vec![("idempotency-key", "a"), ("x-delivery-id", "b")], Some("a")),
        (vec![("x-delivery-id", " b ")], Some("b")),
        (vec![("idempotency-key", ""), ("x-delivery-id", "b")], Some("b")),
        (vec![("idempotency-key", "  ")], None),
        (vec![], None),
        (vec![("idempotency-key", "ä€")], Some("ä€")),
    ] {
        assert_eq!(of("bearer", &[], &lines, "").id.as_deref(), id, "{lines:?}");
    }
    for (body, event_type) in [
        (r#"{"type":"c","event_type":"b","event":"a"}"#, Some("a")),
        (r#"{"type":"c","event_type":"b","event":{"type":"x"}}"#, Some("b")),
        (r#"{"type":"c","event":""}"#, Some("c")),
        (r#"{"data":{"event":"inner"}}"#, None),
        (r#"{"event":7}"#, None),
        (r#"[{"event":"a"}]"#, None),
        (r#""event""#, None),
        (r#"{"a":"\u001B","event":"x\u0007y"}"#, Some("xy")),
    ] {
        assert_eq!(of("bearer", &[], &[], body).event_type.as_deref(), event_type, "{body}");
    }
    let stripe = of("stripe", &[], &[], r#"{"id":"evt_1","type":"invoice.paid"}"#);
    assert_eq!(
        (stripe.id.as_deref(), stripe.id_alone, stripe.event_type.as_deref()),
        (Some("evt_1"), true, Some("invoice.paid"))
    );
    let cloud = of("cloudevents", &[], &[("ce-id", "1"), ("ce-source", "/a"), ("ce-type", "t")], "{}");
    assert_eq!((cloud.id.as_deref(), cloud.id_alone), (Some("/a 1"), false));
    let chosen = of("github", &["/order/id"], &[("x-github-delivery", "g")], r#"{"order":{"id":1524831183200260097}}"#);
    assert_eq!((chosen.id.as_deref(), chosen.id_alone), (Some("1524831183200260097"), true));
    let both = |body| of("bearer", &["/a", "/b"], &[], body).id.unwrap();
    assert_ne!(both(r#"{"a":"1 2","b":"3"}"#), both(r#"{"a":"1","b":"2 3"}"#));
    assert_eq!(of("bearer", &["/a", "/b"], &[("x-delivery-id", "x")], r#"{"a":1}"#).id.as_deref(), Some("x"));
    let group = |status: &str, starts: &str| {
        let body = format!(
            r#"{{"groupKey":"g","status":"firing","truncatedAlerts":0,"alerts":[{{"fingerprint":"f","status":"{status}","startsAt":"{starts}"}}]}}"#
        );
        of("alertmanager", &[], &[], &body).alike.unwrap()
    };
    assert_eq!(group("firing", "1"), group("firing", "1"));
    assert_ne!(group("firing", "1"), group("resolved", "1"));
    assert_ne!(group("firing", "1"), group("firing", "2"));
}

#[test]
fn a_pasted_sample_says_where_it_fails() {
    let preset = find("stripe").unwrap();
    let held = [held(&preset, "whsec_x")];
    let out = sent(&preset, "whsec_x");
    let signature = &out.headers.iter().find(|(name, _)| name == "stripe-signature").unwrap().1;
    let body = String::from_utf8(out.body.clone()).unwrap();
    for newline in ["\r\n", "\n"] {
        let pasted = format!(
            "POST /hooks/x?a=b HTTP/1.1{newline}Host: x{newline}Stripe-Signature: {signature}{newline}{newline}{body}"
        );
        let pasted = check::paste(&pasted).unwrap();
        assert_eq!(pasted.query.as_deref(), Some("a=b"));
        let at = |now| check::check(&preset, &held, &[], &pasted, None, 1_000, now);
        let verdict = at(NOW);
        assert!(verdict.verified, "{verdict:?}");
        assert_eq!((verdict.id.as_deref(), verdict.event_type.as_deref()), (Some("evt_1"), Some("a.b")));
        let old = at(later(86_400));
        assert_eq!((old.verified, old.step, old.only_too_old), (false, Some(Step::Timestamp), true));
        assert!(old.sentence.contains("86400 s ago"), "{}", old.sentence);
    }
    let verdict = |text: &str| check::check(&preset, &held, &[], &check::paste(text).unwrap(), None, 1_000, NOW);
    assert_eq!(verdict(&format!("Stripe-Signature: {signature}\n\n{body}\n")).step, Some(Step::Signature));
    assert_eq!(verdict("Host: x\n\n{}").step, Some(Step::Timestamp));
    assert!(check::paste("no header\n\nbody").unwrap_err().contains("line 1"));
}

#[test]
fn nothing_that_is_prepared_is_without_a_secret() {
    let random = [7; 32];
    let error = |preset, template, given| prepare(preset, template, given, random).unwrap_err();
    assert!(error("stripe", None, None).contains("the sender who shows it"));
    assert!(error("stripe", None, Some(" ")).contains("the sender who shows it"));
    assert!(error("standard-webhooks", None, Some("whsec_")).contains("no secret of this sender"));
    assert!(error("bearer", None, Some("mw_x")).contains("leave the secret out"));
    assert!(error("github", Some("x"), None).contains("`template` alone"));
    assert!(error("template", None, Some("x")).contains("write the template"));
    assert!(error("nobody", None, None).contains("there is no preset"));
    for preset in all().filter(|preset| preset.secret == Maker::Midwatch && preset.signs()) {
        let template = (preset.name == "template").then(|| text("template").unwrap());
        let prepared = prepare(&preset.name, template, None, random).unwrap();
        preset.key(&prepared.made.unwrap()).unwrap();
    }
    let meta = prepare("meta", None, Some("app secret"), random).unwrap();
    assert_eq!(meta.verify_token.unwrap().len(), 32);
    assert!(!format!("{:?}", prepare("meta", None, Some("app secret"), random)).contains("app secret"));
    assert!(id_pointers(&["/a".to_owned(), "b".to_owned()]).unwrap_err().contains("`b`"));
}
