//! People, and what stands for them.

use midwatch_events::{
    Actor, New, StreamName,
    id::{TokenId, UserId},
    key::Digest,
    user::{Access, UserContent, UserEvent},
};
use midwatch_projections::{
    Cell, View,
    users::{PeopleRow, link_key, session_key, token_key, user_key},
};

use crate::{
    samples::{TOKEN, USER, id},
    story::{Story, after},
};

const LINK: Digest = Digest([0x80; 32]);
const SESSION: Digest = Digest([0x85; 32]);
const SECRET: Digest = Digest([0x90; 32]);

fn ada() -> UserId {
    id(USER, 0)
}

fn stream() -> StreamName {
    StreamName::user(ada())
}

fn invited() -> New<UserEvent> {
    let facts = UserEvent::Invited { user: ada(), role: Access::Admin };
    New::with(facts, UserContent::Invited { name: "Ada".to_owned() })
}

#[test]
fn a_link_becomes_a_session_that_says_who_and_what_they_may() {
    let mut story = Story::default();
    story.is(&stream(), invited());
    story.is(&stream(), UserEvent::LinkIssued { link: LINK, expires_us: after(600) });
    let PeopleRow::Link(link) = story.row(View::People, link_key(LINK)) else { panic!() };
    assert_eq!((link.user, link.expires, link.used), (ada(), after(600), false));
    story.at(5).is(&stream(), UserEvent::SignedIn { link: LINK, session: SESSION, expires_us: after(9_000) });
    let PeopleRow::Link(link) = story.row(View::People, link_key(LINK)) else { panic!() };
    assert!(link.used);
    let PeopleRow::Session(session) = story.row(View::People, session_key(SESSION)) else { panic!() };
    assert_eq!((session.user, session.role, session.since), (ada(), Access::Admin, after(5)));
    assert_eq!(session.expires, after(9_000));
    assert_eq!(
        story.cells(View::People, session_key(SESSION)),
        [Cell::text("session"), Cell::Text(SESSION.to_string()), Cell::Null, Cell::Int(after(9_000).0)]
    );
    let PeopleRow::User(user) = story.row(View::People, user_key(ada())) else { panic!() };
    assert_eq!((user.name.as_deref(), user.signed_in_at, user.version), (Some("Ada"), Some(after(5)), 3));
    story.is(&stream(), UserEvent::SignedOut { session: SESSION });
    assert!(story.find::<PeopleRow>(View::People, session_key(SESSION)).is_none());
    let PeopleRow::User(user) = story.row(View::People, user_key(ada())) else { panic!() };
    assert_eq!((user.signed_in_at, user.version), (Some(after(5)), 4));
}

#[test]
fn a_token_is_found_by_its_secrets_hash_and_says_when_it_was_revoked() {
    let token: TokenId = id(TOKEN, 0);
    let stream = StreamName::token(token);
    let mut story = Story::default();
    let facts = UserEvent::TokenIssued { token, role: Access::Auditor, secret: SECRET };
    let name = UserContent::TokenIssued { name: "nightly export".to_owned() };
    story.by(&Actor::User(ada()), &stream, New::with(facts, name));
    let found = story.stores[&View::People]
        .values()
        .find(|(_, cells)| cells[..2] == [Cell::text("token"), Cell::Text("90".repeat(32))]);
    let PeopleRow::Token(row) = serde_json::from_slice(&found.unwrap().0).unwrap() else { panic!() };
    assert_eq!((row.id, row.role, row.revoked_at), (token, Some(Access::Auditor), None));
    assert_eq!(row.issued_by, format!("user:{}", ada()));
    story.at(7).is(&stream, UserEvent::TokenRevoked { token });
    let PeopleRow::Token(row) = story.row(View::People, token_key(token)) else { panic!() };
    assert_eq!(row.revoked_at, Some(after(7)));
}

#[test]
fn nobody_signs_in_who_was_not_invited() {
    let mut story = Story::default();
    story.is(&stream(), UserEvent::LinkIssued { link: LINK, expires_us: after(600) });
    story.is(&stream(), UserEvent::SignedIn { link: LINK, session: SESSION, expires_us: after(9_000) });
    assert!(story.rows::<PeopleRow>(View::People).is_empty());
}
