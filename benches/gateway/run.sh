#!/usr/bin/env bash
# Measures the gateway: twenty rules beside two other implementations of CEL, what-if, and governed calls on PostgreSQL.
# benches/gateway/run.sh (or `make bench-gateway`). QUICK=1: a quarter of the governed calls. PROFILE=dev: less to build.
# Peers go to target/bench-peers and are used again.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
peers=$target/bench-peers/cel
cd "$root"

[ -x "$peers/venv/bin/python" ] || { python3 -m venv "$peers/venv" && "$peers/venv/bin/pip" -q install cel-python==0.5.0; }
[ -d "$peers/js/node_modules" ] || { mkdir -p "$peers/js" && npm --prefix "$peers/js" install --silent @marcbachmann/cel-js@8.0.0; }

echo "rules (the same twenty in all three, in standard CEL; ours has a watchdog, limits and one shared layout beside)"
ours=$(cargo bench --locked -p midwatch-boundary --bench judge ${PROFILE:+--profile "$PROFILE"} -- --quick 2>/dev/null |
    tee /dev/stderr | sed -n 's/^judge 20 rules in standard CEL *time: *\[[^ ]* [^ ]* \([0-9.]*\) \(µs\|ms\|ns\).*/\1 \2/p')
ours=$(echo "$ours" | awk '{ print ($2 == "ms") ? $1 * 1000 : ($2 == "ns") ? $1 / 1000 : $1 }')
python=$("$peers/venv/bin/python" benches/gateway/peer.py 2>/dev/null)
js=$(CEL_JS="$peers/js" node benches/gateway/peer.mjs 2>/dev/null)
awk -v ours="$ours" -v python="$python" -v js="$js" 'BEGIN {
    printf "20 rules   midwatch %.1f µs   cel-js %.1f µs (%.1f×)   cel-python %.1f µs (%.0f×)\n", ours, js, js / ours, python, python / ours }'

scripts/with-services.sh cargo bench --locked -p midwatch-gateway --bench governed ${PROFILE:+--profile "$PROFILE"}
