#!/usr/bin/env bash
# Runs a command with everything the tests need: scripts/with-services.sh COMMAND...
#
# For one test: scripts/with-services.sh cargo nextest run -p midwatch --test browser
# For tests that need no more than a database, scripts/with-postgres.sh is quicker.
#
# What is missing is installed, and what cannot be installed is an error: no test is skipped. Set for the command:
#   MIDWATCH_TEST_POSTGRES      URL of a PostgreSQL server, as its superuser
#   MIDWATCH_TEST_CHROMIUM      path of a Chromium
#   MIDWATCH_TEST_NODE_MODULES  directory with the packages of tests/package-lock.json
#   MIDWATCH_AGUI_PYTHON        Python with the packages of tests/agui/requirements.txt
#   MIDWATCH_MCP_PYTHON         Python with the packages of tests/mcp/requirements.txt
#   MIDWATCH_TZDATA_PYTHON      Python with the packages of tests/calendar/requirements.txt
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
scripts=$root/scripts
target=${CARGO_TARGET_DIR:-$root/target}

fail() {
    echo "error: $1" >&2
    exit 1
}

mkdir -p "$target"
# Two of these at once must not install into one directory.
exec 9>"$target/with-services.lock"
flock 9

# Chromium, for the browser tests.
if [ -z "${MIDWATCH_TEST_CHROMIUM:-}" ]; then
    command -v chromium >/dev/null || "$scripts/need-debian.sh" "Chromium" chromium 9>&-
    MIDWATCH_TEST_CHROMIUM=$(command -v chromium) || fail "Chromium was installed but is not on PATH"
fi
"$MIDWATCH_TEST_CHROMIUM" --version >/dev/null 2>&1 9>&- || fail "$MIDWATCH_TEST_CHROMIUM does not run"

# Prometheus' Alertmanager, which sends to us for real.
command -v prometheus-alertmanager >/dev/null ||
    "$scripts/need-debian.sh" "Alertmanager" prometheus-alertmanager 9>&-

# Node, npm, and the packages of the lock file.
command -v node >/dev/null || "$scripts/need-debian.sh" "Node.js" nodejs 9>&-
command -v npm >/dev/null || "$scripts/need-debian.sh" "npm" npm 9>&-
node -e 'process.exit(process.versions.node.split(".")[0] >= 18 ? 0 : 1)' ||
    fail "Node.js is $(node --version), and the tests need 18 or newer"
modules=$root/tests/node_modules
lock=$(cat "$root/tests/package.json" "$root/tests/package-lock.json" | sha256sum)
if [ "$(cat "$modules/.installed" 2>/dev/null || true)" != "$lock" ]; then
    (cd "$root/tests" && npm ci --ignore-scripts --no-audit --no-fund >&2 </dev/null 9>&-) ||
        fail "npm could not install the packages of tests/package-lock.json"
    echo "$lock" >"$modules/.installed"
fi

# Git, which one of the MCP servers runs.
command -v git >/dev/null || "$scripts/need-debian.sh" "Git" git 9>&-

# Python, and the packages of what the tests talk to, each in an environment of its own.
python3 -c 'import ensurepip, venv' 2>/dev/null || "$scripts/need-debian.sh" "Python's venv" python3 python3-venv 9>&-
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$(python3 --version) is too old, and the tests need 3.10 or newer"
environment() { # environment NAME: tests/NAME/requirements.txt in target/NAME-venv
    local requirements=$root/tests/$1/requirements.txt venv=$target/$1-venv wanted
    [ -f "$requirements" ] || fail "tests/$1/requirements.txt is missing"
    wanted=$(python3 --version; cat "$requirements")
    [ "$(cat "$venv/.installed" 2>/dev/null || true)" != "$wanted" ] || return 0
    echo "installing the packages of tests/$1/requirements.txt" >&2
    rm -rf "$venv"
    { python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet --no-input -r "$requirements"; } \
        >&2 </dev/null 9>&- || fail "pip could not install the packages of tests/$1/requirements.txt"
    echo "$wanted" >"$venv/.installed"
}
environment agui
environment calendar
environment mcp

exec 9>&-
export MIDWATCH_TEST_CHROMIUM
export MIDWATCH_TEST_NODE_MODULES=$modules
export MIDWATCH_AGUI_PYTHON=$target/agui-venv/bin/python
export MIDWATCH_MCP_PYTHON=$target/mcp-venv/bin/python
export MIDWATCH_TZDATA_PYTHON=$target/calendar-venv/bin/python
exec "$scripts/with-postgres.sh" "$@"
