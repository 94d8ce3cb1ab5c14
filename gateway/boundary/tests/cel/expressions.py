"""The expressions of the table, written for it from the CEL language definition: what a rule may call, on literals and on
attributes. Where the two peers differ, DECIDED says what the definition says, and where."""

FULL = {
    "tool.name": "computer_click", "intent": "activate", "bot.id": "b-1", "bot.name": "Frida", "actor.id": "bot:b-1",
    "page.url": "https://shop.example.com/cart?item=42", "page.host": "shop.example.com", "element.ref": "e14",
    "element.role": "button", "element.name": "Submit order", "element.type": "submit", "key": "Enter",
    "file.path": "out/report.csv", "file.name": "report.csv", "file.extension": "csv", "command": "git commit -m 'x'",
    "mcp.server": "tickets", "mcp.tool": "update", "mcp.effect": "write", "run.cause": "schedule", "run.id": "r-1",
    "routine.id": "o-1", "trigger.id": "t-1", "trigger.event_type": "push", "zone": "Europe/Berlin",
    "run.unattended": True, "run.turn": 7, "run.tool_calls": 12, "repeat.count": 10, "repeat.same_result": 4,
    "repeat.cycle": 2, "run.tokens": 12000, "run.cost": 1500000, "now": "2026-03-29T01:30:15.250Z",
    "args": {"n": 5, "half": 1.5, "t": "Grüße", "flag": True, "none": None, "list": ["a", "b", "c"],
             "numbers": [3, 1, 2], "map": {"k": "v", "deep": {"m": 1}}, "empty": ""},
}

INT = ["1 + 2", "2 - 5", "3 * 4", "7 / 2", "-7 / 2", "7 / -2", "-7 / -2", "7 % 3", "-7 % 3", "7 % -3", "-7 % -3",
       "1 + 2 * 3", "(1 + 2) * 3", "2 - 3 - 4", "100 / 7 / 2", "-(1 + 2)", "- 5", "0x1F", "-0x10", "0", "-1",
       "9223372036854775807", "-9223372036854775808", "1 / 0", "1 % 0", "9223372036854775807 + 1",
       "-9223372036854775808 - 1", "9223372036854775807 * 2", "5 - -3", "2 * -3", "1 + 2 - 3 + 4", "10 % 4 * 2"]
UINT = ["1u + 2u", "7u / 2u", "7u % 4u", "3u * 5u", "5u - 3u", "0xFFu", "3u - 5u", "18446744073709551615u",
        "18446744073709551615u + 1u", "1u / 0u"]
DOUBLE = ["1.5 + 1.5", "1.0 / 4.0", "2.5 * 2.0", "0.1 + 0.2", "1e3", "1.5e-2", ".5", "-2.5", "3.0 - 4.5", "-(0.5)",
          "1.0 / 3.0", "100.0 * 1.1"]
STRING = ["'a' + 'b'", "\"a\" + 'b' + \"\"", "'''a'b'''", "\"\"\"x\"y\"\"\"", "r'\\n'", "'\\x41\\u0042\\U00000043'",
          "'\\101'", "'\\n\\t\\\\'", "'\\\"\\''", "'Grüße' + '😀'", "''", "' '", "R\"a\\b\"", "'a\\u00e9'"]
BYTES = ["b'abc'", "b'\\x00\\xff'", "b'ü'", "b'a' + b'b'", "bytes('ü')", "size(b'ü')", "b''"]
BOOL = ["true", "false", "!true", "!!true", "true && false", "true || false", "false || true", "true && true",
        "true || false && false", "(true || false) && false", "!false && true", "true ? false : true",
        "false ? 1 : 2", "true ? 'y' : 'n'", "true ? true : 1 / 0 == 1", "false ? 1 / 0 == 1 : true",
        "true || 1 / 0 == 1", "1 / 0 == 1 || true", "false && 1 / 0 == 1", "1 / 0 == 1 && false",
        "1 / 0 == 1 || false", "1 / 0 == 1 && true", "false || 1 / 0 == 1", "true && 1 / 0 == 1",
        "!(1 / 0 == 1)", "1 / 0 == 1 ? true : false", "true ? false ? 1 : 2 : 3", "false ? 1 : true ? 2 : 3"]
NULL = ["null", "null == null", "null != null", "has(args.none) && args.none == null", "has(args.none) && args.none != null"]

