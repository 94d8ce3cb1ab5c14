"""Puts the numbers into a document in which each ratio stands beside what was compared."""

import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Numbers = dict[tuple[str, int], list[dict]]

# What a peer's answer rests on, where that is not plain.
NOTES = {
    "single row": "pgbench, prepared: one `INSERT` of a similar row per transaction; a unique index guards the version",
    "message-db": "`write_message` through pgbench; all streams in one category, as one family of ours is",
    "message-db, a category each": "the same, with a category per caller; its lock is per category",
    "postgres-es": "`PostgresEventRepository::persist`, at most 64 connections",
    "sqlite-es": "`SqliteEventRepository::persist`, at most 64 connections, WAL, `synchronous = FULL`, 30 s busy time-out",
    "emmett": "`appendToStream` on Node.js, its own pool",
    "eventsourcing": "`PostgresApplicationRecorder.insert_events`, from threads of one process",
    "jetstream": "one subject per caller, expected last sequence, `sync_interval: always`",
    "SQLite, one transaction each": "`BEGIN IMMEDIATE`, read the version, insert, commit; WAL, `synchronous = FULL`",
    "ours, two processes": "each with half of the callers",
    "ours, one stream, hot": "optimistic callers by themselves: who meets a conflict tries again at the version it was told",
    "ours, one stream, lane": "each append follows the event submitted before it, as commands on one stream do, and is "
    "answered for itself",
}


def rate(value: float) -> str:
    """Per second, to three places that mean something."""
    if value >= 1_000:
        step = 10 ** (len(str(int(value))) - 3)
        return f"{round(value / step) * step:,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def ms(value_us: float) -> str:
    """Microseconds as milliseconds."""
    return f"{value_us / 1000:.2f}" if value_us < 100_000 else f"{value_us / 1000:.0f}"


def times(ratio: float) -> str:
    """A ratio, to two or three places."""
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.1f} ×"


class Middle:
    """The medians of all rounds."""

    def __init__(self, numbers: Numbers, single: dict[str, list[float]]) -> None:
        self.numbers = numbers
        self.single = single

    def get(self, subject: str, callers: int, what: str = "rate") -> float | None:
        """One cell's median."""
        cells = self.numbers.get((subject, callers))
        return statistics.median(cell[what] for cell in cells) if cells else None

    def best(self, *subjects: str) -> tuple[float, str, int] | None:
        """The highest rate of these, whoever and at however many callers."""
        found = [(self.get(*key) or 0, *key) for key in self.numbers if key[0] in subjects]
        return max(found) if found else None

    def most(self, subject: str) -> tuple[float, int] | None:
        """The rate at the most callers that were tried."""
        callers = max((key[1] for key in self.numbers if key[0] == subject), default=None)
        return None if callers is None else (self.get(subject, callers) or 0, callers)


def row(bar: str, wanted: str, ratio: float | None, need: float, compared: str) -> str:
    """One line of the table of bars."""
    if ratio is None:
        return f"| {bar} | {wanted} | not measured | {compared} |"
    by = ratio / need
    verdict = "**reached**" if by >= 1 else "**missed**"
    return f"| {bar} | {wanted} | {verdict}, {by:.2f} × the bar | {compared} |"


def against(middle: Middle, subject: str, peers: list[str], need: float, bar: str) -> str:
    """Ours at the most callers over a peer at its best."""
    ours, peer = middle.most(subject), middle.best(*peers)
    if not ours or not peer:
        return row(bar, f"≥ {need:g} ×", None, need, "no number of one of them")
    ratio = ours[0] / peer[0]
    compared = f"{rate(ours[0])}/s (ours, {ours[1]} callers) ÷ {rate(peer[0])}/s ({peer[1]}, {peer[2]} callers) = {times(ratio)}"
    return row(bar, f"≥ {need:g} ×", ratio, need, compared)


