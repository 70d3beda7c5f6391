#!/usr/bin/env bash
# Makes the golden files of the chain clients again and fails if one is not what is checked in; deploys the devnet's
# contracts on anvil, and holds the Bitcoin vectors against Bitcoin Core. Ten seconds, once the tools are installed.
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
vectors=crates/chain/tests/vectors contracts=crates/chain/src/devnet/evm/contracts

tests/tools/node.sh $contracts/compile.mjs $check
for chain in tron evm bitcoin; do
    tests/tools/node.sh $vectors/$chain/make.mjs $check
done
tests/tools/python.sh $vectors/tron/make.py $check
tests/tools/node.sh $contracts/try.mjs
tests/tools/node.sh $vectors/bitcoin/try.mjs
