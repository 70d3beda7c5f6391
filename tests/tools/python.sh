#!/usr/bin/env bash
# Prints a Python venv with exactly what requirements.txt beside this script says (tronpy, webauthn, bip32, mnemonic); makes it the first time.
# With arguments it runs that venv's python instead:
#
#   venv=$(tests/tools/python.sh)
#   tests/tools/python.sh crates/tx/tests/vectors/tron/make.py --check
set -euo pipefail
here=$(dirname "$0")
source "$here/once.sh"

packages python3:python3
folder=$cache/python-$(sha256sum "$here/requirements.txt" | cut -c1-16)

install() {
    python3 -c 'import ensurepip' 2>/dev/null || packages no-ensurepip:python3-venv
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$here/requirements.txt" >&2 ||
        die "pip could not install $here/requirements.txt"
}

once "$folder" install
if [ $# -eq 0 ]; then
    echo "$folder"
else
    exec "$folder/bin/python" "$@"
fi
