"""Twenty compiled rules over one context with cel-python: prints microseconds for all twenty."""

import json
import pathlib
import sys
import time

import celpy
from celpy import celtypes

here = pathlib.Path(__file__).parent
flat = json.loads((here / "context.json").read_text())
bound = {}
for name, value in flat.items():
    made = celtypes.TimestampType(value) if name == "now" else celpy.json_to_cel(value)
    group, _, member = name.partition(".")
    if member:
        bound.setdefault(group, celtypes.MapType())[celtypes.StringType(member)] = made
    else:
        bound[name] = made
environment = celpy.Environment()
programs = [environment.program(environment.compile(rule)) for rule in json.loads((here / "rules.json").read_text())]


def judge():
    return [bool(program.evaluate(bound)) for program in programs]


rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
print(json.dumps(judge()), file=sys.stderr)
start = time.perf_counter()
for _ in range(rounds):
    judge()
print(f"{(time.perf_counter() - start) / rounds * 1e6:.1f}")
