// Callers that append one event at a time and wait for each answer; prints what benches/measure.py reads.
const WARM_UP_MS = 500;

export async function measure(callers, seconds, append) {
  const from = performance.now() + WARM_UP_MS;
  const to = from + seconds * 1000;
  const took = [];
  async function caller(n) {
    for (let version = 0; performance.now() < to; version += 1) {
      const began = performance.now();
      await append(n, version);
      const now = performance.now();
      if (from <= now && now < to) took.push(now - began);
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, n) => caller(n)));
  took.sort((a, b) => a - b);
  const at = (percent) => Math.round((took[Math.floor((took.length * percent) / 100)] ?? 0) * 1000);
  console.log(JSON.stringify({ callers, events: took.length, seconds, p50_us: at(50), p99_us: at(99) }));
}

// 200 bytes as JSON.
export const payload = { x: "m".repeat(192) };
