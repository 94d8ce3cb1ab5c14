use midwatch_events::{
    id::{Bot, Routine},
    run::{DecisionKind, Verdict},
};

use proptest::prelude::*;

use super::*;

const NOW: Micros = Micros(1_796_049_917_357_000);
const BOT: &str = "0198c0de-0000-7000-8000-000000000500";
const RUN: &str = "0198c0de-0000-7000-8000-000000000200";

fn row() -> AuditRow {
    AuditRow {
        position: 7,
        at: NOW.plus_s(-60),
        event: "run.tool_call_decided".to_owned(),
        actor: format!("bot:{BOT}"),
        bot: BOT.parse().ok(),
        routine: None,
        run: RUN.parse().ok(),
        trigger: None,
        delivery: None,
        tool: Some("computer_write_file".to_owned()),
        verdict: Some(Verdict::Deny),
        decision: Some(DecisionKind::Refused),
        rule: Some("no-submit".to_owned()),
        matched: vec!["no-submit".to_owned()],
        enforced: Some(true),
        boundary: Some(1),
        unattended: Some(true),
        cause: None,
        repeat_count: Some(1),
        outcome: None,
        reason: Some("rule".to_owned()),
        subject: Some("write_file".to_owned()),
        fingerprint: Some("computer_write_file Invoice-2026.txt".to_owned()),
    }
}

fn matches(filter: &str) -> bool {
    Filter::parse(filter, NOW).unwrap_or_else(|error| panic!("{filter}: {error}")).matches(&row())
}

#[test]
fn an_empty_filter_wants_everything() {
    assert!(matches(""));
    assert!(matches("   "));
}

#[test]
fn each_word_looks_at_its_own_column() {
    for (holds, does_not) in [
        (format!("bot:{BOT}"), format!("bot:{RUN}")),
        (format!("run:{RUN}"), format!("run:{BOT}")),
        ("event:run.tool_call_decided".to_owned(), "event:run.ended".to_owned()),
        ("tool:computer_write_file".to_owned(), "tool:computer_read_file".to_owned()),
        ("decision:refused".to_owned(), "decision:allowed".to_owned()),
        ("verdict:deny".to_owned(), "verdict:allow".to_owned()),
        ("rule:no-submit".to_owned(), "rule:all".to_owned()),
        ("unattended:true".to_owned(), "unattended:false".to_owned()),
        ("since:1m".to_owned(), "since:59s".to_owned()),
        ("until:59s".to_owned(), "until:1m".to_owned()),
        ("since:2026-11-30T14:44:17.357Z".to_owned(), "since:2026-12-01T00:00:00Z".to_owned()),
        ("until:2026-12-01".to_owned(), "until:2026-11-30T15:44:17.357+01:00".to_owned()),
    ] {
        assert!(matches(&holds), "{holds}");
        assert!(!matches(&does_not), "{does_not}");
    }
}

#[test]
fn what_an_event_does_not_say_fits_no_value() {
    assert!(!matches("outcome:missed"));
    assert!(!matches(&format!("routine:{BOT}")));
    let mut silent = row();
    silent.unattended = None;
    for filter in ["unattended:true", "unattended:false"] {
        assert!(!Filter::parse(filter, NOW).unwrap().matches(&silent), "{filter}");
    }
}

#[test]
fn all_words_must_hold_and_the_same_word_twice_means_either() {
    assert!(matches("decision:refused unattended:true since:7d"));
    assert!(!matches("decision:refused unattended:false"));
    assert!(matches("decision:allowed decision:refused"));
    assert!(!matches("decision:allowed decision:asked"));
}

