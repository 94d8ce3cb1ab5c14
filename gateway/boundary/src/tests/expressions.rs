//! The CEL language definition over what rules are offered: each row is an expression and what it gives.

use serde_json::json;

use super::*;

fn full() -> Context {
    let text = json!({
        "tool.name": "computer_click", "intent": "activate", "bot.name": "Frida", "page.url": "https://shop.example/cart?a=1",
        "page.host": "shop.example", "element.name": "Submit order", "element.role": "button", "run.turn": 7,
        "run.unattended": true, "repeat.count": 10, "run.cost": 1_500_000, "now": "2026-03-29T01:30:15.250Z",
        "zone": "Europe/Berlin", "command": "git commit -m 'x'",
        "args": {"n": 1.0, "half": 1.5, "big": 18_446_744_073_709_551_615_u64, "t": "Grüße", "flag": true, "none": null,
                 "list": ["a", "b", "c"], "numbers": [3, 1, 2], "map": {"k": "v", "l": {"m": 1}}},
    });
    Context::from_json(&text.to_string()).unwrap()
}

const TRUE: &[&str] = &[
    // Literals and escapes.
    "'a' == \"a\"",
    "'''a'b''' == \"a'b\"",
    "r'\\n' == '\\\\n'",
    "'\\x41\\u0042\\U00000043' == 'ABC'",
    "'\\101' == 'A'",
    "'\\a\\b\\f\\n\\r\\t\\v'.size() == 7",
    "'\\\"\\'\\`\\?' == \"\\\"'`?\"",
    "b'\\xff'.size() == 1",
    "b'ü'.size() == 2",
    "0x1F == 31",
    "-0x10 == -16",
    "1e3 == 1000.0",
    ".5 == 0.5",
    "7u == 7u",
    "null == null",
    "true != false",
    "// a comment\ntrue",
    // Numbers.
    "1 + 2 * 3 == 7",
    "(1 + 2) * 3 == 9",
    "7 / 2 == 3",
    "-7 / 2 == -3",
    "-7 % 2 == -1",
    "7 % -2 == 1",
    "2 - 3 - 4 == -5",
    "1.5 + 1.5 == 3.0",
    "7u / 2u == 3u",
    "-(1) == -1",
    "9223372036854775807 > 0",
    "-9223372036854775808 < 0",
    "1 == 1.0",
    "1 == 1u",
    "1 < 1.5",
    "2u > 1",
    "double(3) / 2.0 == 1.5",
    "1.0 / 0.0 > 1e300",
    // Comparison and order.
    "'a' < 'b'",
    "'a' < 'aa'",
    "'Z' < 'a'",
    "b'a' < b'b'",
    "false < true",
    "duration('1s') < duration('1m')",
    // Logic: absorption of errors, and order.
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(false && 1 / 0 == 1)",
    "!(1 / 0 == 1 && false)",
    "true ? true : 1 / 0 == 1",
    "!true ? false : true",
    "true || false && false",
    "!false && !!true",
    "(has(args.nope) && args.nope == 1) || intent == 'activate'",
    // Lists and maps.
    "1 in [1, 2]",
    "!(3 in [1, 2])",
    "1.0 in [1, 2]",
    "'k' in {'k': 1}",
    "[1, 2] == [1, 2]",
    "[1, 2] != [2, 1]",
    "[1] + [2] == [1, 2]",
    "[1, 2, 3][1] == 2",
    "{'a': 1}['a'] == 1",
    "{'a': 1}.a == 1",
    "{1: 'x', true: 'y'}[true] == 'y'",
    "size([1, 2]) == 2",
    "{'a': 1}.size() == 1",
    "has({'a': 1}.a)",
    "!has({'a': 1}.b)",
    "[] == []",
    "{} == {}",
    "[[1], [2]][1][0] == 2",
    "{'a': [1]} == {'a': [1.0]}",
    // Comprehensions.
    "[1, 2, 3].all(x, x > 0)",
    "[1, 2, 3].exists(x, x == 2)",
    "[1, 2, 3].exists_one(x, x == 2)",
    "[].all(x, x == 1)",
    "![].exists(x, x == 1)",
    "[1, 2, 3].map(x, x * 2) == [2, 4, 6]",
    "[1, 2, 3].filter(x, x > 1) == [2, 3]",
    "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
    "{'b': 1, 'a': 2}.map(k, k) == ['a', 'b']",
    "[1, 2].existsOne(x, x == 1)",
    "[0, 2].exists(x, 4 / x == 2)",
    "![0, 2].all(x, 4 / x == 1)",
    "['a', 'b'].exists(x, x == 'b' && intent == 'activate')",
    // Conversions and types.
    "int('42') == 42",
    "int(3.9) == 3",
    "int(-3.9) == -3",
    "uint(3) == 3u",
    "double('1.5') == 1.5",
    "string(42) == '42'",
    "string(true) == 'true'",
    "string(1.5) == '1.5'",
    "bytes('a') == b'a'",
    "string(b'a') == 'a'",
    "bool('true')",
    "type(1) == int",
    "type('a') == string",
    "type([]) == list",
    "type(1) != uint",
    "type(type(1)) == type",
    "dyn(1) == 1",
    "int(timestamp('1970-01-01T00:01:00Z')) == 60",
    "string(duration('90s')) == '90s'",
    // Text functions.
    "'Grüße'.size() == 5",
    "size('😀') == 1",
    "'abc'.contains('b')",
    "!'abc'.contains('B')",
    "'abc'.startsWith('ab')",
    "'abc'.endsWith('bc')",
    "'a' + 'b' == 'ab'",
    "'abc'.matches('^a.c$')",
    "'xabcx'.matches('b')",
    "!'ABC'.matches('b')",
    "contains('ABC', 'b')",
    "contains('STRASSE', 'straße')",
    "contains('ΟΔΟΣ', 'οδος')",
    "matches('ABC', '^a.c$')",
    "contains(element.name, 'SUBMIT')",
    "matches(page.host, '(^|\\\\.)SHOP\\\\.example$')",
    "'a1'.matches('[[:alpha:]]\\\\d')",
    "'Grüße'.charAt(2) == 'ü'",
    "'abc'.charAt(3) == ''",
    "'hello mellow'.indexOf('ello') == 1",
    "'hello mellow'.indexOf('ello', 2) == 7",
    "'hello'.indexOf('x') == -1",
    "'ta©o©αT'.indexOf('©', 3) == 4",
    "'hello mellow'.lastIndexOf('ello') == 7",
    "'hello mellow'.lastIndexOf('ello', 6) == 1",
    "'ta©o©αT'.lastIndexOf('©', 3) == 2",
    "'abc'.indexOf('', 20) == 3",
    "'abc'.lastIndexOf('', 3) == 3",
    "'bananananana'.lastIndexOf('nana', 7) == 6",
    "['a', 'b'].join() == 'ab'",
    "['a', 'b'].join('-') == 'a-b'",
    "[].join('-') == ''",
    "'ABC'.lowerAscii() == 'abc'",
    "'abcü'.upperAscii() == 'ABCü'",
    "' a\\t'.trim() == 'a'",
    "'hello'.replace('l', 'L') == 'heLLo'",
    "'hello'.replace('l', 'L', 1) == 'heLlo'",
    "'hello'.replace('l', 'L', 0) == 'hello'",
    "'hello'.replace('l', 'L', -1) == 'heLLo'",
    "'ab'.replace('', '_') == '_a_b_'",
    "'a,b,c'.split(',') == ['a', 'b', 'c']",
    "'a,b,c'.split(',', 2) == ['a', 'b,c']",
    "'a,b'.split(',', 0) == []",
    "'a,b'.split(',', -1) == ['a', 'b']",
    "'abü'.split('') == ['a', 'b', 'ü']",
    "'abü'.split('', 2) == ['a', 'bü']",
    "''.split(',') == ['']",
    "'tacocat'.substring(4) == 'cat'",
    "'tacocat'.substring(0, 4) == 'taco'",
    "'ta©o'.substring(2, 3) == '©'",
    "'abü'.reverse() == 'üba'",
    "'%s is %d'.format(['a', 1]) == 'a is 1'",
    "'%.2f'.format([1.234]) == '1.23'",
    // Time.
    "now == timestamp('2026-03-29T01:30:15.250Z')",
    "now.getHours() == 1",
    "now.getHours(zone) == 3",
    "now.getHours('Europe/Berlin') == 3",
    "now.getHours('+02:00') == 3",
    "(now - duration('1h')).getHours(zone) == 1",
    "now.getMinutes() == 30",
    "now.getSeconds() == 15",
    "now.getMilliseconds() == 250",
    "now.getFullYear() == 2026",
    "now.getMonth() == 2",
    "now.getDate() == 29",
    "now.getDayOfMonth() == 28",
    "now.getDayOfWeek() == 0",
    "now.getDayOfYear() == 87",
    "now.getDayOfWeek('America/New_York') == 6",
    "now + duration('24h') > now",
    "now - now == duration('0s')",
    "duration('1h30m').getMinutes() == 90",
    "duration('1h').getHours() == 1",
    "timestamp(0) == timestamp('1970-01-01T00:00:00Z')",
    "timestamp('2026-01-01T01:00:00+01:00') == timestamp('2026-01-01T00:00:00Z')",
    // What a rule reads.
    "tool.name == 'computer_click'",
    "intent in ['activate', 'type']",
    "!(intent in ['read', 'read_file'])",
    "run.unattended",
    "repeat.count >= 10",
    "run.cost > 1000000",
    "run.cost > 1.2",
    "trigger.id == '' && file.path == '' && mcp.effect == ''",
    "repeat.cycle == 0",
    "zone == 'Europe/Berlin'",
    "command.startsWith('git ')",
    "has(args.n) && args.n == 1",
    "has(args.n) && type(args.n) == int",
    "has(args.half) && args.half > 1.4",
    "has(args.big) && args.big > 9223372036854775807u",
    "has(args.t) && args.t.size() == 5",
    "has(args.flag) && args.flag",
    "has(args.none) && args.none == null",
    "has(args.list) && 'b' in args.list",
    "has(args.list) && args.list == ['a', 'b', 'c']",
    "has(args.list) && args.list.join() == 'abc'",
    "has(args.numbers) && args.numbers.exists(n, n == 3)",
    "has(args.map) && has(args.map.l) && args.map.l == {'m': 1}",
    "has(args.map) && has(args.map.k) && args.map['k'] == 'v'",
    "!has(args.nope)",
    "size(args) == 9",
    "'t' in args",
    "args.exists(k, k == 't')",
    "has(args.t) && contains(args.t, 'GRÜSSE')",
    "page.url.contains('?a=1')",
];

