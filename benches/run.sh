#!/usr/bin/env bash
# Measures the ledger and the pure parts beside other event stores: benches/run.sh (or `make bench`)
#
# All on this machine, on one throw-away PostgreSQL, in one go; writes docs/benchmarks.md. About twelve minutes once
# everything is built. QUICK=1: under three, prints only. What is downloaded or built goes to target/bench-peers and is
# used again. A peer that cannot be had is said in the result, with the reason.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
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

# fresh DIRECTORY FILE...: whether the directory was made from these files.
stamp() { cat "$@" | sha256sum; }
fresh() {
    local directory=$1
    shift
    [ "$(cat "$directory/.made-from" 2>/dev/null || true)" = "$(stamp "$@")" ]
}

node_peers() {
    local source=$root/benches/peers/node directory=$peers/node
    command -v npm >/dev/null || scripts/need-debian.sh "npm" nodejs npm || return 1
    mkdir -p "$directory"
    cp "$source"/*.mjs "$directory"
    fresh "$directory" "$source"/package*.json && return 0
    cp "$source"/package*.json "$source/.npmrc" "$directory"
    (cd "$directory" && npm ci) || return 1
    stamp "$source"/package*.json >"$directory/.made-from"
}

python_peer() {
    local wanted=$root/benches/peers/python/requirements.txt directory=$peers/python
    fresh "$directory" "$wanted" && return 0
    rm -rf "$directory"
    python3 -c 'import ensurepip, venv' || scripts/need-debian.sh "Python's venv" python3-venv || return 1
    python3 -m venv "$directory" && "$directory/bin/python" -m pip install --quiet --no-input -r "$wanted" || return 1
    stamp "$wanted" >"$directory/.made-from"
}

# A workspace of its own, built outside the tree. Its lock file is kept without the registry's address, which cargo
# takes from ours.
cargo_peers() {
    local source=$root/benches/peers/cqrs-es directory=$peers/cqrs-es registry
    mkdir -p "$directory"
    cp -r "$source/src" "$source/Cargo.toml" "$directory"
    registry=$(grep -m 1 '^source = ' Cargo.lock)
    sed "s|^source = .*|$registry|" "$source/Cargo.lock.in" >"$directory/Cargo.lock"
    (cd "$directory" && CARGO_TARGET_DIR=$peers/cargo cargo build --quiet --locked --release)
}

nats_peer() { command -v nats-server || scripts/need-debian.sh "nats-server" nats-server; }

echo "building; the first time takes minutes" >&2
benches=(-p midwatch-log --bench ledger -p midwatch-boundary --bench judge -p midwatch-commands --bench calendar)
benches+=(-p midwatch-events --bench codec -p midwatch-engine --bench lanes)
cargo bench --quiet --locked "${benches[@]}" --no-run --message-format=json 9>&- >"$peers/built.json"
peer node node_peers
peer python python_peer
peer cqrs-es cargo_peers
peer nats nats_peer

export MIDWATCH_BENCH_TARGET=$target PYTHONDONTWRITEBYTECODE=1
exec scripts/with-postgres.sh python3 benches/measure.py 9>&-