#[test]
fn text_is_whole_words_in_any_case() {
    assert!(matches(r#"text:"invoice""#));
    assert!(matches("text:INVOICE"));
    assert!(matches(r#"text:"invoice 2026""#));
    assert!(matches("text:invoice text:2026"));
    assert!(!matches("text:invoic"));
    assert!(!matches(r#"text:"2026 invoice""#));
}

#[test]
fn names_are_left_to_the_caller() {
    let mut filter = Filter::parse(r#"bot:ops routine:"Morning report""#, NOW).unwrap();
    assert_eq!(
        filter.names(),
        [Name { of: "bot", name: "ops".to_owned() }, Name { of: "routine", name: "Morning report".to_owned() }]
    );
    assert!(!filter.matches(&row()), "a name that is not resolved fits nothing");
    let [bot, routine] = filter.names().to_vec().try_into().unwrap();
    filter.resolve(&bot, &[BOT.to_owned(), RUN.to_owned()]).unwrap();
    assert!(!filter.matches(&row()));
    filter.resolve(&routine, &[RUN.to_owned()]).unwrap();
    let mut of_routine = row();
    of_routine.routine = RUN.parse::<Id<Routine>>().ok();
    assert!(filter.matches(&of_routine));
    assert!(!filter.matches(&row()));
    assert_eq!(filter.resolve(&bot, &[]).unwrap_err().to_string(), "there is no bot with the id or name `ops`");
}

#[test]
fn ids_in_any_spelling_are_the_same_id() {
    let bot: Id<Bot> = BOT.parse().unwrap();
    let filter = Filter::parse(&format!("bot:{}", BOT.to_uppercase()), NOW).unwrap();
    assert_eq!(filter.conditions(), [Condition { column: "bot", is: Op::OneOf(vec![Cell::Text(bot.to_string())]) }]);
}

#[test]
fn conditions_are_data_for_a_store() {
    let filter = Filter::parse("decision:refused unattended:true since:7d until:2026-12-01T00:00:00Z", NOW).unwrap();
    assert_eq!(
        filter.conditions(),
        [
            Condition { column: "decision", is: Op::OneOf(vec![Cell::text("refused")]) },
            Condition { column: "unattended", is: Op::OneOf(vec![Cell::Int(1)]) },
            Condition { column: "at", is: Op::AtLeast(Cell::Int(NOW.plus_s(-7 * 86_400).0)) },
            Condition { column: "at", is: Op::Below(Cell::Int(1_796_083_200_000_000)) },
        ]
    );
    assert!(!filter.reads_rows());
    assert!(Filter::parse("text:x", NOW).unwrap().reads_rows());
}

#[test]
fn every_condition_is_on_a_column_of_the_table() {
    let all = format!(
        "bot:{BOT} routine:{BOT} trigger:{BOT} run:{RUN} event:a.b tool:t decision:asked verdict:ask rule:r \
         unattended:true outcome:missed since:1d until:1d text:t"
    );
    let filter = Filter::parse(&all, NOW).unwrap();
    assert_eq!(filter.conditions().len(), WORDS.len() - 1);
    for condition in filter.conditions() {
        assert!(Audit::TABLE.columns.iter().any(|(name, _)| *name == condition.column), "{}", condition.column);
    }
    for word in WORDS {
        assert!(all.contains(&format!("{word}:")), "{word} is not tried here");
    }
}

#[test]
fn what_is_not_understood_is_said_in_one_sentence() {
    for (filter, sentence) in [
        (
            "colour:red",
            "`colour` is no word of a filter; there are bot, routine, trigger, run, event, tool, decision, verdict, \
             rule, unattended, outcome, since, until or text",
        ),
        (
            "invoice",
            "`invoice` stands alone; write word:value, such as text:invoice, with one of bot, routine, trigger, run, \
             event, tool, decision, verdict, rule, unattended, outcome, since, until or text",
        ),
        ("decision:maybe", "`decision:maybe` cannot be read: decision wants allowed, refused or asked"),
        ("verdict:refused", "`verdict:refused` cannot be read: verdict wants allow, ask or deny"),
        ("unattended:yes", "`unattended:yes` cannot be read: unattended wants true or false"),
        ("run:latest", "`run:latest` cannot be read: run wants a run's id"),
        ("event:ended", "`event:ended` cannot be read: event wants an event's type, such as run.ended"),
        (
            "since:yesterday",
            "`since:yesterday` cannot be read: since wants an age such as 30m, 12h or 7d, or an instant such as \
             2026-12-01T00:00:00Z",
        ),
        ("bot:", "`bot:` cannot be read: bot wants a value"),
        ("text:\"...\"", "`text:...` cannot be read: text wants letters or digits"),
        ("text:\"invoice", "the double quote after `text:` is not closed"),
        ("text:\"a\"b", "there must be a space after `text:\"a\"`"),
    ] {
        assert_eq!(Filter::parse(filter, NOW).unwrap_err().to_string(), sentence);
    }
    for filter in [":", "::", "since:m", "since:-1d", "since:99999999999999999999d", "outcome:", "\"", "text:\"\""] {
        assert!(Filter::parse(filter, NOW).is_err(), "{filter}");
    }
    // Words outside of ASCII are cut at no byte inside of a letter.
    assert!(Filter::parse("ö:ü since:7ö", NOW).is_err());
}

proptest! {
    #[test]
    fn any_text_is_a_filter_or_a_sentence(text in r#"((bot|run|since|until|text|decision|unattended|öl)?:?"?[ a-z0-9:"ö.-]{0,12}){0,4}"#) {
        match Filter::parse(&text, NOW) {
            Ok(filter) => {
                let _ = filter.matches(&row());
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_quoted_text_finds_itself(text in "[a-zA-Z0-9 ._/-]{0,20}[a-zA-Z0-9]") {
        let mut found = row();
        found.subject = Some(format!("before {text} after"));
        let filter = Filter::parse(&format!("text:\"{text}\""), NOW);
        prop_assert!(filter.is_ok_and(|filter| filter.matches(&found)));
    }
}