const BROKEN: &[(&str, &str)] = &[
    ("1 / 0 == 1", "divides by zero"),
    ("1 % 0 == 1", "divides by zero"),
    ("9223372036854775807 + 1 > 0", "left its range"),
    ("-9223372036854775807 - 2 < 0", "left its range"),
    ("9223372036854775807 * 2 > 0", "left its range"),
    ("1u - 2u == 0u", "left its range"),
    ("uint(run.turn - 8) == 0u", ""),
    ("int(1e30) == 1", ""),
    ("int(intent) == 1", ""),
    ("false || 1 / 0 == 1", "divides by zero"),
    ("true && 1 / 0 == 1", "divides by zero"),
    ("1 / 0 == 1 ? true : true", "divides by zero"),
    ("[1][5] == 1", "no element there"),
    ("[1][run.turn] == 1", "no element there"),
    ("{'a': 1}['b'] == 1", "there is no `b`"),
    ("{'a': 1, 'a': 2}.a == 1", "one key twice"),
    ("dyn('a') < dyn(1)", "cannot take string and int"),
    ("dyn(1) && true", "cannot take int and bool"),
    ("[0, 1].all(x, 4 / x == 4)", "divides by zero"),
    ("'abc'.charAt(9) == ''", "index out of range: 9"),
    ("'abc'.substring(2, 1) == ''", "substring"),
    ("'hello mellow'.indexOf('ello', 20) == 1", "index out of range: 20"),
    ("'abc'.lastIndexOf('a', -1) == 1", "index out of range: -1"),
    ("dyn([1]).join() == ''", "a list of texts was needed"),
    ("now.getHours(intent) == 1", ""),
    ("timestamp('9999-12-31T00:00:00Z') + duration('48h') > now", ""),
    ("has(args.t) && args.t == 'Grüße' && args.t + 1 == 2", ""),
    ("has(args.t) && args.t", "cannot take bool and string"),
    ("has(args.t) ? args.t : false", "gave a value of type string, not true or false"),
    ("has(args.t) && has(args.t.x)", ""),
    ("'%d'.format(['a']) == ''", "format"),
];

