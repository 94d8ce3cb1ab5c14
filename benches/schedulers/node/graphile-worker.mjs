// node graphile-worker.mjs URL JOBS LEAD_S CONCURRENCY: jobs due at one instant, and when each reached its handler.

import { Logger, makeWorkerUtils, run } from "graphile-worker";

import { all, said } from "./late.mjs";

const [url, jobs, lead, concurrency] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const utils = await makeWorkerUtils({ connectionString: url, logger });
await utils.migrate();
const due = Math.ceil(Date.now() / 1000 + lead) * 1000;
const starts = [];
await utils.withPgClient((client) =>
  client.query(
    "select graphile_worker.add_job('bench', json_build_object('at', at), run_at := $1) from generate_series(1, $2::int) at",
    [new Date(due), jobs],
  ),
);
if (Date.now() > due - 1000) throw new Error("the jobs were not there in time");
const runner = await run({
  connectionString: url,
  logger,
  concurrency,
  maxPoolSize: concurrency + 2,
  pollInterval: 50,
  noHandleSignals: true,
  taskList: { bench: () => void starts.push(Date.now()) },
});
await all(starts, jobs, due);
said(due, starts);
await runner.stop();
process.exit(0);
