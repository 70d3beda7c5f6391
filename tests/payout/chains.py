"""The two chains that jobs are paid on, and what the driver itself reads in their blocks: every transaction that a wallet of ours has signed.

| | nodes | in front of them |
|---|---|---|
| EVM | one anvil, or two when one of them is behind | three proxies, which lie about broadcasts |
| TRON | three endpoints of `bursar devnet` | three such proxies; a fourth endpoint is the driver's own |
"""

import hashlib
import json
from collections import namedtuple

from deposit.anvil import CONTRACTS, DECIMALS, Anvil, word
from deposit.chains import TRANSFERRED, Coin, DevnetTron
from deposit.wire import Endpoint, Refused, tron_bytes, tron_text

from . import keys
from .proxy import BroadcastProxy

# What left a wallet in a block. paid: (address, coin, amount). fee: in the chain's own coin. nonce: None where there are none.
Spent = namedtuple("Spent", "tx height sender nonce paid fee")


class Payouts:
    """What both have in common: the blocks from the first on, as they are now, with what our wallets have spent there."""

    def begin_payouts(self, upstreams):
        # Bytes that any node was told of, in their order; and how many the driver has read of them.
        self.told, self.told_seen, self.read_told = [], 0, {}
        self.proxies = [BroadcastProxy(upstream, self.told) for upstream in upstreams]
        self.wallets, self.spent_at = {}, {}

    def spent(self):
        """All that the wallets have spent in the chain as it is now. The newest height, too."""
        height, _ = self.refresh()
        for number in list(self.spent_at):
            known, _ = self.spent_at[number]
            if number not in self.blocks or self.blocks[number].hash != known:
                del self.spent_at[number]
        for number, block in self.blocks.items():
            if number not in self.spent_at:
                self.spent_at[number] = (block.hash, self.read_spent(number))
        return [one for _, spent in self.spent_at.values() for one in spent], height

    def sender(self, address):
        return self.wallets.get(self.key(address))

    def heal(self):
        for proxy in self.proxies:
            proxy.heal()

    def end(self):
        for proxy in self.proxies:
            proxy.end()


class PaidAnvil(Payouts, Anvil):
    """Without the odd tokens of the deposits, and with a price of gas that stays where it is put."""

    traced = False
    id_number = 31337

    def begin(self):
        self.price = None
        self.node.start()
        self.honest = self.node.endpoint
        self.begin_payouts([self.node.url] * 3)
        self.payer = self.honest.rpc("eth_accounts")[0]
        super(Anvil, self).__init__("anvil", "31337", [proxy.url for proxy in self.proxies], self.make_coins(), 3, 8)
        self.mine(30)
        self.ground = 0

    def make_coins(self):
        contracts = json.loads(CONTRACTS.read_text())
        supply = word(0x60) + word(DECIMALS) + word(10 ** 30) + word(4) + b"USDT".hex().ljust(64, "0")
        token = self.deploy(contracts["Tether"]["bytecode"] + supply)
        return {"coin": Coin("ETH", 18, 8, 10 ** 15, None), "token": Coin("USDT", DECIMALS, 4, 10 ** 6, token)}

    def mine(self, blocks):
        if self.price is None:
            return super().mine(blocks)
        for _ in range(blocks):
            self.honest.rpc("anvil_setNextBlockBaseFeePerGas", hex(self.price))
            super().mine(1)
        return None

    def set_price(self, wei):
        """From the next block on, for a unit of gas; None: as blocks are full or empty. It falls at once."""
        if wei is None and self.price is not None:
            self.honest.rpc("anvil_setNextBlockBaseFeePerGas", hex(10 ** 9))
        self.price = wei
        self.mine(1)

    def drop_pool(self):
        self.honest.rpc("anvil_dropAllTransactions")

    def drop(self, hash_):
        return self.honest.rpc("anvil_dropTransaction", hash_)

    def send_again(self, hash_):
        """What some node was told of once; if it cannot be had any more, nothing happens."""
        for raw in self.told:
            if keys.keccak(bytes.fromhex(raw)).hex() == hash_:
                try:
                    return self.honest.rpc("eth_sendRawTransaction", "0x" + raw)
                except Refused:
                    return None
        return None

    def waiting(self):
        """Hashes in the pool by sender and nonce, those that cannot be mined yet included."""
        content = self.honest.rpc("txpool_content")
        return {(address.lower(), int(nonce)): sent["hash"] for part in ("pending", "queued")
                for address, slots in content.get(part, {}).items() for nonce, sent in slots.items()}

    def next_nonce(self, address):
        return int(self.honest.rpc("eth_getTransactionCount", address, "latest"), 16)

    def read_spent(self, number):
        block, receipts = self.honest.rpc_all([("eth_getBlockByNumber", [hex(number), True]), ("eth_getBlockReceipts", [hex(number)])])
        receipts = {receipt["transactionHash"]: receipt for receipt in receipts}
        spent = []
        for sent in block["transactions"]:
            if self.sender(sent["from"]) is None:
                continue
            receipt, paid = receipts[sent["hash"]], []
            if receipt["status"] == "0x1" and int(sent["value"], 16):
                paid.append((sent["to"].lower(), "coin", int(sent["value"], 16)))
            for log in receipt["logs"]:
                if log["topics"][0][2:] == TRANSFERRED and log["address"].lower() == self.coins["token"].contract.lower():
                    paid.append(("0x" + log["topics"][2][-40:].lower(), "token", int(log["data"], 16)))
            fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
            spent.append(Spent(sent["hash"], number, sent["from"].lower(), int(sent["nonce"], 16), paid, fee))
        return spent

    def read_new_told(self):
        """Who is paid by what was broadcast, in which slot: (address, (sender, nonce), hash, None)."""
        new, self.told_seen = self.told[self.told_seen:], len(self.told)
        read = []
        for raw in new:
            if raw in self.read_told:
                continue
            sent = self.read_told[raw] = keys.read(bytes.fromhex(raw))
            to = "0x" + sent.data[16:36].hex() if sent.data else sent.to
            read.append((to, (sent.sender, sent.nonce), sent.hash, None))
        return read

    def end(self):
        Payouts.end(self)
        if self.older:
            self.older.kill()
        self.older = None
        self.node.kill()

    def heal(self):
        Payouts.heal(self)
        if self.older:
            self.older.kill()
        self.older = None


