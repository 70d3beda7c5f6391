#!/usr/bin/env bash
# Builds the program for production (`--no-default-features`) and looks into it: no test key of the devnet is there, as
# text or as bytes, and none of the commands that make up money. The ordinary build has them, so this can fail.
#
#   tests/production.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# The first of the ten keys that everybody knows: crates/devnet/src/key.rs.
key=$(sed -n 's/^ *"\([0-9a-f]\{64\}\)",$/\1/p' crates/devnet/src/key.rs | head -n 1)
[ ${#key} -eq 64 ] || { echo "error: no key in crates/devnet/src/key.rs" >&2; exit 1; }
# holds FILE: whether the key is in it, as hexadecimal digits or as bytes.
holds() { python3 - "$1" "$key" <<'PY'
import sys
data, key = open(sys.argv[1], "rb").read(), sys.argv[2]
sys.exit(0 if key.encode() in data or bytes.fromhex(key) in data else 1)
PY
}

# Both builds put their program into the same place: one after the other.
program=${CARGO_TARGET_DIR:-target}/debug/bursar
cargo build --locked --quiet -p bursar
holds "$program" || { echo "error: the ordinary build has no devnet key: this test looks for the wrong thing" >&2; exit 1; }
cargo build --locked --quiet -p bursar --no-default-features
failed=0
if holds "$program"; then
    echo "error: the program for production has a devnet key in it" >&2
    failed=1
fi
for command in demo devnet sim chaos bench with-postgres load drill; do
    if "$program" "$command" --help >/dev/null 2>&1; then
        echo "error: the program for production has the command $command" >&2
        failed=1
    fi
done
"$program" --help >/dev/null
# What stands there afterwards is what the other stages expect.
cargo build --locked --quiet -p bursar
[ "$failed" -eq 0 ] && echo "production: no devnet key, no command of the lab"
exit "$failed"
