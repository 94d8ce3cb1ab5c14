// NATS JetStream, one subject per caller: jetstream.mjs URL CALLERS SECONDS
import { connect } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { measure, payload } from "./callers.mjs";

const [servers, callers, seconds] = process.argv.slice(2);
const connection = await connect({ servers });
const manager = await jetstreamManager(connection);
const run = Date.now();
await manager.streams.add({ name: `run-${run}`, subjects: [`run-${run}.*`], storage: "file" });
const stream = jetstream(connection);
const bytes = new TextEncoder().encode(JSON.stringify(payload));
const last = [];
await measure(Number(callers), Number(seconds), async (n) => {
  const expect = { lastSubjectSequence: last[n] ?? 0 };
  last[n] = (await stream.publish(`run-${run}.${n}`, bytes, { expect })).seq;
});
await manager.streams.delete(`run-${run}`);
await connection.close();
