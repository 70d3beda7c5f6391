#!/usr/bin/env bash
# Prints a folder whose node_modules holds exactly what package-lock.json beside this script says (anvil, ethers,
# tronweb, solc, bitcoinjs-lib, bitcoin-core); installs it the first time. With arguments it runs node there instead:
#
#   folder=$(tests/tools/node.sh)
#   tests/tools/node.sh crates/tx/tests/vectors/tron/make.mjs --check
set -euo pipefail
here=$(dirname "$0")
source "$here/once.sh"

packages node:nodejs npm:npm
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || die "node $(node -v) is too old: 20 or newer is needed"
folder=$cache/node-$(sha256sum "$here/package-lock.json" | cut -c1-16)

install() {
    cp "$here/package.json" "$here/package-lock.json" "$1"
    # No package's own scripts: none of these needs them, and nobody has read them.
    (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1) ||
        { head -n 20 "$1/npm.log" >&2; die "npm ci failed; all it said is in $1/npm.log"; }
}

once "$folder" install
if [ $# -eq 0 ]; then
    echo "$folder"
else
    # An ES module looks for packages beside itself, which is in the tree; the scripts ask for this folder by name.
    NODE_TOOLS=$folder exec node "$@"
fi
