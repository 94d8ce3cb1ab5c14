//! What saving refuses, with the sentence and the place.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Boundary, Effect, Unattended, check_args, compile_lenient, default_document, presets};

/// G35: refused in milliseconds; no panic, no hang, no abort.
#[test]
fn hostile_expressions_are_refused_at_once() {
    let ones = |count: usize| format!("[{}]", vec!["1"; count].join(","));
    let list = ones(3_000);
    let hostile = [
        (String::new(), "the rule is empty"),
        ("   // nothing".to_owned(), "the rule is empty"),
        ("😀".to_owned(), "has no meaning"),
        ("(".to_owned(), "never closed"),
        ("intent == (\"a\"".to_owned(), "never closed"),
        ("5.all(x,true)".to_owned(), "a list or a map"),
        ("(".repeat(10_000), "10000 bytes long"),
        (format!("{}1{} == 1", "(".repeat(1_000), ")".repeat(1_000)), "brackets stand more than"),
        (format!("1{} == 1", "+1".repeat(10_000)), "bytes long"),
        (format!("1{} == 1", "+1".repeat(1_000)), "operators in a row"),
        (format!("1{} == 1", " + 1".repeat(47)), "nested too deeply"),
        (format!("true{}", "==true".repeat(500)), "operators in a row"),
        (format!("args{}", ".a".repeat(1_000)), "operators in a row"),
        (format!("args{}", "[0]".repeat(600)), "operators in a row"),
        (format!("true{}", " ? true : true".repeat(100)), "`? :` in one rule"),
        (format!("{list}.all(a, {list}.all(b, {list}.all(c, true)))"), "bytes long"),
        (format!("{0}.all(a, {0}.all(b, true))", ones(200)), "inside `all`"),
        ("args.map(a, a).all(b, true)".to_owned(), "inside `all`"),
        (format!("[[1]]{} == []", ".map(v,v+v)".repeat(28)), "operators in a row"),
        (format!("[[1]]{} == []", ".map(v,v+v)".repeat(10)), "inside `map`"),
        ("[[1]].map(v,v+v) == []".to_owned(), "`+` inside `map`"),
        (format!("{}!", " ".repeat(100_000)), "bytes long"),
        (format!("{}!", " ".repeat(4_000)), "stops short"),
        (format!("true{}", " && true".repeat(400)), "parts; at most 512"),
        ("!".repeat(4_000), "words and signs"),
        (format!("{}true", "!-".repeat(900)), "operators in a row"),
        ("'".repeat(4_001), "not closed"),
        ("\"\\".to_owned(), "not closed"),
        (ones(2_000), "words and signs"),
        ("99999999999999999999 == 1".to_owned(), "this is not CEL"),
        ("\"\\ud800\" == intent".to_owned(), "this is not CEL"),
        ("intent == \"a\nb\"".to_owned(), "not closed"),
        ("intent.matches(\"(a*)*{9}{99}{999}\")".to_owned(), "larger than"),
    ];
    for (when, sentence) in hostile {
        let start = clock();
        let finding = finding(&when);
        let shown: String = when.chars().take(40).collect();
        assert!(start.elapsed() < Duration::from_millis(250), "{shown} took {:?}", start.elapsed());
        assert!(finding.sentence.contains(sentence), "{shown}: {}", finding.sentence);
    }
}

/// The largest rules that pass the limits are read quickly too, and on the large stack.
#[test]
fn the_largest_allowed_rules_are_read_in_milliseconds() {
    let deep = format!("{}intent == \"\"{}", "(".repeat(24), ")".repeat(24));
    let chain = format!("1{} == 1", "+1".repeat(40));
    let wide = format!("intent == \"\"{}", " || key == \"a\"".repeat(100));
    let calls = format!("intent{} == \"\"", ".trim()".repeat(20));
    let lists = format!("{}1{} == []", "[".repeat(20), "]".repeat(20));
    let conditionals = format!("{}true", "intent == \"\" ? key == \"\" : ".repeat(16));
    let nested = format!("{}true{}", "(intent == \"\" ? ".repeat(16), " : false)".repeat(16));
    for when in [deep, chain, wide, calls, lists, conditionals, nested] {
        let start = clock();
        let refused = check(&one(&when)).err();
        assert!(start.elapsed() < Duration::from_millis(500), "{when} took {:?}", start.elapsed());
        if let Some(findings) = refused {
            assert!(findings[0].sentence.contains("nested too deeply"), "{when}: {}", findings[0]);
        }
    }
}

