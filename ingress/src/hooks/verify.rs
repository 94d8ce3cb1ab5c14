//! Is it from who it says? For a bearer sender: does it know the secret?

use axum::http::{HeaderMap, header};
use midwatch_commands::trigger::Trigger;
use midwatch_events::{Micros, key::Digest};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// Whether one of the `Authorization` lines carries the trigger's secret, or its old one while that is good.
///
/// What is compared are SHA-256 digests, in constant time, and always both of them: how long it takes says nothing
/// about a secret, nor whether there is an old one.
pub(super) fn authentic(trigger: &Trigger, headers: &HeaderMap, now: Micros) -> Option<Digest> {
    let lines = headers.get_all(header::AUTHORIZATION);
    lines.into_iter().filter_map(|line| secret(line.as_bytes())).find_map(|secret| matches(trigger, secret, now))
}

/// What stands behind `Bearer`, as it came. Nothing and anything that is no secret of ours is none.
fn secret(line: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = line.split_at_checked(7)?;
    let secret = secret.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && secret.starts_with(b"mw_")).then_some(secret)
}

fn matches(trigger: &Trigger, secret: &[u8], now: Micros) -> Option<Digest> {
    let given: [u8; 32] = Sha256::digest(secret).into();
    let compare = |stored: Option<Digest>| {
        stored.unwrap_or(Digest([0; 32])).0.ct_eq(&given) & Choice::from(u8::from(stored.is_some()))
    };
    let old = trigger.old_secret.as_ref().filter(|(_, until)| now < *until).map(|(secret, _)| secret.digest);
    let current = trigger.secret.as_ref().map(|secret| secret.digest);
    bool::from(compare(current) | compare(old)).then_some(Digest(given))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use midwatch_commands::trigger::Secret;
    use midwatch_engine::secrets::hashed;

    use super::*;

    fn given(line: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(line).unwrap())])
    }

    fn kept(secret: &str) -> Secret {
        Secret { digest: hashed(secret), sealed: None }
    }

    fn trigger() -> Trigger {
        Trigger { secret: Some(kept("mw_new")), old_secret: Some((kept("mw_old"), Micros(100))), ..Trigger::default() }
    }

    #[test]
    fn both_secrets_are_good_in_the_overlap_and_nothing_else_is() {
        for (line, right) in [
            ("Bearer mw_new", true),
            ("bearer  mw_new", true),
            ("Bearer mw_old", true),
            ("Bearer mw_ne", false),
            ("Bearer mw_neww", false),
            ("Bearer MW_NEW", false),
            ("Basic mw_new", false),
            ("Bearer", false),
            ("Bearer ", false),
            ("mw_new", false),
            ("", false),
        ] {
            assert_eq!(authentic(&trigger(), &given(line), Micros(99)).is_some(), right, "{line}");
        }
        assert!(authentic(&trigger(), &given("Bearer mw_old"), Micros(100)).is_none(), "the old one's time is over");
        assert!(authentic(&trigger(), &given("Bearer mw_new"), Micros(100)).is_some());
    }

    #[test]
    fn a_trigger_without_a_secret_takes_none() {
        assert!(authentic(&Trigger::default(), &given("Bearer mw_"), Micros(0)).is_none());
        assert!(authentic(&trigger(), &HeaderMap::new(), Micros(0)).is_none());
    }

    #[test]
    fn the_valid_line_may_be_the_second() {
        let mut headers = given("Bearer mw_other");
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer mw_new"));
        assert!(authentic(&trigger(), &headers, Micros(0)).is_some());
    }
}