#[test]
fn the_language_definition_holds() {
    let context = full();
    let mut wrong = Vec::new();
    for when in TRUE {
        for (text, right) in [((*when).to_owned(), true), (format!("!({when}\n)"), false)] {
            match check(&one(&text)) {
                Err(findings) => wrong.push(format!("{text}: refused: {}", findings[0])),
                Ok(_) if outcome(&text, &context) == Ok(right) => {}
                Ok(_) => wrong.push(format!("{text}: gave {:?}", outcome(&text, &context))),
            }
        }
    }
    for (when, error) in BROKEN {
        match check(&one(when)).map(|_| outcome(when, &context)) {
            Err(findings) => wrong.push(format!("{when}: refused: {}", findings[0])),
            Ok(Err(given)) if given.contains(error) && given.len() > 5 => {}
            Ok(given) => wrong.push(format!("{when}: gave {given:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// G17: every attribute is bound on every call, with its neutral value.
#[test]
fn every_attribute_is_always_bound() {
    let neutral = Context::default();
    for name in crate::attributes::names() {
        let when = match name {
            "now" => "now == timestamp(0)".to_owned(),
            "args" => "args == {}".to_owned(),
            "run.unattended" => "!run.unattended".to_owned(),
            "zone" => "zone == 'UTC'".to_owned(),
            name if crate::attributes::NUMBERS.contains(&name) => format!("{name} == 0"),
            name => format!("{name} == ''"),
        };
        assert_eq!(outcome(&when, &neutral), Ok(true), "{when}");
    }
}

/// Each name reads its own value, not its neighbour's.
#[test]
fn every_attribute_reads_its_own_value() {
    for name in crate::attributes::TEXTS {
        let context = Context::from_json(&json!({ name: "here" }).to_string()).unwrap();
        assert_eq!(outcome(&format!("{name} == 'here'"), &context), Ok(true), "{name}");
        assert_eq!(context.to_json(), json!({ name: "here" }).to_string());
    }
    for name in crate::attributes::NUMBERS {
        let context = Context::from_json(&json!({ name: 42 }).to_string()).unwrap();
        assert_eq!(outcome(&format!("{name} == 42"), &context), Ok(true), "{name}");
        assert_eq!(context.to_json(), json!({ name: 42 }).to_string());
    }
}

#[test]
fn contexts_name_only_what_differs() {
    let flat = r#"{"args":{"a":[1,2.5,null]},"now":"2026-01-02T03:04:05.000006Z","run.turn":3,"run.unattended":true,"tool.name":"t"}"#;
    let context = Context::from_json(flat).unwrap();
    assert_eq!(context.to_json(), flat);
    let nested = r#"{"tool":{"name":"t"},"run":{"turn":3,"unattended":true},"now":"2026-01-02T04:04:05.000006+01:00","args":{"a":[1,2.5,null]}}"#;
    assert_eq!(Context::from_json(nested).unwrap(), context);
    assert_eq!(Context::from_json("{}").unwrap(), Context::default());
    assert_eq!(Context::default().to_json(), "{}");
    for (text, sentence) in [
        ("", "not JSON"),
        ("[]", "must be a JSON object"),
        (r#"{"run.unattendded":true}"#, "there is no attribute `run.unattendded`; did you mean `run.unattended`?"),
        (r#"{"run":{"turns":1}}"#, "there is no attribute `run.turns`"),
        (r#"{"run.turn":"1"}"#, "`run.turn` must be a whole number"),
        (r#"{"run.turn":1.5}"#, "`run.turn` must be a whole number"),
        (r#"{"intent":1}"#, "`intent` must be a text"),
        (r#"{"run.unattended":1}"#, "`run.unattended` must be true or false"),
        (r#"{"now":5}"#, "`now` must be an RFC 3339 instant"),
        (r#"{"args":[]}"#, "`args` must be a JSON object"),
        (r#"{"tool.name":"a","tool":{"name":"b"}}"#, "`tool.name` is given twice"),
    ] {
        let error = Context::from_json(text).unwrap_err();
        assert!(error.contains(sentence), "{text}: {error}");
    }
}

/// What is known only when the rule runs is limited then: over it, the rule is broken.
#[test]
fn inputs_ranges_and_results_are_limited() {
    let long = |count: usize| Context { command: "a".repeat(count), ..Context::default() };
    assert_eq!(outcome("command == \"\"", &long(64 * 1024)), Ok(false));
    let error = outcome("command == \"\" || true", &long(64 * 1024 + 1)).unwrap_err();
    assert!(error.contains("`command`, which is larger than 65536 bytes"), "{error}");
    assert_eq!(outcome("intent == \"\"", &long(1_000_000)), Ok(true), "a rule that does not read it is not broken");
    let args = |value: serde_json::Value| Context::from_json(&json!({"args": {"l": value}}).to_string()).unwrap();
    let numbers = |count: usize| args(json!((0..count).collect::<Vec<_>>()));
    let all = "has(args.l) && args.l.all(x, x >= 0)";
    assert_eq!(outcome(all, &numbers(1_000)), Ok(true));
    assert!(outcome(all, &numbers(1_001)).unwrap_err().contains("at most 1000"));
    let error = outcome("has(args.l)", &args(json!("x".repeat(70_000)))).unwrap_err();
    assert!(error.contains("`args`"), "{error}");
    for (when, error) in [
        ("command.replace(\"a\", command) == \"\"", "longer than 65536 bytes"),
        ("command.replace(\"\", command) == \"\"", "longer than 65536 bytes"),
        ("[command, command].join() == \"\"", "longer than 65536 bytes"),
        ("\"%s%s\".format([command, command]) == \"\"", "longer than 65536 bytes"),
        ("command.split(\"\").size() == 1", "more than 10000 parts"),
        ("command.split(\"\", 500).all(x, contains(command, x))", "too much text"),
    ] {
        let start = clock();
        let given = outcome(when, &Context { command: "a".repeat(60_000), ..Context::default() }).unwrap_err();
        assert!(given.contains(error), "{when}: {given}");
        assert!(start.elapsed() < std::time::Duration::from_millis(200), "{when}: {:?}", start.elapsed());
    }
}
