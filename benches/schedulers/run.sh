#!/usr/bin/env bash
# Measures the clock beside other schedulers and job queues: benches/schedulers/run.sh (or `make bench-schedulers`)
#
# All on this machine, on one throw-away PostgreSQL with its default durability, in one go; writes
# docs/benchmarks-schedulers.md. QUICK=1: a tenth of the jobs, one round, prints only. What is downloaded goes to
# target/bench-peers and is used again. A peer that cannot be had is said in the result, with the reason.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
peers=$target/bench-peers
mkdir -p "$peers/unavailable"
cd "$root"

exec 9>"$peers/lock"
flock -n 9 || {
    echo "error: another benchmark is running; two at once would measure each other" >&2
    exit 1
}

# peer NAME COMMAND...: sets a peer up; its last words are kept when that fails.
peer() {
    local name=$1 log=$peers/$1.log
    shift
    rm -f "$peers/unavailable/$name"
    if ! "$@" >"$log" 2>&1 9>&- </dev/null; then
        tail -n 3 "$log" >"$peers/unavailable/$name"
        echo "$name cannot be measured: $(cat "$peers/unavailable/$name")" >&2
    fi
}

stamp() { cat "$@" | sha256sum; }
fresh() {
    local directory=$1
    shift
    [ "$(cat "$directory/.made-from" 2>/dev/null || true)" = "$(stamp "$@")" ]
}

node_schedulers() {
    local source=$root/benches/schedulers/node directory=$peers/schedulers-node
    command -v npm >/dev/null || scripts/need-debian.sh "npm" nodejs npm || return 1
    mkdir -p "$directory"
    cp "$source"/*.mjs "$directory"
    fresh "$directory" "$source"/package*.json && return 0
    cp "$source"/package*.json "$source/.npmrc" "$directory"
    (cd "$directory" && npm ci) || return 1
    stamp "$source"/package*.json >"$directory/.made-from"
}

python_schedulers() {
    local wanted=$root/benches/schedulers/python/requirements.txt directory=$peers/schedulers-python
    fresh "$directory" "$wanted" && return 0
    rm -rf "$directory"
    python3 -c 'import ensurepip, venv' || scripts/need-debian.sh "Python's venv" python3-venv || return 1
    python3 -m venv "$directory" && "$directory/bin/python" -m pip install --quiet --no-input -r "$wanted" || return 1
    stamp "$wanted" >"$directory/.made-from"
}

echo "building; the first time takes minutes" >&2
cargo bench --quiet --locked -p midwatch-engine --bench schedulers --no-run --message-format=json 9>&- \
    >"$peers/schedulers.json"
peer schedulers-node node_schedulers
peer schedulers-python python_schedulers
[ -z "${BUILD_ONLY:-}" ] || exit 0

export MIDWATCH_BENCH_TARGET=$target PYTHONDONTWRITEBYTECODE=1
exec scripts/with-postgres.sh python3 benches/schedulers/measure.py 9>&-
