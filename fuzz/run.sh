#!/usr/bin/env bash
# Fuzzes the receiver's parsing and every signing scheme: fuzz/run.sh [TARGET...] (or `make fuzz`)
#
# Each target for MINUTES (default 15; four targets are an hour), two at a time. Coverage-guided by libFuzzer with the
# toolchain that builds the program, no nightly and no further tool; what is found is kept in fuzz/artifacts, and what
# reaches new code in target/fuzz-corpus. Ends with an error where anything was found.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
targets=("$@")
[ $# -gt 0 ] || targets=(signatures samples bodies templates)

# The versions are the program's own; the lock file names them and is not kept, since cargo writes a registry's address.
cp Cargo.lock fuzz/Cargo.lock
trap 'rm -f fuzz/Cargo.lock' EXIT
# A target is named, so that what runs at build time is not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS=$(echo $RUSTFLAGS)
nice -n 19 cargo build --quiet --release --manifest-path fuzz/Cargo.toml --target-dir "$target/fuzz" --target "$host"

seconds=$((${MINUTES:-15} * 60))
fuzz() {
    local corpus=$target/fuzz-corpus/$1
    mkdir -p "$corpus" fuzz/artifacts/"$1"
    nice -n 19 "$target/fuzz/$host/release/$1" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$1/" -dict=fuzz/senders.dict "$corpus" fuzz/seeds \
        >"$target/fuzz-$1.log" 2>&1 || {
        tail -n 30 "$target/fuzz-$1.log"
        echo "$1: FOUND something, see fuzz/artifacts/$1"
        return 1
    }
    echo "$1: nothing found in $((seconds / 60)) min, $(sed -n 's/^stat::number_of_executed_units: *//p' "$target/fuzz-$1.log") inputs"
}

status=0
for ((at = 0; at < ${#targets[@]}; at += 2)); do
    pids=()
    for name in "${targets[@]:at:2}"; do
        fuzz "$name" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
done
exit $status
