"""One more EVM chain: a real anvil, with a token of its own and a contract that pays coins from inside a call."""

import json
import subprocess
import time
from pathlib import Path

from .chains import TRANSFER, Coin, EvmReader
from .wire import Endpoint, Refused

CONTRACTS = Path(__file__).resolve().parents[2] / "crates/devnet/src/evm/contracts/contracts.json"
DECIMALS = 6
# The selectors of disperse(address[],uint256[]) and pretend(address,address,uint256).
DISPERSE, PRETEND = "2f3cb35b", "61582dd6"


def word(number):
    return f"{number:064x}"


class Anvil(EvmReader):
    deepest = 20
    # Some 900 blocks high, anvil forgets the token's code in a reorganisation, whatever --max-persisted-states says. (The driver sees
    # it by itself: eth_getCode gives 0x.) So it is not reorganised any more when it has come this far.
    highest = 450
    traced = True

    def __init__(self, program, folder, port):
        self.url = f"http://127.0.0.1:{port}"
        with open(folder / "anvil.log", "wb") as log:
            self.process = subprocess.Popen(
                [program, "--port", str(port), "--no-mining", "--chain-id", "31337", "--silent", "--balance", "1000000000"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.honest = Endpoint(self.url)
        self.wait()
        self.payer = self.honest.rpc("eth_accounts")[0]
        contracts = json.loads(CONTRACTS.read_text())
        # Everything that there can be: amounts that no ledger holds are paid too.
        supply = word(0x60) + word(DECIMALS) + word(2 ** 256 - 1) + word(4) + b"USDT".hex().ljust(64, "0")
        token = self.deploy(contracts["Tether"]["bytecode"] + supply)
        self.disperser = self.deploy(contracts["Disperse"]["bytecode"])
        coins = {"coin": Coin("ETH", 18, 8, 10 ** 15, None), "token": Coin("USDT", DECIMALS, 4, 10 ** 6, token)}
        super().__init__("anvil", "31337", [self.url], coins, 3, 8)
        self.mine(30)

    def wait(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.honest.rpc("eth_blockNumber")
            except (OSError, Refused):
                if time.monotonic() > deadline:
                    raise RuntimeError("anvil does not answer") from None
                time.sleep(0.1)

    def end(self):
        self.process.kill()
        self.process.wait()

    def send(self, **sent):
        return self.honest.rpc("eth_sendTransaction", {"from": self.payer, "gas": hex(1_000_000), **sent})

    def deploy(self, code):
        hash_ = self.send(data="0x" + code, gas=hex(5_000_000))
        self.mine(1)
        receipt = self.honest.rpc("eth_getTransactionReceipt", hash_)
        return receipt["contractAddress"]

    def pay(self, address, coin, amount):
        if coin == "coin":
            self.send(to=address, value=hex(amount))
        else:
            data = "0x" + TRANSFER + address[2:].lower().rjust(64, "0") + word(amount)
            self.send(to=self.coins["token"].contract, data=data)

    def pay_inside(self, payments):
        """Several in one transaction, by a contract."""
        to = "".join(address[2:].lower().rjust(64, "0") for address, _ in payments)
        amounts = "".join(word(amount) for _, amount in payments)
        count = len(payments)
        data = word(0x40) + word(0x60 + 32 * count) + word(count) + to + word(count) + amounts
        self.send(to=self.disperser, data="0x" + DISPERSE + data, value=hex(sum(amount for _, amount in payments)))

    def pretend(self, kept, undone, amount):
        """Pays one, and pays the other inside a call that is undone."""
        data = "".join(address[2:].lower().rjust(64, "0") for address in (kept, undone)) + word(amount)
        self.send(to=self.disperser, data="0x" + PRETEND + data, value=hex(2 * amount))

    def mine(self, blocks):
        self.honest.rpc("anvil_mine", hex(blocks))

    def reorg(self, depth, fate):
        height = int(self.honest.rpc("eth_blockNumber"), 16)
        removed = self.honest.rpc_all([("eth_getBlockByNumber", [hex(number), False])
                                       for number in range(height - depth + 1, height + 1)])
        hashes = [hash_ for block in removed for hash_ in block["transactions"]]
        raw = self.honest.rpc_all([("eth_getRawTransactionByHash", [hash_]) for hash_ in hashes])
        self.honest.rpc("anvil_reorg", depth, [])
        for one in raw if fate != "dropped" else []:
            try:
                self.honest.rpc("eth_sendRawTransaction", one)
            except Refused:
                pass
        # The new branch is longer.
        if fate != "returned":
            self.mine(1)
