"""The chains, asked by the driver itself: what they hold, what was paid in each of their blocks, and what to do to them.

A chain's history is read from an honest node block by block, and again from where it was reorganised.
"""

from collections import namedtuple

from .wire import Endpoint, Refused, tron_bytes, tron_text

# keccak-256 of "Transfer(address,address,uint256)", and the first four bytes of those of functions.
TRANSFERRED = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
TRANSFER, BALANCE_OF = "a9059cbb", "70a08231"

# coin: "coin" for the chain's own, "token" for the usual other one, or the name of an odd one. mature: the first tip at which it may
# be spent.
Payment = namedtuple("Payment", "tx address coin amount mature", defaults=[0])
Block = namedtuple("Block", "hash payments")
# asset: as the ledger knows it. precision: digits of the ledger unit. least: what a user is credited with, in chain units. logs: a
# payment is what it logs; else its logs are not to be believed, and only balances say what was paid.
Coin = namedtuple("Coin", "asset decimals precision least contract logs", defaults=[True])


def floored(coin, raw):
    """In ledger units."""
    return raw // 10 ** (coin.decimals - coin.precision)


class Chain:
    kind = None
    solid = 0

    def __init__(self, name, network, urls, coins, confirmations, final):
        self.name, self.network, self.urls, self.coins = name, network, urls, coins
        self.confirmations, self.final = confirmations, final
        # The history as it is now, from the block below which nothing was paid.
        self.blocks, self.first = {}, None

    def coin_of(self, contract):
        """The name of the coin that a table knows by its contract."""
        same = [name for name, coin in self.coins.items()
                if (coin.contract and self.key(coin.contract)) == (contract and self.key(contract))]
        return same[0]

    def depth_at_rest(self):
        """So many blocks above a payment, and nothing more will become of it."""
        return max(self.final, self.confirmations, self.solid) + 2

    def lowest(self):
        """No reorganisation goes below this block."""
        return self.first

    def heal(self):
        """All of its nodes are well again."""

    def end(self):
        """Its processes are gone."""

    def refresh(self):
        """Reads what is new, and what took the place of something older. The newest height and its hash."""
        height, newest = self.tip()
        if self.first is None:
            self.first = height
        wanted = newest
        read = []
        for number in range(height, self.first - 1, -1):
            if number in self.blocks and self.blocks[number].hash == wanted:
                break
            block, parent = self.read(number)
            if block.hash != wanted:
                return self.refresh()
            read.append((number, block))
            wanted = parent
        for number in [number for number in self.blocks if number > height]:
            del self.blocks[number]
        self.blocks.update(read)
        return height, newest

    def payments(self):
        for block in self.blocks.values():
            yield from block.payments


class EvmReader(Chain):
    """What an EVM node says."""

    kind = "evm"
    traced = False

    def key(self, address):
        return address.lower()

    def tip(self):
        block = self.honest.rpc("eth_getBlockByNumber", "latest", False)
        return int(block["number"], 16), block["hash"][2:]

    def read(self, number):
        block, receipts = self.honest.rpc_all([("eth_getBlockByNumber", [hex(number), True]),
                                               ("eth_getBlockReceipts", [hex(number)])])
        payments = []
        status = {receipt["transactionHash"]: receipt["status"] == "0x1" for receipt in receipts}
        for sent in block["transactions"]:
            if sent["to"] and int(sent["value"], 16) and status[sent["hash"]]:
                payments.append(Payment(sent["hash"][2:], sent["to"].lower(), "coin", int(sent["value"], 16)))
        tokens = {coin.contract.lower(): name for name, coin in self.coins.items() if coin.contract and coin.logs}
        for log in (log for receipt in receipts for log in receipt["logs"]):
            name = tokens.get(log["address"].lower())
            if name and log["topics"][0][2:] == TRANSFERRED:
                paid = "0x" + log["topics"][2][-40:]
                payments.append(Payment(log["transactionHash"][2:], paid.lower(), name, int(log["data"], 16)))
        if self.traced and block["transactions"]:
            options = {"tracer": "callTracer"}
            for trace in self.honest.rpc("debug_traceBlockByNumber", hex(number), options):
                if "result" not in trace:
                    raise Refused(f"block {number} is not traced: {trace}")
                payments += inside(trace["result"], trace["txHash"][2:])
        return Block(block["hash"][2:], payments), block["parentHash"][2:]

    def balances(self, pairs, tip):
        """Of addresses and coins, at the block of this hash."""
        at, calls = {"blockHash": "0x" + tip}, []
        for address, coin in pairs:
            asked = {"to": self.coins[coin].contract, "data": "0x" + BALANCE_OF + address[2:].lower().rjust(64, "0")}
            calls.append(("eth_getBalance", [address, at]) if coin == "coin" else ("eth_call", [asked, at]))
        said = []
        for start in range(0, len(calls), 100):
            said += self.honest.rpc_all(calls[start:start + 100])
        return {pair: int(amount, 16) for pair, amount in zip(pairs, said)}


