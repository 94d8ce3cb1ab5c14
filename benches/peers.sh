# What the measurements beside others share; sourced by benches/run.sh and benches/schedulers/run.sh, which set `root`.
#
# What is downloaded or built goes to target/bench-peers and is used again. A peer that cannot be had is said in the
# result, with the reason.

mkdir -p "${CARGO_TARGET_DIR:-$root/target}/bench-peers/unavailable"
target=$(cd "${CARGO_TARGET_DIR:-$root/target}" && pwd)
peers=$target/bench-peers

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

# node_peers SOURCE DIRECTORY: programs for Node.js, with what they need.
node_peers() {
    local source=$1 directory=$2
    command -v npm >/dev/null || scripts/need-debian.sh "npm" nodejs npm || return 1
    mkdir -p "$directory"
    cp "$source"/*.mjs "$directory"
    fresh "$directory" "$source"/package*.json && return 0
    cp "$source"/package*.json "$source/.npmrc" "$directory"
    (cd "$directory" && npm ci) || return 1
    stamp "$source"/package*.json >"$directory/.made-from"
}

# python_peers REQUIREMENTS DIRECTORY: a Python with these packages.
python_peers() {
    local wanted=$1 directory=$2
    fresh "$directory" "$wanted" && return 0
    rm -rf "$directory"
    python3 -c 'import ensurepip, venv' || scripts/need-debian.sh "Python's venv" python3-venv || return 1
    python3 -m venv "$directory" && "$directory/bin/python" -m pip install --quiet --no-input -r "$wanted" || return 1
    stamp "$wanted" >"$directory/.made-from"
}