_PAIRS = [("1", "2"), ("2", "1"), ("3", "3"), ("-1", "1"), ("1u", "2u"), ("1.5", "1.25"), ("2.0", "2.0"),
          ("'a'", "'b'"), ("'b'", "'a'"), ("'a'", "'aa'"), ("'Z'", "'a'"), ("''", "'a'"), ("b'a'", "b'b'"),
          ("false", "true"), ("duration('1s')", "duration('1m')"),
          ("timestamp('2026-01-01T00:00:00Z')", "timestamp('2026-01-01T00:00:01Z')")]
COMPARE = [f"{a} {op} {b}" for a, b in _PAIRS for op in ("==", "!=", "<", "<=", ">", ">=")]
EQUAL = ["[1, 2] == [1, 2]", "[1, 2] == [2, 1]", "[1, 2] != [1, 2, 3]", "[] == []", "{'a': 1} == {'a': 1}",
         "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", "{'a': 1} != {'a': 2}", "{'a': 1} == {'a': 1, 'b': 1}",
         "[[1], [2]] == [[1], [2]]", "{'a': {'b': [1]}} == {'a': {'b': [1]}}", "'a' == 'A'", "'é' == 'é'",
         "[1] == ['1']", "dyn(1) == dyn('1')", "dyn(1) == dyn(1.0)", "dyn(1u) == dyn(1)", "dyn(1) < dyn(2.5)",
         "dyn([1]) == dyn([1.0])", "dyn(null) == dyn(0)", "dyn(true) == dyn(1)"]
LIST = ["[1, 2, 3]", "[]", "[1] + [2]", "[] + ['a']", "[1, 2, 3][0]", "[1, 2, 3][2]", "[1, 2][5]", "[1, 2][-1]",
        "size([1, 2, 3])", "[].size()", "[1, 2].size()", "1 in [1, 2]", "3 in [1, 2]", "'a' in ['a', 'b']",
        "!('c' in ['a', 'b'])", "1 in []", "[1, 2] in [[1, 2]]", "[true, false][1]", "[[1, 2], [3]][0][1]",
        "['a', 'b', 'c'] + ['d']"]
MAP = ["{'a': 1}", "{}", "{'a': 1}.a", "{'a': 1}['a']", "{'a': 1}['b']", "{'a': {'b': 2}}.a.b", "'a' in {'a': 1}",
       "'b' in {'a': 1}", "size({'a': 1, 'b': 2})", "{'a': 1}.size()", "{1: 'x'}[1]", "{true: 'y'}[true]",
       "1 in {1: 'x'}", "{'a': [1, 2]}.a[1]", "{'a': 1, 'a': 2}.a"]
MACRO = ["[1, 2, 3].all(x, x > 0)", "[1, -2].all(x, x > 0)", "[].all(x, x > 0)", "[1, 2].exists(x, x == 2)",
         "[1, 2].exists(x, x == 3)", "[].exists(x, true)", "[1, 2, 2].exists_one(x, x == 1)",
         "[1, 2, 2].exists_one(x, x == 2)", "[1, 2, 3].filter(x, x > 1)", "[1, 2, 3].map(x, x * 2)",
         "[1, 2, 3].map(x, x > 1, x * 10)", "{'a': 1, 'b': 2}.all(k, k != 'c')", "{'a': 1}.exists(k, k == 'a')",
         "['ab', 'c'].exists(s, s.startsWith('a'))", "['ab', 'c'].filter(s, s.size() == 1)",
         "[1, 2].exists(x, 1 / (x - 1) == 1)", "[2, 1].exists(x, 1 / (x - 1) == 1)",
         "[1, 2].all(x, 1 / (x - 2) == 5)", "[1].all(x, 1 / 0 == x)", "[1, 2].map(x, string(x))",
         "has({'a': 1}.a)", "has({'a': 1}.b)", "has({'a': {'b': 1}}.a.b)", "has({'a': null}.a)",
         "['a', 'b'].all(x, x in ['a', 'b', 'c'])", "[1, 2, 3].filter(x, x % 2 == 1)", "{'a': 1, 'b': 2}.exists_one(k, k == 'a')"]
TEXT = ["'hello'.contains('ell')", "'hello'.contains('')", "'hello'.contains('Hell')", "'hello'.startsWith('he')",
        "'hello'.startsWith('lo')", "'hello'.endsWith('lo')", "'hello'.endsWith('')", "''.endsWith('x')",
        "'hello'.size()", "size('')", "size('Grüße')", "size('😀')", "size('e\\u0301')",
        "'abc'.matches('b')", "'abc'.matches('^b')", "'abc'.matches('^a.c$')", "'abc'.matches('[0-9]')",
        "'a1'.matches('[a-z][0-9]')", "'x'.matches('')", "'ABC'.matches('abc')", "'ABC'.matches('(?i)abc')",
        "'a.b'.matches('a\\\\.b')", "'axb'.matches('a\\\\.b')", "'Grüße'.matches('ü')", "'ab'.matches('a|z')"]
