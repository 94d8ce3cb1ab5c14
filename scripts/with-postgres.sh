#!/usr/bin/env bash
# Runs a command beside a PostgreSQL server of its own: scripts/with-postgres.sh COMMAND...
#
# The server listens on 127.0.0.1 and on a socket in a new directory; both are gone when the command ends.
# MIDWATCH_TEST_POSTGRES names it, and MIDWATCH_TEST_POSTGRES_RESTART a command that restarts it in one of pg_ctl's modes.
# If the first is set already, that server is used and none is started.
set -euo pipefail

if [ -n "${MIDWATCH_TEST_POSTGRES:-}" ]; then
    echo "using the PostgreSQL that MIDWATCH_TEST_POSTGRES names" >&2
    exec "$@"
fi

fail() {
    echo "error: $1" >&2
    exit 1
}

# The newest server that Debian's packages hold, else the one on PATH.
find_server() {
    local found
    found=$(ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -n 1 || true)
    [ -n "$found" ] || found=$(command -v initdb || true)
    [ -z "$found" ] || dirname "$(readlink -f "$found")"
}

bin=$(find_server)
if [ -z "$bin" ]; then
    "$(dirname "$0")/need-debian.sh" "a PostgreSQL server" postgresql
    bin=$(find_server)
    [ -n "$bin" ] || fail "PostgreSQL was installed but holds no initdb"
fi

# PostgreSQL refuses to run as root.
as_owner=()
if [ "$(id -u)" = 0 ]; then
    id postgres >/dev/null 2>&1 || fail "root cannot run PostgreSQL, and there is no user 'postgres' to run it as"
    as_owner=(runuser -u postgres --)
fi

# Under /tmp whatever TMPDIR says: a socket's path has room for 107 bytes, and its owner must reach it.
home=$(mktemp -d /tmp/midwatch-postgres.XXXXXX)
stop() {
    "${as_owner[@]}" "$bin/pg_ctl" --pgdata="$home/data" --mode=immediate --silent stop >/dev/null 2>&1 || true
    rm -rf "$home"
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
[ "$(id -u)" != 0 ] || chown postgres "$home"
cd "$home"

# As most servers in use are: text sorts by a language's rules, not by bytes (the versions before 15 cannot
# say so without the machine's own locales), and the server's zone is not UTC. Nothing may depend on either.
locale=(--locale=C.UTF-8)
if "$bin/initdb" --help | grep -q -- --icu-locale; then
    locale+=(--locale-provider=icu --icu-locale=en-US)
fi
"${as_owner[@]}" "$bin/initdb" --pgdata="$home/data" --username=postgres --auth=trust --encoding=UTF8 \
    "${locale[@]}" --no-sync >"$home/initdb.log" 2>&1 || {
    tail -n 5 "$home/initdb.log" >&2
    fail "PostgreSQL's initdb failed"
}

# fsync and synchronous commit stay on: a test that asks for durability must be able to be wrong.
settings="-c listen_addresses=127.0.0.1 -c unix_socket_directories=$home -c max_connections=200"
settings+=" -c fsync=on -c synchronous_commit=on -c timezone=Asia/Kathmandu"
# A port below those that outgoing connections take; if somebody has it, the next.
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    if "${as_owner[@]}" "$bin/pg_ctl" --pgdata="$home/data" --log="$home/data/server.log" --silent --wait --timeout=60 \
        --options="$settings -p $port" start >/dev/null 2>&1; then
        break
    fi
    if [ "$attempt" = 10 ]; then
        tail -n 5 "$home/data/server.log" >&2 || true
        fail "PostgreSQL did not start"
    fi
done

cat >"$home/restart" <<END
#!/bin/sh
cd "$home" && exec ${as_owner[*]} "$bin/pg_ctl" --pgdata="$home/data" --log="$home/data/server.log" --silent --wait \\
    --timeout=60 --mode="\$1" restart
END
chmod +x "$home/restart"

cd "$OLDPWD"
export MIDWATCH_TEST_POSTGRES_RESTART=$home/restart
export MIDWATCH_TEST_POSTGRES="postgres://postgres@127.0.0.1:$port/postgres"
"$@"
