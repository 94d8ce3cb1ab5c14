"""Writes table.jsonl: what two independent implementations of CEL give for each expression, and what is expected of ours.

    python3 -m venv venv && venv/bin/pip install cel-python==0.5.0
    npm install @marcbachmann/cel-js@8.0.0
    venv/bin/python generate.py

Where the peers agree, that is expected. Where they differ, or one cannot do it, DECIDED says what the language
definition (github.com/cel-expr/cel-spec, doc/langdef.md) says; a difference nobody has decided stops the generator."""

import json
import pathlib
import subprocess
import sys

import celpy
from celpy import celtypes

from decided import DECIDED
from expressions import FULL, GROUPS, NEUTRAL

HERE = pathlib.Path(__file__).parent
NEUTRAL_CONTEXT = {
    name: ({} if name == "args" else False if value is True else "1970-01-01T00:00:00Z" if name == "now"
           else "UTC" if name == "zone" else type(value)())
    for name, value in FULL.items()
}


def bind(flat):
    out = {}
    for name, value in flat.items():
        bound = celtypes.TimestampType(value) if name == "now" else celpy.json_to_cel(value)
        if "." in name:
            group, member = name.split(".")
            out.setdefault(group, {})[member] = bound
        else:
            out[name] = bound
    return {
        name: celtypes.MapType({celtypes.StringType(k): v for k, v in value.items()}) if type(value) is dict else value
        for name, value in out.items()
    }


def double(number):
    text = repr(float(number))
    if text in ("inf", "-inf", "nan"):
        return text
    return text if "." in text or "e" in text else text + ".0"


def show(value):
    if value is None:
        return "null"
    if isinstance(value, (bool, celtypes.BoolType)):
        return "true" if value else "false"
    if isinstance(value, celtypes.UintType):
        return f"{int(value)}u"
    if isinstance(value, celtypes.DoubleType):
        return double(value)
    if isinstance(value, (celtypes.IntType, int)):
        return str(int(value))
    if isinstance(value, celtypes.BytesType):
        return 'b"' + "".join(f"\\x{byte:02x}" for byte in bytes(value)) + '"'
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, celtypes.TimestampType):
        text = value.strftime("%Y-%m-%dT%H:%M:%S")
        millis = value.microsecond // 1000
        return f'timestamp("{text}{f".{millis:03d}" if millis else ""}Z")'
    if isinstance(value, celtypes.DurationType):
        micros = (value.days * 86400 + value.seconds) * 10**6 + value.microseconds
        sign, micros = ("-", -micros) if micros < 0 else ("", micros)
        rest = f"{micros % 10**6:06d}".rstrip("0")
        return f'duration("{sign}{micros // 10**6}{"." + rest if rest else ""}s")'
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{show(k)}: {show(v)}" for k, v in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    return f"unsupported: a value of {type(value).__name__}"


def python(expression, bound):
    environment = celpy.Environment()
    try:
        return show(environment.program(environment.compile(expression)).evaluate(bound))
    except Exception as error:  # whatever it is, it is what this peer says
        text = str(error.args[0] if error.args else error).split("\n")[0][:90]
        missing = "undeclared reference" in text or "no matching overload" in text or "no such overload" in text
        return f"{'unsupported' if missing else 'error'}: {text.split(' (in activation')[0]}"


def main():
    rows = [(group, expression, True) for group, all_of in GROUPS.items() for expression in all_of]
    rows += [("neutral", expression, False) for expression in NEUTRAL]
    contexts = HERE / "contexts.json"
    contexts.write_text(json.dumps([FULL, NEUTRAL_CONTEXT], ensure_ascii=False, indent=1) + "\n")
    asked = "".join(json.dumps({"e": expression, "full": full}) + "\n" for _, expression, full in rows)
    peer = subprocess.run(["node", HERE / "peer.mjs", contexts], input=asked, capture_output=True, text=True, check=True)
    answers = [json.loads(line)["v"] for line in peer.stdout.splitlines()]
    bound = {True: bind(FULL), False: bind(NEUTRAL_CONTEXT)}
    undecided, lines, used = [], [], set()
    for (group, expression, full), javascript in zip(rows, answers, strict=True):
        said = python(expression, bound[full])
        kind = lambda text: text.split(":")[0] if text.startswith(("error:", "unsupported:")) else text
        peers = {kind(said), kind(javascript)}
        note = None
        if expression in DECIDED:
            expected, note = DECIDED[expression]
            used.add(expression)
        elif len(peers) == 1 and "unsupported" not in peers:
            expected = peers.pop()
        elif "unsupported" in peers and len(peers) == 2 and "error" not in peers:
            expected = next(value for value in peers if value != "unsupported")
            note = "only one of the two can do it"
        else:
            undecided.append((expression, said, javascript))
            continue
        row = {"group": group, "expression": expression, "full": full, "expected": expected}
        row |= {"cel_python": said, "cel_js": javascript}
        lines.append(json.dumps(row | ({"note": note} if note else {}), ensure_ascii=False))
    for expression, said, javascript in undecided:
        print(f"undecided: {expression}\n    cel-python {said}\n    cel-js     {javascript}", file=sys.stderr)
    for expression in sorted(set(DECIDED) - used):
        print(f"decided, but in no group: {expression}", file=sys.stderr)
    (HERE / "table.jsonl").write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} rows, {len(undecided)} undecided", file=sys.stderr)
    return 1 if undecided else 0


if __name__ == "__main__":
    sys.exit(main())
