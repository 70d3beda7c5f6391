#!/usr/bin/env python3
"""Writes the corpora of `tx`, `chain` and `devnet` from the golden vectors of `tx`. It adds what no vector has: answers
and scripts that are wrong in known ways.

    crates/tx/fuzz/seed.py            writes fuzz/corpus/ in all three crates, and fuzz/sent/ in `chain`

The program `record` (tests/fuzz.sh --record) writes what clients and devnets say to each other.
Files are named for what they hold, so writing them again changes nothing.
"""
import base64
import hashlib
import json
import pathlib

crates = pathlib.Path(__file__).resolve().parents[2]
vectors = crates / "tx" / "tests" / "vectors"
tx, chain, devnet = (crates / crate / "fuzz" for crate in ("tx", "chain", "devnet"))


def read(path):
    return json.loads((vectors / path).read_text())


def keep(fuzz, target, data):
    if isinstance(data, str):
        data = data.encode()
    folder = fuzz / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def unhex(text):
    return bytes.fromhex(text.removeprefix("0x"))


def one_of_each(rows, *names):
    """The first row of each combination: the fuzzer makes the rest by itself."""
    seen = set()
    for row in rows:
        kind = tuple(str(row.get(name)) for name in names)
        if kind not in seen:
            seen.add(kind)
            yield row


evm = read("evm/vectors.json")
refused = read("evm/refused.json")
for row in [*one_of_each(evm, "kind", "type", "chain_id"), *refused["transactions"], *refused["broken"]]:
    for target in ("unsigned", "signed"):
        if row.get(target):
            keep(tx, f"evm_{target}", unhex(row[target]))
for row in read("evm/addresses.json"):
    keep(tx, "evm_address", row["input"])

tron = read("tron/vectors.json")
for row in [*one_of_each(tron, "kind", "permission_id", "fee_limit"), *read("tron/extremes.json")]:
    keep(tx, "tron_unsigned", unhex(row["raw_data_hex"]))
    keep(tx, "tron_signed", unhex(row["signed_hex"]))
for row in read("tron/addresses.json"):
    keep(tx, "tron_address", row["input"])

bitcoin = read("bitcoin/transactions.json")
for row in bitcoin:
    for form in ("unsigned_psbt", "signed_psbt", "final_psbt"):
        if row.get(form):
            keep(tx, "bitcoin_unsigned", base64.b64decode(row[form]))
    if row.get("signed"):
        keep(tx, "bitcoin_signed", unhex(row["signed"]))
addresses = read("bitcoin/addresses.json")
for row in [*one_of_each(addresses["good"], "type", "networks"), *one_of_each(addresses["bad"], "why")]:
    keep(tx, "bitcoin_address", row["input"])
for row in one_of_each(addresses["good"], "type"):
    keep(chain, "script", b"\x07" + unhex(row["script"]))

# What the clients of the targets ask nodes about.
sent = chain / "sent"
sent.mkdir(exist_ok=True)
(sent / "evm").write_bytes(unhex(next(row["signed"] for row in evm if row["chain_id"] == "56")))
(sent / "tron").write_bytes(unhex(tron[0]["signed_hex"]))
signed = (row["signed"] for row in bitcoin if row["network"] == "regtest" and row.get("signed"))
(sent / "bitcoin").write_bytes(unhex(next(signed)))

digits = "0123456789abcdef" * 4
for text in ("", "0x", digits, "0x" + digits, "0X" + digits, "0x0x" + digits, "0x0x" + digits[2:], digits.upper(), digits[1:]):
    keep(tx, "hash", text)
keep(chain, "watched", bytes(range(90)) + bytes(range(30, 120)))
keep(chain, "watched", b"\0\0\1" * 400)

ok = '{"jsonrpc":"2.0","id":0,"result":"0x1"}'
for text in (
    ok,
    '{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no"}}',
    '{"id":0,"result":null}',
    '[{"id":0,"result":"a"},{"id":1,"result":null}]',
    '[{"id":1,"result":"a"},{"id":0,"error":{"code":1e99,"message":[]}}]',
    ok + '\x1e[{"id":1,"result":"b"},{"id":0,"result":"a"}]',
    '[{"id":0},{"id":0}]',
    '{"id":18446744073709551616,"result":1e400}',
    '{"id":"0","result":{}}',
    "<html><body>502 Bad Gateway</body></html>",
    "[" * 200,
    '{"a":' * 200,
    '"\\ud800"',
    "",
):
    keep(chain, "json_rpc", text)
wrong = ("null", "{}", "[]", '"0x"', "-1", "18446744073709551616", "1e400", "!<html>", "!" + "[" * 200)
for target in ("evm_node", "tron_node", "bitcoin_node"):
    for question, text in enumerate(wrong):
        keep(chain, target, f"{question}{text}")

