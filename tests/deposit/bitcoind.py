"""Bitcoin: three real nodes of Core, whose blocks the driver makes itself (tests/utxo/bitcoin.py)."""

import shutil

from utxo.bitcoin import COIN, MATURITY, STRANGER, Block as Made, Tx
from utxo.nodes import LOGIN, Node, satoshi

from .chains import Block, Chain, Coin, Payment

NODES = 3
# Coins of strangers, each spent once at most.
FANS, COINS_PER_FAN, STRANGERS_COIN = 9, 400, 12_000_000
FEE = 1_000


class Bitcoin(Chain):
    kind = "bitcoin"
    deepest = 25

    def __init__(self, program, folder):
        self.program, self.folder, self.nodes = program, folder, []
        try:
            self.begin()
        except BaseException:
            # Nobody else knows of them yet.
            self.end()
            raise

    def begin(self):
        for number in range(NODES):
            self.nodes.append(Node(self.program, self.folder, f"bitcoin-{number}"))
        self.login = self.folder / "login"
        self.login.write_text(LOGIN)
        self.login.chmod(0o600)
        super().__init__("bitcoin", "regtest", [node.url for node in self.nodes], {"coin": Coin("BTC", 8, 6, 10_000, None)}, 2, 5)
        self.main, self.made, self.waiting = None, 0, []
        # Nodes that get no blocks.
        self.away = set()
        self.scripts = {}
        self.make_purse()

    def make_purse(self):
        for _ in range(MATURITY + FANS):
            self.add_block([], deliver=False)
        fans = []
        for height in range(1, 1 + FANS):
            coinbase = self.main.ancestor(height).coinbase
            rest = coinbase.outputs[0][0] - COINS_PER_FAN * STRANGERS_COIN - 100_000
            fans.append(Tx([coinbase.outpoint(0)], [(STRANGERS_COIN, STRANGER)] * COINS_PER_FAN + [(rest, STRANGER)]))
        self.add_block(fans, deliver=False)
        self.purse = [fan.outpoint(number) for fan in fans for number in range(COINS_PER_FAN)]
        self.mine(10)

    # ---- what it says ----------------------------------------------------------------------------------------

    def honest_node(self):
        return next(node for node in self.nodes if node not in self.away)

    def key(self, address):
        """Entries name the script; people write addresses."""
        if address.startswith("script:"):
            return address
        if address not in self.scripts:
            self.scripts[address] = self.honest_node().call("validateaddress", address)["scriptPubKey"]
        return f"script:{self.scripts[address]}"

    def script(self, address):
        return bytes.fromhex(self.key(address)[len("script:"):])

    def tip(self):
        node = self.honest_node()
        newest = node.tip()
        return node.call("getblockheader", newest)["height"], newest

    def read(self, number):
        node = self.honest_node()
        block = node.call("getblock", node.call("getblockhash", number), 2)
        # A coinbase may be spent in the hundredth block above its own.
        payments = [Payment(tx["txid"], f"script:{output['scriptPubKey']['hex']}", "coin", satoshi(output["value"]),
                            number + MATURITY - 1 if "coinbase" in tx["vin"][0] else 0)
                    for tx in block["tx"] for output in tx["vout"]]
        return Block(block["hash"], payments), block["previousblockhash"]

    def balances(self, pairs, tip):
        """By the node's own search of all outputs."""
        node = self.honest_node()
        wanted = {self.key(address)[len("script:"):]: pair for pair in pairs for address in pair[:1]}
        said = node.call("scantxoutset", "start", [f"raw({script})" for script in wanted])
        if said["bestblock"] != tip:
            raise RuntimeError(f"outputs were searched at {said['bestblock']}, not at {tip}")
        found = dict.fromkeys(pairs, 0)
        for one in said["unspents"]:
            found[wanted[one["scriptPubKey"]]] += satoshi(one["amount"])
        return found

    # ---- payments and blocks ---------------------------------------------------------------------------------

    def pay(self, address, _coin, amount):
        self.pay_many([(address, amount)])

    def pay_many(self, payments):
        """One transaction with an output for each. It waits at all nodes, and is in the next block."""
        coins, have = [], 0
        wanted = sum(amount for _, amount in payments) + FEE
        while have < wanted:
            coins.append(self.purse.pop())
            have += STRANGERS_COIN
        outputs = [(amount, self.script(address)) for address, amount in payments]
        tx = Tx(coins, [*outputs, (have - wanted, STRANGER)])
        self.waiting.append(tx)
        for node in self.reached():
            node.offer(tx)

    def reached(self):
        return [node for node in self.nodes if node not in self.away]

    def mine_to(self, address):
        """The next block's reward is paid there. How much it is."""
        waiting, self.waiting = self.waiting, []
        self.add_block(waiting, to=self.script(address))
        return self.main.coinbase.outputs[0][0]

    def add_block(self, transactions, deliver=True, to=STRANGER):
        self.made += 1
        self.main = Made(self.main, transactions, to, self.made)
        if deliver:
            self.deliver()

    def deliver(self):
        for node in self.reached():
            node.give(self.main)

    def mine(self, blocks):
        for _ in range(blocks):
            waiting, self.waiting = self.waiting, []
            self.add_block(waiting, deliver=False)
        self.deliver()

    def reorg(self, depth, fate):
        """The new branch is longer by one."""
        removed, block = [], self.main
        for _ in range(depth):
            removed = [*block.transactions[1:], *removed]
            block = block.parent
        self.main, waited, self.waiting = block, self.waiting, []
        if fate == "moved":
            self.waiting = removed
        for _ in range(depth + 1):
            moved, self.waiting = self.waiting, []
            self.add_block(moved, deliver=False)
        self.waiting = [*(removed if fate == "returned" else []), *waited]
        self.deliver()

    # ---- what becomes of its nodes ---------------------------------------------------------------------------

    def save(self):
        """What the nodes would need to go on from here."""
        saved = self.folder / f"bitcoin-at-{self.main.height}"
        node = self.nodes[0]
        node.stop()
        shutil.copytree(node.folder, saved)
        node.start()
        node.give(self.main)
        return saved, self.main

    def replace(self, node, state):
        """It is killed, and another with its address begins where the state was saved."""
        node.stop()
        shutil.rmtree(node.folder)
        shutil.copytree(state[0], node.folder)
        node.start()

    def restart(self, state):
        """All nodes are put back to where the state was saved, and know nothing of what came later."""
        for node in self.nodes:
            self.replace(node, state)
        self.main, self.waiting = state[1], []
        self.deliver()

    def put_back(self, numbers, state):
        for number in numbers:
            self.replace(self.nodes[number], state)
            self.away.add(self.nodes[number])

    def kill(self, number):
        """It is gone until it is healed. Its newest blocks may be missing then."""
        self.nodes[number].stop()
        self.away.add(self.nodes[number])

    def heal(self):
        for node in self.nodes:
            if not node.process:
                node.start()
        if self.away:
            self.away.clear()
            self.deliver()

    def end(self):
        for node in self.nodes:
            node.stop()
