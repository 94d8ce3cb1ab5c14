"""How late each job started, as one line of JSON."""

import json
import time


def due_in(lead_s: float) -> float:
    """The whole second that lies at least this far ahead."""
    return float(int(time.time() + lead_s) + 1)


def in_time(due: float) -> None:
    """Fails when setting up took until the jobs were due."""
    if time.time() > due - 1:
        raise SystemExit("the jobs were not there in time")


def said(due: float, starts: list[float]) -> None:
    """The line."""
    late = sorted((at - due) * 1000 for at in starts)
    at = lambda share: late[min(len(late) - 1, int(len(late) * share))]  # noqa: E731
    rate = len(late) / (late[-1] / 1000)
    line = {"jobs": len(late), "p50_ms": at(0.5), "p99_ms": at(0.99), "last_ms": late[-1], "rate": rate}
    print(json.dumps(line))
