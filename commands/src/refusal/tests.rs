//! What programs read of a refusal, and names people gave.

use super::*;
use crate::spec::id;

/// Codes and kinds are an interface: they are listed here a second time, so that a change is a decision.
#[test]
fn kinds_codes_and_sentences() {
    let refused = RefusalKind::Refused;
    let busy = "busy: run 00000000-0000-0000-0000-000000000032 is still live; wait for it or cancel it";
    let table = [
        (Refusal::Invalid("why".to_owned()), RefusalKind::BadRequest, "invalid", "why"),
        (Refusal::NotFound("run"), RefusalKind::NotFound, "not_found", "there is no run with this id"),
        (Refusal::Exists("run"), refused, "exists", "this run exists already"),
        (Refusal::Busy { live: id(50) }, refused, "busy", busy),
        (Refusal::Halted, refused, "halted", "scheduling is halted; `midwatch halt lift` ends it"),
        (Refusal::AlreadySo("why"), refused, "already_so", "why"),
        (Refusal::BotRetired, refused, "bot_retired", "the Bot is retired; give the work to another one"),
        (
            Refusal::OwnerRevoked,
            refused,
            "owner_revoked",
            "the routine's owner was revoked; make one that belongs to somebody else",
        ),
        (Refusal::RunEnded, refused, "run_ended", "the run has ended"),
        (Refusal::Stale, refused, "stale", "another runner took the run"),
        (Refusal::TurnLimit { max: 20 }, refused, "turn_limit", "the run has taken its 20 turns"),
        (Refusal::NoSample, refused, "no_sample", "no delivery has arrived yet: post one, read it, then confirm"),
        (
            Refusal::OtherSample,
            refused,
            "other_sample",
            "the sample is another delivery; read it again and confirm that one",
        ),
        (
            Refusal::LinkSpent,
            refused,
            "link_spent",
            "this sign-in link was used or has expired; `midwatch user link` makes a new one",
        ),
    ];
    for (refusal, kind, code, sentence) in &table {
        assert_eq!((refusal.kind(), refusal.code(), refusal.to_string().as_str()), (*kind, *code, *sentence));
    }
    let codes: std::collections::BTreeSet<_> = table.iter().map(|(_, _, code, _)| code).collect();
    assert_eq!(codes.len(), table.len(), "a code says which refusal it is");
}

#[test]
fn names_are_1_to_200_characters_on_one_line() {
    for good in ["a", "Bericht für Ödön", "😀", &"ä".repeat(200)] {
        assert_eq!(named("Bot", good), Ok(()), "{good}");
    }
    for bad in ["", " \t", "\u{3000}", "a\nb", "a\u{0}", "\u{7f}", &"ä".repeat(201)] {
        assert!(matches!(named("Bot", bad), Err(Refusal::Invalid(_))), "{bad:?}");
    }
}
