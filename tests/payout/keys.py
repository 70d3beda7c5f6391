"""Keys and transactions of an EVM chain, from the definitions: nothing here is the program's code, nor a library's.

Slow and not secret: it is for a thief who has a wallet's words, and for reading what the program has told its nodes.
"""

import hashlib
import hmac
from collections import namedtuple

FIELD = 2 ** 256 - 2 ** 32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
BASE = (0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
        0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8)

# ---- keccak-256 ----------------------------------------------------------------------------------------------


def round_constants():
    """The bits of a shift register, as the standard defines them."""
    register, constants = 1, []
    for _ in range(24):
        constant = 0
        for bit in range(7):
            if register & 1:
                constant |= 1 << ((1 << bit) - 1)
            register = (register << 1) ^ (0x171 if register & 0x80 else 0)
        constants.append(constant)
    return constants


CONSTANTS = round_constants()
MASK = 2 ** 64 - 1


def turned(lane, by):
    by %= 64
    return ((lane << by) | (lane >> (64 - by))) & MASK


def permuted(lanes):
    for constant in CONSTANTS:
        columns = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
        mixed = [columns[(x + 4) % 5] ^ turned(columns[(x + 1) % 5], 1) for x in range(5)]
        lanes = [lane ^ mixed[place % 5] for place, lane in enumerate(lanes)]
        x, y, current = 1, 0, lanes[1]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            current, lanes[x + 5 * y] = lanes[x + 5 * y], turned(current, (step + 1) * (step + 2) // 2)
        rows = [lanes[5 * y:5 * y + 5] for y in range(5)]
        lanes = [row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5] & MASK) for row in rows for x in range(5)]
        lanes[0] ^= constant
    return lanes


def keccak(data):
    rate, lanes = 136, [0] * 25
    padded = bytearray(data) + bytes(rate - len(data) % rate)
    padded[len(data)] ^= 0x01
    padded[-1] ^= 0x80
    for start in range(0, len(padded), rate):
        for place in range(rate // 8):
            lanes[place] ^= int.from_bytes(padded[start + 8 * place:start + 8 * place + 8], "little")
        lanes = permuted(lanes)
    return b"".join(lane.to_bytes(8, "little") for lane in lanes[:4])


# ---- the curve -----------------------------------------------------------------------------------------------


def add(one, other):
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and (one[1] + other[1]) % FIELD == 0:
        return None
    if one == other:
        slope = 3 * one[0] * one[0] * pow(2 * one[1], -1, FIELD)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, FIELD)
    x = (slope * slope - one[0] - other[0]) % FIELD
    return x, (slope * (one[0] - x) - one[1]) % FIELD


def times(number, point=BASE):
    total = None
    while number:
        if number & 1:
            total = add(total, point)
        point, number = add(point, point), number >> 1
    return total


def address_of(point):
    return "0x" + keccak(point[0].to_bytes(32, "big") + point[1].to_bytes(32, "big"))[12:].hex()


def recovered(digest, r, s, parity):
    """Whose signature it is, as an address."""
    y = pow(r ** 3 + 7, (FIELD + 1) // 4, FIELD)
    point = (r, y if y % 2 == parity else FIELD - y)
    inverse, number = pow(r, -1, ORDER), int.from_bytes(digest, "big")
    return address_of(add(times(s * inverse % ORDER, point), times(-number * inverse % ORDER)))


def private_key(words, coin, index):
    """BIP-39 and BIP-32: m/44'/coin'/0'/0/index."""
    seed = hashlib.pbkdf2_hmac("sha512", words.encode(), b"mnemonic", 2048)
    node = hmac.new(b"Bitcoin seed", seed, hashlib.sha512).digest()
    hard = 2 ** 31
    for number in (44 + hard, coin + hard, hard, 0, index):
        key, code = int.from_bytes(node[:32], "big"), node[32:]
        if number >= hard:
            data = b"\0" + node[:32]
        else:
            point = times(key)
            data = bytes([2 + point[1] % 2]) + point[0].to_bytes(32, "big")
        child = hmac.new(code, data + number.to_bytes(4, "big"), hashlib.sha512).digest()
        node = ((int.from_bytes(child[:32], "big") + key) % ORDER).to_bytes(32, "big") + child[32:]
    return int.from_bytes(node[:32], "big")


def signed(digest, key):
    """r, s and the parity, with a number that follows from both: nobody learns the key, and the same is signed alike."""
    number = int.from_bytes(digest, "big")
    once = int.from_bytes(hmac.new(key.to_bytes(32, "big"), digest, hashlib.sha256).digest(), "big") % ORDER
    point = times(once)
    r, parity = point[0] % ORDER, point[1] % 2
    s = pow(once, -1, ORDER) * (number + r * key) % ORDER
    return (r, ORDER - s, 1 - parity) if s > ORDER // 2 else (r, s, parity)


# ---- transactions --------------------------------------------------------------------------------------------

# The payment it makes is to `to`; of a token, to whom its call says.
Told = namedtuple("Told", "hash sender nonce to value data max_fee")


def rlp(item):
    if isinstance(item, int):
        item = item.to_bytes((item.bit_length() + 7) // 8, "big")
    if isinstance(item, list):
        body, start = b"".join(rlp(one) for one in item), 0xC0
    elif len(item) == 1 and item[0] < 0x80:
        return item
    else:
        body, start = item, 0x80
    if len(body) < 56:
        return bytes([start + len(body)]) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([start + 55 + len(length)]) + length + body


def unrlp(data, at=0):
    """The item there, and where the next begins."""
    first = data[at]
    if first < 0x80:
        return data[at:at + 1], at + 1
    start, is_list = (0xC0, True) if first >= 0xC0 else (0x80, False)
    length, at = first - start, at + 1
    if length > 55:
        size, at = length - 55, at + length - 55
        length = int.from_bytes(data[at - size:at], "big")
    end = at + length
    if not is_list:
        return data[at:end], end
    items = []
    while at < end:
        item, at = unrlp(data, at)
        items.append(item)
    return items, end


def transaction(key, chain_id, nonce, to, value, max_fee, tip, gas=21_000):
    """A payment of coins with the fees of EIP-1559, signed."""
    fields = [chain_id, nonce, tip, max_fee, gas, bytes.fromhex(to[2:]), value, b"", []]
    r, s, parity = signed(keccak(b"\x02" + rlp(fields)), key)
    return b"\x02" + rlp([*fields, parity, r, s])


def read(raw):
    """What a signed transaction says, and who signed it."""
    number = lambda item: int.from_bytes(item, "big")  # noqa: E731
    if raw[0] == 2:
        fields, _ = unrlp(raw, 1)
        digest, (parity, r, s) = keccak(b"\x02" + rlp(fields[:9])), map(number, fields[9:])
        nonce, max_fee, to, value, data = (fields[place] for place in (1, 3, 5, 6, 7))
    else:
        fields, _ = unrlp(raw)
        v, r, s = map(number, fields[6:])
        parity, chain_id = (v - 35) % 2, (v - 35) // 2
        digest = keccak(rlp([*fields[:6], chain_id, 0, 0]))
        nonce, max_fee, to, value, data = (fields[place] for place in (0, 1, 3, 4, 5))
    sender = recovered(digest, r, s, parity)
    return Told("0x" + keccak(raw).hex(), sender, number(nonce), "0x" + to.hex(), number(value), data, number(max_fee))