/// G37 and its kin: one sentence with the place and what to do.
#[test]
fn wrong_rules_are_refused_with_the_place() {
    for (when, place, sentence) in [
        ("\"Submit order\"", (1, 1), "the rule is a text, not true or false; compare it with something"),
        ("run.unattendded", (1, 1), "there is no `run.unattendded`; did you mean `run.unattended`?"),
        ("repeat.count >= \"10\"", (1, 1), "write 10 without quotes"),
        ("intent == \"a\" &&\n  repeat.cuont > 1", (2, 3), "did you mean `repeat.count`?"),
        ("\"é😀\" == intent && run.turnn == 1", (1, 19), "did you mean `run.turn`?"),
        ("\"é😀\" == intent 2", (1, 16), "`2` does not belong here"),
        ("repeat.count", (1, 1), "the rule is a whole number"),
        ("intent == 5", (1, 1), "`==` cannot take `intent` (a text) and `5` (a whole number)"),
        ("intent = \"a\"", (1, 8), "write `==`"),
        ("intent == \"a\" & key == \"b\"", (1, 15), "write `&&`"),
        ("intent == \"a\" && key", (1, 18), "`&&` needs true or false; `key` is a text"),
        ("!intent", (1, 2), "`!` needs true or false"),
        ("run.unattended ? \"a\" : 1", (1, 18), "both sides must be of one kind"),
        ("tool == \"x\"", (1, 1), "`tool` alone has no value; write one of `tool.name`"),
        ("intent.name == \"x\"", (1, 1), "`intent` is a text, which has no `name`"),
        ("intent in [1, 2]", (1, 1), "`in` cannot take"),
        ("\"a\" in intent", (1, 1), "`in` cannot take"),
        ("intent.contain(\"a\")", (1, 1), "did you mean `contains`?"),
        ("contains(intent, 5)", (1, 1), "write `contains(text, text)`"),
        ("intent.startsWith(\"a\", \"b\")", (1, 1), "write `text.startsWith(text)`"),
        ("size(5) == 1", (1, 1), "`size` cannot take a whole number"),
        ("optional.none().hasValue()", (1, 1), "there is no `optional`"),
        ("strings.quote(intent) == \"\"", (1, 1), "there is no `strings`"),
        ("args.?x == 1", (1, 5), "this is not CEL"),
        ("has(run.turn)", (1, 1), "is always there"),
        ("has(intent)", (1, 1), "`has()` asks for a member"),
        ("intent.matches(key)", (1, 16), "needs its pattern written out"),
        ("intent.matches(\"(\")", (1, 16), "not a regular expression: unclosed group"),
        (&["key.matches(\"a\")"; 9].join(" || "), (1, 173), "at most 8 patterns"),
        ("timestamp(\"soon\") < now", (1, 1), "can never work"),
        ("now.getHours(\"Mars/Base\") == 1", (1, 1), "`Mars/Base` is not a time zone"),
        ("[1, 2].all(intent, true)", (1, 12), "`intent` has a meaning already"),
        ("[1, 2].all(run, true)", (1, 12), "`run` has a meaning already"),
        ("[1, 2].all(1, true)", (1, 12), "needs a simple name"),
        ("[1, 2].all(x, x)", (1, 15), "`all` needs true or false"),
        ("[1].all(x, y > 1)", (1, 12), "there is no `y`"),
        ("1u - 1 == 0u", (1, 1), "`-` cannot take"),
        ("{[1]: 2} == {}", (1, 2), "cannot be a map's key"),
        ("google.rpc.Status{code: 1} == null", (1, 18), "there is no message type"),
        (".intent == \"a\"", (1, 2), "there is no `.intent`"),
        ("`intent` == \"a\"", (1, 1), "has no meaning"),
        ("intent == \"a\")", (1, 14), "closes nothing"),
        ("intent in [\"a\")", (1, 15), "`]` was expected"),
        ("@a0 == \"\"", (1, 1), "has no meaning"),
    ] {
        let finding = finding(when);
        assert!(finding.sentence.contains(sentence), "{when}: {}", finding.sentence);
        assert_eq!((finding.line, finding.column), place, "{when}: {finding}");
        assert_eq!(finding.rule, "r");
    }
}