class PaidTron(Payouts, DevnetTron):
    def __init__(self, control, urls, token):
        super().__init__(control, urls, token)
        self.begin_payouts(urls[:-1])
        self.urls = [proxy.url for proxy in self.proxies]

    def read_spent(self, number):
        block = self.honest.ask("POST", "/wallet/getblockbynum", {"num": number})
        infos = self.honest.ask("POST", "/wallet/gettransactioninfobyblocknum", {"num": number})
        infos = {info["id"]: info for info in infos}
        token, spent = tron_bytes(self.coins["token"].contract)[1:].hex(), []
        for sent in block.get("transactions", []):
            contract = sent["raw_data"]["contract"][0]
            value, info, paid = contract["parameter"]["value"], infos[sent["txID"]], []
            owner = tron_text(bytes.fromhex(value["owner_address"]))
            if self.sender(owner) is None:
                continue
            if contract["type"] == "TransferContract" and sent["ret"][0]["contractRet"] == "SUCCESS":
                paid.append((tron_text(bytes.fromhex(value["to_address"])), "coin", value["amount"]))
            for log in info.get("log", []):
                if log["address"][-40:].lower() == token and log["topics"][0] == TRANSFERRED:
                    paid.append((tron_text(b"\x41" + bytes.fromhex(log["topics"][2][-40:])), "token", int(log["data"], 16)))
            spent.append(Spent(sent["txID"], number, owner, None, paid, info.get("fee", 0)))
        return spent

    def read_new_told(self):
        """The same; the slot is the transaction itself, with the time at which nobody can mine it any more, in milliseconds."""
        new, self.told_seen = self.told[self.told_seen:], len(self.told)
        read = []
        for raw in new:
            if raw not in self.read_told:
                to, hash_, expires = self.read_told[raw] = read_tron(bytes.fromhex(raw))
                read.append((to, hash_, hash_, expires))
        return read

    def head_time(self):
        return self.honest.ask("POST", "/wallet/getnowblock", {})["block_header"]["raw_data"]["timestamp"]

    def solid_time(self):
        block = self.honest.ask("POST", "/walletsolidity/getnowblock", {})
        return block["block_header"]["raw_data"]["timestamp"]

    def end(self):
        Payouts.end(self)


def fields(data):
    """Of a protobuf message: numbers and their values, which are numbers or bytes."""
    at, found = 0, {}

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte, at = data[at], at + 1
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value
    while at < len(data):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found[key >> 3] = value
    return found


def read_tron(raw):
    """Whom a signed transaction of TRON pays, its hash, and until when it may be mined."""
    body = fields(raw)[1]
    data = fields(body)
    contract = fields(data[11])
    value = fields(fields(contract[2])[2])
    # 1: a transfer of TRX. 31: a call of a contract, here transfer(address,uint256).
    to = value[2] if contract[1] == 1 else b"\x41" + value[4][16:36]
    return tron_text(to), hashlib.sha256(body).hexdigest(), data[8]


__all__ = ["Endpoint", "PaidAnvil", "PaidTron", "Refused", "Spent"]
