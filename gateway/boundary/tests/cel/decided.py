"""What the language definition says where the two peers differ: the expression, what is expected, and why."""

_UNICODE = "literals: the bytes are those of the UTF-8 encoding"
_ORDER = "list of standard definitions: bytes have an order"
_ZONE = "list of standard definitions: a time zone may be a fixed offset, `(\"+\" | \"-\") Digit Digit \":\" Digit Digit`"
_HAS = "macros: has(e.f) on a map tells whether the key is there; one of the peers takes variables only"
_STRINGS = "the strings extension; neither peer has it, the value is the extension's documentation's"
_T = "timestamp('2026-03-29T01:30:15.250Z')"

DECIDED = {
    ".5": ("0.5", "syntax: FLOAT_LIT may begin with the dot"),
    "b'ü'": ('b"\\xc3\\xbc"', _UNICODE),
    "size(b'ü')": ("2", _UNICODE),
    "1 / 0 == 1 ? true : false": ("error", "logical operators: the conditional absorbs no error of its condition"),
    "true ? false ? 1 : 2 : 3": ("error", "syntax: Expr = ConditionalOr [\"?\" ConditionalOr \":\" Expr], so the middle needs brackets"),
    "b'a' < b'b'": ("true", _ORDER),
    "b'a' <= b'b'": ("true", _ORDER),
    "b'a' > b'b'": ("false", _ORDER),
    "b'a' >= b'b'": ("false", _ORDER),
    "[1] == ['1']": ("error", "gradual typing: both sides of == have one type, so the checker refuses it"),
    "'ÄB'.lowerAscii()": ('"Äb"', "the strings extension: only ASCII letters are changed"),
    "'Äb'.upperAscii()": ('"ÄB"', "the strings extension: only ASCII letters are changed"),
    "dyn(true) == dyn(1)": ("false", "equality: values of different types are not equal; only numbers compare across types"),
    "[1, 2][-1]": ("error", "field selection: an index is from 0 to the length minus one"),
    "{'a': 1, 'a': 2}.a": ("error", "aggregate values: a repeated key in a map is an error"),
    "[].all(x, x > 0)": ("true", "macros: the conjunction of nothing is true"),
    "[1, 2, 3].map(x, x > 1, x * 10)": ("[20, 30]", "macros: map with a predicate"),
    "has({'a': 1}.a)": ("true", _HAS),
    "has({'a': 1}.b)": ("false", _HAS),
    "has({'a': {'b': 1}}.a.b)": ("true", _HAS),
    "has({'a': null}.a)": ("true", _HAS),
    "'ABC'.matches('(?i)abc')": ("true", "regular expressions follow RE2's syntax, which has flags"),
    "'abc'.substring(4)": ("error", _STRINGS),
    "'aaa'.replace('a', 'b')": ('"bbb"', _STRINGS),
    "'aaa'.replace('a', 'b', 1)": ('"baa"', _STRINGS),
    "'abc'.replace('z', 'y')": ('"abc"', _STRINGS),
    "'abc'.charAt(1)": ('"b"', _STRINGS),
    "'abc'.charAt(3)": ('""', _STRINGS),
    "'abc'.reverse()": ('"cba"', _STRINGS),
    "'😀a'.reverse()": ('"a😀"', _STRINGS),
    "int('')": ("error", "conversions: a text that is no number is an error"),
    "int(1e30)": ("error", "overflow: an integer that does not fit is an error"),
    "string(true)": ('"true"', "conversions: the text of a bool is that of its literal"),
    f"{_T}.getFullYear('+05:30')": ("2026", _ZONE),
    f"{_T}.getMonth('+05:30')": ("2", _ZONE),
    f"{_T}.getDayOfMonth('+05:30')": ("28", _ZONE),
    f"{_T}.getDate('+05:30')": ("29", _ZONE),
    f"{_T}.getDayOfWeek('+05:30')": ("0", _ZONE),
    f"{_T}.getDayOfYear('+05:30')": ("87", _ZONE),
    f"{_T}.getHours('+05:30')": ("7", _ZONE),
    f"{_T}.getMinutes('+05:30')": ("0", _ZONE),
    f"{_T}.getSeconds('+05:30')": ("15", _ZONE),
}