/// `args.x` stands behind `has(args.x) &&`, or the save is refused with the corrected text, which is accepted.
#[test]
fn arguments_stand_behind_has() {
    for (when, corrected) in [
        ("args.x == 1", "has(args.x) && args.x == 1"),
        ("!args.flag", "!(has(args.flag) && args.flag)"),
        ("intent == \"a\" && args.x == 1", "intent == \"a\" && has(args.x) && args.x == 1"),
        ("args.x == 1 && has(args.x)", "has(args.x) && args.x == 1 && has(args.x)"),
        ("has(args.x) || args.x == 1", "has(args.x) || (has(args.x) && args.x == 1)"),
        ("args.a.b == 1", "has(args.a) && has(args.a.b) && args.a.b == 1"),
        ("(args.x + 1) > 2 && key == \"\"", "has(args.x) && (args.x + 1) > 2 && key == \"\""),
        ("args[\"a-b\"] == 1", "\"a-b\" in args && args[\"a-b\"] == 1"),
        (
            "contains(args.x, \"é\") || args.y == 2",
            "(has(args.x) && contains(args.x, \"é\")) || (has(args.y) && args.y == 2)",
        ),
        ("run.unattended ? args.x == 1 : true", "run.unattended ? (has(args.x) && args.x == 1) : true"),
        ("args.list.exists(v, v == args.y)", "has(args.list) && has(args.y) && args.list.exists(v, v == args.y)"),
        ("has(args.a.b)", "has(args.a) && has(args.a.b)"),
    ] {
        let finding = finding(when);
        assert!(finding.sentence.contains("is not there on every call"), "{when}: {finding}");
        assert_eq!(finding.corrected.as_deref(), Some(corrected), "{when}");
        compiled(corrected);
    }
    for when in [
        "has(args.x) && args.x == 1",
        "!has(args.x) || args.x == 1",
        "has(args.x) ? args.x == 1 : false",
        "\"x\" in args && args.x == 1",
        "!(!has(args.x) || args.x != 1)",
        "has(args.x) && has(args.y) && args.x == args.y",
        "has(args.x) && (args.x == 1 || args.x == 2)",
        "size(args) > 3",
        "args.exists(k, k == \"x\")",
        "has(args.x) && args[\"x\"] == 1",
        "has(args.list) && args.list[0] == 1",
    ] {
        compiled(when);
    }
    assert!(finding("args[key] == 1").sentence.contains("needs the argument's name as a text"));
}

/// G16: a rule on an argument that no granted tool has would be accepted and never match.
#[test]
fn arguments_that_no_granted_tool_has_are_refused() {
    let granted = BTreeSet::from(["path".to_owned(), "contents".to_owned()]);
    let document = boundary(vec![
        Rule::new("known", "k", Verdict::Deny, "has(args.path) && args.path == \"a\""),
        Rule::new("typo", "t", Verdict::Deny, "intent == \"a\" && has(args.pahts) && args.pahts == \"a\""),
        Rule::new("in", "i", Verdict::Deny, "\"nowhere\" in args"),
    ]);
    let findings = check_args(&document, &granted);
    let rules: Vec<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["typo", "in"]);
    assert!(findings[0].sentence.contains("did you mean `args.path`?"), "{}", findings[0]);
    assert_eq!((findings[0].line, findings[0].column), (1, 22));
    assert!(findings[1].sentence.contains("no granted tool has an argument `nowhere`"));
}

#[test]
fn every_refused_rule_has_its_finding_and_lenient_keeps_the_others() {
    let document = boundary(vec![
        Rule::new("a", "a", Verdict::Deny, "(("),
        Rule::new("b", "b", Verdict::Allow, "true"),
        Rule::new("c", "c", Verdict::Ask, "nonsense"),
    ]);
    let findings = check(&document).unwrap_err();
    let rules: Vec<&str> = findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["a", "c"]);
    let judgement = compile_lenient(&document).judge(&Context::default());
    assert_eq!(judgement.verdict, Verdict::Deny);
    assert_eq!(judgement.rule.as_deref(), Some("a"));
    assert_eq!(judgement.matched, ["b"]);
    let broken: Vec<&str> = judgement.broken.iter().map(|broken| broken.error.as_str()).collect();
    assert_eq!(broken, findings.iter().map(|finding| finding.sentence.as_str()).collect::<Vec<_>>());
}