STRINGS_EXTENSION = ["'abc'.lowerAscii()", "'ABC'.lowerAscii()", "'abc'.upperAscii()", "'Äb'.upperAscii()", "'ÄB'.lowerAscii()",
        "' a b '.trim()", "''.trim()", "'abc'.indexOf('b')", "'abc'.indexOf('z')", "'abcabc'.indexOf('b', 2)",
        "'abc'.indexOf('')", "'abcabc'.lastIndexOf('b')", "'abc'.lastIndexOf('z')", "'abc'.substring(1)",
        "'abc'.substring(0, 2)", "'abc'.substring(3)", "'abc'.substring(4)", "'abc'.substring(1, 1)",
        "'Grüße'.substring(2)", "'a,b,c'.split(',')", "''.split(',')", "'abc'.split('')", "'a,b,c'.split(',', 2)",
        "'a,b'.split(';')", "['a', 'b'].join()", "['a', 'b'].join('-')", "[].join(',')", "'aaa'.replace('a', 'b')",
        "'aaa'.replace('a', 'b', 1)", "'abc'.replace('z', 'y')", "'abc'.charAt(1)", "'abc'.charAt(3)",
        "'abc'.reverse()", "'😀a'.reverse()"]
CONVERT = ["int('42')", "int('-7')", "int('x')", "int('')", "int(3.7)", "int(-3.7)", "int(7u)", "int(1e30)",
           "int(timestamp('1970-01-01T00:01:00Z'))", "uint(3)", "uint(-1)", "uint('5')", "uint(2.9)", "double(3)",
           "double('1.5')", "double('x')", "double(3u)", "string(3)", "string(-3)", "string(3u)", "string(1.5)",
           "string(true)", "string(b'abc')", "string('x')", "string(timestamp('2026-01-01T00:00:00Z'))",
           "string(duration('90s'))", "bool('true')", "bool('false')", "bool('yes')", "bool(true)", "bytes('ab')",
           "string(bytes('ü'))", "int('9223372036854775807')", "int('9223372036854775808')", "double('1e3')",
           "type(1) == int", "type(1u) == uint", "type(1.0) == double", "type('a') == string", "type(true) == bool",
           "type([]) == list", "type({}) == map", "type(null) == null_type", "type(b'') == bytes",
           "type(1) == type(2)", "type(1) == type('a')", "type(type(1)) == type", "dyn(3) == 3", "dyn('a') + 'b'"]
_T = "timestamp('2026-03-29T01:30:15.250Z')"
TIME = [f"{_T}.{member}({zone})" for member in ("getFullYear", "getMonth", "getDayOfMonth", "getDate", "getDayOfWeek",
        "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds")
        for zone in ("", "'Europe/Berlin'", "'America/New_York'", "'+05:30'")]
TIME += ["timestamp('2026-01-01T00:00:00Z') == timestamp('2026-01-01T01:00:00+01:00')",
         "timestamp('2026-01-01T00:00:00Z') + duration('1h')", "timestamp('2026-01-01T00:00:00Z') - duration('1s')",
         "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z')", "duration('1h') + duration('30m')",
         "duration('1h') - duration('90m')", "duration('1.5s')", "duration('1h2m3s')", "duration('-30s')",
         "duration('90s').getMinutes()", "duration('90s').getSeconds()", "duration('2h').getHours()",
         "duration('1500ms').getMilliseconds()", "duration('1h') == duration('60m')", "timestamp('never')",
         "duration('soon')", "duration('1s') < duration('1500ms')", "timestamp('2024-02-29T12:00:00Z').getDayOfYear()",
         "duration('60s') == duration('1m')", "timestamp(0)", "duration('100us') < duration('1ms')"]
