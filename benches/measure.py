"""Runs every measurement, ours and the peers', in turns, and hands the numbers to report.py. benches/run.sh starts it."""

import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import report

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(os.environ["MIDWATCH_BENCH_TARGET"]) / "bench-peers"
SERVER = urlsplit(os.environ["MIDWATCH_TEST_POSTGRES"])
QUICK = os.environ.get("QUICK", "") not in ("", "0")
ROUNDS = int(os.environ.get("ROUNDS", 1 if QUICK else 3))
SECONDS = 1.5 if QUICK else 3
REPLAYED = 50_000 if QUICK else 250_000
WARM_UP_S = 0.5
LOOPBACK = "127.0.0.1"


class Failed(Exception):
    """A measurement that gave no number; what was said instead."""


def run(*command: object, timeout: float = 120, **more: object) -> str:
    """A command's output, or what went wrong."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **more)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(said[-1] if said else f"exit status {done.returncode}")
    return done.stdout


def postgres_program(name: str) -> str:
    """The newest of Debian's, else the one on PATH."""
    found = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    return max(found, key=lambda path: int(path.split("/")[4])) if found else shutil.which(name) or name


POSTGRES = os.environ | {
    "PGHOST": SERVER.hostname or LOOPBACK,
    "PGPORT": str(SERVER.port or 5432),
    "PGUSER": SERVER.username or "postgres",
    # Peers' install scripts call psql and createdb by name.
    "PATH": f"{Path(postgres_program('psql')).parent}:{os.environ['PATH']}",
}


def database(name: str) -> str:
    """A new database's address."""
    run(postgres_program("createdb"), name, env=POSTGRES)
    return os.environ["MIDWATCH_TEST_POSTGRES"].rsplit("/", 1)[0] + "/" + name


def psql(name: str, *words: object) -> str:
    """Runs SQL in a database."""
    return run(postgres_program("psql"), "-qAt", "-v", "ON_ERROR_STOP=1", "-d", name, *words, env=POSTGRES)


