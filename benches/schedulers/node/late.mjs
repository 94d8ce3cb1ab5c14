// How late each job started, as one line of JSON.

export const said = (due, starts, setup = {}) => {
  const late = starts.map((at) => at - due).sort((one, other) => one - other);
  const at = (share) => late[Math.min(late.length - 1, Math.floor(late.length * share))];
  const seconds = late.at(-1) / 1000;
  console.log(
    JSON.stringify({ jobs: late.length, p50_ms: at(0.5), p99_ms: at(0.99), last_ms: late.at(-1), rate: late.length / seconds, ...setup }),
  );
};

/** Until all have started, or nothing has for too long. */
export const all = async (starts, wanted, due) => {
  let before = -1;
  let still = 0;
  while (starts.length < wanted) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    if (Date.now() < due) continue;
    still = starts.length === before ? still + 1 : 0;
    before = starts.length;
    if (still > 1500) throw new Error(`only ${starts.length} of ${wanted} started`);
  }
};