#[test]
fn documents_have_the_stated_defaults_and_a_canonical_form() {
    let text = r#"{"rules":[{"id":"a","name":"A","verdict":"ask","when":"true"}]}"#;
    let document = Boundary::parse(text).unwrap();
    assert_eq!((document.mode, document.zone.as_str()), (Mode::Enforce, "UTC"));
    assert_eq!((document.rules[0].effect, document.rules[0].unattended), (Effect::Enforce, Unattended::Refuse));
    let canonical = "{\"mode\":\"enforce\",\"zone\":\"UTC\",\"rules\":[{\"id\":\"a\",\"name\":\"A\",\"verdict\":\"ask\",\
                     \"when\":\"true\",\"effect\":\"enforce\",\"unattended\":\"refuse\",\"approvers\":\"any\",\
                     \"cost\":\"\",\"note\":\"\"}]}";
    assert_eq!(document.to_json(), canonical);
    assert_eq!(Boundary::parse(canonical).unwrap(), document);
    let default = default_document();
    assert_eq!((default.rules.len(), default.rules[0].when.as_str()), (1, "true"));
    assert_eq!(default.rules[0].verdict, Verdict::Allow);
}

#[test]
fn documents_that_are_not_one_are_refused_with_a_sentence() {
    let rule = r#""id":"a","name":"A","verdict":"deny","when":"true""#;
    for (text, sentence) in [
        ("", "the boundary: EOF"),
        ("[]", "a boundary is a JSON object"),
        ("5", "the boundary: invalid type"),
        (r#"{"rules":[["a","A","deny","true"]]}"#, "a boundary is a JSON object"),
        (r#"{"rules":[],"moood":1}"#, "unknown field `moood`"),
        (r#"{"mode":"off"}"#, "unknown variant `off`, expected `enforce` or `dry_run`"),
        (r#"{"zone":"Mars"}"#, "`Mars` is not an IANA time zone"),
        (r#"{"mode":"enforce","mode":"dry_run"}"#, "duplicate field `mode`"),
        (r#"{"rules":[{"name":"A","verdict":"deny","when":"true"}]}"#, "rule number 1: missing field `id`"),
        (r#"{"rules":[{"id":"a","name":"A","verdict":"denny","when":"true"}]}"#, "rule `a`: unknown variant `denny`"),
        (r#"{"rules":[{"id":"a","name":"A","verdict":"deny"}]}"#, "rule `a`: missing field `when`"),
        (r#"{"rules":[{"id":"a","name":"","verdict":"deny","when":"true"}]}"#, "rule `a` needs a `name`"),
        (r#"{"rules":[{"id":"a b","name":"A","verdict":"deny","when":"true"}]}"#, "needs an `id`"),
        (&format!("{{\"rules\":[{{{rule},\"when\":\"false\"}}]}}"), "duplicate field `when`"),
        (&format!("{{\"rules\":[{{{rule}}},{{{rule}}}]}}"), "rule number 2 has the id `a`"),
        (&format!("{{\"rules\":[{{{rule},\"effekt\":\"shadow\"}}]}}"), "rule `a`: unknown field `effekt`"),
    ] {
        let error = Boundary::parse(text).unwrap_err();
        assert!(error.sentence.contains(sentence), "{text}: {error}");
    }
    let placed = Boundary::parse("{\n\"moood\":1}").unwrap_err();
    assert_eq!(placed.line, 2);
    let many = boundary((0..300).map(|n| Rule::new(&n.to_string(), "n", Verdict::Deny, "true")).collect());
    assert!(Boundary::parse(&many.to_json()).unwrap_err().sentence.contains("at most 256 rules"));
}

#[test]
fn presets_compile_and_say_what_they_cost() {
    let rules = presets();
    assert_eq!(rules.len(), 5);
    assert!(rules.iter().all(|rule| rule.cost.len() > 40 && rule.verdict == Verdict::Deny));
    check(&boundary(rules)).unwrap();
}

/// Words from which arbitrary rules are made: near enough to CEL to get past the first check.
const WORDS: [&str; 40] = [
    "intent",
    "args",
    "args.x",
    "run.turn",
    "now",
    "has(",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    "in",
    "+",
    "-",
    "!",
    ".all(x,",
    ".map(x,",
    ".matches(",
    "'a'",
    "\"\\x41\"",
    "b'\\377'",
    "r'\\'",
    "1",
    "1u",
    "1.5e3",
    "0x1f",
    "null",
    "true",
    "x",
    ".",
    "size(",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(when in "\\PC{0,200}") {
        let _ = check(&one(&when));
        let _ = compile_lenient(&one(&when)).judge(&Context::default());
    }

    #[test]
    fn arbitrary_words_never_panic(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40)) {
        let mut when = String::new();
        for word in words {
            let _ = write!(when, "{word} ");
        }
        let _ = compile_lenient(&one(&when)).judge(&Context::default());
    }

    #[test]
    fn arbitrary_documents_never_panic(text in "\\PC{0,200}") {
        let _ = Boundary::parse(&text);
        let _ = Context::from_json(&text);
    }
}