def bars(middle: Middle) -> list[str]:
    """Each bar, whether it is reached, and of what it is made."""
    postgres = "ours, PostgreSQL"
    lines = [
        against(middle, postgres, ["single row"], 2, "PostgreSQL, to pgbench's best"),
        against(middle, postgres, ["message-db", "message-db, a category each"], 4, "PostgreSQL, to message-db's best"),
        against(middle, postgres, ["postgres-es"], 4, "PostgreSQL, to postgres-es's best"),
        against(middle, postgres, ["eventsourcing"], 50, "PostgreSQL, to Python eventsourcing's best"),
        against(middle, "ours, SQLite", ["SQLite, one transaction each"], 20, "SQLite, to one transaction per append"),
    ]
    ours, single = middle.get(postgres, 1, "p50_us"), middle.get("single row", 1, "p50_us")
    if ours and single:
        compared = f"p50 {ms(ours)} ms (ours) ÷ {ms(single)} ms (single row) = {ours / single:.2f} ×"
        lines.append(row("PostgreSQL, one caller", "≤ 1.5 ×", single / ours, 1 / 1.5, compared))
    most = middle.most(postgres)
    for subject, need, bar in [
        ("ours, two processes", 0.9, "two processes, to one"),
        ("ours, one stream, lane", 0.5, "one stream through a lane, the ledger alone, to distinct streams"),
        ("ours, one stream, hot", 0.5, "one stream without a lane, the ledger alone, to distinct streams"),
    ]:
        part = middle.most(subject)
        if part and most:
            ratio = part[0] / most[0]
            compared = f"{rate(part[0])}/s ÷ {rate(most[0])}/s ({most[1]} callers) = {ratio:.2f} ×"
            lines.append(row(bar, f"≥ {need:g} ×", ratio, need, compared))
    if {"commands hot", "commands distinct"} <= middle.single.keys():
        hot, distinct = (statistics.median(middle.single[f"commands {which}"]) for which in ["hot", "distinct"])
        compared = f"{rate(hot)}/s ÷ {rate(distinct)}/s, whole commands through the engine = {hot / distinct:.2f} ×"
        lines.append(row("one stream, to distinct streams", "≥ 0.5 ×", hot / distinct, 0.5, compared))
    for what, need in [("replay SQLite", 200_000), ("replay PostgreSQL", 100_000), ("verify SQLite", 400_000),
                       ("verify PostgreSQL", 400_000)]:
        if what in middle.single:
            value = statistics.median(middle.single[what])
            lines.append(row(what, f"≥ {need:,}/s", value / need, need / need, f"{rate(value)} events/s"))
    if "judge 20 rules" in middle.single:
        took = middle.single["judge 20 rules"][0] / 1000
        lines.append(row("judging 20 rules", "≤ 25 µs", 25 / took, 1, f"{took:.1f} µs"))
    windows = {title: took for title, (took, *_) in middle.single.items() if title.startswith("next window")}
    if windows:
        slowest = max(windows, key=lambda title: windows[title])
        value = 1e9 / windows[slowest]
        compared = f"{rate(value)}/s ({slowest.split('/')[1]}, the slowest kind)"
        lines.append(row("next window of a schedule", "≥ 300,000/s", value / 300_000, 1, compared))
    return lines


def table(middle: Middle) -> list[str]:
    """Every append that was measured."""
    lines = []
    for subject, callers in sorted(middle.numbers, key=lambda key: (not key[0].startswith("ours"), key[0], key[1])):
        value = middle.get(subject, callers) or 0
        low = min(cell["rate"] for cell in middle.numbers[subject, callers])
        high = max(cell["rate"] for cell in middle.numbers[subject, callers])
        ratio = ""
        if not subject.startswith("ours"):
            backend = "ours, SQLite" if "sqlite" in subject.lower() else "ours, PostgreSQL"
            same = middle.get(backend, callers)
            ours, at = (same, callers) if same else (middle.most(backend) or (None, 0))
            ratio = f"{rate(ours)}/s at {at} ÷ {rate(value)}/s = {times(ours / value)}" if ours and value else ""
        p50, p99 = middle.get(subject, callers, "p50_us") or 0, middle.get(subject, callers, "p99_us") or 0
        spread = f"{rate(low)} – {rate(high)}"
        lines.append(f"| {subject} | {callers} | {rate(value)} | {spread} | {ms(p50)} | {ms(p99)} | {ratio} |")
    return lines


def machine() -> str:
    """What it ran on."""
    said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"model name\s*: (.*)", said)
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    gigabytes = int(memory[1]) / 1024 / 1024 if memory else 0
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    name = model[1] if model else platform.machine()
    return f"{name}, {os.cpu_count()} cores, {gigabytes:.0f} GB, {system}, Linux {platform.release()}"


