#!/usr/bin/env bash
# Makes the golden files of `tx`, of the signer's approvals and of the devnet's contracts again and fails if one is not what is checked in; deploys
# the contracts on anvil, and holds the Bitcoin vectors against Bitcoin Core. Ten seconds, once the tools are installed.
#
#   tests/golden.sh            compares
#   tests/golden.sh --write    writes the files again
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
    "") check=--check ;;
    --write) check= ;;
    *) echo "error: unknown option $1; there is only --write" >&2; exit 2 ;;
esac
vectors=crates/tx/tests/vectors contracts=crates/devnet/src/evm/contracts

tests/tools/node.sh $contracts/compile.mjs $check
for chain in tron evm bitcoin; do
    tests/tools/node.sh $vectors/$chain/make.mjs $check
done
tests/tools/python.sh $vectors/tron/make.py $check
tests/tools/python.sh crates/signer/tests/vectors/make.py $check
tests/tools/node.sh $contracts/try.mjs
tests/tools/node.sh $vectors/bitcoin/try.mjs
