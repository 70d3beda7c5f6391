#!/usr/bin/env bash
# Prints the path of the anvil program, an EVM node for tests, which node.sh installs. It is pinned for Linux on x86-64
# only (the wrapper package names programs for other platforms that not every registry has); elsewhere your own is taken.
#
#   anvil=$(tests/tools/anvil.sh)
set -euo pipefail
folder=$("$(dirname "$0")/node.sh")
anvil=$folder/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil
[ -x "$anvil" ] || anvil=$(command -v anvil) ||
    { echo "error: no anvil for $(uname -sm) in $folder, and none on PATH; see https://getfoundry.sh" >&2; exit 1; }
echo "$anvil"
