"""One more EVM chain: a real anvil behind three proxies, with tokens of its own and contracts that pay coins from inside a call."""

import gzip
import json
import subprocess
import time
from pathlib import Path

from utxo.nodes import free_port

from . import tokens
from .chains import TRANSFER, Coin, EvmReader
from .proxy import LIES, Proxy
from .wire import Endpoint, Refused, StoodStill

CONTRACTS = Path(__file__).resolve().parents[2] / "crates/devnet/src/evm/contracts/contracts.json"
DECIMALS = 6
# The selectors of disperse(address[],uint256[]) and pretend(address,address,uint256).
DISPERSE, PRETEND = "2f3cb35b", "61582dd6"


def word(number):
    return f"{number:064x}"


def address_word(address):
    return address[2:].lower().rjust(64, "0")


class AnvilEndpoint(Endpoint):
    """anvil itself, which sometimes never answers again once blocks were taken back while others asked."""

    def ask(self, method, path, body=None):
        try:
            return super().ask(method, path, body)
        except TimeoutError:
            raise StoodStill("anvil stands still") from None


class Node:
    """An anvil process."""

    def __init__(self, program, log):
        self.program, self.log, self.port = program, log, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.endpoint, self.process = AnvilEndpoint(self.url), None

    def start(self, state=None):
        """`state`: a file that `Anvil.save` has written."""
        loaded = ["--load-state", str(state)] if state else []
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--port", str(self.port), "--no-mining", "--chain-id", "31337", "--silent", "--balance", "1000000000",
                 *loaded], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.endpoint.rpc("eth_blockNumber")
            except (OSError, Refused):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"anvil does not answer; see {self.log}") from None
                time.sleep(0.1)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


