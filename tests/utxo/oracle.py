"""What the nodes say, held against what the program says: every output, at rest.

The facts: `scantxoutset` of a node that is on the majority's chain, and the transactions that wait at more than half of the
nodes. Where these leave it open, because a transaction has left the mempools and nothing contradicts it, Bursar must keep it:
unknown is not failed. What is demanded then:

* what spends an output in a block or a mempool is its spender, at once;
* a transaction whose own inputs another has taken is not valid, at once;
* one whose foreign parent can never be mined again is not valid after GRACE more blocks: only the nodes can say so;
* of two rivals the one that waits stands; but one that was seen to wait less than a minute ago need not give way yet (ADR 7);
* of those that nothing contradicts, what the program has seen is valid, and what they spend is not free;
* what one spends that lost another input, and not to a block, is claimed by it: it may still be mined.
"""

import random
import time

from .program import CommandFailed

# So many transactions are looked at one by one in each comparison.
SAMPLE = 2
# A minute, and a little for a slow machine.
MINUTE_S = 75
# So many blocks after a foreign parent has become impossible, its child must have ended.
GRACE = 8


def point(text):
    txid, index = text.rsplit(":", 1)
    return txid, int(index)


def told(outpoint):
    return f"{outpoint[0][:12]}…:{outpoint[1]}"


def satoshi(text):
    whole, rest = text.split(".")
    return int(whole) * 100_000_000 + int(rest)


class Oracle:
    def __init__(self, world):
        self.world = world
        # When a transaction was last seen to wait, and whether something differs that may go away within a minute of that.
        self.waited_at = {}
        self.too_soon = False
        # Its own, so that looking changes nothing.
        self.random = random.Random(world.settings.seed)
        # Transactions that touch us and that the program has seen: they stood in a comparison that agreed.
        self.known = set()
        # Impossible because of a foreign ancestor: since which height.
        self.hopeless = {}
        # Scripts whose past is not promised: added, and not read again yet.
        self.unread = set()

    def differences(self):
        """One line for each output or transaction that the program sees otherwise. None: all agree."""
        world = self.world
        ended = [words for words in (follower.ended() for follower in world.followers) if words]
        if ended:
            return ended
        commands = [("utxo", "balance"), ("utxo", "check")]
        try:
            balance, check = world.program.run_all(commands)
            free = {wallet: world.program.outputs(wallet) for wallet in ("hot", "cold")}
            rows = {wallet: world.program.outputs(wallet, "--all") for wallet in ("hot", "cold")}
        except CommandFailed as failure:
            return [str(failure)]
        if not check["clean"]:
            return [f"utxo check: {finding}" for finding in check["findings"]]
        tip = balance["tip"] and balance["tip"]["hash"]
        if tip != world.main.hash:
            return [f"the program is at block {balance['tip'] and balance['tip']['height']} {tip}, the majority at "
                    f"{world.main.height} {world.main.hash}"]
        return Comparison(self, free, rows).run() + balances(balance, free)


def balances(balance, free):
    found = []
    for wallet in balance["wallets"]:
        rows = free[wallet["wallet"]]
        for account in wallet["accounts"]:
            ours = [row for row in rows if row["account"] == account["account"]]
            for name, wanted in [("confirmed", True), ("unconfirmed", False)]:
                total = sum(satoshi(row["amount"]) for row in ours if (row["height"] is not None) is wanted)
                if total != satoshi(account[name]):
                    found.append(f"balance of {wallet['wallet']}/{account['account']}: {name} {account[name]}, its outputs "
                                 f"come to {total} satoshi")
    return found


