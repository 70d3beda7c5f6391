"""Followers killed, leases, prunes, addresses added late; and what is only a case."""

import time

from . import PLOTS, plot
from .money import bumped, take
from ..bitcoin import GENESIS_SCRIPT, STRANGER
from ..world import FINAL


# ---- the program -------------------------------------------------------------------------------------------------------

@plot("kill", "followers killed")
def kill(w):
    """A follower is killed while it has something to do."""
    for _ in range(w.random.randint(1, 5)):
        w.mine(w.mempool())
    running = [follower for follower in w.followers if follower.runs()]
    if running:
        time.sleep(w.random.uniform(0, 1.2))
        for follower in w.random.sample(running, w.random.randint(1, len(running))):
            follower.kill()
            w.counts["followers killed"] += 1
        yield "followers are killed"
        return
    for _ in range(3):
        if w.program.follow_and_kill(w.nodes, w.random.uniform(0.01, 0.4)):
            w.counts["followers killed"] += 1
    yield "a follower is killed at once"


@plot("lease", "leases", "spent coins refused to a lease")
def lease(w):
    """A lease is taken, seen, renewed, released; what is spent is refused."""
    w.rest()
    # The program leases a coinbase one block later than consensus lets it be spent, as Bitcoin Core's wallet does.
    coin = w.our_coin(mature_at=w.main.height)
    if not coin:
        return
    wallet = w.watched[w.all[coin[0]].outputs[coin[1]][1]].wallet
    lock = take(w, wallet, [coin])
    if lock is None:
        w.fail(f"a free coin of ours cannot be leased: {coin}")
    w.must_refuse_lease(coin, "a coin was leased twice")
    w.program.run("utxo", "lease", "renew", wallet, lock, "--for", "10m")
    yield "a coin is leased"
    w.program.run("utxo", "lease", "release", wallet, lock)
    w.mine([w.make([coin], [], 1_000)])
    spent = [outpoint for outpoint in w.ledger.spender
             if w.ledger.output(outpoint)[1] in w.watched and w.ledger.height_of[outpoint[0]] > w.pruned_below]
    w.rest()
    for outpoint in w.random.sample(sorted(spent), min(2, len(spent))):
        if outpoint in w.ledger.spender:
            w.must_refuse_lease(outpoint, "a coin was leased that a block has spent")
            w.counts["spent coins refused to a lease"] += 1
    yield "it is released"


@plot("prune", "prunes")
def prune(w):
    """What is final is deleted. From then on no reorganisation may go so deep: it is not done too often, nor too early."""
    deep = [name for name in ("deep-reorg", "spent-coinbase-orphaned", "parent-orphaned") if name not in w.settings.without]
    early = not w.settings.case and not all(w.counts[PLOTS[name].promises[0]] for name in deep)
    if early or w.main.height - w.pruned_below < FINAL + 60:
        return
    w.rest()
    done = 0
    for wallet in ("hot", "cold"):
        done += w.program.run("utxo", "prune", wallet, "--all", "--actor", "driver", "--reason", "random run")["pruned"]
    w.pruned_below = max(w.pruned_below, w.main.height - FINAL)
    w.counts["prunes"] += 1
    w.counts["transactions pruned"] += done
    yield f"{done} transactions are pruned"


def late_key(w):
    w.late_keys += 1
    return w.new_key(w.random.choice(["hot", "cold"]), w.random.randint(0, 1))


@plot("late-address", "addresses added late")
def late_address(w):
    """An address was paid, and some of it spent, before it was added; then the blocks are read again."""
    key = late_key(w)
    for spent in [True, False, True]:
        gift = w.make([w.stranger_coin()], [(w.random.randint(50_000, 900_000), key.script)], 1_000)
        w.mine([gift])
        if spent:
            w.mine([w.make([gift.outpoint(0)], [], 1_000)])
    yield "an address was paid that is not ours yet"
    w.rest()
    w.watch(key)
    w.follow_once("--rescan-from", str(first_payment(w, key)))
    w.counts["addresses added late"] += 1
    yield "it is ours, and the blocks were read again"


def paid_before(w):
    """An address that is not ours yet, with payments that are all spent some blocks later."""
    key = late_key(w)
    for _ in range(3):
        gift = w.make([w.stranger_coin()], [(w.random.randint(50_000, 900_000), key.script)], 1_000)
        w.mine([gift])
        for _ in range(w.random.randint(10, 20)):
            w.mine(deliver=False)
        w.mine([w.make([gift.outpoint(0)], [], 1_000)])
    return key


def first_payment(w, key):
    """In which block: a reorganisation may have moved it."""
    heights = [height for txid, height in w.ledger.height_of.items()
               if any(script == key.script for _, script in w.all[txid].outputs)]
    return min(heights, default=w.main.height)


