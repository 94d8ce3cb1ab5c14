// Emmett's PostgreSQL store: emmett.mjs URL CALLERS SECONDS
import { getPostgreSQLEventStore } from "@event-driven-io/emmett-postgresql";
import { measure, payload } from "./callers.mjs";

const [url, callers, seconds] = process.argv.slice(2);
const store = getPostgreSQLEventStore(url);
const run = Date.now();
await store.appendToStream(`first-${run}`, [{ type: "first", data: payload }]);
await measure(Number(callers), Number(seconds), async (n, version) => {
  const expectedStreamVersion = version === 0 ? "STREAM_DOES_NOT_EXIST" : BigInt(version);
  await store.appendToStream(`run-${run}-${n}`, [{ type: "run.turn_finished", data: payload }], { expectedStreamVersion });
});
await store.close();
