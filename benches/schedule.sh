#!/usr/bin/env bash
# Measures the clock with many routines: benches/schedule.sh (or `make bench-schedule`)
#
# On one throw-away PostgreSQL with its default settings; prints lines of JSON. About fifteen minutes; QUICK=1: two, with
# a tenth of the routines.
set -euo pipefail

cd "$(dirname "$0")/.."
if [ -z "${MIDWATCH_TEST_POSTGRES:-}" ]; then
    exec scripts/with-postgres.sh "$0"
fi

built=$(cargo bench --quiet --locked -p midwatch-engine --bench schedule --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*schedule-[^"]*\)".*/\1/p' | tail -n 1)
[ -n "$built" ] || {
    echo "error: the benchmark was not built" >&2
    exit 1
}

count=0
fresh() {
    count=$((count + 1))
    local name=midwatch_schedule_$$_$count
    psql --quiet --no-psqlrc "$MIDWATCH_TEST_POSTGRES" -c "CREATE DATABASE $name" >&2
    url=${MIDWATCH_TEST_POSTGRES%/*}/$name
}
drop() { psql --quiet --no-psqlrc "$MIDWATCH_TEST_POSTGRES" -c "DROP DATABASE ${url##*/} WITH (FORCE)" >&2; }
measure() {
    fresh
    local what=$1
    shift
    "$built" "$what" "$url" "$@" || true
    drop
}

tenth=${QUICK:+1}; tenth=${tenth:-0}
measure due "$((tenth ? 10000 : 100000))" 10000 1
measure due "$((tenth ? 10000 : 100000))" 10000 2
measure idle 10000 30
measure idle "$((tenth ? 100000 : 1000000))" 30
