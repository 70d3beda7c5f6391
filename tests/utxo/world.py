"""Everything that the program under test does not decide: keys, strangers, miners, the network between three nodes.

The driver is the network. A node that lags is not handed its blocks; a node on a branch of its own is handed others.
"""

import hashlib
import random
from collections import Counter

from .bitcoin import COIN, MATURITY, STRANGER, Block, Ledger, Tx, witnesses_of
from .nodes import Node, Refused
from .program import Follower, Program

NODES = 3
# No reorganisation goes below this block: the strangers' first coins lie there.
FLOOR = 115
START = 270
FANS = 6
COINS_PER_FAN = 240
STRANGERS_COIN = COIN // 5
DEEPEST = 150
# Blocks on top of what `bursar utxo prune` takes away.
FINAL = 100


class Key:
    def __init__(self, name, wallet, account, index):
        self.name, self.wallet, self.account, self.index = name, wallet, account, index
        self.wif = wif(hashlib.sha256(f"bursar utxo driver {name}".encode()).digest())
        self.address = self.script = None

    def learn(self, node):
        """The node knows the curve; the driver does not."""
        descriptor = node.call("getdescriptorinfo", f"wpkh({self.wif})")["descriptor"]
        self.address = node.call("deriveaddresses", descriptor)[0]
        self.script = bytes.fromhex(node.call("validateaddress", self.address)["scriptPubKey"])


def wif(secret):
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    data = b"\xef" + secret + b"\x01"
    data += hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4]
    value, text = int.from_bytes(data, "big"), ""
    while value:
        value, digit = divmod(value, 58)
        text = letters[digit] + text
    return text


