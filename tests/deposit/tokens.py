"""Tokens that do not do what they say, and a contract that pays for others, put together byte by byte.

Each token has `balanceOf` and a `transfer` that anybody may call: it takes from nobody, so any amount can be paid, also all that
there can be. What is paid and what is logged is up to its making.
"""

from .chains import BALANCE_OF, TRANSFER, TRANSFERRED

# Any numbers do. Whoever calls it says what the token refuses, and that is kept in a place where no address is.
REFUSE_WHAT = "02329a29"
REFUSED = 2 ** 200
NOTHING, TRANSFERS, BALANCES = 0, 1, 2

OPCODES = {"STOP": 0x00, "ADD": 0x01, "SUB": 0x03, "DIV": 0x04, "LT": 0x10, "EQ": 0x14, "SHR": 0x1c, "CALLER": 0x33, "CALLVALUE": 0x34,
           "CALLDATALOAD": 0x35, "CALLDATASIZE": 0x36, "CALLDATACOPY": 0x37, "CODECOPY": 0x39, "ISZERO": 0x15, "MSTORE": 0x52,
           "SLOAD": 0x54, "SSTORE": 0x55, "JUMPI": 0x57, "GAS": 0x5a, "DUP1": 0x80, "LOG3": 0xa3, "CALL": 0xf1, "RETURN": 0xf3,
           "REVERT": 0xfd}


def assemble(*words):
    """Words are operations, numbers to push, `:name` for a place and `@name` to push it (in two bytes)."""
    code, places, wanted = bytearray(), {}, []
    for word in words:
        if isinstance(word, int):
            size = max(1, (word.bit_length() + 7) // 8)
            code += bytes([0x5f + size]) + word.to_bytes(size, "big")
        elif word.startswith(":"):
            places[word[1:]] = len(code)
            code.append(0x5b)
        elif word.startswith("@"):
            code.append(0x61)
            wanted.append((len(code), word[1:]))
            code += b"\0\0"
        else:
            code.append(OPCODES[word])
    for at, name in wanted:
        code[at:at + 2] = places[name].to_bytes(2, "big")
    return bytes(code)


def deployed(runtime):
    """What makes a contract of this code, in hexadecimal."""
    size, before = len(runtime), 0
    while True:
        made = assemble(size, before, 0, "CODECOPY", size, 0, "RETURN")
        if len(made) == before:
            return (made + runtime).hex()
        before = len(made)


def when(selector, place):
    return "DUP1", int(selector, 16), "EQ", f"@{place}", "JUMPI"


ANSWER_TRUE = (1, 0, "MSTORE", 32, 0, "RETURN")
REFUSE = (0, 0, "REVERT")
PAID_TO, AMOUNT = (4, "CALLDATALOAD"), (0x24, "CALLDATALOAD")
A_HUNDREDTH = (100, *AMOUNT, "DIV")


def token(pays=True, logs=True, keeps=False):
    """`keeps`: it pays a hundredth less than it logs. It can be told to refuse transfers, as one that is paused, or to say no balance."""
    paid = (*A_HUNDREDTH, *AMOUNT, "SUB") if keeps else AMOUNT
    after = (*PAID_TO, "SLOAD", *paid, "ADD")
    # What is more than there can be is refused.
    pay = (*paid, *after, "LT", "@refuse", "JUMPI", *after, *PAID_TO, "SSTORE") if pays else ()
    log = (*AMOUNT, 0, "MSTORE", *PAID_TO, "CALLER", int(TRANSFERRED, 16), 32, 0, "LOG3") if logs else ()
    return deployed(assemble(
        0, "CALLDATALOAD", 224, "SHR", *when(BALANCE_OF, "balance"), *when(TRANSFER, "transfer"), *when(REFUSE_WHAT, "what"),
        ":refuse", *REFUSE,
        ":balance", *refuse_if(BALANCES), *PAID_TO, "SLOAD", 0, "MSTORE", 32, 0, "RETURN",
        ":what", 4, "CALLDATALOAD", REFUSED, "SSTORE", "STOP",
        ":transfer", *refuse_if(TRANSFERS), *pay, *log, *ANSWER_TRUE))


def refuse_if(what):
    return REFUSED, "SLOAD", what, "EQ", "@refuse", "JUMPI"


def caller():
    """Calls whom the first word of its input names, with the rest of the input and all coins that came along."""
    return deployed(assemble(
        32, "CALLDATASIZE", "SUB", 32, 0, "CALLDATACOPY",
        0, 0, 32, "CALLDATASIZE", "SUB", 0, "CALLVALUE", 0, "CALLDATALOAD", "GAS", "CALL",
        "@done", "JUMPI", *REFUSE, ":done", "STOP"))


def legacy(address):
    """Makes a contract that leaves what it was given to this address, before it has been anything: PUSH20, SELFDESTRUCT."""
    return "73" + address[2:].lower() + "ff"
