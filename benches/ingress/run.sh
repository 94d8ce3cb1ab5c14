#!/usr/bin/env bash
# Measures the receiver of webhooks beside others: benches/ingress/run.sh (or `make bench-ingress`)
#
# All on this machine, in one go, each 202 counted in the ledger; writes docs/benchmarks-ingress.md. About three minutes
# once everything is built. QUICK=1: two seconds each, prints only. BUILT=1: takes what target/release holds.
set -euo pipefail

cd "$(dirname "$0")/../.."
if [ -z "${MIDWATCH_TEST_POSTGRES:-}" ]; then
    exec scripts/with-postgres.sh "$0"
fi
command -v wrk >/dev/null || scripts/need-debian.sh "wrk" wrk
command -v webhook >/dev/null || scripts/need-debian.sh "webhook" webhook
if [ -z "${BUILT:-}" ]; then
    cargo build --quiet --release --locked -p midwatch
    cargo build --quiet --release --locked -p midwatch-ingress --example verify_only
fi
exec python3 benches/ingress/measure.py "${CARGO_TARGET_DIR:-target}/release"