class Comparison:
    def __init__(self, oracle, free, rows):
        self.oracle, self.world, self.ledger = oracle, oracle.world, oracle.world.ledger
        world = self.world
        self.free = {point(row["outpoint"]): row for wallet in free.values() for row in wallet}
        self.rows = {point(row["outpoint"]): row for wallet in rows.values() for row in wallet}
        waiting = [set(node.call("getrawmempool")) for node in world.nodes]
        everything = set().union(*waiting)
        self.waiting = {txid for txid in everything if 2 * sum(txid in one for one in waiting) > len(waiting)}
        self.spent_waiting = {outpoint: txid for txid in self.waiting for outpoint in world.all[txid].inputs}
        judge = next(node for node in world.nodes if node.tip() == world.main.hash)
        self.chain = judge.unspent([script for script in world.watched if script not in self.oracle.unread])
        # Unconfirmed, in no mempool of a quorum, and valid to the program.
        self.ghosts = {row["spent_by"] for row in self.rows.values() if row["spent_by"]}
        self.ghosts |= {txid for (txid, _), row in self.rows.items() if row["status"] in ("published", "pending")}
        self.ghosts -= self.waiting
        self.ghosts = {txid for txid in self.ghosts if txid not in self.ledger.height_of}
        self.judged = {}
        self.found = []

    def run(self):
        for txid in self.ghosts:
            if txid not in self.world.all:
                return [f"the program knows a transaction that the driver never made: {txid}"]
        self.hold_the_judge()
        self.compare_unspent()
        self.compare_rows()
        self.compare_ghosts()
        self.compare_claims()
        self.compare_transactions()
        now = time.monotonic()
        self.oracle.waited_at.update((txid, now) for txid in self.waiting)
        rivals = {self.spent_waiting[outpoint]: ghost for ghost in self.ghosts for outpoint in self.world.all[ghost].inputs
                  if outpoint in self.spent_waiting}
        self.oracle.too_soon = any(now - self.oracle.waited_at.get(ghost, 0) < MINUTE_S for ghost in rivals.values())
        if not self.found:
            self.remember()
        return self.found

    def hold_the_judge(self):
        """The driver's own record of its blocks must be the node's: else it is the driver that is wrong."""
        unspent = {(txid, index) for txid in self.ledger.height_of for index in range(len(self.world.all[txid].outputs))
                   if self.ours((txid, index)) and self.ledger.unspent((txid, index))}
        if unspent != self.chain.keys():
            raise RuntimeError(f"the driver's record differs from scantxoutset: {unspent ^ self.chain.keys()}")

    def say(self, outpoint, words):
        row = self.rows.get(outpoint)
        says = "no such row" if row is None else (
            f"{row['status']}, block {row['height']}, spent by {row['spent_by'] and row['spent_by'][:12]}, "
            f"{row['amount']} BTC, {'listed as unspent' if outpoint in self.free else 'not listed as unspent'}")
        self.found.append(f"{told(outpoint)} {words} (the program: {says})")

    def ours(self, outpoint):
        output = self.ledger.output(outpoint)
        return output is not None and output[1] in self.world.watched and output[1] not in self.oracle.unread

    def compare_unspent(self):
        expected = {outpoint: facts for outpoint, facts in self.chain.items() if outpoint not in self.spent_waiting}
        for txid in self.waiting:
            for index, (amount, _) in enumerate(self.world.all[txid].outputs):
                outpoint = (txid, index)
                if self.ours(outpoint) and outpoint not in self.spent_waiting:
                    expected[outpoint] = (amount, None, False)
        for outpoint, facts in sorted(expected.items(), key=lambda one: one[0]):
            if row := self.free.get(outpoint):
                says = (satoshi(row["amount"]), row["height"], row["coinbase"])
                if says != facts:
                    self.say(outpoint, f"is {facts} to the nodes (satoshi, block, coinbase)")
                continue
            row = self.rows.get(outpoint)
            where = "waits unspent in the mempool" if facts[1] is None else f"is unspent since block {facts[1]}"
            if row is None or row["spent_by"] not in self.ghosts:
                self.say(outpoint, f"{where}: missing")
            elif (why := self.wrong(row["spent_by"])):
                self.say(outpoint, f"{where}; what it is locked for {why}")
        for outpoint in sorted(self.free.keys() - expected.keys()):
            if outpoint[1:] and self.ledger.output(outpoint) and self.ledger.output(outpoint)[1] in self.oracle.unread:
                continue
            if outpoint in self.ledger.spender:
                self.say(outpoint, f"looks unspent: a block has its spender {self.ledger.spender[outpoint][:12]}")
            elif outpoint in self.spent_waiting:
                self.say(outpoint, f"looks unspent: its spender {self.spent_waiting[outpoint][:12]} waits in the mempool")
            elif outpoint[0] not in self.ghosts:
                self.say(outpoint, "looks unspent: no node has it")
            elif (why := self.wrong(outpoint[0])):
                self.say(outpoint, f"looks unspent: its maker {why}")

    def compare_rows(self):
        for outpoint, row in self.rows.items():
            if not self.ours(outpoint):
                continue
            height = self.ledger.height_of.get(outpoint[0])
            if row["height"] != height:
                self.say(outpoint, f"is in block {height}")
            spender = self.ledger.spender.get(outpoint) or self.spent_waiting.get(outpoint)
            if spender and row["spent_by"] != spender:
                self.say(outpoint, f"is spent by {spender[:12]}")
        for txid, height in self.ledger.height_of.items():
            for index in range(len(self.world.all[txid].outputs)):
                outpoint = (txid, index)
                if self.ours(outpoint) and outpoint not in self.rows and not self.may_be_pruned(outpoint):
                    self.say(outpoint, f"was made in block {height}: not even among the spent ones")

    def may_be_pruned(self, outpoint):
        spender = self.ledger.spender.get(outpoint)
        return spender is not None and self.ledger.height_of[spender] <= self.world.pruned_below

    def compare_ghosts(self):
        """Nothing that may still be mined has inputs that look free."""
        for txid in self.oracle.known:
            if txid in self.ghosts or txid in self.waiting or txid in self.ledger.height_of:
                continue
            if txid in self.oracle.hopeless or self.wrong(txid) or not self.parents_stand(txid):
                continue
            tx = self.world.all[txid]
            if any(self.world.all[other].inputs and set(self.world.all[other].inputs) & set(tx.inputs)
                   for other in self.ghosts):
                continue
            for outpoint in tx.inputs:
                if outpoint in self.free:
                    self.say(outpoint, f"looks free: {txid[:12]} was broadcast, spends it, and nothing contradicts it")

    def compare_claims(self):
        """A free output is claimed while something that was broadcast spends it and may still be mined, and not when a block has
        shown that it cannot."""
        for outpoint, row in self.free.items():
            claimant = row["claimed_by"]
            if claimant and (outpoint not in self.world.all[claimant].inputs or not self.may_be_mined(claimant)):
                self.say(outpoint, f"is claimed by {claimant[:12]}, which can never be mined")
        for txid in self.oracle.known:
            if txid in self.ghosts or txid in self.waiting or txid in self.ledger.height_of or not self.may_be_mined(txid, True):
                continue
            for outpoint in self.world.all[txid].inputs:
                if outpoint in self.free and not self.free[outpoint]["claimed_by"]:
                    self.say(outpoint, f"is free, though {txid[:12]} was broadcast, spends it and may still be mined")

    def may_be_mined(self, txid, surely=False):
        """Whether no block has an input of it, or of what it depends on. `surely`: as far as the program must know it."""
        tx = self.world.all[txid]
        if txid in self.ledger.height_of or txid in self.waiting or txid in self.ghosts:
            return True
        if tx.coinbase or any(outpoint in self.ledger.spender for outpoint in tx.inputs):
            return False
        return all(self.may_be_mined(parent, surely) for parent, _ in tx.inputs
                   if surely or parent in self.ledger.height_of or self.seen(parent))

    def compare_transactions(self):
        """A few that are new or wait, each as `utxo tx` tells it: place, bytes, inputs. One that waits is our own only if no
        stranger can take what it spends: its change may be spent at once."""
        recent = [txid for txid, height in self.ledger.height_of.items() if height > self.world.main.height - 20]
        touching = sorted(txid for txid in [*recent, *self.waiting] if not self.world.all[txid].coinbase
                          and any(self.ours(outpoint) for outpoint in self.world.all[txid].inputs))
        for txid in self.oracle.random.sample(touching, min(SAMPLE, len(touching))):
            tx = self.world.all[txid]
            owners = [self.world.watched.get(self.ledger.output(outpoint)[1]) for outpoint in tx.inputs]
            wallets = {owner.wallet for owner in owners if owner}
            if len(wallets) > 1:
                continue
            wallet = wallets.pop()
            try:
                says = self.world.program.run("utxo", "tx", wallet, txid)
            except CommandFailed as failure:
                self.found.append(str(failure))
                continue
            facts = {"status": "published", "height": self.ledger.height_of.get(txid), "raw": tx.raw.hex()}
            for name, fact in facts.items():
                if says.get(name) != fact:
                    self.found.append(f"transaction {txid[:12]}: {name} is {str(says.get(name))[:80]}, not {str(fact)[:80]}")
            if says["own"] and txid in self.waiting and not self.own(txid):
                self.found.append(f"transaction {txid[:12]}: told as our own, though a stranger may take what it spends")
            ours = {point(one["outpoint"]): one["ours"] for one in says["inputs"]}
            if ours != {outpoint: bool(owner) for outpoint, owner in zip(tx.inputs, owners)}:
                self.found.append(f"transaction {txid[:12]}: its inputs are told as {ours}")

    def own(self, txid):
        return all(self.ours((parent, index)) and (parent in self.ledger.height_of or self.own(parent))
                   for parent, index in self.world.all[txid].inputs) and not self.world.all[txid].coinbase

    def parents_stand(self, txid):
        return all(parent in self.ledger.height_of or parent in self.waiting or parent in self.ghosts
                   for parent, _ in self.world.all[txid].inputs)

    def wrong(self, txid):
        """Why a transaction that no node has must not be valid, if it must not."""
        verdict, why = self.judge(txid)
        if verdict == "direct":
            return why
        if verdict == "deferred":
            since = self.oracle.hopeless.setdefault(txid, self.world.main.height)
            if self.world.main.height >= since + GRACE:
                return f"{why}, {self.world.main.height - since} blocks ago"
        else:
            self.oracle.hopeless.pop(txid, None)
        return None

    def judge(self, txid):
        if txid not in self.judged:
            self.judged[txid] = self.judge_anew(txid)
        return self.judged[txid]

    def judge_anew(self, txid):
        tx = self.world.all[txid]
        if tx.coinbase:
            return "direct", "is a coinbase of a block that is gone"
        for outpoint in tx.inputs:
            other = self.ledger.spender.get(outpoint) or self.spent_waiting.get(outpoint)
            if other not in (None, txid):
                place = "a block" if outpoint in self.ledger.spender else "the mempool"
                return "direct", f"({txid[:12]}) lost {told(outpoint)} to {other[:12]} in {place}"
        worst = ("ok", "")
        for parent, _ in tx.inputs:
            if parent in self.ledger.height_of or parent in self.waiting:
                continue
            verdict, why = self.judge(parent)
            if verdict == "ok":
                continue
            if verdict == "direct" and self.seen(parent):
                return "direct", why
            worst = ("deferred", f"({txid[:12]}) spends from {parent[:12]}, which {why}")
        return worst

    def seen(self, txid):
        """Whether the program knows the transaction itself, not only one that spends from it."""
        return any((txid, index) in self.rows for index in range(len(self.world.all[txid].outputs)))

    def remember(self):
        for txid in [*self.waiting, *self.ledger.height_of]:
            tx = self.world.all[txid]
            if not tx.coinbase and any(self.ours(outpoint) and outpoint in self.rows for outpoint in tx.inputs):
                self.oracle.known.add(txid)
