"""Transactions and blocks as bytes, and the driver's own record of what a chain of them has made and spent.

The driver makes every block itself, on any parent that it likes: so a node can be behind, or on a branch of its own, and the
same seed makes the same chain again, hash for hash.
"""

import hashlib
import struct

BASE_TIME = 1_700_000_000
SECONDS_PER_BLOCK = 60
MATURITY = 100
HALVING = 150
# Regtest halves early: after 2,500 blocks a reward pays for nothing that a plot would do with it.
LEAST_REWARD = 50_000
COIN = 100_000_000
REPLACEABLE = 0xFFFF_FFFD
# Whoever wants may spend what pays it: the strangers' coins need no signature.
TRUE = b"\x51"
STRANGER = b"\x00\x20" + hashlib.sha256(TRUE).digest()
GENESIS = "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"
GENESIS_SCRIPT = bytes.fromhex(
    "4104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d57"
    "8a4c702b6bf11d5fac")


def twice(data):
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def number(value):
    if value < 0xFD:
        return bytes([value])
    if value <= 0xFFFF:
        return b"\xfd" + struct.pack("<H", value)
    return b"\xfe" + struct.pack("<I", value)


def block_time(height):
    return BASE_TIME + SECONDS_PER_BLOCK * height


def subsidy(height):
    return 50 * COIN >> height // HALVING


class Tx:
    """Inputs are ((txid, number), …); outputs are ((satoshi, script), …)."""

    def __init__(self, inputs, outputs, witnesses=None, coinbase_script=None):
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.coinbase_script = coinbase_script
        self.set_witnesses(witnesses or [[TRUE] for _ in inputs])

    @property
    def coinbase(self):
        return self.coinbase_script is not None

    def set_witnesses(self, witnesses):
        self.witnesses = witnesses
        if self.coinbase:
            inputs = bytes(32) + b"\xff" * 4 + number(len(self.coinbase_script)) + self.coinbase_script + b"\xff" * 4
            count = 1
        else:
            inputs = b"".join(bytes.fromhex(txid)[::-1] + struct.pack("<I", index) + b"\x00" +
                              struct.pack("<I", REPLACEABLE) for txid, index in self.inputs)
            count = len(self.inputs)
        body = number(count) + inputs + number(len(self.outputs)) + b"".join(
            struct.pack("<q", amount) + number(len(script)) + script for amount, script in self.outputs)
        stacks = b"".join(number(len(stack)) + b"".join(number(len(item)) + item for item in stack) for stack in witnesses)
        self.bare = struct.pack("<i", 2) + body + bytes(4)
        self.raw = struct.pack("<i", 2) + b"\x00\x01" + body + stacks + bytes(4)
        self.txid = twice(self.bare)[::-1].hex()
        self.witness_hash = bytes(32) if self.coinbase else twice(self.raw)

    def outpoint(self, index):
        return (self.txid, index)

    def paid(self):
        return sum(amount for amount, _ in self.outputs)


def witnesses_of(raw, inputs):
    """The witnesses of a signed transaction: they stand behind what `inputs` and the outputs take, before the lock time."""
    at = 6

    def count():
        nonlocal at
        first = raw[at]
        at += 1
        if first < 0xFD:
            return first
        size = 2 if first == 0xFD else 4
        value = int.from_bytes(raw[at:at + size], "little")
        at += size
        return value

    for _ in range(count()):
        at += 36
        script = count()
        at += script + 4
    for _ in range(count()):
        at += 8
        length = count()
        at += length
    stacks = []
    for _ in range(inputs):
        stack = []
        for _ in range(count()):
            length = count()
            stack.append(raw[at:at + length])
            at += length
        stacks.append(stack)
    return stacks


def merkle(hashes):
    while len(hashes) > 1:
        if len(hashes) % 2:
            hashes = hashes + hashes[-1:]
        hashes = [twice(left + right) for left, right in zip(hashes[::2], hashes[1::2])]
    return hashes[0]


def push_number(value):
    if 1 <= value <= 16:
        return bytes([0x50 + value])
    data = value.to_bytes((value.bit_length() + 8) // 8, "little")
    return bytes([len(data)]) + data


class Block:
    def __init__(self, parent, transactions, script, nonce):
        """`parent` is None for the first block after genesis. `nonce` tells apart blocks with the same content."""
        self.parent = parent
        self.height = parent.height + 1 if parent else 1
        extra = struct.pack("<I", nonce)
        coinbase_script = push_number(self.height) + bytes([len(extra)]) + extra
        reward = (subsidy(self.height), script)
        root = merkle([bytes(32)] + [tx.witness_hash for tx in transactions])
        commitment = (0, bytes.fromhex("6a24aa21a9ed") + twice(root + bytes(32)))
        self.coinbase = Tx([], [reward, commitment], [[bytes(32)]], coinbase_script)
        self.transactions = [self.coinbase, *transactions]
        self.mine()

    def mine(self):
        before = bytes.fromhex(self.parent.hash if self.parent else GENESIS)[::-1]
        root = merkle([bytes.fromhex(tx.txid)[::-1] for tx in self.transactions])
        start = struct.pack("<i", 0x2000_0000) + before + root + struct.pack("<II", block_time(self.height), 0x207F_FFFF)
        tried = 0
        while True:
            header = start + struct.pack("<I", tried)
            digest = twice(header)
            if digest[31] < 0x7F:
                break
            tried += 1
        self.hash = digest[::-1].hex()
        self.hex = (header + number(len(self.transactions)) + b"".join(tx.raw for tx in self.transactions)).hex()

    def ancestor(self, height):
        block = self
        while block is not None and block.height > height:
            block = block.parent
        return block


class Ledger:
    """What the blocks up to `tip` have made and spent. It can be moved to any other block."""

    def __init__(self):
        self.tip = None
        self.height_of = {}
        self.spender = {}
        self.transactions = {}

    def add(self, tx):
        self.transactions[tx.txid] = tx

    def move(self, to):
        back, forward = self.tip, []
        while to is not None and (back is None or to.height > back.height):
            forward.append(to)
            to = to.parent
        while back is not to:
            self.disconnect(back)
            back = back.parent
            if to is not None and (back is None or to.height > back.height):
                forward.append(to)
                to = to.parent
        for block in reversed(forward):
            self.connect(block)

    def connect(self, block):
        for tx in block.transactions:
            self.add(tx)
            self.height_of[tx.txid] = block.height
            for outpoint in tx.inputs:
                self.spender[outpoint] = tx.txid
        self.tip = block

    def disconnect(self, block):
        for tx in block.transactions:
            del self.height_of[tx.txid]
            for outpoint in tx.inputs:
                del self.spender[outpoint]
        self.tip = block.parent

    def output(self, outpoint):
        tx = self.transactions.get(outpoint[0])
        return tx.outputs[outpoint[1]] if tx and outpoint[1] < len(tx.outputs) else None

    def unspent(self, outpoint):
        return outpoint[0] in self.height_of and outpoint not in self.spender

    def mature(self, outpoint, at):
        return not self.transactions[outpoint[0]].coinbase or at - self.height_of[outpoint[0]] >= MATURITY

    def fits(self, tx, taken=()):
        """Whether the next block may hold it. `taken`: what that block holds already."""
        made = {one.txid for one in taken}
        spent = {outpoint for one in taken for outpoint in one.inputs}
        height = self.tip.height + 1
        if tx.coinbase or tx.txid in self.height_of or tx.txid in made:
            return False
        return all(outpoint not in spent and (outpoint[0] in made or (self.unspent(outpoint) and self.mature(outpoint, height)))
                   for outpoint in tx.inputs)
