#!/usr/bin/env bash
# Makes sure that a cargo subcommand is there: scripts/need-cargo-tool.sh NAME VERSION
# One that is already installed is used whatever its version; a missing one is built (minutes) at VERSION.
set -euo pipefail

name=$1
version=$2

if ! "$name" --version >/dev/null 2>&1; then
    echo "installing $name $version (missing; this takes a few minutes)" >&2
    cargo install --quiet --locked "$name@$version" >&2 || {
        echo "error: $name is missing and cargo could not install it; run 'cargo install --locked $name@$version'" >&2
        exit 1
    }
fi