def inside(frame, tx):
    """Coins that contracts have paid in the calls below this one. What an enclosing call took back was not paid."""
    if frame.get("error"):
        return []
    payments = []
    for call in frame.get("calls", []):
        amount = int(call.get("value", "0x0"), 16)
        if amount and call["type"] in ("CALL", "SELFDESTRUCT") and not call.get("error"):
            payments.append(Payment(tx, call["to"].lower(), "coin", amount))
        payments += inside(call, tx)
    return payments


class Devnet:
    """What the two chains of `bursar devnet` have in common: the control interface."""

    lies = ["missing", "flipped", "inflated", "log_left_out", "transaction_left_out", "value_inflated", "swapped"]
    wires = [{"garbage": "html"}, {"garbage": "truncated"}, {"garbage": "wrong_type"}, {"garbage": "absurd"}, {"delay_ms": 400},
             {"connection": "half_closed"}, {"connection": "silent"}]

    def steer(self, what, **body):
        self.control.ask("POST", f"/{self.kind}/{what}", body)

    def pay(self, address, coin, amount):
        token = {"token": self.coins["token"].contract} if coin == "token" else {}
        self.steer("fund", address=address, amount=str(amount), **token)

    def mine(self, blocks):
        self.steer("mine", blocks=blocks)

    def reorg(self, depth, fate):
        self.steer("reorg", depth=depth, transactions=fate)

    def fault(self, number, **faults):
        self.steer(f"endpoints/{number}", **faults)


class DevnetEvm(Devnet, EvmReader):
    deepest = 30

    def __init__(self, control, urls, token):
        coins = {"coin": Coin("BNB", 18, 8, 10 ** 15, None), "token": Coin("USDT", 18, 4, 10 ** 18, token)}
        super().__init__("bsc", "56", urls[:-1], coins, 3, 8)
        self.control, self.honest = control, Endpoint(urls[-1])


class DevnetTron(Devnet, Chain):
    kind = "tron"
    # More is solidified. A token is credited only then: balances that nobody can change any more are all that a node of TRON says of a
    # certain block.
    deepest, solid = 17, 19

    def __init__(self, control, urls, token):
        coins = {"coin": Coin("TRX", 6, 4, 10 ** 6, None), "token": Coin("USDT", 6, 4, 10 ** 6, token)}
        super().__init__("tron", "regtest", urls[:-1], coins, 4, 9)
        self.control, self.honest = control, Endpoint(urls[-1])

    def key(self, address):
        return address

    def tip(self):
        block = self.honest.ask("POST", "/wallet/getnowblock", {})
        return block["block_header"]["raw_data"]["number"], block["blockID"]

    def read(self, number):
        block = self.honest.ask("POST", "/wallet/getblockbynum", {"num": number})
        infos = self.honest.ask("POST", "/wallet/gettransactioninfobyblocknum", {"num": number})
        payments = []
        for sent in block.get("transactions", []):
            contract = sent["raw_data"]["contract"][0]
            if contract["type"] == "TransferContract" and sent["ret"][0]["contractRet"] == "SUCCESS":
                value = contract["parameter"]["value"]
                paid = tron_text(bytes.fromhex(value["to_address"]))
                payments.append(Payment(sent["txID"], paid, "coin", value["amount"]))
        contract = tron_bytes(self.coins["token"].contract)[1:].hex()
        for info in infos:
            for log in info.get("log", []):
                if log["address"][-40:].lower() == contract and log["topics"][0] == TRANSFERRED:
                    paid = tron_text(b"\x41" + bytes.fromhex(log["topics"][2][-40:]))
                    payments.append(Payment(info["id"], paid, "token", int(log["data"], 16)))
        return Block(block["blockID"], payments), block["block_header"]["raw_data"]["parentHash"]

    def balances(self, pairs, _tip):
        """Of addresses and coins, now: TRON's nodes know no other time."""
        return {pair: self.balance(*pair) for pair in pairs}

    def balance(self, address, coin):
        if coin == "coin":
            return self.honest.ask("POST", "/wallet/getaccount", {"address": address, "visible": True}).get("balance", 0)
        asked = {"owner_address": address, "contract_address": self.coins[coin].contract, "visible": True,
                 "function_selector": "balanceOf(address)", "parameter": tron_bytes(address)[1:].hex().rjust(64, "0")}
        answer = self.honest.ask("POST", "/wallet/triggerconstantcontract", asked)
        return int(answer["constant_result"][0], 16)


__all__ = ["Chain", "Coin", "DevnetEvm", "DevnetTron", "EvmReader", "Payment", "Refused", "TRANSFER", "floored"]