def interrupted(w, key, probe):
    """The address is added, and reading the blocks again is killed between a payment and its spend. The program is told
    nothing of that: its followers go on by themselves."""
    w.rest()
    w.watch(key)
    if w.rescan_and_kill(key, first_payment(w, key), probe):
        w.counts["rescans interrupted"] += 1
    for follower in w.followers:
        if follower.runs():
            follower.kill()
            follower.start()


@plot("rescan-interrupted", "rescans interrupted")
def rescan_interrupted(w):
    """Blocks are read again for a new address, and that is killed half-way; later following finishes it."""
    key = paid_before(w)
    yield "an address was paid that is not ours yet"
    interrupted(w, key, False)
    yield "reading again was killed half-way; following goes on"


@plot("rescan-running", "rescans interrupted")
def rescan_running(w):
    """While blocks are read again, what was found and is spent by a later block is refused to a lease."""
    key = paid_before(w)
    yield "an address was paid that is not ours yet"
    interrupted(w, key, True)
    yield "nothing could be leased while the blocks were read"


@plot("late-waiting", "addresses added while their payments wait")
def late_waiting(w):
    """A deposit waits, and the spend of another, when their address is added; followers run meanwhile."""
    key = late_key(w)
    first = w.make([w.stranger_coin()], [(500_000, key.script)], 1_000)
    if not w.send(first):
        return
    second = w.make([w.stranger_coin()], [(400_000, key.script)], 1_000)
    spender = w.make([second.outpoint(0)], [], 1_000)
    if not (w.send(second) and w.send(spender)):
        return
    w.start_followers()
    yield "a deposit waits for an address that is not ours yet"
    if any(tx.txid in w.ledger.height_of for tx in (first, second)):
        # A block has come before the address: only reading it again can help.
        w.rest()
        w.watch(key)
        w.follow_once("--rescan-from", str(first_payment(w, key)))
    else:
        w.watch(key)
        w.counts["addresses added while their payments wait"] += 1
    yield "the address is added"


# ---- only as cases -----------------------------------------------------------------------------------------------------

@plot("genesis", once=True)
def genesis(w):
    """The output of block 0 pays us: no node has it among the unspent ones."""
    w.program.run("utxo", "address", "add", "hot", "--script", GENESIS_SCRIPT.hex())
    w.follow_once("--rescan-from", "0")
    yield "the address of block 0 is ours"


@plot("lease-immature", once=True)
def lease_immature(w):
    """A coinbase that is not mature is refused to a lease."""
    key = w.some_key()
    block = w.mine(to=key.script)
    yield "a coinbase pays us"
    w.must_refuse_lease(block.coinbase.outpoint(0), "an immature coinbase was leased")


@plot("lease-renew", once=True)
def lease_renew(w):
    """A lease is not renewed on an output that `lease take` refuses, because its maker was replaced."""
    gift = w.pays_us([w.stranger_coin()], 1)
    w.send(gift)
    yield "a deposit waits"
    wallet = w.watched[gift.outputs[0][1]].wallet
    lock = take(w, wallet, [gift.outpoint(0)])
    if lock is None:
        return
    w.send(bumped(w, gift, []))
    yield "its output is leased; its sender replaces it"
    w.must_refuse_lease(gift.outpoint(0), "an output was leased whose maker was replaced")
    if w.program.refused("utxo", "lease", "renew", wallet, lock, "--for", "10m") is None:
        w.fail("a lease was renewed on an output that `lease take` refuses")


@plot("start-before-nodes", once=True)
def start_before_nodes(w):
    """A follower that is started while its nodes are down waits for them."""
    w.stop_followers()
    for node in w.nodes:
        node.stop()
    w.start_followers()
    time.sleep(3)
    for follower in w.followers:
        if words := follower.ended():
            for node in w.nodes:
                node.start()
            w.fail(f"it does not wait for its nodes: {words}")
    for node in w.nodes:
        node.start()
    w.deliver()
    w.mine()
    yield "the nodes are there"


@plot("backup", once=True)
def backup(w):
    """A backup of the database is put back (SQLite: its file). What the wallets have missed is noticed and read."""
    if w.settings.engine != "sqlite":
        return
    w.follow_once()
    w.stop_followers()
    kept = {path: path.read_bytes() for path in w.program.folder.glob("bursar.db*")}
    coin = w.our_coin(100_000)
    spender = w.make([coin], [(50_000, STRANGER)], 1_000)
    w.send(spender)
    yield "after a backup was taken a coin is spent"
    w.stop_followers()
    for path in w.program.folder.glob("bursar.db*"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    w.must_refuse_lease(coin, "a coin of an old backup was leased that was spent since")
    yield "the backup is put back"
