"""Measures receivers of webhooks with wrk and writes docs/benchmarks-ingress.md. Called by run.sh."""

import json
import os
import platform
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

BUILT = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = bool(os.environ.get("QUICK"))
SECONDS = 2 if QUICK else 10
SECRET = "a secret of the benchmark"
POSTGRES = os.environ["MIDWATCH_TEST_POSTGRES"]
ONLY = os.environ.get("ONLY", "").split()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until_listening(port, process):
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{process.args[0]} does not listen")


def stopped(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Bare:
    name = "bare axum: verifies, stores nothing"

    def __enter__(self):
        port = free_port()
        self.process = subprocess.Popen([f"{BUILT}/examples/verify_only", f"127.0.0.1:{port}", SECRET])
        until_listening(port, self.process)
        self.url = f"http://127.0.0.1:{port}/hooks/x"
        return self

    def __exit__(self, *_):
        stopped(self.process)

    def stored(self):
        return None


class Webhook:
    """Debian's webhook. It runs a command for what passes; here a further rule fails, so that it only verifies."""

    name = "Debian `webhook`: verifies, stores nothing"

    def __enter__(self):
        port = free_port()
        self.directory = tempfile.mkdtemp()
        hmac = {"type": "payload-hmac-sha256", "secret": SECRET,
                "parameter": {"source": "header", "name": "X-Hub-Signature-256"}}
        never = {"type": "value", "value": "never", "parameter": {"source": "header", "name": "X-GitHub-Event"}}
        hook = {"id": "x", "execute-command": "/bin/true", "trigger-rule-mismatch-http-response-code": 202,
                "trigger-rule": {"and": [{"match": hmac}, {"match": never}]}}
        path = f"{self.directory}/hooks.json"
        with open(path, "w") as file:
            json.dump([hook], file)
        self.process = subprocess.Popen(
            ["webhook", "-hooks", path, "-ip", "127.0.0.1", "-port", str(port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_listening(port, self.process)
        self.url = f"http://127.0.0.1:{port}/hooks/x"
        return self

    def __exit__(self, *_):
        stopped(self.process)
        shutil.rmtree(self.directory)

    def stored(self):
        return None


class Midwatch:
    def __init__(self, store, busy=False):
        self.store, self.busy = store, busy
        names = {"postgres": "Midwatch on PostgreSQL", "sqlite": "Midwatch on SQLite"}
        self.name = names[store] + (", with projections, clock, runner and a dashboard" if busy else "")

    def midwatch(self, *arguments):
        out = subprocess.run([f"{BUILT}/midwatch", *arguments, "--json"], env=self.environment, cwd=self.directory,
                             check=True, capture_output=True, text=True)
        return json.loads(out.stdout)

    def __enter__(self):
        self.directory = tempfile.mkdtemp()
        self.database = None
        if self.store == "postgres":
            self.database = f"ingress_{os.getpid()}_{time.monotonic_ns()}"
            self.psql(POSTGRES, f"CREATE DATABASE {self.database}")
            self.db = f"{POSTGRES.rsplit('/', 1)[0]}/{self.database}"
        else:
            self.db = f"sqlite://{self.directory}/midwatch.db"
        self.environment = {**os.environ, "XDG_STATE_HOME": f"{self.directory}/state", "MIDWATCH_DB": self.db}
        bot = self.midwatch("bot", "add", "--name", "reader")["id"]
        recording = {"goal": "note the push", "steps": [
            {"tool": "computer_write_file", "arguments": {"path": "push.txt", "contents": "{{ref}}"}}],
            "variables": {"ref": {"pointer": "/ref"}}}
        never = {"kind": "once", "at": "2400-01-01T00:00:00Z"}
        routine = self.midwatch("routine", "add", "--name", "note", "--bot", bot, "--schedule", json.dumps(never),
                                "--recording", json.dumps(recording))["id"]
        trigger = self.midwatch("trigger", "create", "--name", "pushes", "--routine", routine, "--preset", "github",
                                "--secret", SECRET)
        token = self.midwatch("token", "add", "--name", "dashboard", "--role", "admin")
        self.token = token.get("secret") or token["token"]
        port = free_port()
        roles = "web,projector,clock,runner" if self.busy else "web"
        self.process = subprocess.Popen(
            [f"{BUILT}/midwatch", "serve", "--listen", f"127.0.0.1:{port}", "--roles", roles], env=self.environment,
            cwd=self.directory, stdout=subprocess.DEVNULL, stderr=open(f"{self.directory}/log", "w"))
        until_listening(port, self.process)
        self.origin = f"http://127.0.0.1:{port}"
        self.url = self.origin + trigger["path"]
        # The first delivery is the sample; from the next on they are accepted.
        load(self.url, 1, 0.1, "sample", connections=1)
        self.midwatch("trigger", "confirm", trigger["id"])
        self.watching = self.busy
        if self.busy:
            threading.Thread(target=self.watch, daemon=True).start()
        return self

    def watch(self):
        """Somebody who looks at the lists that a dashboard shows, twice a second."""
        while self.watching:
            for path in ["/api/v1/runs", "/api/v1/deliveries", "/api/v1/routines", "/ready"]:
                request = urllib.request.Request(self.origin + path, headers={"Authorization": f"Bearer {self.token}"})
                try:
                    urllib.request.urlopen(request, timeout=10).read()
                except OSError:
                    pass
            time.sleep(0.5)

    def psql(self, url, sql):
        return subprocess.run(["psql", "-qAtX", url, "-c", sql], check=True, capture_output=True, text=True).stdout

    def stored(self):
        """Deliveries in the ledger that are another's than a duplicate's: each has its own event."""
        sql = "SELECT count(*) FROM events WHERE event_type = 'delivery.received'"
        if self.store == "postgres":
            return int(self.psql(self.db, sql))
        with sqlite3.connect(f"{self.directory}/midwatch.db") as connection:
            return connection.execute(sql).fetchone()[0]

    def __exit__(self, *_):
        self.watching = False
        stopped(self.process)
        if self.database:
            self.psql(POSTGRES, f"DROP DATABASE {self.database} WITH (FORCE)")
        shutil.rmtree(self.directory)


def load(url, threads, seconds, run, connections):
    script = f"{HERE}/push.lua"
    out = subprocess.run(
        ["wrk", f"-t{threads}", f"-c{connections}", f"-d{max(1, int(seconds))}s", "--timeout", "20s", "-s", script, url,
         "--", SECRET, run], check=True, capture_output=True, text=True).stdout
    line = next(line for line in out.splitlines() if line.startswith("RESULT "))
    return json.loads(line[len("RESULT "):])


def measured(receiver, connections):
    with receiver as server:
        load(server.url, 1, 1, "warm", connections)
        time.sleep(0.5)
        before = server.stored()
        result = load(server.url, 1, SECONDS, "measured", connections)
        time.sleep(1.0)
        after = server.stored()
    taken = result["statuses"].get("202", 0)
    if before is not None:
        # What was under way when wrk stopped is in the ledger without an answer that it heard.
        if not taken <= after - before <= taken + connections:
            raise SystemExit(f"{receiver.name}: {taken} answered 202, and {after - before} are in the ledger")
        result["stored"] = after - before
    result["a_second"] = taken / (result["duration_us"] / 1e6)
    result.update(name=receiver.name, connections=connections)
    others = {code: times for code, times in result["statuses"].items() if code != "202"}
    print(f"{receiver.name}, {connections} connections: {result['a_second']:.0f}/s, "
          f"p50 {result['p50_us'] / 1000:.1f} ms, p99 {result['p99_us'] / 1000:.1f} ms, "
          f"in the ledger {result.get('stored', '-')} of {taken}, others {others}, broken {result['broken']}", flush=True)
    return result


def report(results):
    of = {(row["name"], row["connections"]): row for row in results}
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    lines = [
        "# Benchmarks: the receiver of webhooks", "",
        "Written by `make bench-ingress`, all in one run. wrk posts GitHub pushes of 7 KB, each another one, signed with "
        "HMAC-SHA256, over 32 and 256 connections, and runs on the same machine as what it measures. A 202 of Midwatch "
        "says that the delivery is durable: they are counted in the ledger after each row. The others store nothing.", "",
        f"{os.cpu_count()} cores of {model}, Linux {platform.release()}; {SECONDS} s a row.", "",
        "| receiver | connections | 202 a second | p50 | p99 | × bare axum | × `webhook` | in the ledger |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results:
        ratio = [f"{row['a_second'] / of[name, row['connections']]['a_second']:.2f}"
                 if (name, row["connections"]) in of else "" for name in (Bare.name, Webhook.name)]
        kept = f"{row['stored']} of {row['statuses'].get('202', 0)}" if "stored" in row else "none"
        lines.append(f"| {row['name']} | {row['connections']} | {row['a_second']:.0f} | {row['p50_us'] / 1000:.1f} ms "
                     f"| {row['p99_us'] / 1000:.1f} ms | {ratio[0]} | {ratio[1]} | {kept} |")
    return "\n".join(lines) + "\n"


def main():
    rows = [(Bare, 32), (Bare, 256), (Webhook, 32), (Webhook, 256)]
    for store in ("postgres", "sqlite"):
        rows += [(lambda store=store: Midwatch(store), 32), (lambda store=store: Midwatch(store), 256),
                 (lambda store=store: Midwatch(store, busy=True), 256)]
    results = []
    for make, connections in rows:
        receiver = make()
        if not ONLY or any(word in receiver.name for word in ONLY):
            results.append(measured(receiver, connections))
    text = report(results)
    print(text)
    if not QUICK and not ONLY:
        with open("docs/benchmarks-ingress.md", "w") as file:
            file.write(text)


main()
