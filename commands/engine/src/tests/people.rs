//! Who may come in, and until when.

use midwatch_commands::Refusal;
use midwatch_events::{
    Actor, Micros, New, StreamName,
    user::{Access, UserEvent},
};

use super::support::{Place, append, me, refused};
use crate::{deployment::first_admin, secrets::hashed};

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_one_session_though_two_use_it_at_once() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let link = one.issue_link(None, &me()).await.unwrap().value;
        let (first, second) = tokio::join!(one.sign_in(&link), two.sign_in(&link));
        let (session, spent) = if first.is_ok() { (first, second) } else { (second, first) };
        assert!(matches!(refused(spent), Refusal::LinkSpent), "{}", place.backend);
        let session = session.unwrap().value;
        let caller = two.caller_by_session(&session.secret).await.unwrap().unwrap();
        assert_eq!((caller.actor, caller.role), (Actor::User(session.user), Access::Admin));
        two.sign_out(session.user, caller.session.unwrap()).await.unwrap();
        assert_eq!(one.caller_by_session(&session.secret).await.unwrap(), None);
        for bad in ["", ".", &link, "zz.zz", &session.secret[1..]] {
            assert_eq!(one.caller_by_session(bad).await.unwrap(), None);
            assert!(matches!(refused(one.sign_in(bad).await), Refusal::LinkSpent));
        }
    }
}

#[tokio::test]
async fn a_session_that_has_expired_opens_nothing() {
    let place = Place::sqlite();
    let engine = place.engine().await;
    let admin = first_admin(engine.namespace());
    let now = engine.log().store_time().await.unwrap();
    for (expires, good) in [(now.plus_s(-1), false), (now.plus_s(60), true)] {
        let secret = format!("{}.{}", admin.uuid().simple(), "x".repeat(42) + if good { "1" } else { "0" });
        let (link, session) = (hashed("link"), hashed(&secret));
        let signed_in: New<UserEvent> = UserEvent::SignedIn { link, session, expires_us: expires }.into();
        append(&engine, &StreamName::user(admin), &[signed_in]).await;
        assert_eq!(engine.caller_by_session(&secret).await.unwrap().is_some(), good);
    }
    // A link too.
    let secret = format!("{}.{}", admin.uuid().simple(), "y".repeat(43));
    let issued: New<UserEvent> = UserEvent::LinkIssued { link: hashed(&secret), expires_us: Micros(now.0 - 1) }.into();
    append(&engine, &StreamName::user(admin), &[issued]).await;
    assert!(matches!(refused(engine.sign_in(&secret).await), Refusal::LinkSpent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_opens_nothing_in_any_process() {
    for place in Place::each().await {
        let (one, two) = (place.engine().await, place.engine().await);
        let (token, secret) = one.issue_token("ci", Access::Member, &me()).await.unwrap().value;
        let caller = two.caller_by_token(&secret).await.unwrap().unwrap();
        assert_eq!((caller.actor, caller.role, caller.session), (Actor::Token(token), Access::Member, None));
        for bad in ["", "mwt_", "mwt_é", &secret[..secret.len() - 1], &format!("{secret}x")] {
            assert_eq!(two.caller_by_token(bad).await.unwrap(), None);
        }
        one.revoke_token(token, &me()).await.unwrap();
        assert!(one.revoke_token(token, &me()).await.unwrap().duplicate);
        assert_eq!(two.caller_by_token(&secret).await.unwrap(), None, "{}", place.backend);
    }
}