# Every method that a devnet has, with arguments that are nearly right.
account, block = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266", "0x" + digits
evm_methods = {
    "eth_getBalance": [account, "latest"],
    "eth_getCode": [account, "0x1"],
    "eth_getStorageAt": [account, "0x0", "latest"],
    "eth_getTransactionCount": [account, "pending"],
    "eth_call": [{"to": account, "data": "0x70a08231"}, "latest"],
    "eth_estimateGas": [{"from": account, "to": account, "value": "0x1"}],
    "eth_feeHistory": ["0x4", "latest", [10, 50.5]],
    "eth_getBlockByHash": [block, True],
    "eth_getBlockByNumber": ["finalized", False],
    "eth_getBlockReceipts": ["0x1"],
    "eth_getBlockTransactionCountByHash": [block],
    "eth_getBlockTransactionCountByNumber": ["earliest"],
    "eth_getLogs": [{"fromBlock": "0x0", "toBlock": "latest", "address": [account], "topics": [None, [block]]}],
    "eth_getRawTransactionByHash": [block],
    "eth_getTransactionByBlockHashAndIndex": [block, "0x0"],
    "eth_getTransactionByBlockNumberAndIndex": ["0x1", "0x0"],
    "eth_getTransactionByHash": [block],
    "eth_getTransactionReceipt": [block],
    "eth_sendRawTransaction": ["0x" + (sent / "evm").read_bytes().hex()],
    "debug_traceTransaction": [block, {"tracer": "callTracer"}],
    "debug_traceBlockByHash": [block, {"tracer": "callTracer"}],
    "evm_mine": [],
    "web3_clientVersion": [],
    "eth_syncing": [],
    "eth_maxPriorityFeePerGas": [],
}
bitcoin_methods = {
    "decoderawtransaction": [(sent / "bitcoin").read_bytes().hex()],
    "estimatesmartfee": [6, "economical"],
    "generatetoaddress": [1, "bcrt1qyzf8x4cy0gcg2nt2g5g0uzh3epwlh695h9xlq8"],
    "getblock": [digits, 2],
    "getblockhash": [1],
    "getblockheader": [digits, True],
    "getblockchaininfo": [],
    "getmempoolentry": [digits],
    "getmempoolinfo": [],
    "getnetworkinfo": [],
    "getrawmempool": [True],
    "getrawtransaction": [digits, 1],
    "gettxout": [digits, 0, True],
    "gettxspendingprevout": [[{"txid": digits, "vout": 0}]],
    "scantxoutset": ["start", ["addr(bcrt1qyzf8x4cy0gcg2nt2g5g0uzh3epwlh695h9xlq8)"]],
    "sendrawtransaction": [(sent / "bitcoin").read_bytes().hex(), 0],
    "submitpackage": [[(sent / "bitcoin").read_bytes().hex()]],
    "testmempoolaccept": [[(sent / "bitcoin").read_bytes().hex()]],
    "validateaddress": ["bcrt1qyzf8x4cy0gcg2nt2g5g0uzh3epwlh695h9xlq8"],
}
for target, methods in (("devnet_evm", evm_methods), ("devnet_bitcoin", bitcoin_methods)):
    for method, params in methods.items():
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        keep(devnet, target, "POST /\n" + json.dumps(body))
owner, token = "TPDxBiqzXWUNwzYTQ6n8JDwzxWnB8nQ2Zv", "41a614f803b6fd780986a42c78ec9c7f77e6ded13c"
call = {"owner_address": owner, "contract_address": token, "function_selector": "balanceOf(address)", "parameter": digits}
tron_methods = {
    "broadcasthex": {"transaction": (sent / "tron").read_bytes().hex()},
    "broadcasttransaction": {"raw_data_hex": tron[0]["raw_data_hex"], "signature": [tron[0]["signature"]], "txID": digits},
    "createtransaction": {"owner_address": owner, "to_address": token, "amount": 1, "visible": False},
    "estimateenergy": {**call, "visible": True},
    "getaccount": {"address": owner, "visible": True},
    "getaccountresource": {"address": token},
    "getblock": {"id_or_num": "1", "detail": True},
    "getblockbyid": {"value": digits},
    "getblockbylatestnum": {"num": 2},
    "getblockbylimitnext": {"startNum": 0, "endNum": 3},
    "getblockbynum": {"num": 1},
    "getcontract": {"value": token},
    "getsignweight": {"raw_data_hex": tron[0]["raw_data_hex"], "signature": []},
    "gettransactionbyid": {"value": tron[0]["txid"]},
    "gettransactioninfobyblocknum": {"num": 1},
    "gettransactioninfobyid": {"value": tron[0]["txid"]},
    "triggerconstantcontract": call,
    "triggersmartcontract": {**call, "fee_limit": 1, "call_value": 0},
    "validateaddress": {"address": owner},
}
for method, body in tron_methods.items():
    keep(devnet, "devnet_tron", f"POST /wallet/{method}\n{json.dumps(body)}")
keep(devnet, "devnet_tron", "GET /walletsolidity/getnowblock?visible=true")
keep(devnet, "devnet_tron", "GET /wallet/getchainparameters\x1eGET /wallet/getenergyprices\x1eGET /wallet/listnodes")
