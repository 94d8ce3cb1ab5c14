#!/usr/bin/env bash
# Installs Debian packages: scripts/need-debian.sh WHAT PACKAGE...
# WHAT is what the caller found missing, for the sentence that is printed when it cannot be had.
set -euo pipefail

what=$1
shift

fail() {
    echo "error: $what is missing, and $1; install it (Debian: $packages) and run this again" >&2
    exit 1
}
packages="$*"

command -v apt-get >/dev/null || fail "this is not a Debian machine"

as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "installing it needs root or sudo"
    as_root=(sudo)
    # Nobody can type a password where there is no terminal.
    [ -t 0 ] || as_root=(sudo -n)
fi

echo "installing $packages ($what is missing)" >&2
apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
"${as_root[@]}" "${apt[@]}" update >&2 </dev/null || fail "the package lists could not be read"
"${as_root[@]}" "${apt[@]}" install --no-install-recommends "$@" >&2 </dev/null || fail "apt-get could not install it"