class World:
    def __init__(self, settings, folder):
        self.settings, self.random = settings, random.Random(settings.seed)
        self.counts = Counter()
        self.ledger = Ledger()
        self.main = None
        # Every transaction that was ever made, also by those who replaced or lost it.
        self.all = self.ledger.transactions
        self.reserved = set()
        self.leases = {}
        self.pruned_below = 0
        self.blocks_made = 0
        self.late_keys = 0
        self.trail = []
        self.nodes = [Node(settings.bitcoind, folder, f"node{number}") for number in range(1, NODES + 1)]
        # By node: None when it is on the majority's chain, else "lags" or "own".
        self.away = {node.name: None for node in self.nodes}
        self.program = Program(settings.bursar, folder, settings.database_url or f"sqlite://{folder}/bursar.db")
        self.followers = [Follower(self.program, self.nodes, f"follower{number}") for number in (1, 2)]
        self.keys = []
        self.watched = {}

    def begin(self):
        self.program.result(["migrate"], self.program.begin("migrate"))
        for wallet in ["hot", "cold"]:
            self.program.run("utxo", "create", wallet, "--network", "regtest")
        for index in range(8):
            self.watch(self.new_key(["hot", "hot", "hot", "cold"][index % 4], index % 2))
        for _ in range(110):
            self.mine()
        fans = []
        for height in range(1, 1 + FANS):
            coinbase = self.main.ancestor(height).coinbase
            rest = coinbase.outputs[0][0] - COINS_PER_FAN * STRANGERS_COIN - 20_000
            fans.append(Tx([coinbase.outpoint(0)], [(STRANGERS_COIN, STRANGER)] * COINS_PER_FAN + [(rest, STRANGER)]))
        self.mine(fans)
        while self.main.height < START:
            # Some of them will be mature in the course of events.
            to = self.some_key().script if self.main.height % 9 == 0 else None
            self.mine(to=to, deliver=False)
        self.deliver()

    def end(self):
        for follower in self.followers:
            follower.kill()
        for node in self.nodes:
            node.stop()

    def note(self, what):
        self.trail.append(what)
        if self.settings.verbose:
            print(f"    {what}", flush=True)

    # ---- keys and coins ----------------------------------------------------------------------------------------

    def new_key(self, wallet, account):
        key = Key(f"{self.settings.seed} {len(self.keys)}", wallet, account, len(self.keys))
        key.learn(self.nodes[0])
        self.keys.append(key)
        return key

    def watch(self, key):
        self.program.run("utxo", "address", "add", key.wallet, "--address", key.address, "--account", str(key.account),
                         "--branch", "0", "--index", str(key.index))
        self.watched[key.script] = key

    def some_key(self):
        return self.random.choice(list(self.watched.values()))

    def waiting(self):
        """What waits at any node, and what of it is spent there."""
        waiting = {txid for node in self.nodes for txid in node.call("getrawmempool")}
        return waiting, {outpoint for txid in waiting for outpoint in self.all[txid].inputs}

    def stranger_coin(self):
        """A confirmed coin of the strangers that nothing spends yet."""
        if not getattr(self, "purse", None):
            _, spent = self.waiting()
            self.purse = [(txid, index) for txid in self.ledger.height_of
                          for index, (amount, script) in enumerate(self.all[txid].outputs)
                          if script == STRANGER and amount >= STRANGERS_COIN // 2 and not self.all[txid].coinbase]
            self.random.shuffle(self.purse)
            self.purse = [one for one in self.purse if one not in spent]
        while True:
            coin = self.purse.pop()
            if self.ledger.unspent(coin) and coin not in self.reserved:
                self.reserved.add(coin)
                return coin

    def our_coins(self, least=20_000, waiting=False, mature_at=None):
        """Coins of ours that may be spent, in a fixed order. `waiting`: unconfirmed ones too. `mature_at`: the height at which coinbases
        must be mature [that of the next block]."""
        mature_at = self.main.height + 1 if mature_at is None else mature_at
        pool, spent = self.waiting()
        candidates = [(txid, index) for txid in [*self.ledger.height_of, *(pool if waiting else [])]
                      for index, (amount, script) in enumerate(self.all[txid].outputs)
                      if script in self.watched and amount >= least]
        leased = {outpoint for outpoints in self.leases.values() for outpoint in outpoints}
        free = [one for one in candidates if one not in spent and one not in self.reserved and one not in leased
                and one not in self.ledger.spender
                and (one[0] in pool or self.ledger.mature(one, mature_at))]
        return sorted(set(free))

    def our_coin(self, least=20_000, mature_at=None):
        coins = self.our_coins(least, mature_at=mature_at)
        if not coins:
            return None
        coin = self.random.choice(coins)
        self.reserved.add(coin)
        return coin

    def amount(self, outpoint):
        return self.all[outpoint[0]].outputs[outpoint[1]][0]

    def make(self, coins, outputs, fee, change=STRANGER):
        """A signed transaction; what is left over goes to `change`, unless that is None."""
        rest = sum(map(self.amount, coins)) - sum(amount for amount, _ in outputs) - fee
        outputs = list(outputs)
        if change is not None and rest > 1_000:
            outputs.append((rest, change))
        assert outputs and rest >= 0, "the driver spends more than it has"
        tx = Tx(coins, outputs)
        by_script = {key.script: key for key in self.keys}
        owners = [by_script.get(self.all[txid].outputs[index][1]) for txid, index in coins]
        if any(owners):
            before = [{"txid": txid, "vout": index, "scriptPubKey": self.all[txid].outputs[index][1].hex(),
                       "amount": f"{self.amount((txid, index)) / COIN:.8f}"} for txid, index in coins]
            keys = [owner.wif for owner in owners if owner]
            signed = bytes.fromhex(self.nodes[0].call("signrawtransactionwithkey", tx.bare.hex(), keys, before)["hex"])
            stacks = witnesses_of(signed, len(coins))
            tx.set_witnesses([stack if owner else tx.witnesses[at]
                              for at, (owner, stack) in enumerate(zip(owners, stacks))])
        self.ledger.add(tx)
        return tx

    def fee_of(self, tx):
        return sum(map(self.amount, tx.inputs)) - tx.paid()

    def pays_us(self, coins, count=None, fee=None, change=STRANGER):
        """Strangers' coins pay a few of our addresses."""
        count = count or self.random.randint(1, 3)
        share = sum(map(self.amount, coins)) // (count + 1)
        outputs = [(self.random.randint(share // 20, share), self.some_key().script) for _ in range(count)]
        return self.make(coins, outputs, fee or self.random.randint(500, 3_000), change)

    def send(self, tx, nodes=None):
        """To how many nodes it went."""
        return sum(node.offer(tx) for node in (nodes or self.nodes))

    def waits(self, tx):
        """Whether a quorum has it."""
        return sum(tx.txid in node.call("getrawmempool") for node in self.nodes) > NODES // 2

    def spread(self):
        """What one node has is offered to the others, as a network would."""
        for node in self.nodes:
            known = set(node.call("getrawmempool"))
            for other in self.nodes:
                for txid in other.mempool():
                    if txid not in known:
                        node.offer(self.all[txid])

    def vanish(self, transactions, nodes=None):
        """These leave the mempools, with all that builds on them; nothing contradicts them."""
        gone = {tx.txid for tx in transactions}
        for node in nodes or self.nodes:
            before = node.mempool()
            coin = self.stranger_coin()
            node.empty_mempool(self.make([coin], [], 1_000))
            lost = set(gone)
            for txid in before:
                tx = self.all[txid]
                if txid in lost or any(parent in lost for parent, _ in tx.inputs):
                    lost.add(txid)
                else:
                    node.offer(tx)

    # ---- blocks ------------------------------------------------------------------------------------------------

    def mine(self, transactions=(), to=None, deliver=True):
        """One block on the majority's chain with those of the transactions that fit."""
        self.main = self.block(transactions, to)
        if deliver:
            self.deliver()
        return self.main

    def block(self, transactions=(), to=None):
        """One block where the ledger stands."""
        taken = []
        for tx in transactions:
            if self.ledger.tip and self.ledger.fits(tx, taken):
                taken.append(tx)
        self.blocks_made += 1
        block = Block(self.ledger.tip, taken, to or STRANGER, self.blocks_made)
        self.ledger.connect(block)
        return block

    def mempool(self):
        """Of the first node that is on the majority's chain, parents first."""
        for node in self.nodes:
            if self.away[node.name] is None:
                return [self.all[txid] for txid in node.mempool()]
        return []

    def deliver(self):
        for node in self.nodes:
            if self.away[node.name] is None:
                node.give(self.main)

    def room(self):
        """How deep a reorganisation may go: not to the first coins, and not below what was pruned."""
        return min(DEEPEST, self.main.height - FLOOR, self.main.height - self.pruned_below)

    def reorg(self, depth, keep=0.5, first=(), deliver=True):
        """The newest blocks give way to one more. Each transaction of theirs is in the new ones or not, by chance.
        `first`: what the first new block holds before all else."""
        old = self.main
        fork = old.ancestor(old.height - depth)
        gone, block = [], old
        while block is not fork:
            gone = [*block.transactions[1:], *gone]
            block = block.parent
        self.ledger.move(fork)
        kept = [tx for tx in gone if self.random.random() < keep]
        for number in range(depth + 1):
            to = self.some_key().script if self.random.random() < 0.05 else None
            self.main = self.block([*first, *kept] if number == 0 else kept if number == depth else [], to)
        if deliver:
            self.deliver()
        self.note(f"reorganisation of {depth} blocks, from {fork.height} to {self.main.height}")
        return old

    def back_to(self, old):
        """An earlier branch wins in the end."""
        height = self.main.height
        fork = old
        while fork.height and self.main.ancestor(fork.height) is not fork:
            fork = fork.parent
        if self.main.height - fork.height > self.room():
            return False
        self.ledger.move(old)
        self.main = old
        while self.main.height <= height:
            self.main = self.block()
        self.deliver()
        self.note(f"back to the earlier branch, now at {self.main.height}")
        return True

    # ---- the network ---------------------------------------------------------------------------------------------

    def lag(self, node):
        self.away[node.name] = "lags"
        self.note(f"{node.name} lags from block {self.main.height}")

    def own_branch(self, node, depth, transactions=()):
        """The node alone sees other blocks, and more of them."""
        self.ledger.move(self.main.ancestor(self.main.height - depth))
        for number in range(depth + self.random.randint(1, 3)):
            block = self.block(transactions if number == 0 else [])
        self.ledger.move(self.main)
        node.give(block)
        self.away[node.name] = "own"
        self.note(f"{node.name} is on a branch of its own, {depth} blocks back, up to {block.height}")
        return block

    def rejoin(self, node):
        """The majority's chain grows until the node prefers it."""
        if self.away[node.name] == "own":
            height = node.call("getblockcount")
            while self.main.height <= height:
                self.mine(deliver=False)
        self.away[node.name] = None
        self.deliver()
        if node.tip() != self.main.hash:
            raise RuntimeError(f"{node.name} does not prefer the majority's chain")
        self.note(f"{node.name} is level again")

    def absent(self):
        return [node for node in self.nodes if self.away[node.name]]

    def start_followers(self):
        for follower in self.followers:
            if not follower.runs():
                follower.start()

    def stop_followers(self):
        for follower in self.followers:
            follower.kill()


__all__ = ["MATURITY", "Refused", "World"]
