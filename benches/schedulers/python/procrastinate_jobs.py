"""procrastinate_jobs.py URL JOBS LEAD_S CONCURRENCY: jobs due at one instant, and when each reached its task."""

import asyncio
import sys
import time
from datetime import datetime, timezone

import procrastinate
from late import due_in, in_time, said

url, jobs, lead, concurrency = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
starts: list[float] = []
done = asyncio.Event()
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=16))


@app.task(name="bench")
async def bench(at: int) -> None:
    starts.append(time.time())
    if len(starts) == jobs:
        done.set()


async def main() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        due = due_in(lead)
        task = app.configure_task("bench", schedule_at=datetime.fromtimestamp(due, timezone.utc))
        for start in range(0, jobs, 1000):
            await task.batch_defer_async(*({"at": at} for at in range(start, min(jobs, start + 1000))))
        in_time(due)
        worker = asyncio.create_task(
            app.run_worker_async(
                concurrency=concurrency, fetch_job_polling_interval=0.1, install_signal_handlers=False
            )
        )
        await asyncio.wait_for(done.wait(), lead + 90)
        said(due, starts)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


asyncio.run(main())
