"""dbos_jobs.py URL JOBS LEAD_S CONCURRENCY: delayed workflows due at one instant, and when each began."""

import asyncio
import sys
import time

from dbos import DBOS, SetEnqueueOptions
from late import due_in, in_time, said

url, jobs, lead, concurrency = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
starts: list[float] = []
url = url.replace("postgres://", "postgresql://", 1)
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})


@DBOS.workflow()
async def bench(at: int) -> None:
    starts.append(time.time())


async def main() -> None:
    due = due_in(lead)
    gate = asyncio.Semaphore(12)

    async def add(at: int) -> None:
        async with gate:
            with SetEnqueueOptions(delay_seconds=due - time.time()):
                await DBOS.enqueue_workflow_async("bench", bench, at)

    await asyncio.gather(*(add(at) for at in range(jobs)))
    in_time(due)
    until = due + 120
    while len(starts) < jobs and time.time() < until:
        await asyncio.sleep(0.02)
    if len(starts) < jobs:
        raise SystemExit(f"only {len(starts)} of {jobs} started")
    said(due, starts)


DBOS.launch()
DBOS.register_queue("bench", worker_concurrency=concurrency, polling_interval_sec=0.1)
asyncio.run(main())
DBOS.destroy()
