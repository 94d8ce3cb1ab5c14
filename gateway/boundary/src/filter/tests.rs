//! Filters: what passes, what does not, and what cannot be said.

use super::*;
use crate::Judge;

fn headers() -> Vec<(String, String)> {
    let line = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    [("x-github-event", "push"), ("x-two", "a"), ("x-two", "b")].map(line).to_vec()
}

fn passes(source: &str, body: &str) -> Passes {
    let filter = Filter::compile(source).unwrap_or_else(|finding| panic!("{source}: {finding}"));
    let judge = Judge::new(1).unwrap();
    match filter.facts(&headers(), body.as_bytes(), Some("push")) {
        Ok(facts) => Filter::verdict(&judge.judge(filter.compiled(), facts)),
        Err(error) => Passes::Broken(error),
    }
}

#[test]
fn a_filter_reads_headers_body_and_event_type() {
    let body = r#"{"ref":"refs/heads/main","commits":[{"id":"a"},{"id":"b"}],"id":9007199254740993}"#;
    for (source, expected) in [
        (r#"event_type == "push""#, Passes::Yes),
        (r#"event_type == "issues""#, Passes::No),
        (r#""x-github-event" in headers && headers["x-github-event"] == "push""#, Passes::Yes),
        (r#""x-two" in headers && headers["x-two"] == "a, b""#, Passes::Yes),
        (r#"has(body.ref) && body.ref.endsWith("/main")"#, Passes::Yes),
        (r#"has(body.ref) && body.ref.matches("^refs/tags/")"#, Passes::No),
        (r#"has(body.commits) && body.commits.exists(c, c.id == "b")"#, Passes::Yes),
        ("has(body.id) && body.id == 9007199254740993", Passes::Yes),
        ("has(body.id) && body.id == 9007199254740992", Passes::No),
        ("true", Passes::Yes),
    ] {
        assert_eq!(passes(source, body), expected, "{source}");
    }
}

// W17 of the cases: digits are kept as far as whole numbers reach, and beyond that nothing is guessed.
#[test]
fn a_number_beyond_64_bits_breaks_a_filter_that_reads_the_body() {
    let reads = "has(body.id) && body.id > 0";
    assert_eq!(passes(reads, r#"{"id":1524831183200260097}"#), Passes::Yes);
    assert_eq!(passes(reads, r#"{"id":18446744073709551615}"#), Passes::Yes);
    let Passes::Broken(why) = passes(reads, r#"{"id":18446744073709551616}"#) else { panic!("it was guessed") };
    assert!(why.contains("18446744073709551616"), "{why}");
    assert!(matches!(passes(reads, r#"{"id":1,"s":"99999999999999999999 \" 99999999999999999999"}"#), Passes::Yes));
    assert_eq!(passes(r#"event_type == "push""#, r#"{"id":18446744073709551616}"#), Passes::Yes);
}

#[test]
fn what_cannot_be_said_is_broken_and_never_a_no() {
    for (source, body) in [
        ("has(body.a) && body.a > 1", "[1,2]"),
        ("has(body.a) && body.a > 1", "no json"),
        (r#"has(body.a) && body.a.startsWith("x")"#, r#"{"a":7}"#),
        ("has(body.a) && body.a[9] == 1", r#"{"a":[1]}"#),
    ] {
        assert!(matches!(passes(source, body), Passes::Broken(_)), "{source} on {body}");
    }
    let filter = Filter::compile("has(body.a) && body.a == 1").unwrap();
    assert!(filter.facts(&[], b"\xff", None).is_err());
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(70_000));
    let Passes::Broken(why) = passes(r#"has(body.a) && body.a == "x""#, &long) else { panic!("too long") };
    assert!(why.contains("65536"), "{why}");
}

#[test]
fn what_makes_no_sense_is_refused_when_it_is_saved() {
    for (source, says) in [
        ("body.a == 1", "has(body.a) && body.a == 1"),
        (r#"headers["x-a"] == "b""#, r#""x-a" in headers"#),
        (r#"tool.name == "x""#, "a filter reads"),
        ("args.x == 1", "a filter reads"),
        ("bodi == 1", "there is no `bodi`"),
        ("event_type", "not true or false"),
        ("event_type == ", "stops short"),
        ("", "filter"),
    ] {
        let finding = Filter::compile(source).err().unwrap_or_else(|| panic!("`{source}` was taken"));
        assert!(finding.to_string().contains(says), "{source}: {finding}");
        assert!(!finding.sentence.contains("args."), "{finding}");
    }
}
