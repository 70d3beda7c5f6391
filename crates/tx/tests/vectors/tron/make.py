"""Makes every transaction of vectors.json a second time, with tronpy's messages and its signature, and fails unless all
bytes agree; then makes extremes.json, the same kind of file, with values that JavaScript's numbers cannot hold.

    tests/tools/python.sh crates/tx/tests/vectors/tron/make.py [--check]
"""

import hashlib
import json
import pathlib
import sys

from google.protobuf.any_pb2 import Any
from tronpy.keys import PrivateKey, to_base58check_address
from tronpy.proto import tron_pb2

HERE = pathlib.Path(__file__).parent
I64_MAX = 2**63 - 1
USDT = "41a614f803b6fd780986a42c78ec9c7f77e6ded13c"
Contract = tron_pb2.Transaction.Contract


def seeded(*words):
    return hashlib.sha256(" ".join(["bursar", *map(str, words)]).encode()).digest()


def message(case):
    """The contract's message and its type, from the fields of a case and not from its bytes."""
    owner = bytes.fromhex(case["owner_hex"])
    to = bytes.fromhex(case.get("to_hex", ""))
    if "call_data" in case:
        return "TriggerSmartContract", tron_pb2.TriggerSmartContract(
            owner_address=owner,
            contract_address=bytes.fromhex(case["contract_hex"]),
            call_value=int(case["call_value"]),
            data=bytes.fromhex(case["call_data"]),
        )
    if "token_id" in case:
        return "TransferAssetContract", tron_pb2.TransferAssetContract(
            asset_name=case["token_id"].encode(), owner_address=owner, to_address=to, amount=int(case["amount"])
        )
    if "amount" in case:
        return "TransferContract", tron_pb2.TransferContract(owner_address=owner, to_address=to, amount=int(case["amount"]))
    return "AccountCreateContract", tron_pb2.AccountCreateContract(owner_address=owner, account_address=to)


def make(case):
    """What the case's transaction must be, in bytes."""
    name, inner = message(case)
    contract = Contract(
        type=Contract.ContractType.Value(name),
        parameter=Any(type_url=f"type.googleapis.com/protocol.{name}", value=inner.SerializeToString()),
    )
    contract_bytes = contract.SerializeToString()
    if case["permission_id"]:
        # tronpy's messages lack the field: Permission_id is number 5, a varint, and below 128.
        contract_bytes += bytes([5 << 3, case["permission_id"]])
    raw = tron_pb2.Transaction.raw(
        ref_block_bytes=bytes.fromhex(case["ref_block_bytes"]),
        ref_block_hash=bytes.fromhex(case["ref_block_hash"]),
        expiration=case["expiration"],
        timestamp=case["timestamp"],
        fee_limit=int(case["fee_limit"]),
        data=bytes.fromhex(case["memo_hex"]),
        contract=[Contract.FromString(contract_bytes)],
    ).SerializeToString()
    txid = hashlib.sha256(raw).digest()
    signature = PrivateKey(bytes.fromhex(case["private_key"])).sign_msg_hash(txid).to_bytes()
    ethereum = signature[:64] + bytes([signature[64] + 27])
    # The message Transaction has raw_data as field 1 and signature as field 2.
    whole = tron_pb2.Transaction(raw_data=tron_pb2.Transaction.raw.FromString(raw), signature=[ethereum])
    return {
        "raw_data_hex": raw.hex(),
        "txid": txid.hex(),
        "signature": ethereum.hex(),
        "signature_v01": signature.hex(),
        "signed_hex": whole.SerializeToString().hex(),
    }


def base(index, name, kind, **fields):
    private_key = seeded("tron", "key", index % 7)
    block = seeded("tron", "extreme", index)
    owner = PrivateKey(private_key).public_key
    to = PrivateKey(seeded("tron", "extreme to", index)).public_key
    case = {
        "name": name,
        "kind": kind,
        "private_key": private_key.hex(),
        "owner": owner.to_base58check_address(),
        "owner_hex": owner.to_hex_address(),
        "to": to.to_base58check_address(),
        "to_hex": to.to_hex_address(),
        "fee_limit": "0",
        "permission_id": 0,
        "memo_hex": "",
        "ref_block_bytes": block[:2].hex(),
        "ref_block_hash": block[8:16].hex(),
        "expiration": 1_700_000_060_000,
        "timestamp": 1_700_000_000_000,
        **fields,
    }
    if kind == "trc20":
        case["contract_hex"] = USDT
        case["contract"] = to_base58check_address(USDT)
        case["call_value"] = "0"
        case["call_data"] = "a9059cbb" + case["to_hex"][2:].rjust(64, "0") + f"{int(case['amount']):064x}"
    return {**case, **make(case)}


def extremes():
    amounts = [2**53, 2**53 + 1, 2**56 - 1, 2**56, 2**62, I64_MAX - 1, I64_MAX]
    cases = [base(index, f"TRX {amount} sun", "trx", amount=str(amount)) for index, amount in enumerate(amounts)]
    cases += [
        base(20, "TRX of the highest amount, memo and permission", "trx", amount=str(I64_MAX), memo_hex="ff", permission_id=2),
        base(21, "TRX without a timestamp, which a node accepts", "trx", amount="1000000", timestamp=0),
        base(22, "TRC-20 with the highest fee limit", "trc20", amount="1000000", fee_limit=str(I64_MAX)),
        base(23, "TRC-20, all at its highest", "trc20", amount=str(2**256 - 1), fee_limit=str(I64_MAX), expiration=I64_MAX, timestamp=I64_MAX),
    ]
    return cases


def main():
    vectors = json.loads((HERE / "vectors.json").read_text())
    wrong = 0
    for case in vectors:
        for field, ours in make(case).items():
            if case[field] != ours:
                wrong += 1
                print(f"error: {case['name']}: {field}\n  vectors.json {case[field]}\n  tronpy       {ours}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(f"tronpy makes the same of all {len(vectors)} cases", file=sys.stderr)

    file = HERE / "extremes.json"
    rows = ",\n".join("  " + json.dumps(case, separators=(",", ":")) for case in extremes())
    text = f"[\n{rows}\n]\n"
    if "--check" not in sys.argv:
        file.write_text(text)
        print(f"wrote {file}", file=sys.stderr)
    elif not file.exists() or file.read_text() != text:
        sys.exit(f"error: {file} is not what {__file__} makes")


main()