def pgbench(name: str, script: str, clients: int, scratch: Path) -> dict:
    """Transactions that ended inside the span, by pgbench's own log."""
    prefix = scratch / f"pgbench-{time.monotonic_ns()}"
    path = ROOT / "benches/peers/pgbench" / script
    threads = min(clients, os.cpu_count() or 1)
    words = ["-n", "-M", "prepared", "-c", clients, "-j", threads, "-T", int(SECONDS + WARM_UP_S + 0.999), "-f", path]
    words += ["-D", f"run={time.time_ns() // 1000}", "-D", "n=0", "-l", "--log-prefix", prefix, name]
    run(postgres_program("pgbench"), *words, env=POSTGRES | {"PGOPTIONS": "-c search_path=public,message_store"})
    ends = []
    for log in glob.glob(f"{prefix}.*"):
        for line in Path(log).read_text(encoding="ascii").splitlines():
            fields = line.split()
            ends.append((int(fields[4]) * 1_000_000 + int(fields[5]), int(fields[2])))
        os.remove(log)
    start = min(end - took for end, took in ends) + WARM_UP_S * 1e6
    took = sorted(took for end, took in ends if start <= end < start + SECONDS * 1e6)
    at = lambda percent: took[len(took) * percent // 100]  # noqa: E731
    return {"callers": clients, "events": len(took), "seconds": SECONDS, "p50_us": at(50), "p99_us": at(99)}


class Bench:
    """Everything that is measured, and what came of it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.numbers: dict[tuple[str, int], list[dict]] = {}
        self.single: dict[str, list[float]] = {}
        self.failures: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        built = [json.loads(line) for line in (PEERS / "built.json").read_text(encoding="utf-8").splitlines()]
        self.built = {one["target"]["name"]: one["executable"] for one in built if one.get("executable")}
        self.driver = self.built["ledger"]
        self.nats: subprocess.Popen | None = None
        self.urls: dict[str, str] = {}

    def prepare(self) -> None:
        """Databases, and what the peers need in them."""
        for name in ["ours", "pair", "hot", "lane", "replay", "postgres_es", "emmett", "eventsourcing"]:
            self.urls[name] = database(name)
        database("single_row")
        psql("single_row", "-f", ROOT / "benches/peers/pgbench/single_row_table.sql")
        if not self.unavailable("node", "message-db"):
            install = PEERS / "node/node_modules/@eventide/message-db/database/install.sh"
            self.attempt("message-db", lambda: run("bash", install, env=POSTGRES | {"DATABASE_NAME": "message_store"}))
        self.unavailable("node", "emmett")
        self.unavailable("python", "eventsourcing")
        for name in ["postgres-es", "sqlite-es"]:
            self.unavailable("cqrs-es", name)
        if not self.unavailable("node", "jetstream") and not self.unavailable("nats", "jetstream"):
            self.attempt("jetstream", self.start_nats)

    def unavailable(self, peer: str, subject: str) -> bool:
        """Whether a peer could not be set up; says so in the result."""
        said = PEERS / "unavailable" / peer
        if said.exists():
            self.failures[subject] = said.read_text(encoding="utf-8").strip()
        return said.exists()

    def attempt(self, subject: str, what: object) -> object:
        """Does it unless this subject has failed before."""
        if subject in self.failures:
            return None
        try:
            return what()  # type: ignore[operator]
        except (Failed, ValueError, KeyError, IndexError) as error:
            self.failures[subject] = str(error) or repr(error)
            print(f"{subject}: {self.failures[subject]}", file=sys.stderr)
            return None

    def start_nats(self) -> None:
        """A server that flushes before each answer."""
        port = 20_000 + os.getpid() % 10_000
        config, log = self.scratch / "nats.conf", self.scratch / "nats.log"
        store = f"jetstream {{ store_dir: \"{self.scratch / 'nats'}\"\n sync_interval: always }}"
        config.write_text(f"listen: {LOOPBACK}:{port}\n{store}\n", encoding="utf-8")
        with open(log, "w", encoding="utf-8") as output:
            words = [str(PEERS / "nats/bin/nats-server"), "-c", str(config)]
            self.nats = subprocess.Popen(words, stdout=output, stderr=output)
        for _ in range(100):
            time.sleep(0.1)
            said = log.read_text(encoding="utf-8")
            if "Server is ready" in said:
                self.urls["jetstream"] = f"nats://{LOOPBACK}:{port}"
                return
            if self.nats.poll() is not None:
                break
        raise Failed(said.strip().splitlines()[-1] if said.strip() else "nats-server does not start")

    def stop(self) -> None:
        """Ends what was started."""
        if self.nats and self.nats.poll() is None:
            self.nats.terminate()
            self.nats.wait(timeout=10)

    def count(self, subject: str, callers: int, what: object) -> None:
        """One cell of the table, this round."""
        result = self.attempt(subject, what)
        if not result:
            return
        parts = result if isinstance(result, list) else [result]
        if not sum(part["events"] for part in parts):
            self.failures[subject] = f"at {callers} callers nothing was answered in time"
            return
        cell = {
            "rate": sum(part["events"] / part["seconds"] for part in parts),
            "p50_us": max(part["p50_us"] for part in parts),
            "p99_us": max(part["p99_us"] for part in parts),
            "conflicts": sum(part.get("conflicts", 0) for part in parts),
        }
        self.numbers.setdefault((subject, callers), []).append(cell)
        print(f"{subject:32} {callers:4} callers {cell['rate']:9.0f}/s  p50 {cell['p50_us']:8} µs", file=sys.stderr)

    def ours(self, *words: object) -> dict:
        """The driver's line."""
        return json.loads(run(self.driver, *words).splitlines()[-1])

    def appends(self, turn: int) -> None:
        """One round of the table. Who is compared is measured close together."""
        sqlite = f"sqlite://{self.scratch}/ours.db"
        levels = [1, 32, 256] if QUICK else [1, 8, 32, 256]
        clients = [1, 32, 64] if QUICK else [1, 8, 32, 64]
        for callers, fewer in zip(levels, clients):
            url = self.urls["ours"]
            self.count("ours, PostgreSQL", callers, lambda: self.ours("append", url, callers, SECONDS))
            self.count("single row", fewer, lambda: pgbench("single_row", "single_row.sql", fewer, self.scratch))
            self.count("ours, SQLite", callers, lambda: self.ours("append", sqlite, callers, SECONDS))
            self.peers(callers, fewer)
        many = levels[-1]
        for mode in ["hot", "lane"]:
            url = self.urls[mode]
            self.count(f"ours, one stream, {mode}", many, lambda: self.ours("append", url, many, SECONDS, mode))
        self.count("ours, two processes", many, lambda: self.ours("pair", self.urls["pair"], many, SECONDS))
        self.commands(turn, many)
        file = self.scratch / f"alone-{turn}.db"
        self.count("SQLite, one transaction each", 32, lambda: self.ours("alone", file, 32, SECONDS))

    def commands(self, turn: int, callers: int) -> None:
        """Whole commands through the engine: all on one stream, and each on its own."""
        def measure() -> dict:
            url = database(f"commands_{turn}")
            return json.loads(run(self.built["lanes"], url, callers, int(SECONDS + 0.999)).splitlines()[-1])

        result = self.attempt("commands", measure)
        for which in ["hot", "distinct"] if result else []:
            rate = result[f"{which}_per_s"]
            self.single.setdefault(f"commands {which}", []).append(rate)
            print(f"commands, {which}: {rate:.0f}/s", file=sys.stderr)

    def peers(self, callers: int, fewer: int) -> None:
        """The same of the others."""
        script = lambda name: pgbench("message_store", name, fewer, self.scratch)  # noqa: E731
        self.count("message-db", fewer, lambda: script("message_db.sql"))
        if fewer > 8 and "message-db" not in self.failures:
            self.count("message-db, a category each", fewer, lambda: script("message_db_categories.sql"))
        cqrs = PEERS / "cargo/release/midwatch-bench-cqrs-es"
        line = lambda *words: json.loads(run(*words, callers, SECONDS).splitlines()[-1])  # noqa: E731
        self.count("postgres-es", callers, lambda: line(cqrs, self.urls["postgres_es"]))
        self.count("sqlite-es", callers, lambda: line(cqrs, f"sqlite://{self.scratch}/sqlite-es.db"))
        self.count("emmett", callers, lambda: line("node", PEERS / "node/emmett.mjs", self.urls["emmett"]))
        python, recorder = PEERS / "python/bin/python", ROOT / "benches/peers/python/recorder.py"
        if callers <= 32:
            self.count("eventsourcing", callers, lambda: line(python, recorder, self.urls["eventsourcing"]))
        self.count("jetstream", callers, lambda: line("node", PEERS / "node/jetstream.mjs", self.urls["jetstream"]))

    def reads(self) -> None:
        """Replaying and verifying a filled ledger."""
        for backend, url in [("SQLite", f"sqlite://{self.scratch}/replay.db"), ("PostgreSQL", self.urls["replay"])]:
            filled = self.attempt(f"fill {backend}", lambda: self.ours("fill", url, REPLAYED))
            if not filled:
                continue
            self.facts["replayed"] = f"{filled['events']:,} events of {filled['bytes'] / filled['events']:.0f} bytes"
            for _ in range(ROUNDS):
                for verb in ["replay", "verify"]:
                    result = self.attempt(f"{verb} {backend}", lambda: self.ours(verb, url))
                    if result:
                        rate = result["events"] / result["seconds"]
                        self.single.setdefault(f"{verb} {backend}", []).append(rate)
                        print(f"{verb} {backend}: {rate:.0f}/s", file=sys.stderr)

    def pure(self) -> None:
        """The pure parts, by criterion; nanoseconds each."""
        home = self.scratch / "criterion"
        words = ["--bench", "--quick"] if QUICK else ["--bench", "--warm-up-time", "0.5", "--measurement-time", "2"]
        for name in ["judge", "calendar", "codec"]:
            self.attempt(name, lambda: run(self.built[name], *words, env=os.environ | {"CRITERION_HOME": str(home)}))
        for found in sorted(home.glob("**/new/benchmark.json")):
            estimates = json.loads(found.with_name("estimates.json").read_text(encoding="utf-8"))
            title = json.loads(found.read_text(encoding="utf-8"))["title"]
            self.single[title] = [estimates["median"]["point_estimate"]]

    def flush(self) -> str:
        """How long this disk takes to flush 8 kB, by the median: at the end of a growing file, and inside one."""
        medians = []
        with open(self.scratch / "flush", "wb") as file:
            for growing in [True, False]:
                took = []
                for at in range(200):
                    if not growing:
                        file.seek(at * 8192)
                    file.write(b"m" * 8192)
                    file.flush()
                    began = time.perf_counter()
                    os.fdatasync(file.fileno())
                    took.append(time.perf_counter() - began)
                medians.append(f"{statistics.median(took) * 1e3:.2f}")
        return f"{medians[0]} ms where the file grows and {medians[1]} ms where it does not"


def cpu_seconds() -> tuple[float, float]:
    """What all processes have used, and what ours have: this one, those it waited for, and the server's."""
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields[:8])
    tick = os.sysconf("SC_CLK_TCK")
    ours = sum(os.times()[:4])
    server = psql("postgres", "-c", "SELECT pg_read_file('postmaster.pid')").split()[0]
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            pid, _, rest = Path(stat).read_text(encoding="utf-8").replace(" (", ") ", 1).partition(") ")
        except OSError:
            continue
        values = rest.rpartition(") ")[2].split()
        if server in (pid, values[1]):
            # Of each process, and of the connections that have ended.
            ours += sum(int(value) for value in values[11:15]) / tick
    return (user + nice + system + irq + softirq + steal) / tick, ours


