#!/usr/bin/env bash
# Holds the HTTP interface against its own description: Schemathesis reads /openapi.json of a scratch server and sends
# what the description allows and what it forbids, for at most a minute with a customer's token; and then, shorter, what is
# the operators' with the token of one. Fails on any 5xx and on any answer that the description does not have.
#
#   tests/schemathesis.sh            needs python3; what it installs (tests/schemathesis.txt) is kept in ~/.cache/bursar
#
# The program is the one that `cargo build` makes, or BURSAR names another.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

bursar=${BURSAR:-}
if [ -z "$bursar" ]; then
    cargo build --locked --quiet --package bursar
    bursar=${CARGO_TARGET_DIR:-target}/debug/bursar
fi
bursar=$(realpath "$bursar")
for variable in $(compgen -e | grep '^BURSAR_' || true); do unset "$variable"; done

# A venv for each list of versions: a new list is a new venv, and half a venv is none.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bursar/schemathesis
venv=$cache/$(sha256sum tests/schemathesis.txt | cut -c1-16)
if [ ! -e "$venv/complete" ]; then
    echo "installing Schemathesis into $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement tests/schemathesis.txt
    touch "$venv/complete"
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/bursar-schemathesis.XXXXXX")
server= asking=
clean_up() {
    trap '' INT TERM
    for child in $asking $server; do
        kill "$child" 2>/dev/null && wait "$child" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Two ports that nobody has, as far as anybody can know.
read -r http spot < <("$venv/bin/python" -c '
import socket
taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(one.getsockname()[1] for one in taken))')

cd "$folder"
head -c 48 /dev/urandom | base64 -w0 >jwt.secret
head -c 48 /dev/urandom | base64 -w0 >operators.secret
echo "coordinator $(head -c 24 /dev/urandom | base64 -w0)" >spot.credentials
chmod 600 jwt.secret operators.secret spot.credentials
cat >bursar.toml <<TOML
[database]
url = "sqlite://$folder/bursar.db"
[http]
listen = "127.0.0.1:$http"
operations_listen = ""
[auth]
hs256_secret_file = "jwt.secret"
[operators]
hs256_secret_file = "operators.secret"
[spot]
folder = "spot"
address = "127.0.0.1:$spot"
credentials_file = "spot.credentials"
[limits]
requests_per_second = 0
daily_transfers = 0
TOML
"$bursar" migrate >/dev/null
# An administrator may do everything that an operator may, and has a key that signs nothing here.
public=$(openssl genpkey -algorithm ed25519 | openssl pkey -pubout -outform DER | tail -c 32 | od -An -v -tx1 | tr -d ' \n')
cat "$root/examples/treasury.toml" - >treasury.toml <<TOML
[[operator]]
name = "olga"
role = "administrator"
keys.olga-laptop = { ed25519 = "$public" }
TOML
"$bursar" apply treasury.toml >/dev/null
for asset in USDT BTC BNB TRX; do
    "$bursar" account open --user 7 --asset "$asset" >/dev/null
done
while read -r asset chain amount; do
    "$bursar" adjust credit --user 7 --asset "$asset" --amount "$amount" --from "custody:$chain" --key "first-$asset" \
        --actor ann --second bob --reason "the test" >/dev/null
done <<'CREDITS'
USDT tron 200000
BTC bitcoin 100
BNB bsc 2000
TRX tron 2000000
CREDITS
"$bursar" serve --create-spot >serve.log 2>&1 &
server=$!
export TOKEN_OF_7
TOKEN_OF_7=$("$bursar" token --user 7 --for 60m)
token_of_olga=$("$bursar" token --operator olga --for 60m)

# Money on both sides, so that transfers succeed: half of what the user was given goes to spot.
"$venv/bin/python" - "$http" <<'PYTHON'
import sys, time, requests
base = f"http://127.0.0.1:{sys.argv[1]}"
for _ in range(200):
    try:
        if requests.get(f"{base}/health/ready", timeout=5).status_code == 200:
            break
    except requests.ConnectionError:
        pass
    time.sleep(0.05)
else:
    sys.exit("the server did not become ready:\n" + open("serve.log").read())
PYTHON
"$venv/bin/python" - "$http" <<'PYTHON'
import os, sys, requests
for asset, amount in {"USDT": "100000", "BTC": "50", "BNB": "1000", "TRX": "1000000"}.items():
    order = {"from": "FUNDING", "to": "SPOT", "asset": asset, "amount": amount}
    token = {"Authorization": "Bearer " + os.environ["TOKEN_OF_7"]}
    answer = requests.post(f"http://127.0.0.1:{sys.argv[1]}/api/v1/internal_transfer", json=order, headers=token, timeout=30)
    assert answer.status_code == 200, answer.text
PYTHON

# ask TOKEN REPORT [words]: as whoever has the token.
ask() {
    local token=$1 report=$2 status=0
    shift 2
    "$venv/bin/schemathesis" --config-file "$root/tests/schemathesis.toml" run "http://127.0.0.1:$http/openapi.json" \
        --header "Authorization: Bearer $token" --max-response-time 5 --report junit --report-junit-path "$report" "$@" &
    asking=$!
    wait "$asking" || status=$?
    asking=
    if [ "$status" -ne 0 ]; then
        tail -n 20 serve.log >&2
        exit "$status"
    fi
}
ask "$TOKEN_OF_7" customer.xml --exclude-path-regex '^/api/v1/operator/' "$@"
# Not by what one answer says of the next: there is no signer here, and a withdrawal that is there cannot be refused without its word.
ask "$token_of_olga" operator.xml --include-path-regex '^/api/v1/operator/' --phases examples,coverage,fuzzing --max-examples 50 "$@"

# It must have moved money, or it has tried nothing; and the books must still balance.
"$venv/bin/python" - "$http" <<'PYTHON'
import sys, requests
metrics = requests.get(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=30).text
counts = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
print({name: count for name, count in counts.items() if count != "0"})
assert int(counts["bursar_transfers_committed_total"]) > 20, "hardly any transfer succeeded"
assert counts['bursar_http_requests_total{class="5xx"}'] == "0"
PYTHON
# Whoever came through the operators' door was let in: the log has what was tried.
lines=$("$bursar" --json operator log | grep -o '"operator"[: ]*"olga"' | wc -l)
if [ "$lines" -lt 20 ]; then
    echo "error: the operators' log has $lines lines of olga: that token opened nothing" >&2
    exit 1
fi
kill "$server"
wait "$server"
server=
# The spot money was made up, so the engine has more than transfers brought there: it is left out.
"$bursar" audit --ledger-only
