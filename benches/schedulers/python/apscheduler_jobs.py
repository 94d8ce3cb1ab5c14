"""apscheduler_jobs.py URL JOBS LEAD_S CONCURRENCY: schedules due at one instant, and when each called its function."""

import asyncio
import sys
import time
from datetime import datetime, timezone

from apscheduler import AsyncScheduler, ConflictPolicy
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from apscheduler.triggers.date import DateTrigger
from late import due_in, in_time, said
from sqlalchemy.ext.asyncio import create_async_engine

url, jobs, lead, concurrency = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
starts: list[float] = []
done = asyncio.Event()


async def bench() -> None:
    starts.append(time.time())
    if len(starts) == jobs:
        done.set()


async def main() -> None:
    engine = create_async_engine(url.replace("postgres://", "postgresql+asyncpg://", 1), pool_size=16)
    store, broker = SQLAlchemyDataStore(engine), AsyncpgEventBroker.from_async_sqla_engine(engine)
    async with AsyncScheduler(store, broker, max_concurrent_jobs=concurrency) as scheduler:
        due = due_in(lead)
        trigger = datetime.fromtimestamp(due, timezone.utc)
        await scheduler.configure_task("bench", func=bench, max_running_jobs=None)
        gate = asyncio.Semaphore(12)

        async def add(at: int) -> None:
            async with gate:
                await scheduler.add_schedule(
                    "bench", DateTrigger(trigger), id=str(at), conflict_policy=ConflictPolicy.replace
                )

        await asyncio.gather(*(add(at) for at in range(jobs)))
        in_time(due)
        await scheduler.start_in_background()
        await asyncio.wait_for(done.wait(), lead + 120)
        said(due, starts)


asyncio.run(main())