def busy_with_others(before: tuple[float, float]) -> str:
    """The share of the processors that went to others while this ran."""
    all_after, ours_after = cpu_seconds()
    others = max(0.0, all_after - before[0] - (ours_after - before[1]))
    return f"{others / (time.monotonic() - STARTED) / (os.cpu_count() or 1):.0%}"


STARTED = time.monotonic()


def main() -> None:
    """Measures everything, and writes the document."""
    began = time.time()
    # Beside the server's own files: the same disk for all.
    with tempfile.TemporaryDirectory(prefix="midwatch-bench.", dir="/tmp") as scratch:
        bench = Bench(Path(scratch))
        bench.facts["load before"] = f"{os.getloadavg()[0]:.1f}"
        cpu = cpu_seconds()
        bench.facts["flush"] = bench.flush()
        try:
            bench.prepare()
            for turn in range(ROUNDS):
                print(f"round {turn + 1} of {ROUNDS}", file=sys.stderr)
                bench.appends(turn)
            bench.reads()
            bench.pure()
            bench.facts["server"] = psql("postgres", "-c", "SHOW server_version").strip()
            for setting in ["fsync", "synchronous_commit", "wal_sync_method", "shared_buffers"]:
                bench.facts[setting] = psql("postgres", "-c", f"SHOW {setting}").strip()
            bench.facts["flush after"] = bench.flush()
            bench.facts["busy"] = busy_with_others(cpu)
        finally:
            bench.stop()
    bench.facts["minutes"] = f"{(time.time() - began) / 60:.0f}"
    text = report.document(bench.numbers, bench.single, bench.failures, bench.facts, ROUNDS, SECONDS)
    print(text)
    if not QUICK:
        (ROOT / "docs/benchmarks.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
