"""Prints cases, a line of JSON each: keys derived by `mnemonic` (Trezor) and `bip32`, TRON payments signed by tronpy. Nothing of
Bursar has a part in it. Usage: python keys.py COUNT SEED"""

import hashlib
import json
import sys

from bip32 import BIP32, HARDENED_INDEX
from mnemonic import Mnemonic
from tronpy.keys import PrivateKey

count, seed = int(sys.argv[1]), sys.argv[2]


def some(*words):
    return hashlib.sha256(" ".join([seed, *map(str, words)]).encode()).digest()


def field(number, wire, value):
    """A field of protobuf."""
    return varint(number << 3 | wire) + (varint(value) if wire == 0 else varint(len(value)) + value)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


for n in range(count):
    words = Mnemonic("english").to_mnemonic(some("entropy", n)[: 16 if n % 2 else 32])
    account = int.from_bytes(some("account", n)[:4], "big") >> 1 if n % 3 else n
    user = int.from_bytes(some("user", n)[:8], "big") >> 2 if n % 2 else n + 1
    root = BIP32.from_seed(Mnemonic.to_seed(words))
    top = [44 + HARDENED_INDEX, 195 + HARDENED_INDEX, account + HARDENED_INDEX]
    key = PrivateKey(root.get_privkey_from_path([*top, user >> 31, user & 0x7FFFFFFF]))
    owner = key.public_key.to_address()
    made = 1_700_000_000_000 + n
    transfer = field(1, 2, owner) + field(2, 2, b"\x41" + some("to", n)[:20]) + field(3, 0, n + 1)
    kind = b"type.googleapis.com/protocol.TransferContract"
    contract = field(1, 0, 1) + field(2, 2, field(1, 2, kind) + field(2, 2, transfer))
    raw = field(1, 2, some("block", n)[:2]) + field(4, 2, some("block", n)[8:16]) + field(8, 0, made + 60_000)
    raw += field(11, 2, contract) + field(14, 0, made)
    txid = hashlib.sha256(raw).digest()
    signature = key.sign_msg_hash(txid)
    print(json.dumps({
        "mnemonic": words, "account": account, "users": [str(user)], "xpub": root.get_xpub_from_path(top),
        "address": key.public_key.to_base58check_address(), "payload": raw.hex(), "hash": txid.hex(),
        "signature": signature.hex(), "odd": signature.v,
    }))