ATTRIBUTES = [
    "tool.name", "tool.name == 'computer_click'", "tool.name.startsWith('computer_')", "intent == 'activate'",
    "intent in ['activate', 'type']", "!(intent in ['read', 'read_file', 'list_files', 'read_tool'])", "bot.id", "bot.name == 'Frida'",
    "bot.name + '!'", "actor.id.startsWith('bot:')", "page.host", "page.host.endsWith('.example.com')", "page.host == 'example.com'",
    "page.url.contains('item=42')", "page.url.startsWith('https://')", "page.url.size()", "element.name.contains('Submit')",
    "element.name.contains('submit')", "element.name.lowerAscii().contains('submit')", "element.role == 'button'",
    "element.type == 'password'", "element.ref", "key == 'Enter'", "file.path.startsWith('out/')", "file.extension == 'csv'",
    "file.extension in ['exe', 'sh']", "file.name", "file.path == file.name", "file.path.endsWith(file.name)",
    "command.contains('commit')", "command.matches('^git ')", "command.matches('rm +-rf')", "mcp.server", "mcp.effect == 'write'",
    "mcp.server in ['tickets', 'wiki'] && mcp.tool == 'update'", "mcp.effect == 'write' && !(mcp.server in ['tickets'])",
    "run.unattended", "!run.unattended", "run.unattended && intent == 'activate'", "run.unattended ? 'alone' : 'watched'",
    "run.cause", "run.cause in ['schedule', 'catch_up']", "run.turn", "run.turn + run.tool_calls", "run.turn * 2 - 1", "run.turn > 5",
    "run.turn >= 7 && run.turn <= 7", "run.tool_calls % 5", "run.tool_calls / 5", "repeat.count >= 10", "repeat.count > 10",
    "repeat.count - repeat.same_result", "repeat.same_result * 2 > repeat.count", "repeat.cycle == 2", "run.tokens / 1000",
    "run.tokens > 2000000 || run.cost > 5000000", "double(run.cost) / 1000000.0", "run.cost >= 1500000", "string(run.turn) + '/20'",
    "routine.id != ''", "trigger.id", "trigger.event_type == 'push'", "trigger.event_type + ':' + run.cause", "run.id == routine.id",
    "zone", "zone == 'Europe/Berlin'", "now", "now.getHours()", "now.getHours(zone)", "now.getDayOfWeek(zone)", "now.getDayOfWeek(zone) in [0, 6]",
    "now.getHours(zone) < 6 && run.unattended", "now < timestamp('2026-03-29T02:00:00Z')", "now - timestamp('2026-03-29T01:30:00Z')",
    "now + duration('1h')", "now.getMonth() == 2", "now.getDate()", "now.getMilliseconds()", "now > timestamp('2027-01-01T00:00:00Z')",
    "has(args.n)", "has(args.nope)", "has(args.n) && args.n == 5", "has(args.n) && args.n > 3", "has(args.nope) && args.nope == 1",
    "has(args.half) && args.half * 2.0 == 3.0", "has(args.t) && args.t.startsWith('Gr')", "has(args.t) && args.t.size() == 5",
    "has(args.flag) && args.flag", "has(args.none)", "has(args.list) && args.list.size() == 3", "has(args.list) && 'b' in args.list",
    "has(args.list) && args.list[0] == 'a'", "has(args.list) && args.list.exists(x, x == 'c')", "has(args.list) && args.list.all(x, x < 'd')",
    "has(args.numbers) && args.numbers.exists(x, x > 2)", "has(args.numbers) && args.numbers[0] - args.numbers[1] == 2",
    "has(args.map) && has(args.map.k) && args.map.k == 'v'", "has(args.map) && has(args.map.deep) && has(args.map.deep.m) && args.map.deep.m == 1", "has(args.map) && has(args.map.nope)",
    "has(args.empty) && args.empty == ''", "'n' in args", "'nope' in args", "size(args) == 9", "has(args.n) ? args.n == 5 : false",
    "!has(args.nope) || args.nope == 1", "has(args.n) && args.n in [4, 5]", "has(args.list) && args.list + ['d'] == ['a', 'b', 'c', 'd']",
]
NEUTRAL = ["tool.name", "intent == ''", "page.host.endsWith('.example.com')", "element.name.contains('submit')", "command.contains('rm')",
           "mcp.effect == 'write'", "run.unattended", "run.turn", "repeat.count >= 10", "run.cost > 0", "has(args.path)", "size(args)",
           "'x' in args", "now == timestamp('1970-01-01T00:00:00Z')", "now.getFullYear()", "file.extension in ['', 'csv']",
           "trigger.event_type == 'push'", "key == 'Enter' || key == ''", "page.url.size()", "args == {}"]

GROUPS = {"int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES, "bool": BOOL, "null": NULL,
          "compare": COMPARE, "equal": EQUAL, "list": LIST, "map": MAP, "macro": MACRO, "text": TEXT,
          "strings": STRINGS_EXTENSION, "convert": CONVERT, "time": TIME, "attributes": ATTRIBUTES}
