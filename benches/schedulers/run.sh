#!/usr/bin/env bash
# Measures the clock beside other schedulers and job queues: benches/schedulers/run.sh (or `make bench-schedulers`)
#
# All on this machine, on one throw-away PostgreSQL with its default durability, in one go; writes
# docs/benchmarks-schedulers.md. QUICK=1: a tenth of the jobs, one round, prints only. What is downloaded goes to
# target/bench-peers and is used again. A peer that cannot be had is said in the result, with the reason.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
. benches/peers.sh

echo "building; the first time takes minutes" >&2
cargo bench --quiet --locked -p midwatch-engine --bench schedulers --no-run --message-format=json 9>&- \
    >"$peers/schedulers.json"
peer schedulers-node node_peers benches/schedulers/node "$peers/schedulers-node"
peer schedulers-python python_peers benches/schedulers/python/requirements.txt "$peers/schedulers-python"
[ -z "${BUILD_ONLY:-}" ] || exit 0

export MIDWATCH_BENCH_TARGET=$target PYTHONDONTWRITEBYTECODE=1
exec scripts/with-postgres.sh python3 benches/schedulers/measure.py 9>&-
