"""Runs every scheduler in turn, ours among them, and writes the table. benches/schedulers/run.sh starts it."""

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(os.environ["MIDWATCH_BENCH_TARGET"]) / "bench-peers"
URL = os.environ["MIDWATCH_TEST_POSTGRES"]
SERVER = urlsplit(URL)
QUICK = os.environ.get("QUICK", "") not in ("", "0")
JOBS = int(os.environ.get("JOBS", 1_000 if QUICK else 10_000))
ROUNDS = int(os.environ.get("ROUNDS", 1 if QUICK else 3))
REPORT = ROOT / "docs/benchmarks-schedulers.md"
NODE, PYTHON = PEERS / "schedulers-node", PEERS / "schedulers-python/bin/python"


def driver() -> str:
    """The built bench of ours."""
    lines = (PEERS / "schedulers.json").read_text(encoding="utf-8").splitlines()
    built = [json.loads(line) for line in lines]
    return next(one["executable"] for one in built if one.get("executable") and one["target"]["name"] == "schedulers")


# Name, set-up that it needs, command, jobs, seconds before they are due, what it is.
SUBJECTS = [
    ("Midwatch", "", [driver()], JOBS, 25, [], "one process: clock, reactor, runner, projector; 256 runs at once"),
    ("pg-boss, batches", "schedulers-node", ["node", NODE / "pg-boss.mjs"], JOBS, 6, [500, 4],
     "10.4.2; batches of 500 to 4 workers: one fetch starts 500 jobs, which share one handler call"),
    ("pg-boss, one by one", "schedulers-node", ["node", NODE / "pg-boss.mjs"], JOBS, 6, [1, 32],
     "10.4.2; its default batch of 1, 32 workers"),
    ("graphile-worker", "schedulers-node", ["node", NODE / "graphile-worker.mjs"], JOBS, 6, [16],
     "0.16.6; concurrency 16"),
    ("procrastinate", "schedulers-python", [PYTHON, ROOT / "benches/schedulers/python/procrastinate_jobs.py"],
     JOBS // 5, 8, [32], "3.10.0; concurrency 32"),
    ("APScheduler", "schedulers-python", [PYTHON, ROOT / "benches/schedulers/python/apscheduler_jobs.py"],
     JOBS // 20, 20, [100], "4.0.0a6; SQLAlchemy store over asyncpg, 100 jobs at once"),
    ("DBOS", "schedulers-python", [PYTHON, ROOT / "benches/schedulers/python/dbos_jobs.py"], JOBS // 5, 25, [100],
     "3.4.0; delayed workflows on a queue, 100 at once"),
]


def psql(sql: str) -> str:
    """One statement on the server."""
    words = ["psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-d", URL, "-c", sql]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def once(name: str, command: list, jobs: int, lead: int, more: list, turn: int) -> dict:
    """One scheduler, one round, on a database of its own."""
    database = "".join(letter for letter in name.lower() if letter.isalpha()) + str(turn)
    psql(f"create database {database}")
    url = URL.rsplit("/", 1)[0] + "/" + database
    words = [str(word) for word in [*command, url, jobs, lead, *more]]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=400, stdin=subprocess.DEVNULL)
    finally:
        psql(f"drop database {database} with (force)")
    if done.returncode != 0:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        # Node.js names its own version last.
        what = [line for line in said if "rror" in line or "in time" in line] or said
        raise ValueError(what[-1].strip()[:200] if what else f"exit status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def in_time(name: str, command: list, jobs: int, lead: int, more: list, turn: int) -> dict:
    """As once; with a longer lead, where the jobs were not stored before they were due."""
    for factor in (1, 3, 9):
        try:
            return once(name, command, jobs, lead * factor, more, turn)
        except ValueError as error:
            if factor == 9 or "in time" not in str(error):
                raise
    raise AssertionError("unreachable")


def measure() -> tuple[dict[str, list[dict]], dict[str, str]]:
    """Every scheduler, in turns, so that all see the same machine."""
    found: dict[str, list[dict]] = {}
    failed: dict[str, str] = {}
    for turn in range(ROUNDS):
        for name, setup, command, jobs, lead, more, _ in SUBJECTS:
            said = PEERS / "unavailable" / setup
            if setup and said.exists():
                failed[name] = said.read_text(encoding="utf-8").strip()
            if name in failed:
                continue
            try:
                line = in_time(name, command, jobs, lead, more, turn)
            except (ValueError, OSError, subprocess.SubprocessError) as error:
                failed[name] = str(error)
                print(f"{name}: {error}", file=sys.stderr)
                continue
            found.setdefault(name, []).append(line)
            print(f"{name:22} {line['jobs']:6} jobs  p50 {line['p50_ms']:7.0f} ms  last {line['last_ms']:7.0f} ms"
                  f"  {line['rate']:8.0f}/s", file=sys.stderr)
    return found, failed


def middle(lines: list[dict], key: str) -> float:
    """The median of the rounds."""
    return statistics.median(line[key] for line in lines)


def table(found: dict[str, list[dict]], failed: dict[str, str]) -> tuple[str, str]:
    """The rows of the result, and what our own claims took."""
    ours = middle(found["Midwatch"], "rate")
    rows = []
    for name, _, _, _, _, _, what in SUBJECTS:
        if name not in found:
            rows.append(f"| {name} | | not measured: {failed.get(name, '')} | | | | | {what} |")
            continue
        lines = found[name]
        rate = middle(lines, "rate")
        ratio = "" if name == "Midwatch" else f"{ours / rate:.2f} ×"
        rows.append(
            f"| {name} | {lines[0]['jobs']:,} | {middle(lines, 'p50_ms'):,.0f} | {middle(lines, 'p99_ms'):,.0f} "
            f"| {middle(lines, 'last_ms'):,.0f} | {rate:,.0f} | {ratio} | {what} |"
        )
    claimed = [line["claimed"] for line in found["Midwatch"]]
    return "\n".join(rows), (
        f"Midwatch's own claims (the durable append that takes a window): {middle(claimed, 'rate'):,.0f} a second, the "
        f"median {middle(claimed, 'p50_ms'):,.0f} ms and the last {middle(claimed, 'last_ms'):,.0f} ms after they were due."
    )


def main() -> None:
    """Measures and writes."""
    found, failed = measure()
    if "Midwatch" not in found:
        raise SystemExit(f"ours gave no number: {failed.get('Midwatch')}")
    rows, claims = table(found, failed)
    settings = ", ".join(f"`{name}={psql(f'show {name}')}`" for name in ["fsync", "synchronous_commit", "full_page_writes"])
    text = f"""# Benchmark: schedulers

`make bench-schedulers` measures this and writes this page. It is never a test. {ROUNDS} rounds, all in turns on one
throw-away PostgreSQL {psql('show server_version').split()[0]} ({settings}) on {os.cpu_count()} cores of
{platform.machine()}; each number is the median of the rounds.

Jobs are stored beforehand, all due at the same second, in a database of their own. Measured is how long after that
second each **began**: for a peer, when its handler was called; for Midwatch, when the executor was called. By then
Midwatch has made two durable appends for each (the claim, under the rule of one live run and with a key that no second
process can use, and the runner's take), and it makes a third before the next window of that routine could run (the
ending). The handlers do nothing but write down the time. Peers with fewer jobs are those that take minutes to store
10,000, or to run them; a rate is jobs by the time until the last began.

| | jobs | p50, ms | p99, ms | last, ms | started a second | Midwatch is | what it is |
|---|---|---|---|---|---|---|---|
{rows}

{claims}
"""
    print(text)
    if not QUICK:
        REPORT.write_text(text, encoding="utf-8")


main()
