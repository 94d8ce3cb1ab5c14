"""Python's eventsourcing, its PostgreSQL recorder called from threads: recorder.py URL CALLERS SECONDS."""

import json
import sys
import threading
import time
import uuid
from urllib.parse import urlsplit

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

WARM_UP_S = 0.5
# As many connections as the other pools have.
MOST_CONNECTIONS = 64
STATE = b"m" * 200


def main() -> None:
    """Measures, and prints a line of JSON."""
    url, callers, seconds = urlsplit(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    datastore = PostgresDatastore(
        url.path[1:],
        url.hostname,
        url.port,
        url.username,
        url.password or "",
        pool_size=min(callers, MOST_CONNECTIONS),
        connect_timeout=60,
    )
    recorder = PostgresApplicationRecorder(datastore)
    recorder.create_table()
    start = time.perf_counter() + WARM_UP_S
    end = start + seconds
    took: list[float] = []

    def caller() -> None:
        stream, version = uuid.uuid4(), 0
        while time.perf_counter() < end:
            began = time.perf_counter()
            recorder.insert_events([StoredEvent(stream, version, "run.turn_finished", STATE)])
            version += 1
            now = time.perf_counter()
            if start <= now < end:
                took.append(now - began)

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took.sort()

    def at(percent: int) -> int:
        return round(took[len(took) * percent // 100] * 1e6) if took else 0

    print(json.dumps({"callers": callers, "events": len(took), "seconds": seconds, "p50_us": at(50), "p99_us": at(99)}))
    datastore.close()


main()
