#!/usr/bin/env bash
# Runs the snippets of the README's "Three chains on a laptop" as they are printed, against `bursar devnet`: only the ports are
# other ones, so that a real node on this machine is not in the way. BURSAR names the program.
set -euo pipefail
cd "$(dirname "$0")/.."
bursar=${BURSAR:-target/debug/bursar}
folder=$(tests/tools/node.sh)
work=$(mktemp -d)
trap 'kill "$devnet" 2>/dev/null || true; rm -rf "$work"' EXIT

"$bursar" --json devnet --evm-port 0 --tron-port 0 --bitcoin-port 0 --control-port 0 --block-time 1s >"$work/listening" &
devnet=$!
for _ in $(seq 100); do
    [ -s "$work/listening" ] && break
    kill -0 "$devnet" 2>/dev/null || { echo "error: the devnet did not start" >&2; exit 1; }
    sleep 0.1
done

# Each block of the README that is marked as JavaScript becomes a file; packages are found beside it.
ln -s "$folder/node_modules" "$work/node_modules"
python3 - "$work" <<'PYTHON'
import json, re, sys
work = sys.argv[1]
listening = json.loads(open(f"{work}/listening").readline())
text = open("README.md").read()
for chain, port in [("evm", "8545"), ("tron", "9090"), ("bitcoin", "18443")]:
    text = text.replace(f"http://127.0.0.1:{port}", listening[chain][0])
blocks = re.findall(r"```js\n(.*?)```", text, re.S)
assert len(blocks) == 3, f"the README has {len(blocks)} JavaScript snippets, not 3"
for number, block in enumerate(blocks):
    assert len(block.strip().splitlines()) == 3, f"not three lines: {block}"
    open(f"{work}/snippet{number}.mjs", "w").write(block)
PYTHON
for number in 0 1 2; do
    echo "snippet $number:"
    timeout 60 node "$work/snippet$number.mjs" | tee "$work/said"
    [ -s "$work/said" ] || { echo "error: it said nothing" >&2; exit 1; }
done