def said_by(*words: str) -> str:
    """A program's version, or that it is not there."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not there"


def versions(facts: dict[str, str]) -> str:
    """Of everything that took part."""
    package = (ROOT / "benches/peers/node/package.json").read_text(encoding="utf-8")
    node = [f"{name} {version}" for name, version in re.findall(r'"(@[^"]+)": "([^"]+)"', package)]
    wanted = [ROOT / "benches/peers" / name / "requirements.txt" for name in ["python", "nats"]]
    python = [pin for path in wanted for pin in path.read_text(encoding="utf-8").split()]
    cargo = (ROOT / "benches/peers/cqrs-es/Cargo.toml").read_text(encoding="utf-8")
    crates = [f"{name} {version}" for name, version in re.findall(r'^([\w-]+) = "=([\d.]+)"', cargo, re.MULTILINE)]
    commit = said_by("git", "describe", "--always", "--dirty", "--exclude=*")
    programs = [f"PostgreSQL {facts.get('server', '?')}", said_by("rustc", "--version"), f"Node.js {said_by('node', '--version')}"]
    programs.append(f"Python {platform.python_version()}")
    return "; ".join([f"Midwatch {commit}", *programs, *crates, *python, *node])


def document(numbers: Numbers, single: dict[str, list[float]], failures: dict[str, str], facts: dict[str, str],
             rounds: int, seconds: float) -> str:
    """The whole of it."""
    middle = Middle(numbers, single)
    settings = ", ".join(f"`{name} = {facts.get(name, '?')}`" for name in
                         ["fsync", "synchronous_commit", "wal_sync_method", "shared_buffers"])
    notes = [f"* **{subject}**: {note}." for subject, note in NOTES.items() if any(key[0] == subject for key in numbers)]
    missing = [f"* **{subject}**: {said}" for subject, said in sorted(failures.items())]
    pure = [f"| {title} | {took[0]:,.0f} ns | {rate(1e9 / took[0])} |" for title, took in sorted(single.items())
            if not title.startswith(("replay", "verify", "commands"))]
    return "\n".join([
        "# Benchmarks",
        "",
        "Written by `make bench`; not edited by hand. Everything below ran on one machine in one go, in turns.",
        "",
        f"* **When**: {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {facts.get('minutes', '?')} minutes.",
        f"* **Machine**: {machine()}. Flushing 8 kB took {facts.get('flush', '?')} before the run, "
        f"{facts.get('flush after', '?')} after it. Load average before the run: {facts.get('load before', '?')}; about "
        f"{facts.get('busy', '?')} of the processors' time went to other work meanwhile, which costs the faster ones most.",
        f"* **Versions**: {versions(facts)}.",
        f"* **PostgreSQL**: one throw-away server for all, its default settings: {settings}. SQLite files lie on the same "
        "disk.",
        f"* **Load**: each caller appends one event of 200 bytes to a stream of its own, says the version it expects, and "
        f"waits for the answer. (Ours: 120 bytes of facts and 80 of content, so each has salt, commitment and leaf hash.) "
        f"{rounds} round(s) of {seconds:g} s each after half a second to warm up; numbers are the medians of the rounds.",
        "* **Again**: `make bench`, or `make bench QUICK=1` for a look that writes nothing.",
        "",
        "## Bars",
        "",
        "| what | bar | result | compared |",
        "|---|---|---|---|",
        *bars(middle),
        "",
        *(ROOT / "benches/held-back.md").read_text(encoding="utf-8").strip().splitlines(),
        "",
        "## Appends",
        "",
        "Peers stand at as many callers as they were given; the last column divides ours at as many callers (where there "
        "is no such number, at our most) by theirs.",
        "",
        "| who | callers | events/s | lowest – highest round | p50 ms | p99 ms | ours ÷ theirs |",
        "|---|---:|---:|---|---:|---:|---|",
        *table(middle),
        "",
        *notes,
        "",
        "## Not measured",
        "",
        *(missing or ["Nothing: every peer ran."]),
        "",
        "## Reading",
        "",
        f"{facts.get('replayed', 'Nothing')}: whole runs of eleven events, no tool calls among them. Replaying reads every "
        "event, decodes its facts and folds each run; verifying computes commitments, leaves and versions.",
        "",
        "| what | events/s |",
        "|---|---:|",
        *[f"| {what} | {rate(statistics.median(values))} |" for what, values in single.items()
          if what.startswith(("replay", "verify"))],
        "",
        "## Pure parts",
        "",
        "| what | median | per second |",
        "|---|---:|---:|",
        *pure,
        "",
    ])