class Anvil(EvmReader):
    deepest = 20
    # Some 900 blocks high, anvil forgets the token's code in a reorganisation, whatever --max-persisted-states says. (The driver sees
    # it by itself: eth_getCode gives 0x.) So it is not reorganised any more when it has come this far.
    highest = 450
    traced = True
    lies = LIES

    def __init__(self, program, folder):
        self.program, self.folder, self.proxies = program, folder, []
        self.node, self.older = Node(program, folder / "anvil.log"), None
        try:
            self.begin()
        except BaseException:
            # Nobody else knows of it yet.
            self.end()
            raise

    def begin(self):
        self.node.start()
        self.honest = self.node.endpoint
        self.proxies = [Proxy(self.node.url) for _ in range(3)]
        self.payer = self.honest.rpc("eth_accounts")[0]
        super().__init__("anvil", "31337", [proxy.url for proxy in self.proxies], self.make_coins(), 3, 8)
        self.mine(30)
        # What it has forgotten cannot be undone.
        self.ground = 0

    def make_coins(self):
        contracts = json.loads(CONTRACTS.read_text())
        # Everything that there can be: amounts that no ledger holds are paid too.
        supply = word(0x60) + word(DECIMALS) + word(2 ** 256 - 1) + word(4) + b"USDT".hex().ljust(64, "0")
        taxed = contracts["Taxed"]["bytecode"] + word(10 ** 40) + address_word(self.payer)
        self.disperser = self.deploy(contracts["Disperse"]["bytecode"])
        self.caller = self.deploy(tokens.caller())
        odd = {"minted": tokens.token(), "taxed": taxed, "unpaid": tokens.token(pays=False), "unlogged": tokens.token(logs=False),
               "overstated": tokens.token(keeps=True)}
        coins = {"coin": Coin("ETH", 18, 8, 10 ** 15, None),
                 "token": Coin("USDT", DECIMALS, 4, 10 ** 6, self.deploy(contracts["Tether"]["bytecode"] + supply))}
        for name, code in odd.items():
            logs = name not in ("unpaid", "unlogged", "overstated")
            coins[name] = Coin(name.upper(), 18, 6, 10 ** 18, self.deploy(code), logs)
        return coins

    # ---- payments --------------------------------------------------------------------------------------------

    def send(self, **sent):
        return self.honest.rpc("eth_sendTransaction", {"from": self.payer, "gas": hex(1_000_000), **sent})

    def deploy(self, code):
        hash_ = self.send(data="0x" + code, gas=hex(5_000_000))
        self.mine(1)
        receipt = self.honest.rpc("eth_getTransactionReceipt", hash_)
        if receipt["status"] != "0x1":
            raise RuntimeError(f"anvil does not make this contract: {code}")
        return receipt["contractAddress"]

    def transfer(self, address, amount):
        return TRANSFER + address_word(address) + word(amount)

    def pay(self, address, coin, amount):
        if coin == "coin":
            self.send(to=address, value=hex(amount))
        else:
            self.send(to=self.coins[coin].contract, data="0x" + self.transfer(address, amount))

    def pay_by_call(self, address, coin, amount):
        """A contract pays: the transaction itself is sent to the contract."""
        if coin == "coin":
            self.send(to=self.caller, data="0x" + address_word(address), value=hex(amount))
        else:
            contract = self.coins[coin].contract
            self.send(to=self.caller, data="0x" + address_word(contract) + self.transfer(address, amount))

    def pay_as_legacy(self, address, amount):
        """A contract that ends as it begins leaves all that it has."""
        self.send(data="0x" + tokens.legacy(address), value=hex(amount))

    def pay_inside(self, payments):
        """Several in one transaction, by a contract."""
        to = "".join(address_word(address) for address, _ in payments)
        amounts = "".join(word(amount) for _, amount in payments)
        count = len(payments)
        data = word(0x40) + word(0x60 + 32 * count) + word(count) + to + word(count) + amounts
        self.send(to=self.disperser, data="0x" + DISPERSE + data, value=hex(sum(amount for _, amount in payments)))

    def pretend(self, kept, undone, amount):
        """Pays one, and pays the other inside a call that is undone."""
        data = address_word(kept) + address_word(undone) + word(amount)
        self.send(to=self.disperser, data="0x" + PRETEND + data, value=hex(2 * amount))

    def refuse(self, coin, what):
        """From the next block on the token refuses this; see tokens.py."""
        self.send(to=self.coins[coin].contract, data="0x" + tokens.REFUSE_WHAT + word(what))
        self.mine(1)

    def mine_for(self, address):
        """A block whose fees are paid there, with a few transactions that have nothing to do with anybody."""
        self.honest.rpc("anvil_setCoinbase", address)
        for _ in range(3):
            self.send(to=self.payer, value="0x1", maxPriorityFeePerGas=hex(10 ** 11), maxFeePerGas=hex(10 ** 12))
        self.mine(1)
        self.honest.rpc("anvil_setCoinbase", "0x" + "00" * 20)

    # ---- blocks ----------------------------------------------------------------------------------------------

    def mine(self, blocks):
        self.honest.rpc("anvil_mine", hex(blocks))

    def lowest(self):
        return max(self.first, self.ground)

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

    def go_back(self, blocks):
        """They are gone, and nothing has taken their place yet."""
        self.honest.rpc("anvil_rollback", blocks)

    # ---- what becomes of its nodes ---------------------------------------------------------------------------

    def save(self):
        """What a node would need to go on from here."""
        # With the states of older blocks: they may still have to be traced.
        state = bytes.fromhex(self.honest.rpc("anvil_dumpState", True)[2:])
        file = self.folder / f"anvil-{int(self.honest.rpc('eth_blockNumber'), 16)}.json"
        file.write_bytes(gzip.decompress(state))
        return file

    def restart(self, state):
        """The node is killed, and another begins where the state was saved."""
        self.node.kill()
        self.ground = int(self.node.start(state), 16)

    def put_back(self, numbers, state):
        """These endpoints are of another node, which stands where the state was saved."""
        if not self.older:
            self.older = Node(self.program, self.folder / "anvil-older.log")
            self.older.start(state)
        for number in numbers:
            self.proxies[number].upstream = self.older.url

    def kill(self, number):
        """Nobody answers at this endpoint."""
        self.proxies[number].upstream = f"http://127.0.0.1:{free_port()}"

    def fault(self, number, lie=None, **_others):
        self.proxies[number].lie = lie

    def heal(self):
        for proxy in self.proxies:
            proxy.heal()
        if self.older:
            self.older.kill()
        self.older = None

    def end(self):
        for proxy in self.proxies:
            proxy.end()
        self.heal()
        self.node.kill()
