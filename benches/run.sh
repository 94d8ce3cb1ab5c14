#!/usr/bin/env bash
# Measures the ledger and the pure parts beside other event stores: benches/run.sh (or `make bench`)
#
# All on this machine, on one throw-away PostgreSQL, in one go; writes docs/benchmarks.md. About twelve minutes once
# everything is built. QUICK=1: under three, prints only. What is downloaded or built goes to target/bench-peers and is
# used again. A peer that cannot be had is said in the result, with the reason.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. benches/peers.sh

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

echo "building; the first time takes minutes" >&2
benches=(-p midwatch-log --bench ledger -p midwatch-boundary --bench judge -p midwatch-commands --bench calendar)
benches+=(-p midwatch-events --bench codec -p midwatch-engine --bench lanes)
cargo bench --quiet --locked "${benches[@]}" --no-run --message-format=json 9>&- >"$peers/built.json"
peer node node_peers benches/peers/node "$peers/node"
peer python python_peers benches/peers/python/requirements.txt "$peers/python"
peer cqrs-es cargo_peers
peer nats python_peers benches/peers/nats/requirements.txt "$peers/nats"

export MIDWATCH_BENCH_TARGET=$target PYTHONDONTWRITEBYTECODE=1
exec scripts/with-postgres.sh python3 benches/measure.py 9>&-
