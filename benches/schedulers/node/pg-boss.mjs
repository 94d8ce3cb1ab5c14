// node pg-boss.mjs URL JOBS LEAD_S BATCH WORKERS: jobs due at one instant, and when each reached its handler.

import PgBoss from "pg-boss";

import { all, said } from "./late.mjs";

const [url, jobs, lead, batch, workers] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const boss = new PgBoss({ connectionString: url, max: 16 });
boss.on("error", (error) => console.error(error));
await boss.start();
await boss.createQueue("bench");
const due = Math.ceil(Date.now() / 1000 + lead) * 1000;
const starts = [];
// The shortest interval it takes; whoever has found work asks again at once.
const options = { batchSize: batch, pollingIntervalSeconds: 0.5 };
for (let from = 0; from < jobs; from += 1000) {
  const rows = Array.from({ length: Math.min(1000, jobs - from) }, (_, at) => ({
    name: "bench",
    data: { at: from + at },
    startAfter: new Date(due).toISOString(),
  }));
  await boss.insert(rows);
}
if (Date.now() > due - 1000) throw new Error("the jobs were not there in time");
for (let worker = 0; worker < workers; worker += 1) {
  await boss.work("bench", options, async (found) => {
    const now = Date.now();
    for (const _ of found) starts.push(now);
  });
}
await all(starts, jobs, due);
said(due, starts);
process.exit(0);
